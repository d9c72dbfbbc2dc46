"""Review: groups of failures that look alike, notes about them, and acts on many rows."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response

from duly.core.shown import GroupStory, ReviewNote, ReviewTotals, ShownAct, ShownGroup
from duly.verbs.acts import shown
from duly.web.auth import Reader, UserId, Writer, owner_for
from duly.web.desk import At, Once, Pages
from duly.web.schemas import GroupId, Id, out, page_of
from duly.web.schemas.items import Changed
from duly.web.schemas.review import BulkIn, Count, CountIn, ReviewNoteIn

router = APIRouter(tags=["review"])


@router.get("/api/review", response_model=page_of(ShownGroup))
def list_groups(desk: At, principal: Reader, pages: Pages, user_id: UserId = None) -> Any:
    """Failed items in review, grouped by task and error, the largest groups first.

    A group that grows or shrinks between two pages may appear on both or on neither.
    """
    owner = owner_for(principal, user_id)
    groups = desk.app.verbs.review.groups
    return pages.turn(
        ["review", owner],
        lambda after, most: groups(principal, owner, most, after),
        place=lambda group: [group.items, group.id],
    )


@router.get("/api/review/totals", response_model=out(ReviewTotals))
def total_review(desk: At, principal: Reader, user_id: UserId = None) -> Any:
    """How many items are in review, and in how many groups."""
    return desk.app.verbs.review.totals(principal, owner_for(principal, user_id))


@router.get("/api/review/{group_id}", response_model=out(GroupStory))
def show_group(group_id: GroupId, desk: At, principal: Reader) -> Any:
    """One group with the error of a sample and its notes."""
    return desk.app.verbs.review.story(principal, group_id)


@router.post("/api/review/{group_id}/notes", status_code=201, response_model=out(ReviewNote))
def write_note(group_id: GroupId, note: ReviewNoteIn, desk: At, principal: Writer, once: Once) -> Response:
    """Add a note to a group of failures."""
    return once(
        principal, note, lambda connection: desk.app.verbs.review.write_note(principal, group_id, note.text, connection)
    )


@router.post("/api/review/{group_id}/canary", response_model=out(Changed))
def revive_canary(group_id: GroupId, desk: At, principal: Writer, once: Once) -> Response:
    """Retry one item of the group, to see whether the cause is gone."""
    return once(
        principal, None, lambda connection: Changed([desk.app.verbs.review.canary(principal, group_id, connection)])
    )


@router.post("/api/acts/count", response_model=out(Count))
def count_rows(asked: CountIn, desk: At, principal: Reader, user_id: UserId = None) -> Any:
    """How many rows an act would change. Nothing is changed."""
    found = desk.app.verbs.acts.count(principal, asked.filter.model_dump(), owner_for(principal, user_id))
    return Count(found.items, found.is_more)


@router.post("/api/acts", status_code=201, response_model=out(ShownAct))
def order_act(new: BulkIn, desk: At, principal: Writer, once: Once, user_id: UserId = None) -> Response:
    """Cancel, retry (at a rate) or discard all rows that match a filter, in the background."""
    owner, filter = owner_for(principal, user_id), new.filter.model_dump()
    counted = desk.app.verbs.acts.count(principal, filter, owner)

    def act(connection: Any) -> Any:
        made = desk.app.verbs.acts.order(
            principal, new.action, filter, rate=new.rate, reason=new.reason, queue=new.queue, owner=owner,
            counted=counted, connection=connection,
        )  # fmt: skip
        return shown(made)

    return once(principal, new, act)


@router.get("/api/acts", response_model=page_of(ShownAct))
def list_acts(desk: At, principal: Reader, pages: Pages, user_id: UserId = None) -> Any:
    """Acts on many rows, newest first."""
    owner = owner_for(principal, user_id)
    acts = desk.app.verbs.acts
    return pages.turn(["acts", owner], lambda before, most: acts.page(principal, owner, before, most), shown)


@router.get("/api/acts/{act_id}", response_model=out(ShownAct))
def show_act(act_id: Id, desk: At, principal: Reader) -> Any:
    """One act: how many rows it has seen and changed."""
    return shown(desk.app.verbs.acts.get(principal, act_id))


@router.post("/api/acts/{act_id}/cancel", response_model=out(ShownAct))
def cancel_act(act_id: Id, desk: At, principal: Writer, once: Once) -> Response:
    """Stop an act. Rows that it changed stay changed."""
    return once(principal, None, lambda connection: shown(desk.app.verbs.acts.cancel(principal, act_id, connection)))
