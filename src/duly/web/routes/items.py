"""Items: put, put again, list, count, show, edit, cancel, retry; one, or a selection."""

from __future__ import annotations

from datetime import datetime
from operator import attrgetter
from typing import Annotated, Any

from fastapi import Depends, Query, Response
from msgspec import Struct
from msgspec.structs import asdict, replace
from pydantic import Field

from duly import Duly
from duly.core.errors import InputError
from duly.core.model import Placed
from duly.core.results import Retasked, Signature
from duly.core.shown import Action, ItemsFound, ItemStory, Row, ScheduleName, StateCounts
from duly.core.wire import Doc
from duly.tasks.puttable import Options
from duly.tasks.signature import signature
from duly.verbs.acts import meant
from duly.verbs.listing import Filter
from duly.web.auth import Owner, Reader, Writer
from duly.web.desk import App, Pages, Verbs, masked, open_task
from duly.web.problems import Problem
from duly.web.routes.queues import line_shown
from duly.web.routing import Once, Router, Transaction
from duly.web.schemas import (
    BIG,
    Args,
    Changed,
    FilterIn,
    Id,
    Key,
    Model,
    Moment,
    Page,
    Rank,
    ReasonIn,
    Seconds,
    Selection,
    Tries,
    Word,
    example,
    in_query,
    out,
)

router = Router(prefix="/api/items", tags=["items"])
tasks = Router(prefix="/api/tasks", tags=["items"])


class RetryIn(Model, **example(at="2026-12-01T09:00:00+01:00")):
    at: Moment | None = None


class AgainIn(RetryIn, **example(key="hook-1")):
    delay: Seconds | None = Field(default=None, description="Seconds from now.")
    key: Key | None = Field(default=None, description="One live item per task and key.")


class ItemIn(AgainIn, **example(task="http", args={"url": "https://example.com/hook", "body": {"n": 1}}, key="hook-1")):
    task: Word
    args: Args = Field(default_factory=dict)
    rank: Rank | None = None
    tries: Tries | None = None
    max_lateness: Seconds | None = None


class RetaskIn(Model, **example(old="send-mail", new="send_mail")):
    old: Word = Field(description="The task that nobody runs any more.")
    new: Word = Field(description="The task that its items get.")
    skip: bool = Field(default=False, description="Leave what cannot be moved, and move the rest.")


class Search(Struct, frozen=True):
    """How a page was looked for."""

    scanned: Annotated[int, Doc("How many items were read.")]
    is_done: Annotated[bool, Doc("False: there may be more; `next` continues, even where this page has no rows.")]
    is_indexed: Annotated[bool, Doc("An index found the items. Otherwise items were read one by one.")]


class ItemPage(Struct, frozen=True):
    items: list[Row]
    next: Annotated[str | None, Doc("`after` of the next page; null on the last.")]
    search: Search


class ItemEdit(Model, **example(args={"url": "https://example.com/hook"}, at="2026-12-01T09:00:00+01:00", rank=-1)):
    args: Args | None = None
    at: Moment | None = None
    queue: Word | None = None
    rank: Rank | None = None
    tries: Tries | None = None


class ItemsAct(Selection, ReasonIn, **example(action="retry", ids=[7, 8])):
    action: Action
    at: Moment | None = Field(default=None, description="When retried items are due; default: now.")
    delay: Seconds | None = Field(default=None, description="The same, in seconds from now.")


@tasks.get("")
def list_tasks(app: App, principal: Reader, pages: Pages) -> Page[Signature]:
    """The tasks that can be put through this service, by name, with their parameters."""
    found = (task for task in app.tasks.values() if not task.is_internal)
    return pages.among(found, lambda task: _without_secrets(app, signature(task)), attrgetter("name"))


def _without_secrets(app: Duly, found: Signature) -> Signature:
    """The same signature with secrets in the defaults of parameters masked."""
    shown = masked(app.internals.verbs, {param.name: param.default for param in found.params if param.default})
    params = [replace(param, default=shown.get(param.name, param.default)) for param in found.params]
    return replace(found, params=params)


