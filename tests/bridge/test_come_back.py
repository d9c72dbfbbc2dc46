"""Messages that come back: a consumer that does not count loses nothing, and what a person has in hand stays there."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from prometheus_client import generate_latest

from duly.apps.messages.service import MessageRetry
from duly.bridge.publisher import Outgoing, Receipt
from duly.core.shown import Row
from tests.bridge.fleet import Client, fresh_ids
from tests.bridge.support import INCOMING, REVIEW, Broker, broker_at, patiently, retry_message, service_at

ID = "6f1d2c3b-0000-4000-8000-00000000000a"
OTHER = "6f1d2c3b-0000-4000-8000-00000000000b"


@pytest.fixture
def broker(vhost_url: str) -> Iterator[Broker]:
    with broker_at(vhost_url) as one:
        one.declare("orders")
        yield one


@pytest.fixture
def service(database_url: str, vhost_url: str, broker: Broker) -> Iterator[MessageRetry]:
    with service_at(database_url, vhost_url) as one:
        yield one


def rows(service: MessageRetry) -> list[Row]:
    return list(service.app.read.pages())


def row_in(service: MessageRetry, state: str) -> Row:
    """The row of the message, once it is in this state."""
    return patiently(
        lambda: next((row for row in rows(service) if row.key and row.state == state), None), 30, f"{state} row"
    )


def repeated(service: MessageRetry) -> int:
    (line,) = (
        line for line in generate_latest(service.app.internals.telemetry.registry).decode().splitlines()
        if line.startswith("retry_repeated_messages_total ")
    )  # fmt: skip
    return int(float(line.rpartition(" ")[2]))


@pytest.mark.parametrize("does_copy_headers", [False, True], ids=["bare", "with headers"])
def test_a_consumer_that_never_counts_gets_its_message_as_often_as_allowed_and_then_a_person_does(
    service: MessageRetry, broker: Broker, does_copy_headers: bool
) -> None:
    came: list[int] = []
    headers: dict[str, Any] = {}
    for n in range(4):
        broker.send(retry_message(message_id=ID, error_reason=f"failure {n}", retry_count=0), headers=headers)
        if n < 3:
            got = broker.get()
            came.append(got.headers["x-retry-count"])
            headers = got.headers if does_copy_headers else {}
    assert came == [1, 2, 3]
    got = broker.get(REVIEW)
    assert (got.body, got.headers["x-retry-count"]) == (b"hello", 3)
    assert got.headers["x-review-reason"] == "retries exhausted (3 of 3): failure 3"
    told = [(each["retry"], each["reason"]) for each in json.loads(got.headers["x-retry-story"])]
    assert told == [(n, f"failure {n}") for n in range(4)]
    row = row_in(service, "failed")
    # A message may be back before its publishing is written down as done: then that try is superseded.
    assert {each.outcome for each in service.app.read.story(row.id).tries[:3]} <= {"done", "superseded"}
    assert broker.look("orders") is None


class NeverCounts(Client):
    """Fails every order at once, and sends each back as if it were the first time."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.came: Counter[str] = Counter()

    def work(self, connection: Any) -> None:
        channel = connection.channel()
        channel.confirm_delivery()
        for method, properties, _ in channel.consume("orders", inactivity_timeout=0.2):
            if self._over.is_set():
                return
            if method is not None:
                message_id = properties.headers["x-retry-message-id"]
                self.came[message_id] += 1
                channel.basic_publish("", INCOMING, retry_message(message_id=message_id), mandatory=True)
                channel.basic_ack(method.delivery_tag)


def test_none_of_many_messages_that_fail_faster_than_we_commit_is_lost(
    service: MessageRetry, broker: Broker, vhost_url: str
) -> None:
    ids = fresh_ids(150)
    consumer = NeverCounts(vhost_url)
    consumer.start()
    for message_id in ids:
        broker.send(retry_message(message_id=message_id))
    in_review = {broker.get(REVIEW, 60).headers["x-retry-message-id"] for _ in ids}
    consumer.stop()
    assert in_review == set(ids)
    assert consumer.came == dict.fromkeys(ids, 3)
    patiently(lambda: Counter(row.state for row in rows(service) if row.key) == {"failed": len(ids)})


