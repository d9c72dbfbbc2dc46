"""Messages over HTTP."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from msgspec import Struct
from pydantic import AfterValidator, Field, StringConstraints

from duly.bridge.message import Failure
from duly.core.doc import Doc
from duly.core.model import State, Tried
from duly.web.schemas import Model, clean, example

HeaderName = Annotated[str, StringConstraints(min_length=1, max_length=127), AfterValidator(clean)]
HeaderValue = Annotated[str, StringConstraints(max_length=4_000), AfterValidator(clean)]


class MessageEdit(Model):
    model_config = example(queue="orders.repair", payloadText='{"order": 7}', headers={"x-repaired-by": "ana"})

    queue: Annotated[str, StringConstraints(min_length=1, max_length=255), AfterValidator(clean)] | None = None
    payload_text: Annotated[str, StringConstraints(max_length=1_000_000), AfterValidator(clean)] | None = None
    payload_base64: Annotated[str, StringConstraints(max_length=1_400_000)] | None = None
    headers: Annotated[dict[HeaderName, HeaderValue], Field(max_length=50)] | None = None


class MessageSend(MessageEdit):
    replay: bool = Field(
        default=False, description="Also if it was published or cancelled already: again, as a message of its own."
    )


class Payload(Struct, frozen=True):
    bytes: int
    text: Annotated[str | None, Doc("Its beginning, if it is text.")]
    hex: Annotated[str, Doc("Its beginning.")]
    decoded: Annotated[dict[str, Any] | None, Doc("As JSON, where the service knows its protobuf type.")]


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
    story: list[Failure]
    properties: dict[str, Any]
    tries: list[Tried]


class MessageDrift(Struct, frozen=True):
    points: Annotated[
        list[list[float]],
        Doc("When (seconds since 1970), mean and most seconds from its time to the broker's confirm, how many."),
    ]