@router.post("", status_code=201)
def put_item(new: ItemIn, app: App, principal: Writer, connection: Transaction) -> Placed[Any]:
    """Put an item: now, `at` a time, or after a `delay`; once per `key`. 200: a live item has this key already."""
    options: Options = {
        "at": new.at, "delay": new.delay, "rank": new.rank, "tries": new.tries, "max_lateness": new.max_lateness,
        "key": None if new.key is None else principal.scoped(new.key),
    }  # fmt: skip
    task = open_task(app, new.task)
    made = task.make_item(dict(new.args), options, app.internals.telemetry.traceparent(), principal.owner)
    return app.internals.verbs.items.put(principal, made, connection)


async def _filter(
    given: Annotated[FilterIn, Depends(in_query(FilterIn))],
    below: Annotated[int | None, Query(ge=0, le=BIG, description="Only items with a smaller id.")] = None,
) -> Filter:
    return replace(meant(dict(given)), below=below)


Filtered = Annotated[Filter, Depends(_filter)]


@router.get("")
def list_items(verbs: Verbs, principal: Reader, pages: Pages, filter: Filtered, owner: Owner) -> ItemPage:
    """Items, newest first; rows of one job by their number, items of one schedule by their time.

    Filters without an index (a part of an error, a value, a number of tries, a time) are checked row by row, at most
    20,000 rows for a page. `search` gives the number of rows read, and `next` continues, even where a page has no rows.
    """

    def find(after: int | str | None, most: int) -> tuple[ItemsFound, int | str | None]:
        place = datetime.fromisoformat(after) if isinstance(after, str) else after
        found = verbs.listing.page(principal, filter, owner=owner, after=place, most=most)
        return found, found.place.isoformat() if isinstance(found.place, datetime) else found.place

    found, following = pages.walk(find)
    search = Search(found.scanned, following is None, found.is_indexed)
    return ItemPage([shown(verbs, row) for row in found.rows], following, search)


@router.get("/counts")
def count_items(verbs: Verbs, principal: Reader, filter: Filtered, owner: Owner) -> StateCounts:
    """How many items match, by state. Each state is counted up to ten thousand."""
    return verbs.listing.counts(principal, filter, owner=owner)


@router.post("/act")
def act_on_items(body: ItemsAct, verbs: Verbs, principal: Writer, connection: Transaction) -> Changed:
    """Cancel, retry or discard a selection of items, in one transaction: all of them, or none.

    If one of them is gone or in another state, the answer is 409 (404 if none of those exists) and names each with the
    reason. With `skip`, such items are left as they are. Returns the ids that were changed.
    """
    if body.at is None and body.delay is None:
        options: dict[str, Any] = {"reason": body.reason, "skip": body.skip, "connection": connection}
        return Changed(verbs.items.act(principal, body.action, body.ids, **options))
    if body.action != "retry" or body.skip:
        raise InputError("at", "and delay are for retries without skip only")
    return Changed(verbs.items.retry(principal, *body.ids, at=body.at, delay=body.delay, connection=connection))


@router.post("/retask", response_model=out(Retasked))
def retask_items(body: RetaskIn, app: App, verbs: Verbs, principal: Writer, once: Once) -> Response:
    """Give waiting and failed items, schedules and jobs of a task to another one, because it was renamed or misspelt.

    Everything is checked before anything is changed: if the new task does not accept something, the answer is 409 and
    names each with the reason. With `skip`, the rest is moved. One request moves at most 5,000 items: send it again,
    with `skip`, while `isMore`.
    """
    open_task(app, body.new)
    if body.old in app.tasks:
        open_task(app, body.old)
    given: dict[str, Any] = {"old": body.old, "new": body.new, "skip": body.skip}
    plan = verbs.tasks.plan(principal, **given)  # before the transaction, because it may take long
    return once(body, lambda own: verbs.tasks.retask(principal, **given, plan=plan, connection=own))


