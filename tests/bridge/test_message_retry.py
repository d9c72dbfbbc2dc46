"""The retry service on a real broker: what comes goes back, later, once, and unchanged; the rest goes to people."""

from __future__ import annotations

import fcntl
import json
import re
import struct
from base64 import b64decode
from collections.abc import Iterator
from datetime import UTC, datetime
from uuid import uuid4

import pika
import pytest
from prometheus_client import generate_latest

from duly import Duly
from duly.apps.messages import message_retry_on
from duly.apps.messages.service import MessageRetry
from duly.apps.messages.settings import broker_trouble
from duly.bridge.link import Link
from duly.bridge.properties import parse
from duly.core.errors import ConfigError, DoesNotExist, InputError, WrongState
from duly.core.shown import Row
from duly.verbs import LOCAL, local
from tests.bridge.support import INCOMING, REVIEW, Broker, broker_at, patiently, retry_message, service_at

ID = "6f1d2c3b-0000-4000-8000-00000000000a"


@pytest.fixture
def broker(vhost_url: str) -> Iterator[Broker]:
    with broker_at(vhost_url) as one:
        one.declare("orders")
        yield one


@pytest.fixture
def service(postgres_url: str, vhost_url: str, broker: Broker) -> Iterator[MessageRetry]:
    with service_at(postgres_url, vhost_url) as one:
        yield one


@pytest.fixture
def service_on_both(database_url: str, vhost_url: str, broker: Broker) -> Iterator[MessageRetry]:
    with service_at(database_url, vhost_url) as one:
        yield one


def rows(service: MessageRetry) -> list[Row]:
    return list(service.app.read.pages())


def row_of(service: MessageRetry, state: str) -> Row:
    """The only row, once it is in this state."""
    return patiently(lambda: next((row for row in rows(service) if row.state == state), None), 30, f"{state} row")


def metrics(service: MessageRetry) -> dict[str, float]:
    lines = generate_latest(service.app.internals.telemetry.registry).decode().splitlines()
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}


def test_a_message_comes_back_to_its_queue_as_it_was_with_its_story_in_headers(
    service_on_both: MessageRetry, broker: Broker
) -> None:
    service = service_on_both
    payload = bytes(range(256)) * 3
    before = datetime.now(UTC)
    broker.send(
        retry_message(message_id=ID, original_payload=payload, retry_count=1, error_reason="time-out"),
        content_type="application/x-protobuf", correlation_id="c-7", priority=4, type="order.created", app_id="shop",
        reply_to="answers", message_id="same", timestamp=1_700_000_000,
        headers={"tenant": "acme", "n": 7, "deep": {"list": [1, "x"]}, "CC": ["elsewhere"]},
    )  # fmt: skip
    got = broker.get()
    assert got.body == payload
    told = got.properties
    assert (told.content_type, told.correlation_id, told.priority, told.type, told.app_id) == (
        "application/x-protobuf", "c-7", 4, "order.created", "shop",
    )  # fmt: skip
    assert (told.reply_to, told.message_id, told.timestamp, told.delivery_mode) == ("answers", "same", 1_700_000_000, 2)
    ours = {name: value for name, value in got.headers.items() if name.startswith("x-")}
    assert {name: value for name, value in got.headers.items() if name not in ours} == {
        "tenant": "acme", "n": 7, "deep": {"list": [1, "x"]},
    }  # fmt: skip
    first = ours.pop("x-retry-first-failure")
    assert before < datetime.fromisoformat(first) < datetime.now(UTC)
    ours.pop("x-duly-item")
    assert ours == {
        "x-retry-message-id": ID, "x-retry-count": 2, "x-retry-max": 3, "x-retry-reason": "time-out",
    }  # fmt: skip
    assert row_of(service, "done").args["message_id"] == ID
    assert broker.depth(INCOMING) == 0


def test_header_values_that_libraries_change_come_back_as_they_were(service: MessageRetry, broker: Broker) -> None:
    """A double, a float, a 16-bit integer, a time in milliseconds: in bytes, as another client wrote them."""
    values = {
        b"double": b"d" + struct.pack(">d", 1.5), b"float": b"f" + struct.pack(">f", 0.1), b"short": b"s\x00\x07",
        b"millis": b"T" + struct.pack(">Q", 1_700_000_000_000), b"far": b"T" + b"\x7f" * 8,
    }  # fmt: skip

    class Odd(pika.BasicProperties):
        def encode(self) -> list[bytes]:
            body = b"".join(bytes((len(name),)) + name + value for name, value in values.items())
            return [struct.pack(">HI", 0x2000, len(body)) + body]

    patiently(lambda: broker.exists(INCOMING))
    broker.channel.basic_publish("", INCOMING, retry_message(), Odd())
    row = row_of(service, "done")
    kept = dict(parse(b64decode(row.args["properties"])).headers)
    assert kept == values


