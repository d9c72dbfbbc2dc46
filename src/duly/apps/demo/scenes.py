"""What happens in the demo: reminders, a file of products, a catalog, birthdays, and orders that fail sometimes.

A scene is a generator: it does something, and yields the time at which it wants to go on. Orders are messages, and have
a consumer on a thread of its own, if a broker can be reached.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from itertools import count, cycle, islice
from typing import Any
from uuid import uuid4

from duly.apps.birthdays import Birthdays
from duly.apps.catalog import Catalog
from duly.apps.demo.provider import Provider, products_csv
from duly.apps.messages import MessagesSettings
from duly.apps.messages.settings import broker_trouble
from duly.config import section
from duly.core.clock import Clock
from duly.core.errors import WrongState
from duly.facade.app import Duly
from duly.verbs import LOCAL

log = logging.getLogger("duly.demo")

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

NEW_EVERY = 3.0  # seconds between two orders
# How often each order fails before it succeeds; the last one always fails.
ORDERS = (("Tea for two", 1), ("A red bicycle", 0), ("Socks, size 43", 2), ("A book about queues", 99))
# Names of queues that are not used elsewhere.
QUEUE, RETRY, REVIEW = (f"duly-demo-{os.getpid()}.{name}" for name in ("orders", "retry", "review"))


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


def reachable_broker() -> str | None:
    """The URL of the broker in the settings; None if it cannot be reached, or its client is not installed."""
    url = section(MessagesSettings).rabbitmq_url
    return url if broker_trouble(url) is None else None


def orders(url: str, over: threading.Event) -> None:
    """Consume orders, and send those that fail to the retry service."""
    import pika

    while not over.is_set():
        with suppress(pika.exceptions.AMQPError, OSError):
            _work(pika.BlockingConnection(pika.URLParameters(url)), over)
        over.wait(1)


def _work(connection: Any, over: threading.Event) -> None:
    channel = connection.channel()
    channel.queue_declare(QUEUE, exclusive=True)
    number = 0
    for method, properties, body in channel.consume(QUEUE, auto_ack=True, inactivity_timeout=NEW_EVERY):
        if over.is_set():
            break
        if method is None:
            channel.basic_publish("", QUEUE, ORDERS[number % len(ORDERS)][0].encode())
            number += 1
        else:
            _handle(channel, body, properties.headers or {})
    channel.cancel()
    for name in (RETRY, REVIEW):
        channel.queue_delete(name)
    connection.close()


def _handle(channel: Any, body: bytes, headers: dict[str, Any]) -> None:
    from duly.bridge.retry_message_pb2 import RetryMessage

    count = headers.get("x-retry-count", 0)
    if count >= dict(ORDERS).get(body.decode(), 0):
        log.info("order handled: %s", body)
        return
    failed = RetryMessage(
        message_id=headers.get("x-retry-message-id") or str(uuid4()),
        original_payload=body,
        original_queue=QUEUE,
        error_reason="out of stock",
        retry_count=count,
    )
    channel.basic_publish("", RETRY, failed.SerializeToString())
