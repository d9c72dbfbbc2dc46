"""Real retry services in processes of their own, a sender at a steady rate, and a consumer that counts what comes."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pika

from duly import Duly
from tests.bridge.support import INCOMING, patiently, retry_message

ROOT = Path(__file__).resolve().parents[2]


class Services:
    """`duly retry-service`, as often as wanted, on one database and one broker."""

    def __init__(self, database_url: str, rabbitmq_url: str, folder: Path, **environment: str) -> None:
        self.folder = folder
        self.running: list[subprocess.Popen[bytes]] = []
        self._environment = {
            **os.environ, "DATABASE_URL": database_url, "RABBITMQ_URL": rabbitmq_url, "HTTP_PORT": "0",
            "DULY_LOG_LEVEL": "WARNING", "PYTHONPATH": str(ROOT), **environment,
        }  # fmt: skip
        self._started = 0

    def start(self, count: int = 1) -> None:
        for _ in range(count):
            self._started += 1
            with (self.folder / f"service-{self._started}.log").open("wb") as log:
                self.running.append(
                    subprocess.Popen(
                        [sys.executable, "-m", "duly.cli", "retry-service"],
                        env=self._environment, stdout=log, stderr=log, cwd=ROOT,
                    )
                )  # fmt: skip

    def kill_one(self, choose: random.Random) -> None:
        victim = choose.choice(self.running)
        victim.kill()
        victim.wait()
        self.running.remove(victim)

    def stop(self) -> list[int]:
        for one in self.running:
            one.send_signal(signal.SIGTERM)
        codes = [one.wait(60) for one in self.running]
        self.running.clear()
        return codes

    def logs(self) -> str:
        return "\n".join(path.read_text(errors="replace") for path in sorted(self.folder.glob("service-*.log")))


@contextmanager
def services(database_url: str, rabbitmq_url: str, folder: Path, **environment: str) -> Iterator[Services]:
    some = Services(database_url, rabbitmq_url, folder, **environment)
    try:
        yield some
    finally:
        for one in some.running:
            one.kill()
            one.wait()


class Client:
    """A thread with a connection of its own, made again when it breaks."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join(60)
        assert not self._thread.is_alive(), f"{type(self).__name__} does not stop"

    def _run(self) -> None:
        while not self._over.is_set():
            with suppress(pika.exceptions.AMQPError, OSError):
                connection = pika.BlockingConnection(pika.URLParameters(self._url))
                try:
                    self.work(connection)
                finally:
                    with suppress(pika.exceptions.AMQPError, OSError):
                        connection.close()
            self._over.wait(0.1)

    def work(self, connection: Any) -> None:
        raise NotImplementedError


class Sender(Client):
    """Publishes retry messages at so many a second, each until it is confirmed."""

    def __init__(self, url: str, ids: list[str], rate: Callable[[float], float], make: Callable[[str], bytes]) -> None:
        super().__init__(url)
        self.confirmed: list[str] = []
        self.sent: Counter[str] = Counter()  # how often: once more for each time that no answer came
        self._left = list(reversed(ids))
        self._rate = rate
        self._make = make
        self._began: float | None = None

    @property
    def is_done(self) -> bool:
        return not self._left

    def work(self, connection: Any) -> None:
        channel = connection.channel()
        channel.confirm_delivery()
        self._began = self._began or time.monotonic()
        due = time.monotonic()
        while self._left and not self._over.is_set():
            due += 1 / self._rate(time.monotonic() - self._began)
            connection.process_data_events(max(0.0, due - time.monotonic()))
            self.sent[self._left[-1]] += 1
            with suppress(pika.exceptions.NackError):
                channel.basic_publish("", INCOMING, self._make(self._left[-1]), mandatory=True)
                self.confirmed.append(self._left.pop())
        self._over.set()


class Counted(Client):
    """Consumes a queue: how often each (message, retry) came, and when it first did."""

    def __init__(self, url: str, queue: str = "orders") -> None:
        super().__init__(url)
        self.came: Counter[tuple[str, int]] = Counter()
        self.items: dict[tuple[str, int], set[int]] = {}
        self.at: dict[str, float] = {}
        self._queue = queue
        self._redelivered: Counter[tuple[str, int]] = Counter()

    def work(self, connection: Any) -> None:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=500)
        for method, properties, _ in channel.consume(self._queue, inactivity_timeout=0.2):
            if self._over.is_set():
                return
            if method is None:
                continue
            now = time.time()
            told = properties.headers
            which = (told["x-retry-message-id"], told["x-retry-count"])
            # What comes to us a second time because our own connection broke was not published twice.
            if not method.redelivered or which not in self.came:
                self.came[which] += 1
            self.items.setdefault(which, set()).add(told["x-duly-item"])
            self.at.setdefault(which[0], now)
            channel.basic_ack(method.delivery_tag)


def declare_orders(url: str) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(url))
    connection.channel().queue_declare("orders", durable=True, arguments={"x-queue-type": "quorum"})
    connection.close()


def fresh_ids(count: int) -> list[str]:
    return [str(uuid4()) for _ in range(count)]


def drifts(database_url: str, at: dict[str, float]) -> list[float]:
    """Seconds from the scheduled time of each message to when a consumer had it, the smallest first."""
    app = Duly(database_url)
    try:
        planned = {row.args["message_id"]: row.planned_at.timestamp() for row in app.read.pages()}
    finally:
        app.close()
    return sorted(at[message_id] - planned[message_id] for message_id in at)


def drift_under_load(
    database_url: str, url: str, folder: Path, *, seconds: float, burst: float, kill: bool
) -> list[float]:
    """50 messages a second, with bursts of 200 a second; one of two services is killed in the middle, if wanted."""
    declare_orders(url)
    count = int(50 * (seconds - burst) + 200 * burst)
    middle = (seconds - burst) / 2
    ids = fresh_ids(count)
    consumer = Counted(url)
    sender = Sender(
        url, ids, lambda passed: 200 if middle <= passed < middle + burst else 50,
        lambda message_id: retry_message(message_id=message_id),
    )  # fmt: skip
    with services(database_url, url, folder) as some:
        some.start(2)
        consumer.start()
        probe = Client(url)
        patiently(lambda: _is_consumed(probe), 60, "a service")
        sender.start()
        if kill:
            patiently(lambda: len(sender.confirmed) > count // 2, seconds + 60, "half of the messages")
            some.kill_one(random.Random(1))
        patiently(lambda: len(consumer.at) == count, seconds + 120, f"all of {count} ({some.logs()[-2000:]})")
        sender.stop()
        consumer.stop()
        some.stop()
    assert sum(consumer.came.values()) - count <= (100 if kill else 0), "published twice"
    return drifts(database_url, consumer.at)


def _is_consumed(probe: Client) -> bool:
    """Whether both services consume the queue."""
    connection = pika.BlockingConnection(pika.URLParameters(probe._url))
    try:
        return bool(connection.channel().queue_declare(INCOMING, passive=True).method.consumer_count >= 2)
    except pika.exceptions.ChannelClosedByBroker:
        return False
    finally:
        connection.close()


def told(values: list[float]) -> str:
    """A distribution in a line."""
    at = {name: values[min(int(len(values) * part), len(values) - 1)] for name, part in (("p50", 0.5), ("p99", 0.99))}
    return f"{len(values)} messages; drift p50 {at['p50']:.3f} s, p99 {at['p99']:.3f} s, most {values[-1]:.3f} s"
