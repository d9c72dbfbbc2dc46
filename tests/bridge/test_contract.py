"""What a retry message says, in protobuf or JSON; and whatever the bytes are, there is an answer."""

from __future__ import annotations

import json
import random
from base64 import b64encode
from uuid import uuid4

import pytest
from google.protobuf import json_format

from duly.bridge.contract import read
from duly.bridge.message import Message, merged
from duly.bridge.retry_message_pb2 import RetryMessage

ID = "6f1d2c3b-0000-4000-8000-00000000000a"


def message(**fields: object) -> RetryMessage:
    given = {"message_id": ID, "original_payload": b"\x00\xff", "original_queue": "orders", "error_reason": "boom"}
    return RetryMessage(**{**given, **fields})


def request(**fields: int) -> Message:
    payload = b64encode(b"\x00\xff").decode()
    return Message(message_id=ID, payload=payload, queue="orders", reason="boom", **fields)


def test_the_field_numbers_and_types_are_those_of_the_contract() -> None:
    fields = {field.number: (field.name, field.type) for field in RetryMessage.DESCRIPTOR.fields}
    text, data, int32, int64 = 9, 12, 5, 3
    assert fields == {
        1: ("message_id", text), 2: ("original_payload", data), 3: ("original_queue", text), 4: ("error_reason", text),
        5: ("retry_count", int32), 6: ("max_retries", int32), 7: ("next_retry_at_ms", int64),
    }  # fmt: skip


@pytest.mark.parametrize("content_type", [None, "application/x-protobuf", "application/octet-stream"])
def test_protobuf_is_the_default(content_type: str | None) -> None:
    asked = read(message(retry_count=2, max_retries=5).SerializeToString(), content_type)
    assert asked == request(retry_count=2, max_retries=5)


@pytest.mark.parametrize("content_type", ["application/json", "application/json; charset=utf-8", "text/JSON", "a/b"])
@pytest.mark.parametrize("is_snake", [True, False])
def test_the_same_message_as_json_by_content_type(content_type: str, is_snake: bool) -> None:
    text = json_format.MessageToJson(message(next_retry_at_ms=2**53), preserving_proto_field_name=is_snake)
    asked = read(text.encode(), content_type)
    if content_type == "a/b":
        assert asked.problem is not None
        return
    assert asked == request(max_retries=0)


def test_the_content_type_may_be_that_of_the_message_inside() -> None:
    assert read(message().SerializeToString(), "application/json").problem is None


def test_no_maximum_means_the_default_of_the_service() -> None:
    asked = read(message().SerializeToString(), None)
    assert asked.problem is None
    assert asked.max_retries == 0


def test_an_id_is_the_same_however_it_is_written() -> None:
    asked = read(message(message_id=ID.upper().replace("-", "")).SerializeToString(), None)
    assert asked.problem is None
    assert asked.message_id == ID


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"message_id": ""}, "message_id: must be from 1 to 200 characters without spaces"),
        ({"message_id": "order 7"}, "message_id: must be from 1 to 200 characters without spaces, got 'order 7'"),
        ({"message_id": "x" * 201}, "message_id: must be from 1 to 200 characters without spaces"),
        ({"original_queue": ""}, "original_queue: must not be empty"),
        ({"original_queue": "q" * 256}, "original_queue: has 256 bytes; 255 is the limit"),
        ({"original_queue": "a\x00b"}, "original_queue: must not contain NUL"),
        ({"retry_count": -1}, "retry_count: must be from 0 to 1,000, got -1"),
        ({"retry_count": 2**31 - 1}, "retry_count: must be from 0 to 1,000, got 2147483647"),
        ({"max_retries": -3}, "max_retries: must be from 0"),
        ({"max_retries": 1_001}, "max_retries: must be from 0"),
    ],
)
def test_what_is_wrong_is_said_by_name(fields: dict[str, object], problem: str) -> None:
    asked = read(message(**fields).SerializeToString(), None)
    assert asked.problem is not None
    assert problem in asked.problem


@pytest.mark.parametrize(
    "body",
    [
        b"{", b"[]", b"{}", b'{"messageId": 7}', b'{"retryCount": 1e400}', b'{"a":' * 5_000, b"\xff{",
        b'{"messageId":"\\ud800"}', b'{"retryCount":%s}' % (b"9" * 5_000),
    ],
)  # fmt: skip
def test_json_that_is_none_of_ours_is_invalid(body: bytes) -> None:
    assert read(body, "application/json").problem is not None


def as_json(**fields: object) -> bytes:
    given = {"messageId": ID, "originalPayload": "AP8=", "originalQueue": "orders", **fields}
    return json.dumps(given).encode()


@pytest.mark.parametrize("text", [
    "plain text", "%%%", "hello", "abc", "AP8", "AP9=", "A P8=", "AP8=\n", "AP8==", "AP8=AP8=", "=", "é+/8=", "-/8=",
    None, 7, ["AP8="], {"a": 1}, True,
])  # fmt: skip
def test_a_payload_that_is_no_base64_is_refused_and_never_guessed_at(text: object) -> None:
    asked = read(as_json(originalPayload=text), "application/json")
    assert asked.problem is not None
    assert "original_payload: must be base64 with its padding" in asked.problem


