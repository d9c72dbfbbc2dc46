"""What brokers do on a bad day: restarts, crashes, dropped connections, alarms. Nothing is lost, nothing hangs."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest

from duly.apps.messages.service import MessageRetry
from duly.bridge import publisher
from duly.bridge.link import Link
from duly.bridge.properties import Properties, short
from duly.bridge.publisher import Outgoing, Publisher
from duly.core.errors import ConfigError
from rabbitnode import Node
from tests.bridge.support import REVIEW, broker_at, patiently, retry_message, service_at
from tests.rabbit import ON_OWN_NODE

pytestmark = ON_OWN_NODE

IDS = [str(uuid4()) for _ in range(200)]


@pytest.fixture
def url(own_node: Node) -> Iterator[str]:
    name = f"broken-{uuid4().hex[:8]}"
    yield own_node.add_vhost(name)
    own_node.delete_vhost(name)


@pytest.fixture
def service(sqlite_url: str, url: str) -> Iterator[MessageRetry]:
    with broker_at(url) as broker:
        broker.declare("orders", arguments={"x-queue-type": "quorum"})
    with service_at(sqlite_url, url, message_base_delay_ms=1_000) as one:
        yield one


def send_all(url: str) -> None:
    with broker_at(url) as broker:
        for message_id in IDS:
            broker.send(retry_message(message_id=message_id))


def came(url: str) -> Counter[str]:
    """How often each has come, once all have."""
    seen: Counter[str] = Counter()
    with broker_at(url) as broker:

        def take() -> bool:
            while got := broker.look("orders"):
                seen[got.headers["x-retry-message-id"]] += 1
            return set(seen) == set(IDS)

        patiently(take, 60, "every message")
    return seen


def done(service: MessageRetry) -> bool:
    return [row.state for row in service.app.read.pages()] == ["done"] * len(IDS)


def test_a_broker_that_crashes_gets_what_is_due_when_it_is_back(
    own_node: Node, url: str, service: MessageRetry
) -> None:
    send_all(url)
    own_node.kill()
    patiently(lambda: "no connection to the broker" in (service.ailing() or ""))
    own_node.start()
    came(url)
    patiently(lambda: service.ailing() is None)


def test_closed_connections_are_made_again(own_node: Node, url: str, service: MessageRetry) -> None:
    sender = threading.Thread(target=send_all, args=(url,))
    patiently(lambda: service.ailing() is None)
    vhost = url.rpartition("/")[2]
    for _ in range(3):
        patiently(lambda: own_node.close_connections(vhost))
        patiently(lambda: service.ailing() is None)
    sender.start()
    sender.join(60)
    patiently(lambda: own_node.close_connections(vhost))
    came(url)


def test_nothing_is_published_while_the_broker_is_blocked_and_all_of_it_once_afterwards(
    own_node: Node, url: str, service: MessageRetry
) -> None:
    send_all(url)
    own_node.alarm(True)
    try:
        patiently(lambda: "accepts no messages" in (service.ailing() or ""))
    finally:
        own_node.alarm(False)
    assert came(url) == Counter(IDS), "what lay in the socket was sent once more"
    patiently(lambda: done(service))


@pytest.fixture
def out(url: str) -> Iterator[Publisher]:
    with broker_at(url) as broker:
        broker.declare("orders")
    one = Publisher(url, "test publisher")
    one.start()
    yield one
    one.stop()


def outgoing(mark: int, queue: str = "orders", **properties: bytes) -> Outgoing:
    return Outgoing(mark, queue, Properties(properties), b"%d" % mark)


def test_the_message_that_the_broker_closes_a_channel_over_fails_alone(url: str, out: Publisher) -> None:
    odd = outgoing(5, expiration=short("soon"))
    window = [*map(outgoing, range(5)), odd, *map(outgoing, range(6, 10))]
    receipts = out.publish(window)
    assert [receipt.what for receipt in receipts] == ["confirmed"] * 5 + ["refused"] + ["confirmed"] * 4
    assert "expiration" in receipts[5].why
    with broker_at(url) as broker:
        bodies = {broker.get().body for _ in range(broker.depth("orders"))}
    assert bodies == {b"%d" % n for n in range(10) if n != 5}


def test_returned_messages_are_told_apart_though_their_ids_are_the_same(out: Publisher) -> None:
    window = [
        outgoing(n, "orders" if n % 3 else "nowhere", message_id=short("same")) for n in range(1, 200)
    ]  # fmt: skip
    receipts = out.publish(window)
    assert [receipt.what == "unroutable" for receipt in receipts] == [n % 3 == 0 for n in range(1, 200)]


def test_a_message_that_is_still_unconfirmed_is_not_sent_again(
    own_node: Node, url: str, out: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert out.publish([outgoing(1)])[0].what == "confirmed"
    monkeypatch.setattr(publisher, "CONFIRMED_WITHIN", 0.3)
    monkeypatch.setattr(Publisher, "_is_held", lambda _: False)
    own_node.alarm(True)
    try:
        first = out.publish([outgoing(2)])
        monkeypatch.setattr(Link, "is_blocked", False)  # as if it had not said so
        monkeypatch.setattr(Link, "trouble", lambda _: None)
        again = out.publish([outgoing(2)])
        other = out.publish([outgoing(2, "elsewhere")])
    finally:
        own_node.alarm(False)
    monkeypatch.undo()
    assert (first[0].what, again[0].what) == ("unknown", "unknown")
    assert (other[0].what, other[0].why) == ("not_sent", "an earlier form of it is still on its way")
    assert out.publish([outgoing(2)])[0].what == "confirmed"
    with broker_at(url) as broker:
        bodies = Counter(broker.get().body for _ in range(broker.depth("orders")))
    assert bodies[b"2"] <= 2, "once for the three that were unconfirmed, once if it was confirmed by then"


def test_the_guilty_message_is_found_though_many_threads_publish(url: str, out: Publisher) -> None:
    windows = [[outgoing(100 * thread + n) for n in range(20)] for thread in range(4)]
    windows[2][7] = outgoing(207, expiration=short("soon"))
    with ThreadPoolExecutor(4) as pool:
        told = [[receipt.what for receipt in receipts] for receipts in pool.map(out.publish, windows)]
    assert told[2].pop(7) == "refused"
    assert {what for window in told for what in window} <= {"confirmed", "not_sent"}, "an innocent was blamed"


def test_a_publisher_without_a_broker_says_so_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publisher, "READY_WITHIN", 0.2)
    alone = Publisher("amqp://127.0.0.1:1", "test publisher")
    alone.start()
    (receipt,) = alone.publish([outgoing(1)])
    assert receipt.what == "not_sent"
    assert "no connection to the broker at 127.0.0.1:1" in receipt.why
    alone.stop()
    assert alone.publish([outgoing(1)])[0].why == "the publisher stopped"


def test_a_broker_that_refuses_the_password_is_named_without_it(own_node: Node) -> None:
    link = Link(f"amqp://guest:hunter2@127.0.0.1:{own_node.port}", "test")
    link.start()
    trouble = patiently(lambda: (told := link.trouble()) and "not connected yet" not in told and told)
    assert f"127.0.0.1:{own_node.port}" in trouble
    assert "hunter2" not in trouble
    link.stop()


@pytest.mark.parametrize("url", ["", "http://x", "amqp://host:port", "amqp://host/?heartbeat=often"])
def test_an_address_that_is_none_is_a_mistake_of_the_settings(url: str) -> None:
    with pytest.raises(ConfigError, match="rabbitmq_url"):
        Link(url, "test")


def test_a_review_queue_that_is_gone_leaves_the_message_in_review_here(service: MessageRetry, url: str) -> None:
    with broker_at(url) as broker:
        patiently(lambda: broker.exists(REVIEW))
        broker.channel.queue_delete(REVIEW)
        broker.send(b"none of ours")
    patiently(lambda: [row.state for row in service.app.read.pages()] == ["failed"], 60)
