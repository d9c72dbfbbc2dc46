"""Items: put, list, show, edit, cancel, retry."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from duly.core.errors import InputError
from duly.core.shown import OwnedRow
from duly.tasks.task import OPTIONS
from duly.web.auth import Reader, UserId, Writer, owner_for
from duly.web.desk import At, Desk, IdempotencyKey
from duly.web.problems import Problem
from duly.web.schemas import BIG, After, Id, Page, PageSize, State, WordFilter
from duly.web.schemas.items import Changed, ItemEdit, ItemIn, ItemOut, ItemStoryOut, PlacedOut, Reason, RetryIn

router = APIRouter(prefix="/api/items", tags=["items"])


@router.post("", status_code=201, response_model=PlacedOut, responses={200: {"model": PlacedOut}})
def put_item(
    new: ItemIn, request: Request, desk: At, principal: Writer, idempotency_key: IdempotencyKey = None
) -> Response:
    """Put an item: now, `at` a time, or after a `delay`; once per `key`. 200: the key has this item already."""

    def act(connection: Any) -> tuple[int, Any]:
        task = desk.task(new.task)
        given = {name: getattr(new, name) for name in ("at", "delay", "rank", "tries", "max_lateness")}
        if new.key is not None:
            given["key"] = principal.scoped(new.key)
        args = {**desk.args(new.args, OPTIONS), **given}
        made = task.new(args, desk.app.telemetry.traceparent(), principal.owner)
        placed = desk.app.verbs.items.put(principal, made, connection)
        return 201 if placed.fresh else 200, PlacedOut.model_validate(placed)

    return desk.once(principal, idempotency_key, request, new, act)


@router.get("", response_model=Page[ItemOut])
def list_items(
    desk: At,
    principal: Reader,
    state: Annotated[State | None, Query()] = None,
    task: WordFilter = None,
    queue: WordFilter = None,
    key: WordFilter = None,
    error_group: Annotated[str | None, Query(alias="errorGroup", pattern=r"^[0-9a-f]{1,64}$")] = None,
    schedule_id: Annotated[int | None, Query(alias="scheduleId", ge=1, le=BIG)] = None,
    user_id: UserId = None,
    page_size: PageSize = 50,
    after: After = None,
) -> Any:
    """Items, newest first."""
    owner = owner_for(principal, user_id)
    filters: dict[str, Any] = {
        "state": state, "task": task, "queue": queue, "key": key, "error_group": error_group,
        "schedule_id": schedule_id,
    }  # fmt: skip
    bound = ["items", owner, filters]
    before = desk.cursors.read(after, bound)
    rows = desk.app.read.owned(owner, before=before, most=page_size + 1, **filters)
    return desk.page(rows, page_size, lambda row: row.id, bound, lambda row: shown(desk, row))


@router.get("/{item_id}", response_model=ItemStoryOut)
def show_item(
    item_id: Id,
    desk: At,
    principal: Reader,
    reveal: Annotated[bool, Query(description="Show masked values; this is audited.")] = False,
) -> Any:
    """One item with its tries."""
    if reveal and not principal.may("write"):
        raise Problem(403, "revealing needs the scope write")
    row, story = desk.app.verbs.items.show(principal, item_id, is_revealed=reveal)
    return {**shown(desk, row, is_masked=not reveal), "tries": story.tries, "lease_until": story.lease_until}


@router.patch("/{item_id}", response_model=ItemOut)
def edit_item(item_id: Id, edit: ItemEdit, desk: At, principal: Writer) -> Any:
    """Change an item that waits or is in review: its arguments, time, queue, rank or tries.

    The difference is in the audit log.
    """
    if edit.at is not None and edit.due_at is not None:
        raise InputError("dueAt", "is an older name of at; give one of them")

    def args(row: OwnedRow) -> dict[str, Any]:
        desk.task(row.task)
        return desk.args(desk.unmasked(edit.args, row.args), OPTIONS)

    edited = desk.app.verbs.items.edit(
        principal, item_id, args=None if edit.args is None else args, at=edit.at or edit.due_at, queue=edit.queue,
        rank=edit.rank, tries=edit.tries,
    )  # fmt: skip
    return shown(desk, edited)


@router.post("/{item_id}/cancel", response_model=Changed)
def cancel_item(
    item_id: Id, request: Request, desk: At, principal: Writer, reason: Reason | None = None,
    idempotency_key: IdempotencyKey = None,
) -> Response:  # fmt: skip
    """Never, or no more; a running handler is stopped."""

    def act(connection: Any) -> tuple[int, Any]:
        said = reason.reason if reason else ""
        return 200, {"ids": desk.app.verbs.items.cancel(principal, item_id, reason=said, connection=connection)}

    return desk.once(principal, idempotency_key, request, reason, act)


@router.post("/{item_id}/retry", response_model=Changed)
def retry_item(
    item_id: Id, request: Request, desk: At, principal: Writer, when: RetryIn | None = None,
    idempotency_key: IdempotencyKey = None,
) -> Response:  # fmt: skip
    """Again with all its tries, or sooner if it still waits."""

    def act(connection: Any) -> tuple[int, Any]:
        at = when.at if when else None
        return 200, {"ids": desk.app.verbs.items.retry(principal, item_id, at=at, connection=connection)}

    return desk.once(principal, idempotency_key, request, when, act)


@router.post("/{item_id}/discard", response_model=Changed)
def discard_item(
    item_id: Id, request: Request, desk: At, principal: Writer, reason: Reason | None = None,
    idempotency_key: IdempotencyKey = None,
) -> Response:  # fmt: skip
    """Take a failed item out of review for good."""

    def act(connection: Any) -> tuple[int, Any]:
        said = reason.reason if reason else ""
        return 200, {"ids": desk.app.verbs.items.discard(principal, item_id, reason=said, connection=connection)}

    return desk.once(principal, idempotency_key, request, reason, act)


def shown(desk: Desk, row: OwnedRow, is_masked: bool = True) -> dict[str, Any]:
    values = {name: getattr(row, name) for name in row.__struct_fields__}
    if row.key is not None and row.owner is not None:
        values["key"] = row.key.removeprefix(f"{row.owner}/")
    values.update({name: desk.masked(values[name], not is_masked) for name in ("args", "result", "progress")})
    return values
