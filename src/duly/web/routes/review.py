"""Review: failures by their look, notes about them, and what becomes of a group; and acts on any filter."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response

from duly.acts import COUNTED, Acts
from duly.errors import ItemNotFound
from duly.shown import Group
from duly.verbs import Principal
from duly.web.auth import Reader, UserId, Writer, owner_for
from duly.web.desk import At, Desk, IdempotencyKey
from duly.web.schemas import (
    After,
    BulkIn,
    BulkOut,
    Changed,
    CountIn,
    CountOut,
    GroupId,
    GroupOut,
    GroupStoryOut,
    Id,
    Page,
    PageSize,
    ReviewNoteIn,
    ReviewNoteOut,
)

router = APIRouter(tags=["review"])


@router.get("/api/review", response_model=Page[GroupOut])
def list_groups(
    desk: At, principal: Reader, user_id: UserId = None, page_size: PageSize = 50, after: After = None
) -> Any:
    """Failures in review, grouped by their look, the largest groups first.

    A group that grows or shrinks while you turn pages changes its place among them.
    """
    owner = owner_for(principal, user_id)
    bound = ["review", owner]
    rows = desk.app.read.groups(owner, page_size + 1, desk.cursors.read(after, bound))
    return desk.page(rows, page_size, lambda row: [row.items, row.id], bound, lambda row: row)


@router.get("/api/review/{group_id}", response_model=GroupStoryOut)
def show_group(group_id: GroupId, desk: At, principal: Reader) -> Any:
    """One group: a sample's error, and what people wrote about it."""
    group = find(desk, principal, group_id)
    values = {name: getattr(group, name) for name in group.__struct_fields__}
    sample = desk.app.read.item(group.sample)
    return {
        **values,
        "error": sample.last_error,
        "notes": desk.app.read.review_notes(group_id, owner_for(principal, None)),
    }


@router.post("/api/review/{group_id}/notes", status_code=201, response_model=ReviewNoteOut)
def write_note(
    group_id: GroupId, note: ReviewNoteIn, request: Request, desk: At, principal: Writer,
    idempotency_key: IdempotencyKey = None,
) -> Response:  # fmt: skip
    """Write something down about a group of failures."""
    owner = owner_for(principal, None)

    def act(connection: Any) -> tuple[int, Any]:
        find(desk, principal, group_id)
        now = desk.app.clock.now()
        row = {"owner": owner, "error_group": group_id, "author": principal.user_id, "text": note.text, "now": now}
        made = desk.app.store.run(connection, "write_review_note", row)[0][0]
        desk.note(principal, "review.noted", f"group:{group_id}", {"note": made}, connection)
        return 201, ReviewNoteOut(id=made, author=principal.user_id, text=note.text, at=now)

    return desk.once(principal, idempotency_key, request, note, act)


@router.post("/api/review/{group_id}/canary", response_model=Changed)
def revive_canary(
    group_id: GroupId, request: Request, desk: At, principal: Writer, idempotency_key: IdempotencyKey = None
) -> Response:
    """Try one of the group again, to see whether the cause is gone."""

    def act(connection: Any) -> tuple[int, Any]:
        group = find(desk, principal, group_id)
        ids = desk.app.verbs.items.retry(
            principal, group.sample, action="review.canary", details={"group": group_id}, connection=connection
        )
        return 200, {"ids": ids}

    return desk.once(principal, idempotency_key, request, None, act)


@router.post("/api/bulk/count", response_model=CountOut)
def count_rows(asked: CountIn, desk: At, principal: Reader, user_id: UserId = None) -> Any:
    """How many rows an act would mean, before anything is done."""
    count, _ = Acts(desk.app).count(owner_for(principal, user_id), asked.filter.model_dump())
    return {"count": count, "is_more": count >= COUNTED}


@router.post("/api/bulk", status_code=201, response_model=BulkOut)
def order_act(
    new: BulkIn, request: Request, desk: At, principal: Writer, user_id: UserId = None,
    idempotency_key: IdempotencyKey = None,
) -> Response:  # fmt: skip
    """Cancel, retry (at a rate) or discard all rows that fit a filter, as durable work."""
    owner = owner_for(principal, user_id)
    acts = Acts(desk.app)
    options = {"rate": new.rate, "reason": new.reason}

    def act(connection: Any) -> tuple[int, Any]:
        made = acts.order(owner, principal.user_id, new.action, new.filter.model_dump(), options, connection)
        return 201, BulkOut.model_validate(acts.get(made, owner, connection))

    return desk.once(principal, idempotency_key, request, new, act)


@router.get("/api/bulk", response_model=Page[BulkOut])
def list_acts(
    desk: At, principal: Reader, user_id: UserId = None, page_size: PageSize = 50, after: After = None
) -> Any:
    """Acts on many rows, newest first."""
    owner = owner_for(principal, user_id)
    bound = ["bulk", owner]
    rows = Acts(desk.app).page(owner, desk.cursors.read(after, bound), page_size + 1)
    return desk.page(rows, page_size, lambda row: row.id, bound, lambda row: row)


@router.get("/api/bulk/{act_id}", response_model=BulkOut)
def show_act(act_id: Id, desk: At, principal: Reader) -> Any:
    """How far it is."""
    return Acts(desk.app).get(act_id, owner_for(principal, None))


@router.post("/api/bulk/{act_id}/cancel", response_model=BulkOut)
def cancel_act(
    act_id: Id, request: Request, desk: At, principal: Writer, idempotency_key: IdempotencyKey = None
) -> Response:
    """Stop where it stands; what was done stays done."""

    def act(connection: Any) -> tuple[int, Any]:
        acts, owner = Acts(desk.app), owner_for(principal, None)
        acts.cancel(act_id, principal.user_id, owner, connection)
        return 200, BulkOut.model_validate(acts.get(act_id, owner, connection))

    return desk.once(principal, idempotency_key, request, None, act)


def find(desk: Desk, principal: Principal, group_id: str) -> Group:
    group = desk.app.read.group(group_id, owner_for(principal, None))
    if group is None:
        raise ItemNotFound(f"there is no group {group_id}")
    return group
