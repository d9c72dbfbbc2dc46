"""Items: put, list, show, edit, cancel, retry."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel

from duly.core.errors import InputError
from duly.core.shown import OwnedRow
from duly.tasks.task import OPTIONS
from duly.verbs import Principal
from duly.web.auth import Reader, UserId, Writer, owner_for
from duly.web.desk import At, Desk, Once, Pages
from duly.web.problems import Problem
from duly.web.schemas import BIG, Id, Page, State, WordFilter
from duly.web.schemas.items import Changed, ItemEdit, ItemIn, ItemOut, ItemStoryOut, PlacedOut, Reason, RetryIn

router = APIRouter(prefix="/api/items", tags=["items"])


@router.post("", status_code=201, response_model=PlacedOut, responses={200: {"model": PlacedOut}})
def put_item(new: ItemIn, desk: At, principal: Writer, once: Once) -> Response:
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

    return once(principal, new, act)


@router.get("", response_model=Page[ItemOut])
def list_items(
    desk: At,
    principal: Reader,
    pages: Pages,
    state: Annotated[State | None, Query()] = None,
    task: WordFilter = None,
    queue: WordFilter = None,
    key: WordFilter = None,
    error_group: Annotated[str | None, Query(alias="errorGroup", pattern=r"^[0-9a-f]{1,64}$")] = None,
    schedule_id: Annotated[int | None, Query(alias="scheduleId", ge=1, le=BIG)] = None,
    user_id: UserId = None,
) -> Any:
    """Items, newest first."""
    owner = owner_for(principal, user_id)
    filters: dict[str, Any] = {
        "state": state, "task": task, "queue": queue, "key": key, "error_group": error_group,
        "schedule_id": schedule_id,
    }  # fmt: skip

    def find(before: int | None, most: int) -> Sequence[OwnedRow]:
        return desk.app.read.owned(owner, before=before, most=most, **filters)

    return pages.turn(["items", owner, filters], find, lambda row: shown(desk, row))


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
def cancel_item(item_id: Id, desk: At, principal: Writer, once: Once, reason: Reason | None = None) -> Response:
    """Cancel an item that waits or runs; a running handler is stopped within a second."""
    said = reason.reason if reason else ""
    return _acted(once, principal, item_id, reason, partial(desk.app.verbs.items.cancel, reason=said))


@router.post("/{item_id}/retry", response_model=Changed)
def retry_item(item_id: Id, desk: At, principal: Writer, once: Once, when: RetryIn | None = None) -> Response:
    """Have a failed or cancelled item tried again with all its tries, or a waiting one sooner."""
    at = when.at if when else None
    return _acted(once, principal, item_id, when, partial(desk.app.verbs.items.retry, at=at))


@router.post("/{item_id}/discard", response_model=Changed)
def discard_item(item_id: Id, desk: At, principal: Writer, once: Once, reason: Reason | None = None) -> Response:
    """Take a failed item out of review for good."""
    said = reason.reason if reason else ""
    return _acted(once, principal, item_id, reason, partial(desk.app.verbs.items.discard, reason=said))


def _acted(
    once: Once, principal: Principal, item_id: int, body: BaseModel | None, verb: Callable[..., list[int]]
) -> Response:
    """Have a verb act on an item, and answer which it changed."""

    def act(connection: Any) -> tuple[int, Any]:
        return 200, {"ids": verb(principal, item_id, connection=connection)}

    return once(principal, body, act)


def shown(desk: Desk, row: OwnedRow, is_masked: bool = True) -> dict[str, Any]:
    values = {name: getattr(row, name) for name in row.__struct_fields__}
    if row.key is not None and row.owner is not None:
        values["key"] = row.key.removeprefix(f"{row.owner}/")
    values.update({name: desk.masked(values[name], not is_masked) for name in ("args", "result", "progress")})
    return values
