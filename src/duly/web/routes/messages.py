"""Messages of the retry service: look, search, edit, send. They are items too: cancel, retry and review go there."""

from __future__ import annotations

from base64 import b64decode
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from duly.errors import InputError, ItemNotFound
from duly.people import Principal
from duly.shown import OwnedRow
from duly.web.auth import Reader, Writer, owner_for
from duly.web.desk import At, Desk, IdempotencyKey
from duly.web.routes.apps import app_named
from duly.web.routes.items import find as find_item
from duly.web.schemas import (
    After,
    Changed,
    Id,
    MessageEdit,
    MessageOut,
    MessageStoryOut,
    Page,
    PageSize,
    State,
    WordFilter,
)

router = APIRouter(prefix="/api/messages", tags=["messages"])


@router.get("", response_model=Page[MessageOut])
def list_messages(
    desk: At,
    principal: Reader,
    state: Annotated[State | None, Query()] = None,
    queue: WordFilter = None,
    message_id: Annotated[str | None, Query(alias="messageId", pattern=r"^[0-9a-fA-F-]{32,36}$")] = None,
    page_size: PageSize = 50,
    after: After = None,
) -> Any:
    """Messages that wait, were sent back or are in review, newest first."""
    messages, owner = app_named(desk, "messages"), owner_for(principal, None)
    bound = ["messages", owner, state, queue, message_id]
    before = desk.cursors.read(after, bound)
    rows = messages.page(owner, message_id=message_id, queue=queue, state=state, before=before, most=page_size + 1)
    return desk.page(rows, page_size, lambda row: row.id, bound, lambda row: desk.masked(messages.shown(row, True)))


@router.get("/{item_id}", response_model=MessageStoryOut)
def show_message(item_id: Id, desk: At, principal: Reader) -> Any:
    """One message with its story, its properties and a look at its payload."""
    messages = app_named(desk, "messages")
    shown = messages.shown(_find(desk, principal, item_id))
    return {**desk.masked(shown), "tries": desk.app.read.story(item_id).tries}


@router.patch("/{item_id}", response_model=MessageStoryOut)
def edit_message(item_id: Id, edit: MessageEdit, desk: At, principal: Writer) -> Any:
    """Another queue, payload or headers, for a message that waits or is in review."""
    messages = app_named(desk, "messages")
    _find(desk, principal, item_id)
    messages.edit(item_id, **_changes(edit), actor=principal.user_id)
    return show_message(item_id, desk, principal)


@router.post("/{item_id}/send", response_model=Changed)
def send_message(
    item_id: Id, request: Request, desk: At, principal: Writer, edit: MessageEdit | None = None,
    idempotency_key: IdempotencyKey = None,
) -> Response:  # fmt: skip
    """Publish it now, whatever its count: to its queue or another, as it is or changed."""
    messages = app_named(desk, "messages")

    def act(connection: Any) -> tuple[int, Any]:
        _find(desk, principal, item_id)
        changes = _changes(edit) if edit else {}
        messages.resend(item_id, **changes, actor=principal.user_id, connection=connection)
        return 200, {"ids": [item_id]}

    return desk.once(principal, idempotency_key, request, edit, act)


def _find(desk: Desk, principal: Principal, item_id: int) -> OwnedRow:
    row = find_item(desk, principal, item_id)
    if row.task != app_named(desk, "messages").task.name:
        raise ItemNotFound(f"there is no message {item_id}")
    return row


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