@pytest.mark.parametrize(
    ("text", "payload"), [("", b""), ("AP8=", b"\x00\xff"), ("+/8=", b"\xfb\xff"), ("-_8=", b"\xfb\xff")]
)
def test_a_payload_in_base64_of_either_alphabet_is_taken_byte_for_byte(text: str, payload: bytes) -> None:
    asked = read(as_json(originalPayload=text), "application/json")
    assert asked.problem is None
    assert asked.body == payload


@pytest.mark.parametrize("value", [True, "1_0", "\t2", "٢", "1e1", " 2", "", 1.5, 2**40, [1], {}])
@pytest.mark.parametrize("name", ["retryCount", "max_retries"])
def test_a_count_that_is_no_integer_is_refused(name: str, value: object) -> None:
    assert read(as_json(**{name: value}), "application/json").problem is not None


@pytest.mark.parametrize("value", [2, "2", 2.0])
def test_a_count_is_a_number_or_its_digits(value: object) -> None:
    asked = read(as_json(retryCount=value, maxRetries=None, errorReason=None, newer={"a": 1}), "application/json")
    assert asked.problem is None
    assert (asked.retry_count, asked.max_retries, asked.reason) == (2, 0, "")


@pytest.mark.parametrize("body", [
    as_json(message_id=ID), as_json(original_payload="AP8="), as_json(errorReason=7), as_json(originalQueue=["orders"]),
    as_json(nextRetryAtMs="soon"), as_json() + b"{}", as_json() + as_json(), as_json()[:-1] + b',"messageId":"x"}',
    as_json()[:-1] + b',"newer":{"a":1,"a":2}}',
])  # fmt: skip
def test_json_that_says_two_things_or_another_kind_of_thing_is_refused(body: bytes) -> None:
    assert read(body, "application/json").problem is not None


WHOLE = message(retry_count=1).SerializeToString()


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (WHOLE + WHOLE, "message_id: appears twice"),
        (WHOLE + message(message_id="", original_queue="").SerializeToString(), "original_payload: appears twice"),
        (message(original_payload=b"").SerializeToString() + b"\x10\x05", "original_payload: has the type of another"),
        (message().SerializeToString() + b"\x2a\x01\x05", "retry_count: has the type of another"),
        (message().SerializeToString() + b"\x28\x80\x80\x80\x80\x10", "retry_count: 4294967296 is not a 32-bit"),
        (WHOLE[:-1], "not a RetryMessage in protobuf"),
        (WHOLE + b"\x00", "not a RetryMessage in protobuf"),
        (WHOLE + b"{}", "not a RetryMessage in protobuf"),
    ],
)
def test_protobuf_that_says_two_things_or_half_of_one_is_refused(body: bytes, problem: str) -> None:
    asked = read(body, None)
    assert asked.problem is not None
    assert problem in asked.problem


def test_fields_of_a_newer_contract_are_left_alone() -> None:
    group = b"\x4b\x28\x07\x53\x28\x08\x54\x4c"  # two of them, one in the other, with fields of their own
    others = b"\x40\x01" + b"\x41" + b"\x07" * 8 + b"\x45" + b"\x07" * 4 + group + b"\x52\x02hi"
    asked = read(others + WHOLE, None)
    assert asked.problem is None
    assert (asked.body, asked.retry_count) == (b"\x00\xff", 1)
    explicit = read(message().SerializeToString() + b"\x28\x00", None)  # as encoders of other languages write a zero
    assert explicit.problem is None


def test_a_reason_is_cut_and_cleaned() -> None:
    asked = read(message(error_reason="a\x00" + "x" * 10_000).SerializeToString(), None)
    assert asked.problem is None
    assert asked.reason.startswith("a\ufffd")
    assert len(asked.reason) == 4_000


def test_mutated_messages_are_read_or_refused() -> None:
    choose = random.Random(5)
    kinds = set()
    for _ in range(5_000):
        raw = bytearray(message(message_id=str(uuid4()), retry_count=choose.randrange(5)).SerializeToString())
        for _ in range(choose.randrange(1, 6)):
            place = choose.randrange(len(raw))
            match choose.randrange(3):
                case 0:
                    raw[place] = choose.randrange(256)
                case 1:
                    del raw[place]
                case 2:
                    raw[place:place] = choose.randbytes(choose.randrange(1, 9))
        asked = read(bytes(raw), None)
        kinds.add(asked.problem is None)
        if asked.problem is None:
            assert b64encode(asked.body).decode() == asked.payload
            asked.queue.encode()
    assert kinds == {True, False}


def test_a_row_that_a_newer_version_wrote_is_read_and_its_story_goes_on() -> None:
    failed = {"retry": 1, "at": "2026-01-01T00:00:00Z", "reason": "boom", "new_here_too": 1}
    old = {"payload": "", "story": [failed], "new_field": True}
    newer = {"payload": "", "story": [{**failed, "reason": "again"}], "new_field": False}
    message = merged(json.dumps(old).encode(), json.dumps(newer).encode(), 2)
    assert [each.reason for each in message.story] == ["boom", "again"]
