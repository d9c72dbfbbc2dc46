"""Damaged messages by the thousand: none stops the consumer, none is lost, none stays unacknowledged."""

from __future__ import annotations

import random
from collections import Counter
from uuid import uuid4

import pika
from prometheus_client import generate_latest

from duly.apps.messages.service import MessageRetry
from tests.bridge.support import INCOMING, REVIEW, broker_at, patiently, retry_message, service_at


def damaged(choose: random.Random) -> bytes:
    """A retry message after one to five accidents."""
    queue = choose.choice(["orders", "nowhere"])
    raw = bytearray(
        retry_message(message_id=str(uuid4()), original_queue=queue, retry_count=choose.randrange(4),
                      original_payload=choose.randbytes(choose.randrange(40)))
    )  # fmt: skip
    for _ in range(choose.randrange(1, 6)):
        if not raw:
            break
        place = choose.randrange(len(raw))
        match choose.randrange(4):
            case 0:
                raw[place] = choose.randrange(256)
            case 1:
                del raw[place : place + choose.randrange(1, 5)]
            case 2:
                raw[place:place] = choose.randbytes(choose.randrange(1, 9))
            case 3:
                del raw[place:]
    return bytes(raw)


def counted(service: MessageRetry) -> Counter[str]:
    """What became of deliveries, by the service's own metrics."""
    totals: Counter[str] = Counter()
    for line in generate_latest(service.app.internals.telemetry.registry).decode().splitlines():
        name, _, value = line.rpartition(" ")
        if not line.startswith("#") and "_total" in name:
            totals[name.partition("{")[0]] += int(float(value))
    return totals


def account_for(database_url: str, url: str, count: int) -> str:
    """Send so many and find each of them again."""
    choose = random.Random(11)
    with broker_at(url) as broker:
        broker.declare("orders")
        with service_at(database_url, url, message_base_delay_ms=10, message_max_delay_ms=20) as service:
            patiently(lambda: broker.exists(REVIEW))
            broker.send(retry_message())
            patiently(lambda: counted(service)["retries_scheduled_total"])
            for _ in range(count):
                kind = choose.choice([None, "application/json"])
                broker.channel.basic_publish("", INCOMING, damaged(choose), pika.BasicProperties(content_type=kind))

            def rows() -> Counter[str]:
                with service.app.internals.store.transaction() as connection:
                    return Counter(dict(connection.execute(
                        "select state, count(*) from duly_item group by state").fetchall()))  # fmt: skip

            def ended() -> bool:
                states = rows()
                return not states["waiting"] and not states["running"] and sum(states.values()) >= count * 0.9

            patiently(ended, 900, "the end of all")
            states, told = rows(), counted(service)
        # The service is gone: whatever it had not acknowledged is back.
        assert broker.depth(INCOMING) == 0
        sent_back, in_review = broker.depth("orders"), broker.depth(REVIEW)
    known = told["retry_repeated_messages_total"]
    assert states["done"] + states["failed"] + known == count + 1
    assert sent_back == states["done"]
    assert in_review == states["failed"]
    invalid = told["retry_invalid_messages_total"]
    return f"{count:,}: {sent_back:,} sent back, {in_review:,} to review, of which {invalid:,} invalid"


def test_damaged_messages_are_all_accounted_for(postgres_url: str, vhost_url: str) -> None:
    print(account_for(postgres_url, vhost_url, 2_000))
