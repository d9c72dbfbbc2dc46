"""People with birthdays: some of them today, and two whose message is sent at once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from duly.apps.birthdays import Birthdays
from duly.apps.demo.provider import Provider
from duly.verbs import LOCAL

# Id, first and last name, days until the birthday, and time zone.
PEOPLE = (
    ("maja", "Maja", "Horvat", 0, "UTC"),
    ("oliver", "Oliver", "Smith", 0, "Europe/London"),
    ("carmen", "Carmen", "Silva", 0, "America/Sao_Paulo"),
    ("mika", "Mika", "Tanaka", 1, "Asia/Tokyo"),
    ("ada", "Ada", "King", 9, "America/New_York"),
    ("priya", "Priya", "Rao", 40, "Asia/Kolkata"),
    ("noah", "Noah", "Brown", 120, "Australia/Sydney"),
)
BORN_29_FEBRUARY = ("lena", "Lena", "Leap", "2000-02-29", "Europe/Zagreb")
AT_ONCE = ("maja", "oliver")
FAILS_ONCE = "oliver"  # the first message to this person fails


def soon() -> str:
    """The time of day of the messages: in two minutes, in UTC."""
    return f"{datetime.now(UTC) + timedelta(minutes=2):%H:%M}"


class BirthdayDemo:
    def __init__(self, birthdays: Birthdays, provider: Provider) -> None:
        self._birthdays = birthdays
        self._provider = provider
        self._is_done = False

    def step(self) -> None:
        """Add all people, once."""
        if self._is_done:
            return
        self._is_done = True
        today = self._birthdays.app.clock.now().astimezone(UTC).date()
        for person, first, last, days, zone in PEOPLE:
            self._birthdays.add(person, first, last, f"{today + timedelta(days=days):%m-%d}", zone)
        self._birthdays.add(*BORN_29_FEBRUARY)
        self._provider.expect(FAILS_ONCE, [503])
        schedules = self._birthdays.app.schedules
        found = [schedules.find(self._birthdays.task.name, person).id for person in AT_ONCE]
        self._birthdays.app.verbs.schedules.run_now(LOCAL, *found)
