"""People for the demo: some have their birthday today, and two are greeted at once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from duly.apps.birthdays import Birthdays
from duly.apps.demo.provider import Provider
from duly.verbs import LOCAL

# Who, in how many days they have their birthday, and where they live.
GUESTS = (
    ("maja", "Maja", "Horvat", 0, "UTC"),
    ("oliver", "Oliver", "Smith", 0, "Europe/London"),
    ("carmen", "Carmen", "Silva", 0, "America/Sao_Paulo"),
    ("mika", "Mika", "Tanaka", 1, "Asia/Tokyo"),
    ("ada", "Ada", "King", 9, "America/New_York"),
    ("priya", "Priya", "Rao", 40, "Asia/Kolkata"),
    ("noah", "Noah", "Brown", 120, "Australia/Sydney"),
)
LEAPER = ("lena", "Lena", "Leap", "2000-02-29", "Europe/Zagreb")
AT_ONCE = ("maja", "oliver")
AWAY = "oliver"  # whose greeting does not get through at first


def minute_to_come() -> str:
    """When people are greeted: so soon that it can be waited for, in UTC."""
    return f"{datetime.now(UTC) + timedelta(minutes=2):%H:%M}"


class Party:
    def __init__(self, birthdays: Birthdays, provider: Provider) -> None:
        self._birthdays = birthdays
        self._provider = provider
        self._is_on = False

    def play(self) -> None:
        """Invite everybody, once."""
        if self._is_on:
            return
        self._is_on = True
        today = self._birthdays.app.clock.now().astimezone(UTC).date()
        for guest, first, last, days, zone in GUESTS:
            self._birthdays.add(guest, first, last, f"{today + timedelta(days=days):%m-%d}", zone)
        self._birthdays.add(*LEAPER)
        self._provider.expect(AWAY, [503])
        schedules = self._birthdays.app.schedules
        found = [schedules.find(self._birthdays.task.name, guest).id for guest in AT_ONCE]
        self._birthdays.app.verbs.schedules.run_now(LOCAL, *found)
