"""A message to be retried, as stored in a row: its content, the headers that are added, and edits by people.

It needs no client library, so that settings with names of queues can be checked without one.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from duly.bridge.properties import PERSISTENT, Properties, parse
from duly.core import codec
from duly.core.errors import InputError

STORY = 20  # how many failures of a message are kept
HEADERS_LIMIT = 120_000  # bytes; a frame has room for 131,072
NAME_LIMIT = 255  # bytes that the name of a queue or an exchange, or a routing key, has at most
ID_LIMIT = 200  # characters of a message's id

_UUID = re.compile(r"[0-9a-fA-F]{8}(-?[0-9a-fA-F]{4}){3}-?[0-9a-fA-F]{12}")
_ID = re.compile(rf"[^\s\x00-\x1f\x7f]{{1,{ID_LIMIT}}}")


class Failure(Struct, frozen=True, omit_defaults=True):
    """One of the times that a message failed."""

    retry: int
    at: datetime
    reason: str = ""


class Message(Struct, kw_only=True, omit_defaults=True):
    """The arguments of the task. Bytes are base64 in JSON; `properties` are those of AMQP, as they came.

    Fields that are not known here are passed over, because a worker of a newer version may have written the row.
    """

    payload: str
    queue: str = ""
    message_id: str | None = None
    retry_count: int = 0
    max_retries: int = 3
    reason: str = ""
    properties: str = ""
    story: list[Failure] = []
    exchange: str = ""  # where it is published to; the default exchange, which knows queues by their names
    routing_key: str | None = None  # by which that exchange routes it; None: the name of its queue
    named_queue: str = ""  # the queue that a message names which can never be retried as it is
    problem: str | None = None  # why it can never be retried as it is
    is_in_review: bool = False  # the message is in the broker's review queue, and this row does not have its payload
    is_sent_back: bool = False  # a person wants it to be published, whatever its number of retries
    # It came while its row was running: either delivered twice, or failed again already. The row's end will show which.
    is_undecided: bool = False
    replay_of: int | None = None  # the row of the same message that was published before, and again by this one

    @property
    def body(self) -> bytes:
        return b64decode(self.payload)

    @property
    def is_exhausted(self) -> bool:
        return self.retry_count >= self.max_retries

    @property
    def kept(self) -> Properties:
        """The properties that the message had when it came."""
        return parse(b64decode(self.properties)) if self.properties else Properties()

    def again(self) -> Properties:
        """The properties with which its next retry is published."""
        return prepared(self.kept).with_headers(self._retry_headers(self.retry_count + 1))

    def for_review(self, reason: str) -> Properties:
        """The properties with which it is published to the review queue, with the story of its failures."""
        headers: dict[str, str | int] = {"x-review-reason": reason, "x-retry-story": codec.encode(self.story).decode()}
        if self.queue:
            headers = {**self._retry_headers(self.retry_count), **headers}
        if self.queue or self.named_queue:
            headers["x-original-queue"] = self.queue or self.named_queue
        return fitting(prepared(self.kept), headers)

    def _retry_headers(self, count: int) -> dict[str, str | int]:
        """Headers about its retries. `x-retry-count` is what `retry_count` has to be if this retry fails."""
        headers: dict[str, str | int] = {
            "x-retry-message-id": self.message_id or "",
            "x-retry-count": count,
            "x-retry-max": self.max_retries,
            "x-retry-reason": self.reason,
        }
        if self.story:
            headers["x-retry-first-failure"] = self.story[0].at.astimezone(UTC).isoformat()
        return headers


def key_of(message_id: str, queue: str) -> str:
    """The key of a message: its id and its queue, because the same message may fail in several queues."""
    return f"{message_id} {queue}"


def merged(old: bytes, newer: bytes, count: int) -> Message:
    """The newer message, with the failures of the older one and the resulting count."""
    message = msgspec.json.decode(newer, type=Message)
    try:
        story = msgspec.json.decode(old, type=Message).story
    except msgspec.ValidationError:
        story = []
    if len(story) >= STORY:  # keep the first, which shows when it began
        story = [story[0], *story[-(STORY - 2) :]]
    latest = [replace(each, retry=count) for each in message.story]
    return replace(message, retry_count=count, story=[*story, *latest])


def changed(row: Message, queue: str | None, payload: bytes | None, headers: Mapping[str, str] | None) -> Message:
    """The message with what a person changed."""
    if queue is not None:
        if problem := queue_problem(queue):
            raise InputError("queue", problem)
        row = replace(row, queue=queue, exchange="", routing_key=None, problem=None)
    if payload is not None:
        row = replace(row, payload=b64encode(payload).decode(), is_in_review=False)
    elif row.is_in_review:
        raise InputError("payload", "was too large to be stored; take it from the review queue, or give another")
    if headers:
        for name in headers:
            if not name or len(name.encode()) > 127:
                raise InputError("headers", "a header name must have 1 to 127 bytes")
        properties = row.kept.with_headers(headers)
        row = replace(row, properties=b64encode(properties.raw()).decode())
    return row


def preview(body: bytes, most: int = 2_000) -> dict[str, Any]:
    """The beginning of a payload, as text if it is text, and in hex."""
    part = body[:most]
    try:
        text: str | None = part.decode()
    except UnicodeDecodeError as error:
        is_cut_short = len(body) > most and error.start > most - 4
        text = part[: error.start].decode() if is_cut_short else None
    if text is not None and any(ord(each) < 32 and each not in "\t\r\n" for each in text):
        text = None
    return {"bytes": len(body), "text": text, "hex": body[:256].hex(" ")}


def prepared(properties: Properties) -> Properties:
    """Properties as we may publish them: without another sender's user id, to one queue, and persistent.

    Also without expiry: it was counted from when the message was first sent, and a retry that its queue drops unread
    would be lost while it counts as done.
    """
    return properties.but(delivery_mode=PERSISTENT, user_id=None, expiration=None).but_headers(("CC", "BCC"))


def fitting(properties: Properties, headers: Mapping[str, str | int]) -> Properties:
    """Properties for the review queue, with the message's own headers if they fit into a frame."""
    for kept in (properties, replace(properties, headers=())):
        fitting = kept.with_headers(headers)
        if len(fitting.raw()) < HEADERS_LIMIT:
            return fitting
    return replace(properties, headers=()).with_headers(
        {name: headers[name] for name in headers if name != "x-retry-story"}
    )


def queue_problem(name: str) -> str | None:
    """Why no queue can have this name; None when one can."""
    return "must not be empty" if not name else text_problem(name)


def text_problem(name: str) -> str | None:
    """Why the protocol has no room for this name; None when it has."""
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return "must be valid Unicode"
    if size > NAME_LIMIT:
        return f"has {size:,} bytes; {NAME_LIMIT} is the limit"
    if "\x00" in name:
        return "must not contain NUL characters"
    return None


def message_id_of(given: str) -> str | None:
    """The id in its stored form: a UUID in its usual form, any other id unchanged; None if it is not valid.

    Ids have no spaces, because keys of messages are an id and a queue with a space between them.
    """
    if _UUID.fullmatch(given):
        return str(UUID(given))
    try:
        given.encode()
    except UnicodeEncodeError:
        return None
    return given if _ID.fullmatch(given) else None