def test_a_repeated_delivery_changes_nothing_while_its_message_waits(
    database_url: str, vhost_url: str, broker: Broker
) -> None:
    with service_at(database_url, vhost_url, message_base_delay_ms=600_000, message_max_delay_ms=600_000) as service:
        for count, reason in ((1, "first"), (1, "again"), (0, "long ago"), (2, "second"), (1, "again")):
            broker.send(retry_message(message_id=ID, retry_count=count, error_reason=reason))
        patiently(lambda: metrics(service)["retry_repeated_messages_total"] == 3)
        (row,) = rows(service)
        assert (row.state, row.args["retry_count"]) == ("waiting", 2)
        assert [each["reason"] for each in row.args["story"]] == ["first", "second"]
        service.app.retry(row.id)
        assert broker.get().headers["x-retry-count"] == 3
        row_of(service, "done")
        assert broker.look("orders") is None


def test_a_message_that_failed_in_two_queues_is_retried_in_both(service: MessageRetry, broker: Broker) -> None:
    broker.declare("mails")
    for queue in ("orders", "mails", "mails"):
        broker.send(retry_message(message_id=ID, original_queue=queue))
    assert [broker.get(queue).headers["x-retry-message-id"] for queue in ("orders", "mails")] == [ID, ID]
    assert broker.look("mails") is None
    assert len(service.queries.page(None, message_id=ID.upper())) == 2
    assert [row.args["queue"] for row in service.queries.page(None, message_id=ID, queue="mails", state="done")] == [
        "mails"
    ]


def test_nothing_expires_in_review(service: MessageRetry, broker: Broker) -> None:
    broker.send(retry_message(retry_count=3), expiration="600000")
    assert broker.get(REVIEW).properties.expiration is None


def test_a_retry_does_not_expire_before_anybody_could_read_it(service: MessageRetry, broker: Broker) -> None:
    broker.send(retry_message(), expiration="1")
    row_of(service, "done")
    assert broker.get().properties.expiration is None


def test_a_message_whose_id_is_no_uuid_is_retried_and_found_by_it(service: MessageRetry, broker: Broker) -> None:
    broker.send(retry_message(message_id="order-7/Ä", retry_count=1))
    got = broker.get()
    assert (got.headers["x-retry-message-id"], got.headers["x-retry-count"]) == ("order-7/Ä", 2)
    row = row_of(service, "done")
    assert [each.id for each in service.queries.page(None, message_id="order-7/Ä")] == [row.id]
    assert service.queries.page(None, message_id="ORDER-7/Ä") == []
    broker.send(retry_message(message_id="order-7/Ä"), headers=got.headers)  # a consumer that does not count
    assert broker.get().headers["x-retry-count"] == 3
    with pytest.raises(InputError, match="message_id"):
        service.queries.page(None, message_id="two words")


def test_a_message_goes_back_through_the_exchange_that_it_came_by(service: MessageRetry, broker: Broker) -> None:
    broker.channel.exchange_declare("events", "topic", durable=True)
    broker.declare("audit")
    broker.channel.queue_bind("audit", "events", "order.*")
    way = {"x-original-exchange": "events", "x-original-routing-key": "order.created"}
    broker.send(retry_message(original_queue="orders"), headers=way)
    got = broker.get("audit")
    assert {name: got.headers[name] for name in way} == way
    row = row_of(service, "done")
    shown = service.queries.shown(service.review.find(LOCAL, row.id))
    assert (shown["queue"], shown["exchange"], shown["routing_key"]) == ("orders", "events", "order.created")
    assert broker.depth("orders") == 0


def test_a_message_for_an_exchange_that_is_gone_ends_in_review_and_can_be_sent_to_a_queue(
    service: MessageRetry, broker: Broker
) -> None:
    way = {"x-original-exchange": "gone", "x-original-routing-key": "order.created"}
    broker.send(retry_message(), headers=way)
    row = row_of(service, "failed")
    assert "gone" in (row.last_error or "")
    service.review.resend(row.id, queue="orders")
    assert broker.get().body == b"hello"


