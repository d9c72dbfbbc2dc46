"""Reads a message of the retry queue, and reports its problems.

It is protobuf, or JSON with the same fields if the content type says so. Whatever the bytes are, the answer is a
`Message`, which has a `problem` if it cannot be retried; no bytes may raise. Nothing is guessed either: the library's
decoders would take plain text for base64, the last of two values or a part of a number. Such messages go to a person.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Iterator
from typing import Any

from duly.bridge.message import ID_LIMIT, Message, message_id_of, queue_problem, text_problem
from duly.bridge.properties import Properties
from duly.bridge.retry_message_pb2 import RetryMessage

MOST_RETRIES = 1_000  # a higher count is taken for a mistake
REASON_LIMIT = 4_000

_INTEGER = re.compile(r"-?[0-9]{1,19}")
_JSON = re.compile(r"\s*(application|text)/([\w.+-]+\+)?json\s*(;.*)?", re.IGNORECASE | re.DOTALL)


def is_json(content_type: str | None, body: bytes) -> bool:
    """Whether this is JSON by its content type, which may be that of the inner message, and may be a JSON object."""
    looks_like_it = body[:200].lstrip(b" \t\r\n\xef\xbb\xbf").startswith(b"{")
    return looks_like_it and content_type is not None and _JSON.fullmatch(content_type) is not None


def read(body: bytes, content_type: str | None) -> Message:
    """The message that is to be retried. If its `max_retries` is 0, the service's default applies."""
    as_json = is_json(content_type, body)
    try:
        message = _from_json(body) if as_json else _from_protobuf(body)
    except Exception as error:  # a decoder may raise anything, and then the message is invalid
        form = "JSON" if as_json else "protobuf"
        return _invalid(clean(f"not a RetryMessage in {form}: {error}", 500))
    return _checked(message)


# -- JSON: protobuf's own mapping, but stricter

_FIELDS = {name: field for field in RetryMessage.DESCRIPTOR.fields for name in (field.name, field.json_name)}


def _from_json(body: bytes) -> RetryMessage:
    values: dict[str, Any] = {}
    for given, value in json.loads(body.decode(), object_pairs_hook=_once).items():
        if (field := _FIELDS.get(given)) is None:  # of a newer contract
            continue
        if field.name in values:
            raise ValueError(f"{field.name}: appears twice")
        values[field.name] = _value(field, value)
    return RetryMessage(**values)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names: dict[str, Any] = {}
    for name, value in pairs:
        if name in names:
            raise ValueError(f"{name[:80]!r}: appears twice")
        names[name] = value
    return names


def _value(field: Any, value: Any) -> str | bytes | int:
    if field.type == field.TYPE_BYTES:
        return _from_base64(field.name, value)
    if value is None:
        value = field.default_value
    if field.type == field.TYPE_STRING:
        if not isinstance(value, str):
            raise ValueError(f"{field.name}: must be a string, got {value!r:.80}")
        return value
    if isinstance(value, str) and _INTEGER.fullmatch(value):
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{field.name}: must be an integer, got {value!r:.80}")
    return value


def _from_base64(name: str, value: Any) -> bytes:
    """Decode base64 strictly: either alphabet, padded, and without surplus bits."""
    if isinstance(value, str):
        text = value if "+" in value or "/" in value else value.replace("-", "+").replace("_", "/")
        try:
            data = b64decode(text, validate=True)
        except ValueError:
            data = None
        if data is not None and b64encode(data).decode() == text:
            return data
    raise ValueError(f"{name}: must be base64 with its padding, got {value!r:.80}")


# -- protobuf

_VARINT, _FIXED64, _BYTES, _BEGIN, _END, _FIXED32 = range(6)
_NAMES = {field.number: field.name for field in RetryMessage.DESCRIPTOR.fields}
_COUNTS = [field.number for field in RetryMessage.DESCRIPTOR.fields if field.type == field.TYPE_INT32]
_INTEGERS = [*_COUNTS, RetryMessage.NEXT_RETRY_AT_MS_FIELD_NUMBER]


