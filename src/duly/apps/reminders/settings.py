"""What the reminders app has to know, and what `duly doctor` says about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from duly.plugin import Finding, Section, setting

QUEUE = "reminders"


@dataclass(frozen=True, kw_only=True)
class Settings(Section):
    """DULY_VAPI_…, and the seed's names."""

    PREFIX: ClassVar[str] = "vapi_"

    base_url: str = setting("https://api.vapi.ai", "Where the reminders app places its calls.", "VAPI_BASE_URL")
    api_key: str = setting("", "The reminders app's key for it.", "VAPI_API_KEY", secret=True)
    assistant_id: str = setting("", "The assistant that speaks.", "VAPI_ASSISTANT_ID")
    phone_number_id: str = setting("", "The number that calls.", "VAPI_PHONE_NUMBER_ID")
    timeout_seconds: float = setting(30.0, "How long a call request may take.", least=0.01)


def checks(settings: Settings, waiting: Mapping[str, int]) -> Iterator[Finding]:
    """Calls that nobody will place, where reminders wait."""
    missing = [name for name in ("api_key", "assistant_id", "phone_number_id") if not getattr(settings, name)]
    if missing and waiting.get(QUEUE):
        names = ", ".join(f"VAPI_{name.upper()}" for name in missing)
        text = f"{waiting[QUEUE]} wait, and the provider will want {names}"
        yield Finding("warn", "reminders", text, "set what it gave you, where the worker runs")