def test_delays_and_retries_of_a_queue_are_its_own(sqlite_url: str, vhost_url: str, broker: Broker) -> None:
    rules = "orders=3600000/3600000/5, mails=0//0"
    with service_at(sqlite_url, vhost_url, message_queues=rules) as service:
        broker.declare("mails")
        broker.send(retry_message())
        row = row_of(service, "waiting")
        assert 3_300 < (row.due_at - datetime.now(UTC)).total_seconds() < 3_602
        assert row.args["max_retries"] == 5
        broker.send(retry_message(original_queue="mails"))
        assert "retries exhausted (0 of 0)" in str(broker.get(REVIEW).headers["x-review-reason"])


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"retry_queue": "q" * 300}, "retry_queue: has 300 bytes; 255 is the limit"),
        ({"manual_review_queue": ""}, "manual_review_queue: must not be empty"),
        ({"message_queues": "orders=soon"}, "message_queues: must be like orders=500/30000/5, got 'orders=soon'"),
    ],
)
def test_queues_that_cannot_be_are_refused_when_the_service_starts(given: dict[str, str], word: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(word)):
        message_retry_on(Duly("sqlite://", **given))


def test_whose_queue_can_be_read_has_it_in_review_though_it_can_never_be_retried(
    service: MessageRetry, broker: Broker
) -> None:
    broker.send(retry_message(message_id="two words", original_queue="invoices"))
    got = broker.get(REVIEW)
    assert got.headers["x-original-queue"] == "invoices"
    row = row_of(service, "failed")
    assert service.queries.shown(service.review.find(LOCAL, row.id))["queue"] == "invoices"
    with pytest.raises(InputError, match="queue"):
        service.review.resend(row.id)


def test_lines_of_the_log_about_a_message_name_it_and_its_queue(
    service: MessageRetry, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "duly.bridge")
    broker.send(retry_message(message_id="order-7"))
    broker.send(retry_message(message_id="order-8", retry_count=3))
    broker.get(REVIEW)
    broker.get()
    row_of(service, "failed")

    def told() -> dict[str, tuple[str, str]]:
        lines = [line for line in list(caplog.records) if hasattr(line, "messageId")]
        return {line.messageId: (line.queue, line.levelname) for line in lines}

    patiently(lambda: len(told()) == 2)  # a message is there before the line that says so
    assert told() == {"order-7": ("orders", "DEBUG"), "order-8": ("orders", "WARNING")}


def test_a_refused_connection_is_told_as_such(caplog: pytest.LogCaptureFixture) -> None:
    link = Link("amqp://127.0.0.1:1", "tests")
    link.start()
    patiently(lambda: "refused" in (link.trouble() or ""))
    link.stop()
    assert link.trouble() == "no connection to the broker at 127.0.0.1:1: connection refused"
    assert broker_trouble("amqp://127.0.0.1:1") == "it does not answer: connection refused"


def test_a_message_that_waits_for_review_is_sent_when_a_person_says_so(
    sqlite_url: str, vhost_url: str, broker: Broker
) -> None:
    with service_at(sqlite_url, vhost_url) as service:
        service.app.pause("message_retry/orders")
        broker.send(retry_message(message_id=ID, retry_count=3))
        row = row_of(service, "waiting")
        service.review.resend(row.id)
        service.app.resume("message_retry/orders")
        assert broker.get().headers["x-retry-count"] == 4


ODD = {"x-original-content-type": "é" * 200, "traceparent": "x" * 5_000, "": "no name", "x-retry-message-id": "mine"}


def test_odd_headers_hold_up_nobody(service: MessageRetry, broker: Broker) -> None:
    broker.send(retry_message(), content_type="a/b", headers=ODD)
    got = broker.get()
    assert got.properties.content_type == "a/b"
    assert got.headers["x-retry-message-id"] != "mine"
    broker.send(retry_message(), headers={"x-original-content-type": "text/plain"})
    assert broker.get().properties.content_type == "text/plain"


