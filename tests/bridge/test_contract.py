"""What a retry message says, in protobuf or JSON; and whatever the bytes are, there is an answer."""

from __future__ import annotations

import random
from base64 import b64encode
from uuid import uuid4

import pytest
from google.protobuf import json_format

from duly.bridge.contract import Invalid, RetryRequest, read
from duly.bridge.retry_message_pb2 import RetryMessage

ID = "6f1d2c3b-0000-4000-8000-00000000000a"


def message(**fields: object) -> RetryMessage:
    given = {"message_id": ID, "original_payload": b"\x00\xff", "original_queue": "orders", "error_reason": "boom"}
    return RetryMessage(**{**given, **fields})


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
    assert asked == RetryRequest(ID, b"\x00\xff", "orders", "boom", 2, 5)


@pytest.mark.parametrize("content_type", ["application/json", "application/json; charset=utf-8", "text/JSON", "a/b"])
@pytest.mark.parametrize("is_snake", [True, False])
def test_the_same_message_as_json_by_content_type(content_type: str, is_snake: bool) -> None:
    text = json_format.MessageToJson(message(next_retry_at_ms=2**53), preserving_proto_field_name=is_snake)
    asked = read(text.encode(), content_type)
    if content_type == "a/b":
        assert isinstance(asked, Invalid)
        return
    assert asked == RetryRequest(ID, b"\x00\xff", "orders", "boom", 0, None)


def test_the_content_type_may_be_that_of_the_message_inside() -> None:
    assert isinstance(read(message().SerializeToString(), "application/json"), RetryRequest)


def test_no_maximum_means_the_default_of_the_service() -> None:
    asked = read(message().SerializeToString(), None)
    assert isinstance(asked, RetryRequest)
    assert asked.max_retries is None


def test_an_id_is_the_same_however_it_is_written() -> None:
    asked = read(message(message_id=ID.upper().replace("-", "")).SerializeToString(), None)
    assert isinstance(asked, RetryRequest)
    assert asked.message_id == ID


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"message_id": ""}, "message_id: must be a UUID"),
        ({"message_id": "order-7"}, "message_id: must be a UUID, got 'order-7'"),
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
    assert isinstance(asked, Invalid)
    assert problem in asked.problem


@pytest.mark.parametrize(
    "body",
    [
        b"{", b"[]", b"{}", b'{"messageId": 7}', b'{"retryCount": 1e400}', b'{"a":' * 5_000, b"\xff{",
        b'{"messageId":"\\ud800"}', b'{"retryCount":%s}' % (b"9" * 5_000),
    ],
)  # fmt: skip
def test_json_that_is_none_of_ours_is_invalid(body: bytes) -> None:
    assert isinstance(read(body, "application/json"), Invalid)


def test_a_reason_is_cut_and_cleaned() -> None:
    asked = read(message(error_reason="a\x00" + "x" * 10_000).SerializeToString(), None)
    assert isinstance(asked, RetryRequest)
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
        kinds.add(type(asked))
        if isinstance(asked, RetryRequest):
            b64encode(asked.payload)
            asked.queue.encode()
    assert kinds == {Invalid, RetryRequest}
