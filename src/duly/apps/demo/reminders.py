"""Reminders: a few that are overdue, and some for the next half minute; then the same again."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import count

from duly.apps.demo.provider import Provider
from duly.facade.app import Duly

LENGTH = timedelta(seconds=30)

# Name, message, due time (seconds from now), and the statuses that the provider answers before it accepts the call.
REMINDERS: tuple[tuple[str, str, float, list[int]], ...] = (
    ("Ana", "Take the blue pill", -7_500, []),
    ("Boris", "Feed the cat", -3_700, []),
    ("Clara", "Call the bank back", -90, [503]),
    ("Dora", "Bread is in the oven", 2, []),
    ("Emil", "Stand-up in five minutes", 3, [503]),
    ("Franka", "This number does not exist", 4, [400]),
    ("Goran", "Water the tomatoes", 6, []),
    ("Hana", "Train to Zagreb leaves", 8, [429]),
    ("Ivan", "Dentist at nine", 10, []),
    ("Jana", "Nobody ever answers here", 11, [503, 503, 503]),
    ("Karlo", "Pick up the parcel", 13, []),
    ("Lucija", "Say happy birthday to Maja", 16, [503, 503]),
    ("Marko", "Take the red pill", 19, []),
    ("Nina", "Rent is due", 22, []),
    ("Oto", "Close the window", 25, [503]),
    ("Petra", "Good night", 28, []),
)


class ReminderDemo:
    """Puts all reminders, and puts them again when the last of them was due."""

    def __init__(self, app: Duly, provider: Provider) -> None:
        self._app = app
        self._provider = provider
        self._numbers = count(1)
        self._again_at: datetime | None = None

    def step(self) -> None:
        now = self._app.clock.now()
        if self._again_at is not None and now < self._again_at:
            return
        is_first = self._again_at is None
        self._again_at = now + LENGTH
        for name, message, after, refusals in REMINDERS:
            if is_first or after > 0:  # nothing is overdue while a worker runs
                number = f"+3859100{next(self._numbers):05d}"
                self._provider.expect(number, refusals)
                remind = self._app.task_named("remind").at(now + timedelta(seconds=after))
                remind.put(phone=number, name=name, message=message)