def test_a_message_whose_retries_are_used_up_goes_to_review_here_and_at_the_broker(
    service_on_both: MessageRetry, broker: Broker
) -> None:
    service = service_on_both
    for count in range(4):
        broker.send(retry_message(message_id=ID, retry_count=count, error_reason=f"failure {count}"))
        if count < 3:
            assert broker.get().headers["x-retry-count"] == count + 1
    got = broker.get(REVIEW)
    assert got.body == b"hello"
    assert got.headers["x-review-reason"] == "retries exhausted (3 of 3): failure 3"
    assert got.headers["x-original-queue"] == "orders"
    assert got.headers["x-retry-count"] == 3
    story = json.loads(got.headers["x-retry-story"])
    assert [(each["retry"], each["reason"]) for each in story] == [(n, f"failure {n}") for n in range(4)]
    row = row_of(service, "failed")
    assert row.last_error == "retries exhausted (3 of 3): failure 3"
    assert metrics(service)['retries_exhausted_total{queue="orders"}'] == 1
    assert broker.look("orders") is None


def test_a_person_sends_a_message_back_or_elsewhere_or_changed(service_on_both: MessageRetry, broker: Broker) -> None:
    service = service_on_both
    broker.declare("repair")
    broker.send(retry_message(message_id=ID, retry_count=3))
    broker.get(REVIEW)
    row = row_of(service, "failed")
    service.app.retry(row.id)  # as anything else in review
    assert broker.get("orders").headers["x-retry-count"] == 4
    broker.send(retry_message(message_id=ID, retry_count=4))
    broker.get(REVIEW)
    row_of(service, "failed")
    service.review.resend(row.id, queue="repair", payload=b"mended", headers={"by": "ana"}, who=local("ana"))
    got = broker.get("repair")
    assert (got.body, got.headers["by"]) == (b"mended", "ana")
    row_of(service, "done")
    with pytest.raises(WrongState, match="was published"):
        service.review.resend(row.id)
    again = service.review.resend(row.id, replay=True)  # what was published is published once more, by a row of its own
    assert again != row.id
    assert broker.get("repair").body == b"mended"
    with pytest.raises(WrongState, match="is done"):
        service.review.edit(row.id, payload=b"other")
    notes = [note.action for note in service.app.schedules.audit()]
    assert "message.sent" in notes


@pytest.mark.parametrize("kind", ["quorum", "classic"])
def test_what_a_person_sends_back_is_gone_from_the_queue_for_people_and_nothing_else_is(
    sqlite_url: str, vhost_url: str, broker: Broker, kind: str
) -> None:
    broker.declare(REVIEW, arguments={"x-queue-type": kind})
    with service_at(sqlite_url, vhost_url) as service:
        broker.send(b"somebody's own", REVIEW)
        for number in range(3):
            broker.send(retry_message(message_id=f"order-{number}", retry_count=3))
            patiently(lambda most=number + 2: broker.depth(REVIEW) == most)
        patiently(lambda: len([row for row in rows(service) if row.state == "failed"]) == 3)
        second = next(row for row in rows(service) if row.args["message_id"] == "order-1")
        service.review.resend(second.id)
        assert broker.get().headers["x-retry-message-id"] == "order-1"
        patiently(lambda: broker.depth(REVIEW) == 3)
        left = [broker.get(REVIEW).headers.get("x-retry-message-id") for _ in range(3)]
        assert set(left) == {None, "order-0", "order-2"}
        if kind == "classic":  # a quorum queue puts what is requeued back in any order
            assert left == [None, "order-0", "order-2"]


def test_a_waiting_message_is_edited_and_hurried(database_url: str, vhost_url: str, broker: Broker) -> None:
    with service_at(database_url, vhost_url, message_base_delay_ms=600_000, message_max_delay_ms=600_000) as service:
        broker.send(retry_message())
        row = row_of(service, "waiting")
        service.review.edit(row.id, payload=b"other")
        assert row_of(service, "waiting").due_at == row.due_at
        service.app.retry(row.id)
        assert broker.get().body == b"other"
        broker.send(retry_message())
        late = patiently(lambda: next((each for each in rows(service) if each.state == "waiting"), None))
        service.app.cancel(late.id)
        with pytest.raises(WrongState):
            service.review.edit(late.id, payload=b"too late")
    with pytest.raises(DoesNotExist):
        service.review.edit(999_999, payload=b"")


def test_changes_that_no_message_can_have_are_refused(service: MessageRetry, broker: Broker) -> None:
    broker.send(b"not ours")
    row = row_of(service, "failed")
    for wrong in ({"queue": ""}, {"queue": "q" * 300}, {"headers": {"": "x"}}, {"queue": INCOMING}, {}):
        with pytest.raises(InputError):
            service.review.resend(row.id, **wrong)  # type: ignore[arg-type]


