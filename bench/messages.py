"""The retry service: messages from the broker into the database, and due ones out of it. Part of `make bench`.

Each direction beside its floor, which is the same client code with no database behind it: consume and acknowledge;
publish and wait for confirms. The broker is a private RabbitMQ on disk with quorum queues; PostgreSQL and SQLite sync.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any
from uuid import uuid4

import pika

from bench.cluster import Server, cluster, drop_database, fresh_database
from bench.contenders import REPOSITORY
from bench.report import table
from bench.usage import cpu_seconds
from duly import Attempt, Duly
from duly.apps.messages import MessagesSettings
from duly.apps.messages.commands import PROMPT
from duly.apps.messages.service import WINDOW, MessageRetry, queues
from duly.bridge.consumer import Delivery
from duly.bridge.message import Message
from duly.bridge.properties import Properties
from duly.bridge.publisher import CONFIRMED, Outgoing, Publisher
from duly.bridge.retry_message_pb2 import RetryMessage
from duly.config import load
from duly.core.model import Verdict
from duly.store.migrate import migrate

sys.path.append(str(REPOSITORY / "tools"))
from private import temporary
from rabbitnode import Node

ORDERS = "orders"
PATIENCE = 600.0
IN = ("consume and acknowledge", "to PostgreSQL", "to SQLite")
OUT = ("publish and confirm", "from PostgreSQL", "from SQLite")


class Counted(MessageRetry):
    """The real service; tells when so many messages were kept or sent. If it `is_bare` it does not keep them."""

    def __init__(self, app: Duly, messages: int, is_bare: bool = False) -> None:
        super().__init__(app, app.section(MessagesSettings))
        app.internals.companions.append(self)
        self.is_done = threading.Event()
        self._left = messages
        self._is_bare = is_bare
        self._counting = threading.Lock()
        self._keep, self._send = self.intake.keep, self._dispatch.send
        vars(self.intake)["keep"], vars(self._dispatch)["send"] = self.keep, self.send

    def keep(self, deliveries: Sequence[Delivery]) -> None:
        if not self._is_bare:
            self._keep(deliveries)
        self._count(len(deliveries))

    def send(self, rows: Sequence[Message], attempts: Sequence[Attempt]) -> list[Verdict | Exception | None]:
        verdicts = self._send(rows, attempts)
        self._count(verdicts.count(None))
        return verdicts

    def expect(self, messages: int) -> None:
        self._left = messages
        self.is_done.clear()

    def wait(self) -> None:
        if not self.is_done.wait(PATIENCE):
            raise RuntimeError(f"{self._left} messages are left")

    def _count(self, messages: int) -> None:
        with self._counting:
            self._left -= messages
            if self._left <= 0:
                self.is_done.set()


class Stage:
    """The servers, and what the measures need of them."""

    def __init__(self, server: Server, node: Node, folder: Path, messages: int, payload: int) -> None:
        self.server, self.node, self.messages = server, node, messages
        self._folder, self._payload = folder, os.urandom(payload)

    @contextmanager
    def broker(self) -> Iterator[str]:
        """A virtual host of its own."""
        name = f"bench-{uuid4().hex[:8]}"
        yield self.node.add_vhost(name)
        self.node.delete_vhost(name)

    @contextmanager
    def app(self, kind: str, broker: str) -> Iterator[Duly]:
        """An app as `duly retry-service` has it, on an empty database."""
        path = self._folder / "messages.db"
        url = fresh_database(self.server, "messages") if kind == "PostgreSQL" else f"sqlite:///{path}"
        app = Duly(url, rabbitmq_url=broker, message_base_delay_ms=0, **PROMPT)
        try:
            migrate(app.internals.store)
            yield app
        finally:
            app.close()
            drop_database(self.server, "messages")
            for file in self._folder.glob("messages.db*"):
                file.unlink()

    def envelope(self) -> bytes:
        return RetryMessage(
            message_id=str(uuid4()), original_payload=self._payload, original_queue=ORDERS, error_reason="time-out"
        ).SerializeToString()

    def deliveries(self) -> list[Delivery]:
        properties = Properties().with_headers({"tenant": "acme", "n": 7}).but(correlation_id="c-7")
        return [Delivery(self.envelope(), properties, False) for _ in range(self.messages)]

    def retries(self) -> list[Outgoing]:
        """Messages as they leave the service."""
        told = {"x-retry-message-id": str(uuid4()), "x-retry-count": 1, "x-retry-max": 3, "x-retry-reason": "time-out",
                "x-retry-first-failure": "2026-01-01T00:00:00.000000+00:00"}  # fmt: skip
        properties = Properties().with_headers({"tenant": "acme", "n": 7, **told}).but(delivery_mode=b"\x02")
        return [Outgoing(mark, ORDERS, properties, self._payload) for mark in range(1, self.messages + 1)]

    def timed(self, act: Callable[[], None]) -> dict[str, float]:
        """Messages per second of what takes all of them in or out, and the processor time of everybody."""
        before = self._used()
        began = time.perf_counter()
        act()
        seconds = time.perf_counter() - began
        spent = {name: after - before[name] for name, after in self._used().items()}
        return {"rate": self.messages / seconds, **spent}

    def _used(self) -> dict[str, float]:
        # The node's first process is its epmd; the broker wrote down its own.
        broker = int((self.node.folder / "pid").read_text())
        return {
            "service_cpu": time.process_time(),
            "postgresql_cpu": cpu_seconds([self.server.postmaster]),
            "rabbitmq_cpu": cpu_seconds([broker]),
        }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.messages", description=__doc__)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--payload", type=int, default=500, help="bytes of each message")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--measures", help=f"comma-separated; all when left out: {', '.join((*IN, *OUT))}")
    parser.add_argument("--json", type=Path, help="write every figure of every run to this file")
    options = parser.parse_args()
    every: dict[str, Callable[[Stage], dict[str, float]]] = {
        IN[0]: lambda stage: take_in(stage, "SQLite", is_bare=True),
        IN[1]: lambda stage: take_in(stage, "PostgreSQL"),
        IN[2]: lambda stage: take_in(stage, "SQLite"),
        OUT[0]: publish_alone,
        OUT[1]: lambda stage: send_out(stage, "PostgreSQL"),
        OUT[2]: lambda stage: send_out(stage, "SQLite"),
    }
    chosen = [name for name in every if options.measures is None or name in options.measures.split(",")]
    found: dict[str, list[dict[str, float]]] = {name: [] for name in chosen}
    with cluster() as server, Node(temporary(on_disk=True)) as node, scratch() as folder:
        stage = Stage(server, node, folder, options.messages, options.payload)
        for run in range(1, options.runs + 1):
            for name in chosen:
                figures = every[name](stage)
                found[name].append(figures)
                told = "  ".join(f"{what} {value:,.2f}" for what, value in figures.items())
                print(f"run {run}/{options.runs}  {name:24}  {told}", flush=True)
                if options.json:
                    options.json.write_text(json.dumps(found, indent=1))
    for title, names in (("in: messages per second", IN), ("out: messages per second", OUT)):
        if rows := {name: [run["rate"] for run in found[name]] for name in names if name in found}:
            print("\n".join(["", title, *table(rows)]))
    print("\nCPU seconds, medians: the service, PostgreSQL, RabbitMQ")
    for name, runs in found.items():
        each = (median(run[f"{who}_cpu"] for run in runs) for who in ("service", "postgresql", "rabbitmq"))
        print(f"  {name:24}" + "".join(f"{value:9.2f}" for value in each))


def take_in(stage: Stage, kind: str, is_bare: bool = False) -> dict[str, float]:
    """Messages that wait in the queue; from the start of the consumer until the last is durable."""
    with stage.broker() as broker, stage.app(kind, broker) as app:
        own = queues(app.section(MessagesSettings))
        incoming, *_ = own
        declare(broker, own)
        with connected(broker) as publisher:
            deliveries = enumerate(stage.deliveries(), 1)
            publish(publisher, [Outgoing(mark, incoming, each.properties, each.body) for mark, each in deliveries])
        service = Counted(app, stage.messages, is_bare)

        def act() -> None:
            service.start()
            service.wait()

        figures = stage.timed(act)
        service.rest()
        service.stop()
        if not is_bare and (rows := unfinished(app)) != stage.messages:
            raise RuntimeError(f"{rows} rows for {stage.messages} messages")
        return figures


def publish_alone(stage: Stage) -> dict[str, float]:
    """The publisher, with as many windows at a time as the worker has threads."""
    with stage.broker() as broker, connected(broker) as publisher:
        declare(broker, {ORDERS: {"x-queue-type": "quorum"}})
        retries = stage.retries()
        return stage.timed(lambda: publish(publisher, retries))


def send_out(stage: Stage, kind: str) -> dict[str, float]:
    """Messages that are due; from the start of the worker until the last is confirmed and its row done."""
    with stage.broker() as broker, stage.app(kind, broker) as app:
        declare(broker, {ORDERS: {"x-queue-type": "quorum"}})
        service = Counted(app, stage.messages)
        deliveries = stage.deliveries()
        for at in range(0, len(deliveries), 500):
            service.keep(deliveries[at : at + 500])
        if kind == "PostgreSQL":  # as the server itself does within a minute
            with app.internals.store.transaction() as connection:
                connection.execute("analyze duly_item")
        time.sleep(1.1)  # a delay of nothing has a jitter of a second
        service.expect(stage.messages)
        worker = app.worker()

        def act() -> None:
            worker.start()
            service.wait()
            while unfinished(app):  # all are confirmed; the last are being written
                time.sleep(0.005)

        try:
            figures = stage.timed(act)
        finally:
            worker.stop()
            worker.drain()
        figures["twice"] = declare(broker, {ORDERS: {"x-queue-type": "quorum"}}) - stage.messages
        return figures


def publish(publisher: Publisher, messages: Sequence[Outgoing]) -> None:
    windows = [messages[at : at + WINDOW] for at in range(0, len(messages), WINDOW)]
    with ThreadPoolExecutor(load({}).concurrency) as threads:
        for receipts in threads.map(publisher.publish, windows):
            if any(receipt is not CONFIRMED for receipt in receipts):
                raise RuntimeError(f"not confirmed: {receipts[0]}")


def unfinished(app: Duly) -> int:
    return sum(each.items for each in app.read.depths() if each.state in ("waiting", "running"))


def declare(broker: str, wanted: Mapping[str, dict[str, Any]]) -> int:
    """Make these queues; how many messages are in them if they exist."""
    connection = pika.BlockingConnection(pika.URLParameters(broker))
    channel = connection.channel()
    made = [channel.queue_declare(name, durable=True, arguments=given) for name, given in wanted.items()]
    connection.close()
    return sum(answer.method.message_count for answer in made)


@contextmanager
def connected(broker: str) -> Iterator[Publisher]:
    publisher = Publisher(broker, "bench")
    publisher.start()
    try:
        publisher.publish([Outgoing(0, "nowhere", Properties(), b"")])  # the answer says that the connection is there
        yield publisher
    finally:
        publisher.stop()


@contextmanager
def scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="duly-bench-", dir="/var/tmp") as folder:
        yield Path(folder)


if __name__ == "__main__":
    main()
