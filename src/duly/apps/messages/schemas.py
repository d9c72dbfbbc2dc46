"""Messages over HTTP."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import AfterValidator, Field, StringConstraints

from duly.web.schemas import Model, Out, State, clean, example
from duly.web.schemas.items import TryOut

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


class PayloadOut(Out):
    bytes: int
    text: str | None = Field(description="Its beginning, if it is text.")
    hex: str = Field(description="Its beginning.")
    decoded: dict[str, Any] | None = Field(description="As JSON, where the service knows its protobuf type.")


class FailureOut(Out):
    retry: int
    at: datetime
    reason: str = ""


class MessageOut(Out):
    id: int
    message_id: str | None
    queue: str
    exchange: str = Field(description="Where it is published to; empty: straight to its queue.")
    routing_key: str | None
    state: State
    due_at: datetime
    retry_count: int
    max_retries: int
    reason: str
    error: str | None
    replay_of: int | None = Field(description="The message that this one publishes again.")
    first_failed_at: datetime | None
    payload: PayloadOut


class DriftOut(Out):
    points: list[list[float]] = Field(
        description="When (seconds since 1970), mean and most seconds from its time to the broker's confirm, how many."
    )


class MessageStoryOut(MessageOut):
    story: list[FailureOut]
    properties: dict[str, Any]
    tries: list[TryOut]
