"""Messages of the retry service: look, search, edit, send. They are items too: cancel, retry and review go there."""

from __future__ import annotations

from base64 import b64decode
from typing import Annotated, Any

from fastapi import Depends, Query, Response
from msgspec import Struct
from pydantic import AfterValidator, Field, StringConstraints

from duly.apps.messages import plugin
from duly.apps.messages.service import MessageRetry
from duly.apps.messages.shown import MessageStory, ShownMessage
from duly.core.errors import InputError
from duly.core.model import State, Tried
from duly.core.wire import Doc
from duly.web.auth import Reader, Writer, owner_for
from duly.web.desk import App, Pages, Verbs, masked, serving
from duly.web.routing import Router, Transaction
from duly.web.schemas import Changed, Id, Model, Page, WordFilter, clean, example

router = Router(prefix="/api/messages", tags=["messages"])

BYTES = "application/octet-stream"

Here = Annotated[MessageRetry, Depends(serving(plugin))]
HeaderName = Annotated[str, StringConstraints(min_length=1, max_length=127), AfterValidator(clean)]
HeaderValue = Annotated[str, StringConstraints(max_length=4_000), AfterValidator(clean)]


class MessageEdit(
    Model, **example(queue="orders.repair", payloadText='{"order": 7}', headers={"x-repaired-by": "ana"})
):
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


@router.get("")
def list_messages(
    verbs: Verbs,
    messages: Here,
    principal: Reader,
    pages: Pages,
    state: Annotated[State | None, Query()] = None,
    queue: WordFilter = None,
    message_id: Annotated[str | None, Query(alias="messageId", pattern=r"^\S{1,200}$")] = None,
) -> Page[ShownMessage]:
    """Messages that wait, were sent back or are in review, newest first."""
    queries = messages.queries
    filters: dict[str, Any] = {"message_id": message_id, "queue": queue, "state": state}
    return pages.turn(
        lambda before, most: queries.page(owner_for(principal, None), before=before, most=most, **filters),
        lambda row: masked(verbs, queries.shown(row, True)),
    )


@router.get("/drift")
def show_drift(messages: Here, principal: Reader, minutes: Annotated[int, Query(ge=1, le=1_440)] = 60) -> MessageDrift:
    """How late messages were published again in the last minutes, against their time; of the newest rows only."""
    found = messages.queries.drift(owner_for(principal, None), minutes)
    return MessageDrift([[each.at, each.mean_seconds, each.most_seconds, each.items] for each in found])


@router.get("/{item_id}/payload", response_class=Response, responses={200: {"content": {BYTES: {}}}})
def download_payload(item_id: Id, messages: Here, principal: Reader) -> Response:
    """All bytes of a message, as a file."""
    body = messages.queries.payload(messages.review.find(principal, item_id))
    headers = {"Content-Disposition": f'attachment; filename="message-{item_id}.bin"'}
    return Response(body, media_type=BYTES, headers=headers)


@router.get("/{item_id}")
def show_message(item_id: Id, app: App, messages: Here, principal: Reader) -> MessageWithTries:
    """One message with its story, its properties and a look at its payload."""
    shown = messages.queries.shown(messages.review.find(principal, item_id))
    return MessageWithTries(**{**masked(app.internals.verbs, shown), "tries": app.read.story(item_id).tries})


@router.patch("/{item_id}")
def edit_message(item_id: Id, edit: MessageEdit, app: App, messages: Here, principal: Writer) -> MessageWithTries:
    """Another queue, payload or headers, for a message that waits or is in review."""
    messages.review.edit(item_id, **_changes(edit), who=principal)
    return show_message(item_id, app, messages, principal)


@router.post("/{item_id}/send")
def send_message(
    item_id: Id, messages: Here, principal: Writer, connection: Transaction, edit: MessageSend | None = None
) -> Changed:
    """Publish it now, whatever its number of retries: to its queue or another, as it is or changed.

    With `replay`, what was published or cancelled already is published again as a message of its own, whose id is the
    answer.
    """
    changes = {**_changes(edit), "replay": edit.replay} if edit else {}
    return Changed([messages.review.resend(item_id, **changes, who=principal, connection=connection)])


def _changes(edit: MessageEdit) -> dict[str, Any]:
    if edit.payload_base64 is not None and edit.payload_text is not None:
        raise InputError("payloadText", "give either payloadText or payloadBase64, not both")
    payload = None if edit.payload_text is None else edit.payload_text.encode()
    if edit.payload_base64 is not None:
        try:
            payload = b64decode(edit.payload_base64, validate=True)
        except ValueError:
            raise InputError("payloadBase64", "must be base64") from None
    return {"queue": edit.queue, "payload": payload, "headers": edit.headers}
