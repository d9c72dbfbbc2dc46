"""The settings of the birthdays app, and what `duly doctor` checks of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from duly.core.policy.recur import Yearly
from duly.plugin import Finding, Section, setting

QUEUE = "birthdays"


def one_time(at: str) -> None:
    """Raise a ValueError if this is not a single time of day."""
    if "," in Yearly("01-01", at).at:
        raise ValueError(f"must be a single time of day, got {at!r:.40}")


@dataclass(frozen=True, kw_only=True)
class BirthdaysSettings(Section):
    """The settings of the birthdays app: DULY_BIRTHDAYS_… in the environment, or the aliases."""

    PREFIX: ClassVar[str] = "birthdays_"

    webhook_url: str = setting("", "The URL that messages are posted to.", "WEBHOOK_URL", is_url=True)
    timeout_seconds: float = setting(30.0, "How many seconds the webhook has to answer.", least=0.01)
    at: str = setting("09:00", "The time of day of the message, in the time zone of each person.", check=one_time)
    tries: int = setting(
        50,
        "How many attempts a message has. They are 1, 2, 4 … 60 minutes apart: 50 attempts take about two days.",
        least=1,
    )
    max_lateness_days: float = setting(
        7.0, "After how many days a message is not sent any more. A change counts for people added after it.",
        least=0.01,
    )  # fmt: skip


def checks(settings: BirthdaysSettings, waiting: Mapping[str, int]) -> Iterator[Finding]:
    """Find greetings that are due although there is no webhook."""
    if not settings.webhook_url and waiting.get(QUEUE):
        text = f"{waiting[QUEUE]} greetings wait, and no webhook is set"
        yield Finding("bad", "birthdays", text, "set WEBHOOK_URL where the worker runs")
