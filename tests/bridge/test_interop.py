"""A client in another language, with libraries of its own, on the real service: interop/client.mjs, in Node."""

from __future__ import annotations

import json
import os
import subprocess
from base64 import b64decode
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from duly.bridge.retry_message_pb2 import RetryMessage
from tests.bridge.support import INCOMING, broker_at, patiently, service_at

CLIENT = Path(__file__).parent / "interop" / "client.mjs"
QUEUE = "bestellungen.grün"
EVERY_BYTE = bytes(range(256)) * 4

Lines = list[dict[str, Any]]


@pytest.fixture
def client(database_url: str, vhost_url: str) -> Iterator[Callable[[str], Lines]]:
    """What the client saw in a scenario, with the service running."""
    if "DULY_TEST_NODE" not in os.environ:
        raise pytest.UsageError("DULY_TEST_NODE is not set: run the tests with tools/test, which gets Node's packages")

    def ran(scenario: str) -> Lines:
        done = subprocess.run(["node", CLIENT, vhost_url, scenario], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, f"{done.stderr}\n{done.stdout}"
        return [json.loads(line) for line in done.stdout.splitlines()]

    with service_at(database_url, vhost_url), broker_at(vhost_url) as broker:
        patiently(lambda: broker.exists(INCOMING))
        declared = broker.channel.queue_declare
        patiently(lambda: declared(INCOMING, passive=True).method.consumer_count, name="a consumer")
        yield ran


def test_what_node_sends_comes_back_as_if_it_had_come_directly(client: Callable[[str], Lines]) -> None:
    before = datetime.now(UTC)
    lines = {line["name"]: line for line in client("back")}
    for name, line in lines.items():
        assert b64decode(line["got"]) == b64decode(line["payload"]), name
        assert line["retried"] == line["direct"], name
        assert line["isEqual"], name
        assert before < datetime.fromisoformat(line["ours"].pop("x-retry-first-failure")) < datetime.now(UTC)
        assert isinstance(line["ours"].pop("x-duly-item"), int)
    for kind in ("bytes: <Buffer 00 ff 80 0a>", "nothing: null", "'!': 'timestamp', value: 1700000000123", "half: 0.5"):
        assert kind in lines["every kind"]["retried"]
    told = {name: tuple(line["ours"].values()) for name, line in lines.items()}
    assert told == {
        name: (lines[name]["messageId"], *others)
        for name, *others in (
            ("every kind", 1, 3, "時間切れ 💥"), ("text", 1, 9, ""), ("empty", 1, 3, ""), ("many frames", 3, 3, ""),
            ("JSON", 2, 3, "süß"), ("JSON by hand", 1, 3, ""),
        )
    }  # fmt: skip
    read = {
        name: RetryMessage.FromString(b64decode(lines[name]["envelope"])) for name in ("every kind", "text", "empty")
    }
    times = [message.next_retry_at_ms for message in read.values()]
    assert times == [2**53 + 1, 2**63 - 1, -(2**63)], "what protobufjs writes is what we read"
    assert read["every kind"].original_payload == EVERY_BYTE


def test_a_consumer_in_node_that_always_fails_is_retried_until_a_person_has_its_message(
    client: Callable[[str], Lines],
) -> None:
    lines = client("loop")
    allowed = {"once": 1, "twice": 2, "asUsual": 3}
    for kind, most in allowed.items():
        reasons = [f"{kind} failed after {count} retries" for count in range(most + 1)]
        failures = [line for line in lines if line["event"] == "failed" and line["type"] == kind]
        assert [each["count"] for each in failures] == [None, *range(1, most + 1)]
        assert [each["reason"] for each in failures] == [None, *reasons[:-1]]
        (review,) = [line for line in lines if line["event"] == "review" and line["type"] == kind]
        assert b64decode(review["payload"]) == EVERY_BYTE
        assert review["isOwnKept"]
        told = review["headers"]
        assert told["x-review-reason"] == f"retries exhausted ({most} of {most}): {reasons[-1]}"
        assert (told["x-original-queue"], told["x-retry-message-id"]) == (QUEUE, review["messageId"])
        assert (told["x-retry-count"], told["x-retry-max"], told["x-retry-reason"]) == (most, most, reasons[-1])
        story = json.loads(told["x-retry-story"])
        assert [(each["retry"], each["reason"]) for each in story] == list(enumerate(reasons))
        times = [datetime.fromisoformat(each["at"]) for each in story]
        assert times == sorted(times)
        assert times[0] == datetime.fromisoformat(told["x-retry-first-failure"])


def test_what_node_sends_and_nobody_can_decode_ends_in_review_with_its_bytes(client: Callable[[str], Lines]) -> None:
    *reviewed, last = client("poison")
    assert all(line["isSame"] and line["list"] == [1, {"deep": None}] for line in reviewed)
    problems = {
        "noise": "not a RetryMessage in protobuf", "cut": "not a RetryMessage in protobuf",
        "json": "not a RetryMessage in JSON", "empty": "message_id: must be from 1",
    }  # fmt: skip
    assert {line["type"] for line in reviewed} == set(problems)
    for line in reviewed:
        assert line["reason"].startswith(problems[line["type"]])
    assert last == {"type": "whole", "isSame": True}, "the consumer goes on"