INVALID = {
    b"\xff\xff\xff": "not a RetryMessage in protobuf",
    b"": "message_id: must be from 1 to 200 characters without spaces",
    retry_message(message_id="7 8"): "message_id: must be from 1 to 200 characters without spaces",
    retry_message(original_queue=""): "original_queue: must not be empty",
    retry_message(retry_count=-1): "retry_count: must be from 0",
    retry_message(retry_count=2**30): "retry_count: must be from 0",
    retry_message(max_retries=-1): "max_retries: must be from 0",
    retry_message(original_queue=INCOMING): "is the retry queue itself",
}


def test_what_nobody_can_retry_goes_to_review_with_the_reason_and_its_bytes(
    service_on_both: MessageRetry, broker: Broker
) -> None:
    service = service_on_both
    for body in INVALID:
        broker.send(body, correlation_id="c")
    broker.send(b"{", content_type="application/json")
    seen = {got.body: got for got in (broker.get(REVIEW) for _ in range(len(INVALID) + 1))}
    for body, problem in {**INVALID, b"{": "not a RetryMessage in JSON"}.items():
        assert problem in seen[body].headers["x-review-reason"]
    assert seen[b""].properties.correlation_id == "c"
    patiently(lambda: [row.state for row in rows(service)] == ["failed"] * (len(INVALID) + 1))
    assert broker.depth(INCOMING) == 0
    broker.send(retry_message())
    assert broker.get().body == b"hello", "the consumer goes on"


def test_a_json_message_whose_payload_is_no_base64_goes_to_review_whole_and_is_not_published(
    service_on_both: MessageRetry, broker: Broker
) -> None:
    bodies = {
        b'{"messageId":"%s", "originalQueue": "orders","originalPayload":"%s"}' % (str(uuid4()).encode(), text)
        for text in (b"plain", b"an order", b"%%%", b"aGVsbG8")
    }
    for body in bodies:
        broker.send(body, content_type="application/json", correlation_id="c", headers={"tenant": "acme"})
    came = [broker.get(REVIEW) for _ in bodies]
    assert {got.body for got in came} == bodies
    for got in came:
        assert "original_payload: must be base64" in got.headers["x-review-reason"]
        assert (got.properties.content_type, got.properties.correlation_id, got.headers["tenant"]) == (
            "application/json", "c", "acme",
        )  # fmt: skip
    patiently(lambda: [row.state for row in rows(service_on_both)] == ["failed"] * len(bodies))
    assert {b64decode(row.args["payload"]) for row in rows(service_on_both)} == bodies
    right = b'{"messageId":"%s","originalQueue":"orders","originalPayload":"aGVsbG8="}' % ID.encode()
    broker.send(right, content_type="application/json")
    assert broker.get().body == b"hello", "and nothing else was published"


def test_a_message_for_a_queue_that_does_not_exist_fails_alone_and_ends_in_review(
    service: MessageRetry, broker: Broker
) -> None:
    for _ in range(20):
        broker.send(retry_message())
    broker.send(retry_message(original_queue="nowhere", message_id=ID))
    for _ in range(20):
        broker.send(retry_message())
    for _ in range(40):
        assert broker.get().body == b"hello"
    got = broker.get(REVIEW, 60)
    assert got.headers["x-retry-message-id"] == ID
    assert "there is no queue 'nowhere': 312 NO_ROUTE" in got.headers["x-review-reason"]
    row = row_of(service, "failed")
    assert len(service.app.read.story(row.id).tries) == 4
    counted = metrics(service)
    assert counted['retries_executed_total{queue="nowhere",status="failed"}'] == 4
    assert counted['retries_executed_total{queue="orders",status="success"}'] == 40


def test_a_queue_that_appears_in_time_gets_its_message(service: MessageRetry, broker: Broker) -> None:
    broker.send(retry_message(original_queue="soon"))
    patiently(lambda: metrics(service).get('retries_executed_total{queue="soon",status="failed"}'))
    broker.declare("soon")
    assert broker.get("soon").body == b"hello"


def test_the_metrics_have_the_names_and_labels_of_the_seed(service: MessageRetry, broker: Broker) -> None:
    broker.send(retry_message())
    broker.get()
    row_of(service, "done")
    counted = metrics(service)
    assert counted['retries_scheduled_total{queue="orders"}'] == 1
    assert counted['retries_executed_total{queue="orders",status="success"}'] == 1
    assert counted["retry_queue_depth"] == 0
    assert counted["retry_drift_seconds_count"] == 1


