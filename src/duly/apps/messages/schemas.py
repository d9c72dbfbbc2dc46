"""Messages over HTTP."""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct
from pydantic import AfterValidator, Field, StringConstraints

from duly.apps.messages.shown import MessageStory
from duly.core.doc import Doc
from duly.core.model import Tried
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


class MessageWithTries(MessageStory, frozen=True, kw_only=True):
    tries: list[Tried]


class MessageDrift(Struct, frozen=True):
    points: Annotated[
        list[list[float]],
        Doc("When (seconds since 1970), mean and most seconds from its time to the broker's confirm, how many."),
    ]
