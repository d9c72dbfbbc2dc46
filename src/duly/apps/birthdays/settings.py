"""The settings of the birthdays app, and what `duly doctor` checks of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from duly.plugin import Finding, Section, setting

QUEUE = "birthdays"


@dataclass(frozen=True, kw_only=True)
class Settings(Section):
    """The settings of the birthdays app: DULY_BIRTHDAYS_… in the environment, or the aliases."""

    PREFIX: ClassVar[str] = "birthdays_"

    webhook_url: str = setting("", "Where the birthdays app sends its messages.", "WEBHOOK_URL", is_url=True)
    timeout_seconds: float = setting(30.0, "How many seconds the webhook has to answer.", least=0.01)
    at: str = setting("09:00", "The time of day at which people are greeted, in their own zone.")


def checks(settings: Settings, waiting: Mapping[str, int]) -> Iterator[Finding]:
    """Find greetings that are due although there is no webhook to send them to."""
    if not settings.webhook_url and waiting.get(QUEUE):
        text = f"{waiting[QUEUE]} greetings wait, and no webhook is set"
        yield Finding("bad", "birthdays", text, "set WEBHOOK_URL where the worker runs")
