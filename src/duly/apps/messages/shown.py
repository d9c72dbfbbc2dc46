"""Messages as shown over HTTP and on the command line. It needs no package of the broker."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from msgspec import Struct

from duly.core.model import State
from duly.core.wire import Doc


class Payload(Struct, frozen=True):
    bytes: int
    text: Annotated[str | None, Doc("Its beginning, if it is text.")]
    hex: Annotated[str, Doc("Its beginning.")]
    decoded: Annotated[dict[str, Any] | None, Doc("As JSON, where the service knows its protobuf type.")]


class Failure(Struct, frozen=True):
    """One of the times that a message failed."""

    retry: int
    at: datetime
    reason: str = ""


class ShownMessage(Struct, frozen=True, kw_only=True):
    id: int
    message_id: str | None
    queue: str
    exchange: Annotated[str, Doc("Where it is published to; empty: straight to its queue.")]
    routing_key: str | None
    state: State
    due_at: datetime
    retry_count: int
    max_retries: int
    reason: str
    error: str | None
    replay_of: Annotated[int | None, Doc("The message that this one publishes again.")]
    first_failed_at: datetime | None
    payload: Payload


class MessageStory(ShownMessage, frozen=True, kw_only=True):
    """A message with its failures and its properties."""

    story: list[Failure]
    properties: dict[str, Any]