def _from_protobuf(body: bytes) -> RetryMessage:
    message = RetryMessage()
    message.ParseFromString(body)
    seen: set[int] = set()
    for number, kind, value in _fields(body):
        if (name := _NAMES.get(number)) is None:  # of a newer contract
            continue
        if kind != (_VARINT if number in _INTEGERS else _BYTES):
            raise ValueError(f"{name}: has the type of another field")
        if number in seen:
            raise ValueError(f"{name}: appears twice")
        seen.add(number)
        if number in _COUNTS and value % 2**32 != value and value < 2**64 - 2**31:
            raise ValueError(f"{name}: {value} is not a 32-bit integer")
    return message


def _fields(body: bytes) -> Iterator[tuple[int, int, int]]:
    """The number, wire type and integer of each field of a well-formed message; fields inside groups are left out."""
    place = depth = 0
    while place < len(body):
        tag, place = _varint(body, place)
        kind, value = tag & 7, 0
        is_outside = depth == 0
        if kind == _VARINT:
            value, place = _varint(body, place)
        elif kind == _BYTES:
            size, place = _varint(body, place)
            place += size
        elif kind in (_FIXED64, _FIXED32):
            place += 8 if kind == _FIXED64 else 4
        else:
            depth += 1 if kind == _BEGIN else -1
        if is_outside:
            yield tag >> 3, kind, value


def _varint(body: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while (byte := body[place]) & 0x80:
        value |= (byte & 0x7F) << shift
        shift, place = shift + 7, place + 1
    return (value | byte << shift) & 0xFFFF_FFFF_FFFF_FFFF, place + 1


def _checked(message: RetryMessage) -> Message:
    problem = queue_problem(message.original_queue)
    queue = message.original_queue if problem is None else ""
    message_id = message_id_of(message.message_id)
    if message_id is None:
        must = f"must be from 1 to {ID_LIMIT} characters without spaces"
        return _invalid(clean(f"message_id: {must}, got {message.message_id!r:.80}", 200), queue)
    if problem is not None:
        return _invalid(f"original_queue: {problem}")
    for name in ("retry_count", "max_retries"):
        count = getattr(message, name)
        if not 0 <= count <= MOST_RETRIES:
            return _invalid(f"{name}: must be from 0 to {MOST_RETRIES:,}, got {count}", queue)
    return Message(
        message_id=message_id,
        payload=b64encode(message.original_payload).decode(),
        queue=queue,
        reason=clean(message.error_reason, REASON_LIMIT),
        retry_count=message.retry_count,
        max_retries=message.max_retries,
    )


def _invalid(problem: str, queue: str = "") -> Message:
    """A message that cannot be retried, the reason, and the queue that it names, if that can be read."""
    return Message(payload="", problem=problem, named_queue=queue)


# -- the properties that come with it


def original(properties: Properties, envelope: bytes) -> Properties:
    """The properties of the message itself, as sent along with the request to retry it."""
    own = properties.header("x-original-content-type")
    if isinstance(own, str) and len(own.encode()) <= 255:
        return properties.but(content_type=own)
    if is_json(properties.text("content_type"), envelope):
        return properties.but(content_type=None)  # which was that of the envelope
    return properties


def stated_route(properties: Properties) -> tuple[str, str | None]:
    """The exchange and routing key by which the message first went, if its headers name both and both are valid."""
    exchange, key = properties.header("x-original-exchange"), properties.header("x-original-routing-key")
    if not isinstance(exchange, str) or not isinstance(key, str) or not exchange:
        return "", None
    return ("", None) if text_problem(exchange) or text_problem(key) else (exchange, key)


def stated_count(properties: Properties, message_id: str) -> int:
    """Which retry failed, by the headers that we added; 0 if they are missing, or about another message."""
    count, of = properties.header("x-retry-count"), properties.header("x-retry-message-id")
    is_its_own = of is None or (isinstance(of, str) and message_id_of(of) == message_id)
    is_count = isinstance(count, int) and not isinstance(count, bool) and 0 <= count <= MOST_RETRIES
    return count if is_its_own and is_count else 0


def clean(text: str, most: int) -> str:
    """The text as rows and headers can hold it."""
    text = text.encode("utf8", "replace").decode().replace("\x00", "\ufffd")
    return text if len(text) <= most else f"{text[: most - 1]}…"