def test_a_message_that_comes_back_before_its_retry_is_noted_waits_for_that_and_is_retried(
    service: MessageRetry, broker: Broker, monkeypatch: pytest.MonkeyPatch, vhost_url: str
) -> None:
    publish = service.publish

    def out_and_back(messages: Sequence[Outgoing]) -> list[Receipt]:
        """The consumer has it, fails and sends it back before the try that published it ends."""
        receipts = publish(messages)
        if any(each.queue == "orders" for each in messages):
            monkeypatch.undo()
            with broker_at(vhost_url) as consumer:
                assert consumer.get().headers["x-retry-count"] == 1
                consumer.send(retry_message(message_id=ID, error_reason="again"))
                patiently(lambda: len(rows(service)) == 2)
        return receipts

    monkeypatch.setattr(service, "publish", out_and_back)
    broker.send(retry_message(message_id=ID, error_reason="first"))
    patiently(lambda: len(rows(service)) == 2)
    got = broker.get()
    assert (got.headers["x-retry-count"], got.headers["x-retry-reason"]) == (2, "again")
    patiently(lambda: [row.state for row in rows(service)] == ["done", "done"])
    row = row_in(service, "done")
    assert [each["reason"] for each in row.args["story"]] == ["first", "again"]
    assert repeated(service) == 0


def test_a_message_in_review_that_comes_again_stays_there_once(service: MessageRetry, broker: Broker) -> None:
    for count in (3, 3, 0):
        broker.send(retry_message(message_id=ID, retry_count=count))
        row = row_in(service, "failed")
    assert broker.get(REVIEW).body == b"hello"
    patiently(lambda: repeated(service) == 2)
    assert [each.id for each in rows(service)] == [row.id]
    assert broker.look(REVIEW) is None
    broker.send(retry_message(message_id=ID, retry_count=4))
    assert broker.get(REVIEW).headers["x-retry-count"] == 4, "a new failure is told"


def test_what_a_person_sent_back_and_failed_again_is_in_review_again(service: MessageRetry, broker: Broker) -> None:
    broker.send(retry_message(message_id=ID, retry_count=3))
    broker.get(REVIEW)
    service.review.resend(row_in(service, "failed").id)
    assert broker.get().headers["x-retry-count"] == 4
    broker.send(retry_message(message_id=ID, retry_count=0))
    assert broker.get(REVIEW).headers["x-retry-count"] == 4
    row_in(service, "failed")


def test_a_message_that_a_person_cancelled_or_discarded_is_not_retried_by_a_repetition(
    service: MessageRetry, broker: Broker
) -> None:
    broker.send(retry_message(message_id=ID, retry_count=3))
    broker.get(REVIEW)
    row = row_in(service, "failed")
    service.app.discard(row.id)
    broker.send(retry_message(message_id=ID, retry_count=3))
    patiently(lambda: repeated(service) == 1)
    assert [each.state for each in rows(service)] == ["cancelled"]
    broker.send(retry_message(message_id=ID, retry_count=4))
    assert broker.get(REVIEW).headers["x-retry-count"] == 4, "a higher count is a new failure"


def test_headers_of_another_message_or_of_another_kind_do_not_count(service: MessageRetry, broker: Broker) -> None:
    for headers in (
        {"x-retry-count": 2, "x-retry-message-id": OTHER}, {"x-retry-count": "two"}, {"x-retry-count": True},
        {"x-retry-count": -1}, {"x-retry-count": 10**9}, {"x-retry-count": 2, "x-retry-message-id": 7},
    ):  # fmt: skip
        broker.send(retry_message(), headers=headers)
        assert broker.get().headers["x-retry-count"] == 1
    broker.send(retry_message(message_id=ID), headers={"x-retry-count": 2, "x-retry-message-id": ID})
    assert broker.get().headers["x-retry-count"] == 3
