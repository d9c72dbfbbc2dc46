"""Review: groups of failures that look alike, notes about them, and acts on many rows."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Response
from msgspec import Struct
from pydantic import AfterValidator, Field, StringConstraints

from duly.core.shown import Action, GroupStory, ReviewNote, ReviewTotals, ShownAct, ShownGroup
from duly.core.wire import Doc
from duly.verbs.acts import RATE, shown
from duly.web.auth import Owner, Reader, Writer
from duly.web.desk import Pages, Verbs
from duly.web.routing import Once, Router, Transaction, repeatable
from duly.web.schemas import Changed, FilterIn, GroupId, Id, Model, Page, ReasonIn, Word, clean, example, out

router = Router(tags=["review"])


class ReviewNoteIn(Model, **example(text="The supplier changed its certificate.")):
    text: Annotated[str, StringConstraints(min_length=1, max_length=4_000), AfterValidator(clean)]


class CountIn(Model, **example(action="retry", filter={"state": "failed", "task": "http"})):
    action: Action
    filter: FilterIn


class ActIn(
    CountIn,
    ReasonIn,
    **example(action="retry", filter={"state": "failed", "task": "http"}, rate=10, reason="the receiver is back"),
):
    all: bool = Field(default=False, description="Required if the filter is empty: every item is meant.")
    rate: Annotated[float, Field(gt=0, le=RATE)] | None = Field(
        default=None, description="Items per second; null: all at once."
    )
    queue: Word | None = Field(default=None, description="The queue for retried items; null: their own.")


class Count(Struct, frozen=True):
    count: int
    is_more: Annotated[bool, Doc("The count stopped here; there are more.")]


@router.get("/api/review")
def list_groups(verbs: Verbs, principal: Reader, pages: Pages, owner: Owner) -> Page[ShownGroup]:
    """Failed items in review, grouped by task and error, the largest groups first.

    A group that grows or shrinks between two pages may appear on both or on neither.
    """
    return pages.turn(
        lambda after, most: verbs.review.groups(principal, owner, most, after),
        place=lambda group: [group.items, group.id],
    )


@router.get("/api/review/totals")
def total_review(verbs: Verbs, principal: Reader, owner: Owner) -> ReviewTotals:
    """How many items are in review, and in how many groups."""
    return verbs.review.totals(principal, owner)


@router.get("/api/review/{group_id}")
def show_group(group_id: GroupId, verbs: Verbs, principal: Reader) -> GroupStory:
    """One group with the error of a sample and its notes."""
    return verbs.review.story(principal, group_id)


@router.post("/api/review/{group_id}/notes", status_code=201)
def write_note(
    group_id: GroupId, note: ReviewNoteIn, verbs: Verbs, principal: Writer, connection: Transaction
) -> ReviewNote:
    """Add a note to a group of failures."""
    return verbs.review.write_note(principal, group_id, note.text, connection)


@router.post("/api/review/{group_id}/canary")
def revive_canary(group_id: GroupId, verbs: Verbs, principal: Writer, connection: Transaction) -> Changed:
    """Retry one item of the group, to see whether the cause is gone."""
    return Changed([verbs.review.canary(principal, group_id, connection)])


@router.post("/api/acts/count")
@repeatable("it only reads")
def count_rows(asked: CountIn, verbs: Verbs, principal: Reader, owner: Owner) -> Count:
    """How many rows an act would change. Nothing is changed."""
    found = verbs.acts.count(principal, asked.action, asked.filter.model_dump(), owner)
    return Count(found.items, found.is_more)


@router.post("/api/acts", status_code=201, response_model=out(ShownAct))
def order_act(new: ActIn, verbs: Verbs, principal: Writer, once: Once, owner: Owner) -> Response:
    """Cancel, retry (at a rate) or discard all rows that match a filter, in the background."""
    filter = new.filter.model_dump()
    counted = verbs.acts.count(principal, new.action, filter, owner)  # before the transaction, because it may take long

    def act(connection: Any) -> ShownAct:
        made = verbs.acts.order(
            principal, new.action, filter, all=new.all, rate=new.rate, reason=new.reason, queue=new.queue,
            owner=owner, counted=counted, connection=connection,
        )  # fmt: skip
        return shown(made)

    return once(new, act)


@router.get("/api/acts")
def list_acts(verbs: Verbs, principal: Reader, pages: Pages, owner: Owner) -> Page[ShownAct]:
    """Acts on many rows, newest first."""
    return pages.turn(lambda before, most: verbs.acts.page(principal, owner, before, most), shown)


@router.get("/api/acts/{act_id}")
def show_act(act_id: Id, verbs: Verbs, principal: Reader) -> ShownAct:
    """One act: how many rows it has seen and changed."""
    return shown(verbs.acts.get(principal, act_id))


@router.post("/api/acts/{act_id}/cancel")
def cancel_act(act_id: Id, verbs: Verbs, principal: Writer, connection: Transaction) -> ShownAct:
    """Stop an act. Rows that it changed stay changed."""
    return shown(verbs.acts.cancel(principal, act_id, connection))
