"""What a message in the retry queue says, and what is wrong with it if anything is.

Protobuf by default, the same as JSON when the content type says so. Whatever the bytes are, the answer is a
`RetryRequest` or `Invalid` with a reason: nothing that a stranger sends may raise.
"""

from __future__ import annotations

import re
from uuid import UUID

from google.protobuf import json_format
from msgspec import Struct

from duly.bridge.retry_message_pb2 import RetryMessage

MOST_RETRIES = 1_000  # beyond it a count is a mistake, not a policy
QUEUE_LIMIT = 255  # bytes that a queue's name has at most
REASON_LIMIT = 4_000

_UUID = re.compile(r"[0-9a-fA-F]{8}(-?[0-9a-fA-F]{4}){3}-?[0-9a-fA-F]{12}")
_JSON = re.compile(r"\s*(application|text)/([\w.+-]+\+)?json\s*(;.*)?", re.IGNORECASE | re.DOTALL)


class RetryRequest(Struct, frozen=True):
    """A message that is to be retried."""

    message_id: str
    payload: bytes
    queue: str
    reason: str
    retry_count: int
    max_retries: int | None  # None: the service's default


class Invalid(Struct, frozen=True):
    """A message that nobody can retry, and why."""

    problem: str


def is_json(content_type: str | None) -> bool:
    return content_type is not None and _JSON.fullmatch(content_type) is not None


def looks_like_json(body: bytes) -> bool:
    """Whether it can be a JSON object at all; the content type may be that of the message inside."""
    return body[:200].lstrip(b" \t\r\n\xef\xbb\xbf").startswith(b"{")


def read(body: bytes, content_type: str | None) -> RetryRequest | Invalid:
    """What this message asks for."""
    message = RetryMessage()
    as_json = is_json(content_type) and looks_like_json(body)
    try:
        if as_json:
            json_format.Parse(body, message, ignore_unknown_fields=True, max_recursion_depth=20)
        else:
            message.ParseFromString(body)
    except Exception as error:  # whatever a decoder makes of a stranger's bytes is the message's fault
        form = "JSON" if as_json else "protobuf"
        return Invalid(clean(f"not a RetryMessage in {form}: {error}", 500))
    return _checked(message)


def _checked(message: RetryMessage) -> RetryRequest | Invalid:
    if not _UUID.fullmatch(message.message_id):
        return Invalid(clean(f"message_id: must be a UUID, got {message.message_id!r:.80}", 200))
    if problem := queue_problem(message.original_queue):
        return Invalid(f"original_queue: {problem}")
    for name in ("retry_count", "max_retries"):
        count = getattr(message, name)
        if not 0 <= count <= MOST_RETRIES:
            return Invalid(f"{name}: must be from 0 to {MOST_RETRIES:,}, got {count}")
    return RetryRequest(
        message_id=str(UUID(message.message_id)),
        payload=message.original_payload,
        queue=message.original_queue,
        reason=clean(message.error_reason, REASON_LIMIT),
        retry_count=message.retry_count,
        max_retries=message.max_retries or None,
    )


def queue_problem(name: str) -> str | None:
    """Why no queue can have this name; None when one can."""
    if not name:
        return "must not be empty"
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return "must be valid Unicode"
    if size > QUEUE_LIMIT:
        return f"has {size:,} bytes; {QUEUE_LIMIT} is the limit"
    if "\x00" in name:
        return "must not contain NUL characters"
    return None


def clean(text: str, most: int) -> str:
    """Text that rows and headers can hold."""
    text = text.encode("utf8", "replace").decode().replace("\x00", "\ufffd")
    return text if len(text) <= most else f"{text[: most - 1]}…"
