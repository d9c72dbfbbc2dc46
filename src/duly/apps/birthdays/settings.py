"""What the birthdays app has to know, and what `duly doctor` says about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from duly.plugin import Finding, Section, setting

QUEUE = "birthdays"


@dataclass(frozen=True, kw_only=True)
class Settings(Section):
    """DULY_BIRTHDAYS_…, and the seed's names."""

    PREFIX: ClassVar[str] = "birthdays_"

    webhook_url: str = setting("", "Where the birthdays app sends its messages.", "WEBHOOK_URL")
    timeout_seconds: float = setting(30.0, "How long the webhook may take.", least=0.01)
    at: str = setting("09:00", "When, by the clock of the person's zone.")


def checks(settings: Settings, waiting: Mapping[str, int]) -> Iterator[Finding]:
    """Greetings that are due and go nowhere."""
    if not settings.webhook_url and waiting.get(QUEUE):
        text = f"{waiting[QUEUE]} greetings wait, and no webhook is set"
        yield Finding("bad", "birthdays", text, "set WEBHOOK_URL where the worker runs")
