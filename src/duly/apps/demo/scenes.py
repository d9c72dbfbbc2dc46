"""What happens in the demo: reminders, a file of products, a catalog and birthdays.

A scene is a generator: it does something, and yields the time at which it wants to go on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from itertools import count, cycle, islice

from duly.apps.birthdays import Birthdays
from duly.apps.catalog import Catalog
from duly.apps.demo.provider import Provider, products_csv
from duly.core.clock import Clock
from duly.core.errors import WrongState
from duly.facade.app import Duly
from duly.verbs import LOCAL

Scene = Iterator[datetime]

LENGTH = timedelta(seconds=30)  # of the reminders, until they are put again; and the least between two files
NEVER = datetime.max.replace(tzinfo=UTC)

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

CATALOG = 240  # products, ten in each slot
FEW, EVERY = 3, timedelta(seconds=10)


@contextmanager
def beside(run: Callable[[threading.Event], None], name: str) -> Iterator[None]:
    """Run this on a thread until the end of the block, where the event is set."""
    over = threading.Event()
    thread = threading.Thread(target=run, args=(over,), name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(5)


class Scenario:
    """Scenes that go on side by side."""

    def __init__(self, clock: Clock, *scenes: Scene) -> None:
        self._clock = clock
        self._due = dict.fromkeys(scenes, clock.now())

    def step(self) -> None:
        """Go on with the scenes that are due."""
        now = self._clock.now()
        for scene, due_at in self._due.items():
            if due_at <= now:
                self._due[scene] = next(scene, NEVER)


def reminders(app: Duly, provider: Provider) -> Scene:
    """A few reminders that are overdue, and some for the next half minute; then those again."""
    numbers = count(1)
    wanted = REMINDERS
    while True:
        now = app.clock.now()
        for name, message, after, refusals in wanted:
            number = f"+3859100{next(numbers):05d}"
            provider.expect(number, refusals)
            remind = app.task_named("remind").at(now + timedelta(seconds=after))
            remind.put(phone=number, name=name, message=message)
        wanted = tuple(each for each in REMINDERS if each[2] > 0)  # nothing is overdue while a worker runs
        yield now + LENGTH


def files(app: Duly) -> Scene:
    """A file of products, sent like an upload, and sent again when its job is finished."""
    while True:
        with app.internals.intake.receive() as writer:
            writer.write(products_csv())
        assert writer.kept is not None
        job = app.internals.intake.create(LOCAL, writer.kept, "products.csv", job_type="csv")
        yield app.clock.now() + LENGTH
        while not app.internals.verbs.jobs.get(LOCAL, job.id).is_over:
            yield app.clock.now()


def catalog(made: Catalog) -> Scene:
    """Products of a catalog: those of past hours are synced at first, and then a few every ten seconds."""
    made.publish_many({"user_id": "acme", "sku": f"AC-{1_000 + number}"} for number in range(CATALOG))
    products = made.products(most=CATALOG)
    all_of_them = cycle([product.id for product in products])
    hour = made.app.clock.now().astimezone(UTC).hour
    ids = [product.id for product in products if product.hour_bucket <= hour]
    while True:
        for schedule_id in ids:
            with suppress(WrongState):  # it is deactivated, or being synced already
                made.app.internals.verbs.schedules.run_now(LOCAL, schedule_id)
        yield made.app.clock.now() + EVERY
        ids = list(islice(all_of_them, FEW))


def birthdays(made: Birthdays, provider: Provider) -> Scene:
    """People with birthdays: some of them today, and two whose message is sent at once."""
    today = made.app.clock.now().astimezone(UTC).date()
    for person, first, last, days, zone in PEOPLE:
        made.add(person, first, last, f"{today + timedelta(days=days):%m-%d}", zone)
    made.add(*BORN_29_FEBRUARY)
    provider.expect(FAILS_ONCE, [503])
    found = [made.app.schedules.find(made.task.name, person).id for person in AT_ONCE]
    made.app.internals.verbs.schedules.run_now(LOCAL, *found)
    yield NEVER
