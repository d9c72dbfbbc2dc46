"""The settings of the reminders app, and what `duly doctor` checks of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from duly.plugin import Finding, Section, setting

QUEUE = "reminders"


@dataclass(frozen=True, kw_only=True)
class RemindersSettings(Section):
    """The settings of the reminders app: DULY_VAPI_… in the environment, or the aliases."""

    PREFIX: ClassVar[str] = "vapi_"

    base_url: str = setting(
        "https://api.vapi.ai", "The URL of the provider of phone calls.", "VAPI_BASE_URL", is_url=True
    )
    api_key: str = setting("", "The key for the provider.", "VAPI_API_KEY", secret=True)
    assistant_id: str = setting("", "The provider's id of the assistant.", "VAPI_ASSISTANT_ID")
    phone_number_id: str = setting("", "The provider's id of the phone number.", "VAPI_PHONE_NUMBER_ID")
    timeout_seconds: float = setting(30.0, "How many seconds the provider has to answer.", least=0.01)


def checks(settings: RemindersSettings, waiting: Mapping[str, int]) -> Iterator[Finding]:
    """Find reminders that wait although settings for the provider are missing."""
    missing = [name for name in ("api_key", "assistant_id", "phone_number_id") if not getattr(settings, name)]
    if missing and waiting.get(QUEUE):
        names = ", ".join(f"VAPI_{name.upper()}" for name in missing)
        text = f"{waiting[QUEUE]} wait, and the provider needs {names}"
        yield Finding("warn", "reminders", text, "set the ids from the provider where the worker runs")
