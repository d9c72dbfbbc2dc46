"""Items: put, list, show, edit, cancel, retry."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from duly import codec
from duly.errors import ItemNotFound, WrongState
from duly.shown import OwnedRow
from duly.task import OPTIONS
from duly.verbs import Principal
from duly.web.auth import Reader, UserId, Writer, owner_for
from duly.web.desk import At, Desk, IdempotencyKey
from duly.web.problems import Problem
from duly.web.schemas import (
    BIG,
    After,
    Changed,
    Id,
    ItemEdit,
    ItemIn,
    ItemOut,
    ItemStoryOut,
    Page,
    PageSize,
    PlacedOut,
    Reason,
    RetryIn,
    State,
    WordFilter,
)

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
        placed = desk.place(principal, made, connection)
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
    row = find(desk, principal, item_id)
    if reveal:
        if not principal.may("write"):
            raise Problem(403, "revealing needs the scope write")
        desk.note(principal, "item.revealed", f"item:{item_id}", {})
    story = desk.app.read.story(item_id)
    return {**shown(desk, row, is_masked=not reveal), "tries": story.tries, "lease_until": story.lease_until}


@router.patch("/{item_id}", response_model=ItemOut)
def edit_item(item_id: Id, edit: ItemEdit, desk: At, principal: Writer) -> Any:
    """Change the arguments, time or rank of an item that waits or is in review. The difference is in the audit log."""
    version = desk.app.store.read("item_version", {"id": item_id})
    row = find(desk, principal, item_id)
    if row.state not in ("waiting", "failed"):
        raise WrongState(f"item {item_id} is {row.state} and cannot be edited")
    if edit.args is None:
        args = desk.app.store.fetch([item_id])[0].args
    else:
        args = desk.task(row.task).checked_args(desk.args(desk.unmasked(edit.args, row.args), OPTIONS))
    before = {"args": row.args, "dueAt": row.due_at, "rank": row.rank}
    after = {
        "args": codec.shown(args), "dueAt": edit.due_at or row.due_at,
        "rank": row.rank if edit.rank is None else edit.rank,
    }  # fmt: skip
    values = {
        "id": item_id, "owner": owner_for(principal, None), "was": row.state, "fence": row.fence,
        "version": version[0][0] if version else None, "args": args.decode(), "due_at": after["dueAt"],
        "rank": after["rank"], "now": desk.app.clock.now(),
    }  # fmt: skip
    changed = [name for name in before if before[name] != after[name]]
    difference = {name: [desk.masked(before[name]), desk.masked(after[name])] for name in changed}
    with desk.app.store.transaction() as connection:
        if not desk.app.store.run(connection, "edit_item", values):
            raise WrongState(f"item {item_id} was changed by someone else; look again")
        desk.note(principal, "item.edited", f"item:{item_id}", difference, connection)
    return shown(desk, find(desk, principal, item_id))


@router.post("/{item_id}/cancel", response_model=Changed)
def cancel_item(
    item_id: Id, request: Request, desk: At, principal: Writer, reason: Reason | None = None,
    idempotency_key: IdempotencyKey = None,
) -> Response:  # fmt: skip
    """Never, or no more; a running handler is stopped."""

    def act(connection: Any) -> tuple[int, Any]:
        find(desk, principal, item_id)
        said = reason.reason if reason else ""
        ids = desk.app.cancel(item_id, reason=said, connection=connection)
        desk.note(principal, "item.cancelled", f"item:{item_id}", {"reason": said}, connection)
        return 200, {"ids": ids}

    return desk.once(principal, idempotency_key, request, reason, act)


@router.post("/{item_id}/retry", response_model=Changed)
def retry_item(
    item_id: Id, request: Request, desk: At, principal: Writer, when: RetryIn | None = None,
    idempotency_key: IdempotencyKey = None,
) -> Response:  # fmt: skip
    """Again with all its tries, or sooner if it still waits."""

    def act(connection: Any) -> tuple[int, Any]:
        find(desk, principal, item_id)
        at = when.at if when else None
        ids = desk.app.retry(item_id, at=at, connection=connection)
        desk.note(principal, "item.retried", f"item:{item_id}", {"at": at}, connection)
        return 200, {"ids": ids}

    return desk.once(principal, idempotency_key, request, when, act)


@router.post("/{item_id}/discard", response_model=Changed)
def discard_item(
    item_id: Id, request: Request, desk: At, principal: Writer, reason: Reason | None = None,
    idempotency_key: IdempotencyKey = None,
) -> Response:  # fmt: skip
    """Take a failed item out of review for good."""

    def act(connection: Any) -> tuple[int, Any]:
        find(desk, principal, item_id)
        ids = desk.app.discard(item_id, connection=connection)
        said = {"reason": reason.reason if reason else ""}
        desk.note(principal, "item.discarded", f"item:{item_id}", said, connection)
        return 200, {"ids": ids}

    return desk.once(principal, idempotency_key, request, reason, act)


def find(desk: Desk, principal: Principal, item_id: int) -> OwnedRow:
    """The item, if it is theirs: another's and a missing one are the same."""
    row = desk.app.read.owned_item(item_id, owner_for(principal, None))
    if row is None:
        raise ItemNotFound(f"there is no item {item_id}")
    return row


def shown(desk: Desk, row: OwnedRow, is_masked: bool = True) -> dict[str, Any]:
    values = {name: getattr(row, name) for name in row.__struct_fields__}
    if row.key is not None and row.owner is not None:
        values["key"] = row.key.removeprefix(f"{row.owner}/")
    values.update({name: desk.masked(values[name], not is_masked) for name in ("args", "result", "progress")})
    return values