@router.get("/{item_id}")
def show_item(
    item_id: Id,
    verbs: Verbs,
    principal: Reader,
    reveal: Annotated[bool, Query(description="Show masked values. This is written to the audit log.")] = False,
) -> ItemStory:
    """One item with its failed tries, its timeline, its audit log and its origin."""
    if reveal and not principal.may("write"):
        raise Problem(403, "reveal: needs the scope write", "reveal")
    row, story = verbs.items.show(principal, item_id, is_revealed=reveal)
    key = None if story.schedule_key is None else story.schedule_key.removeprefix(f"{row.owner}/")
    return ItemStory(
        **asdict(shown(verbs, row, is_masked=not reveal)),
        tries=story.tries,
        lease_until=story.lease_until,
        timeline=story.timeline,
        trace_id=story.trace_id,
        schedule=None if key is None or row.schedule_id is None else ScheduleName(row.schedule_id, key),
        audit=[line_shown(verbs, line) for line in verbs.audit.page(f"item:{item_id}")],
    )


@router.patch("/{item_id}")
def edit_item(item_id: Id, edit: ItemEdit, app: App, verbs: Verbs, principal: Writer) -> Row:
    """Change an item that waits or is in review: its arguments, time, queue, rank or tries.

    The difference is in the audit log.
    """

    def args(row: Row) -> dict[str, Any]:
        open_task(app, row.task)
        return dict(verbs.context.masks.unmasked(edit.args, row.args))

    edited = verbs.items.edit(
        principal, item_id, args=None if edit.args is None else args, at=edit.at, queue=edit.queue, rank=edit.rank,
        tries=edit.tries,
    )  # fmt: skip
    return shown(verbs, edited)


@router.post("/{item_id}/cancel")
def cancel_item(
    item_id: Id, verbs: Verbs, principal: Writer, connection: Transaction, reason: ReasonIn | None = None
) -> Changed:
    """Cancel an item that waits or runs; a running handler is stopped within a second."""
    text = reason.reason if reason else ""
    return Changed(verbs.items.cancel(principal, item_id, reason=text, connection=connection))


@router.post("/{item_id}/retry")
def retry_item(
    item_id: Id, verbs: Verbs, principal: Writer, connection: Transaction, when: RetryIn | None = None
) -> Changed:
    """Retry a failed or cancelled item with all its tries, or run a waiting one sooner."""
    at = when.at if when else None
    return Changed(verbs.items.retry(principal, item_id, at=at, connection=connection))


@router.post("/{item_id}/discard")
def discard_item(
    item_id: Id, verbs: Verbs, principal: Writer, connection: Transaction, reason: ReasonIn | None = None
) -> Changed:
    """Take a failed item out of review for good."""
    text = reason.reason if reason else ""
    return Changed(verbs.items.discard(principal, item_id, reason=text, connection=connection))


@router.post("/{item_id}/again", status_code=201)
def put_item_again(
    item_id: Id, app: App, principal: Writer, connection: Transaction, body: AgainIn | None = None
) -> Placed[Any]:
    """Put an ended item again as a new item. 200: a live item has the given key already."""
    given = body or AgainIn()
    open_task(app, app.internals.verbs.items.find(principal, item_id).task)
    return app.internals.verbs.items.again(
        principal, item_id, key=given.key, at=given.at, delay=given.delay, trace=app.internals.telemetry.traceparent(),
        connection=connection,
    )  # fmt: skip


def shown(verbs: Verbs, row: Row, is_masked: bool = True) -> Row:
    """The item with secrets masked, and its key as its owner knows it."""
    key = row.key if row.key is None or row.owner is None else row.key.removeprefix(f"{row.owner}/")
    values = {name: masked(verbs, getattr(row, name), not is_masked) for name in ("args", "result", "progress")}
    return replace(row, key=key, **values)