def test_a_message_larger_than_a_row_holds_is_set_aside_whole(sqlite_url: str, vhost_url: str, broker: Broker) -> None:
    with service_at(sqlite_url, vhost_url, message_max_bytes=100_000) as service:
        payload = b"\x07" * 200_000
        broker.send(retry_message(original_payload=payload))
        got = broker.get(REVIEW)
        assert payload in got.body
        assert "more than a message may have" in got.headers["x-review-reason"]
        row = row_of(service, "failed")
        assert row.args["is_in_review"] is True
        assert broker.look(REVIEW) is None
        with pytest.raises(InputError, match="too large to be stored"):
            service.review.resend(row.id, queue="orders")
        with pytest.raises(InputError, match="larger than a message may be"):
            service.review.resend(row.id, queue="orders", payload=payload)
        service.review.resend(row.id, queue="orders", payload=b"the heart of it")
        assert broker.get().body == b"the heart of it"


def test_headers_that_fill_a_frame_send_their_message_to_review_and_hold_up_nobody(
    service: MessageRetry, broker: Broker
) -> None:
    broker.send(retry_message(), headers={"big": "x" * 131_000})
    broker.send(retry_message(original_payload=b"next"))
    assert broker.get().body == b"next"
    assert broker.get(REVIEW, 60).body == b"hello"
    row_of(service, "failed")


def test_queues_that_exist_with_other_arguments_are_used_as_they_are(sqlite_url: str, vhost_url: str) -> None:
    with broker_at(vhost_url) as broker:
        for name in ("orders", INCOMING, REVIEW):
            broker.declare(name, arguments={"x-queue-type": "classic", "x-max-priority": 3})
        with service_at(sqlite_url, vhost_url):
            broker.send(retry_message())
            assert broker.get().body == b"hello"


def test_queues_that_it_declares_set_a_message_aside_that_takes_its_consumer_down(
    service: MessageRetry, broker: Broker, vhost_url: str
) -> None:
    patiently(lambda: broker.exists(REVIEW))
    wanted = {
        "x-queue-type": "quorum", "x-delivery-limit": 100, "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": REVIEW, "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish",
    }  # fmt: skip
    broker.declare(INCOMING, arguments=wanted)  # refused if they were others


def test_a_deleted_queue_is_declared_again(service: MessageRetry, broker: Broker) -> None:
    broker.send(retry_message())
    broker.get()
    broker.channel.queue_delete(INCOMING)
    broker.send(retry_message(original_payload=b"after"))
    assert broker.get().body == b"after"


def test_while_the_database_is_away_messages_stay_with_the_broker(
    sqlite_url: str, vhost_url: str, broker: Broker
) -> None:
    with service_at(sqlite_url, vhost_url, store_timeout_seconds=1.0) as service:
        broker.send(retry_message())
        broker.get()
        row_of(service, "done")
        with open(f"{sqlite_url.removeprefix('sqlite:///')}-lock", "a") as turn:
            fcntl.flock(turn, fcntl.LOCK_EX)
            for _ in range(5):
                broker.send(retry_message(original_payload=b"kept"))
            patiently(lambda: "database is away" in (service.ailing() or ""))
            assert patiently(lambda: broker.depth(INCOMING)) == 5
        assert [broker.get().body for _ in range(5)] == [b"kept"] * 5
        patiently(lambda: service.ailing() is None)
        assert broker.depth(INCOMING) == 0


def test_a_service_that_stops_leaves_nothing_behind(database_url: str, vhost_url: str, broker: Broker) -> None:
    ids = {str(uuid4()) for _ in range(300)}
    with service_at(database_url, vhost_url):
        for message_id in ids:
            broker.send(retry_message(message_id=message_id))
    with service_at(database_url, vhost_url):
        got = [broker.get().headers["x-retry-message-id"] for _ in ids]
    assert sorted(got) == sorted(ids)
    assert broker.look("orders") is None


def test_people_see_what_a_message_holds(service: MessageRetry, broker: Broker) -> None:
    broker.send(retry_message(message_id=ID, original_payload="grüße".encode()), headers={"tenant": "acme"})
    row_of(service, "done")
    (row,) = service.app.read.page()
    shown = service.queries.shown(row)
    assert (shown["message_id"], shown["queue"], shown["payload"]["text"]) == (ID, "orders", "grüße")
    assert shown["payload"]["hex"].startswith("67 72 c3")
    assert shown["properties"]["headers"] == {"tenant": "acme"}
