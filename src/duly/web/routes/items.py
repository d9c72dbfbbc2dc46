"""Items: put, put again, list, count, show, edit, cancel, retry; one, or a selection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Response
from msgspec.structs import asdict, replace
from pydantic import BaseModel

from duly.core.errors import InputError
from duly.core.model import Placed
from duly.core.results import DateField, Signature
from duly.core.shown import ItemsFound, ItemStory, Row, ScheduleName, StateCounts
from duly.tasks.puttable import Options
from duly.tasks.signature import signature
from duly.verbs import Principal
from duly.verbs.listing import Filter
from duly.web.auth import Reader, UserId, Writer, owner_for
from duly.web.desk import At, Desk, Once, Pages, placed_status, values
from duly.web.problems import Problem
from duly.web.routes.queues import line_shown
from duly.web.schemas import BIG, Id, Key, Moment, Word, WordFilter, out, page_of
from duly.web.schemas.items import (
    AgainIn,
    Changed,
    ItemEdit,
    ItemIn,
    ItemPage,
    ItemsAct,
    ReasonIn,
    RetryIn,
    Search,
)

router = APIRouter(prefix="/api/items", tags=["items"])
tasks = APIRouter(prefix="/api/tasks", tags=["items"])


@tasks.get("", response_model=page_of(Signature))
def list_tasks(desk: At, principal: Reader, pages: Pages) -> Any:
    """The tasks that can be put through this service, by name, with their parameters."""

    def find(after: str | None, most: int) -> Sequence[Signature]:
        names = sorted(name for name, task in desk.app.tasks.items() if not task.is_internal and name > (after or ""))
        return [_without_secrets(desk, signature(desk.app.tasks[name])) for name in names[:most]]

    return pages.turn(["tasks"], find, place=lambda task: task.name)


def _without_secrets(desk: Desk, found: Signature) -> Signature:
    """The same signature with secrets in the defaults of parameters masked."""
    masked = desk.masked({param.name: param.default for param in found.params if param.default})
    params = [replace(param, default=masked.get(param.name, param.default)) for param in found.params]
    return replace(found, params=params)


@router.post("", status_code=201, response_model=out(Placed), responses={200: {"model": out(Placed)}})
def put_item(new: ItemIn, desk: At, principal: Writer, once: Once) -> Response:
    """Put an item: now, `at` a time, or after a `delay`; once per `key`. 200: a live item has this key already."""

    def act(connection: Any) -> Any:
        task = desk.task(new.task)
        options: Options = {
            "at": new.at, "delay": new.delay, "rank": new.rank, "tries": new.tries, "max_lateness": new.max_lateness,
            "key": None if new.key is None else principal.scoped(new.key),
        }  # fmt: skip
        made = task.make_item(dict(new.args), options, desk.app.telemetry.traceparent(), principal.owner)
        return desk.app.verbs.items.put(principal, made, connection)

    return once(principal, new, act, status=placed_status)


def _states(text: str | None) -> tuple[Any, ...]:
    return tuple(part.strip() for part in text.split(",")) if text else ()


async def _filter(
    state: Annotated[str | None, Query(max_length=100, description="One or more states, separated by commas.")] = None,
    task: WordFilter = None,
    queue: WordFilter = None,
    key: WordFilter = None,
    error_group: Annotated[str | None, Query(alias="errorGroup", pattern=r"^[0-9a-f]{1,64}$")] = None,
    schedule_id: Annotated[int | None, Query(alias="scheduleId", ge=1, le=BIG)] = None,
    job_id: Annotated[int | None, Query(alias="jobId", ge=1, le=BIG)] = None,
    error: Annotated[Word | None, Query(description="A part of the last error, ignoring case.")] = None,
    min_tries: Annotated[int | None, Query(alias="minTries", ge=1, le=1_000_000)] = None,
    date_field: Annotated[
        DateField, Query(alias="dateField", description="The time that `from` and `to` apply to.")
    ] = "created",
    since: Annotated[Moment | None, Query(alias="from")] = None,
    until: Annotated[Moment | None, Query(alias="to")] = None,
    where: Annotated[list[Key], Query(description="name=value of an argument, or result.name=value; repeatable.")] = [],  # noqa: B006
    below: Annotated[int | None, Query(ge=0, le=BIG, description="Only items with a smaller id.")] = None,
) -> Filter:
    return Filter(
        states=_states(state), task=task, queue=queue, key=key, error_group=error_group, schedule_id=schedule_id,
        job_id=job_id, error=error, min_tries=min_tries, date_field=date_field, since=since, until=until,
        where=tuple(where), below=below,
    )  # fmt: skip


Filtered = Annotated[Filter, Depends(_filter)]


@router.get("", response_model=out(ItemPage))
def list_items(desk: At, principal: Reader, pages: Pages, filter: Filtered, user_id: UserId = None) -> Any:
    """Items, newest first; rows of one job by their number, items of one schedule by their time.

    Filters without an index (a part of an error, a value, a number of tries, a time) are checked row by row, at most
    20,000 rows for a page. `search` says how many were read, and `next` continues, even where a page has no rows.
    """
    owner = owner_for(principal, user_id)
    pages_found: list[ItemsFound] = []

    def find(after: int | str | None, most: int) -> tuple[Sequence[Row], int | str | None]:
        place = datetime.fromisoformat(after) if isinstance(after, str) else after
        found = desk.app.verbs.listing.page(principal, filter, owner=owner, after=place, most=most)
        pages_found.append(found)
        return found.rows, found.place.isoformat() if isinstance(found.place, datetime) else found.place

    rows, following = pages.walk(["items", owner, asdict(filter)], find)
    (found,) = pages_found
    search = Search(found.scanned, following is None, found.is_indexed)
    return ItemPage([shown(desk, row) for row in rows], following, search)


@router.get("/counts", response_model=out(StateCounts))
def count_items(desk: At, principal: Reader, filter: Filtered, user_id: UserId = None) -> Any:
    """How many items match, by state. Each state is counted up to ten thousand."""
    return desk.app.verbs.listing.counts(principal, filter, owner=owner_for(principal, user_id))


@router.post("/act", response_model=out(Changed))
def act_on_items(body: ItemsAct, desk: At, principal: Writer, once: Once) -> Response:
    """Cancel, retry or discard a selection of items, in one transaction: all of them, or none.

    If one of them is gone or in another state, the answer is 409 (404 if none of those exists) and names each with the
    reason. With `skip`, such items are left as they are. Returns the ids that were changed.
    """
    is_timed = body.at is not None or body.delay is not None
    if is_timed and (body.action != "retry" or body.skip):
        raise InputError("at", "and delay are for retries without skip only")

    def act(connection: Any) -> Any:
        if is_timed:
            items = desk.app.verbs.items
            return Changed(items.retry(principal, *body.ids, at=body.at, delay=body.delay, connection=connection))
        changed = desk.app.verbs.items.act(
            principal, body.action, body.ids, reason=body.reason, skip=body.skip, connection=connection
        )
        return Changed(changed)

    return once(principal, body, act)


@router.get("/{item_id}", response_model=out(ItemStory))
def show_item(
    item_id: Id,
    desk: At,
    principal: Reader,
    reveal: Annotated[bool, Query(description="Show masked values. This is written to the audit log.")] = False,
) -> Any:
    """One item with its failed tries, its timeline, its audit log and its origin."""
    if reveal and not principal.may("write"):
        raise Problem(403, "reveal: needs the scope write", "reveal")
    row, story = desk.app.verbs.items.show(principal, item_id, is_revealed=reveal)
    key = None if story.schedule_key is None else story.schedule_key.removeprefix(f"{row.owner}/")
    return ItemStory(
        **values(shown(desk, row, is_masked=not reveal)),
        tries=story.tries,
        lease_until=story.lease_until,
        timeline=story.timeline,
        trace_id=story.trace_id,
        schedule=None if key is None or row.schedule_id is None else ScheduleName(row.schedule_id, key),
        audit=[line_shown(desk, line) for line in desk.app.verbs.audit.page(f"item:{item_id}")],
    )


@router.patch("/{item_id}", response_model=out(Row))
def edit_item(item_id: Id, edit: ItemEdit, desk: At, principal: Writer) -> Any:
    """Change an item that waits or is in review: its arguments, time, queue, rank or tries.

    The difference is in the audit log.
    """
    if edit.at is not None and edit.due_at is not None:
        raise InputError("dueAt", "is an older name of at; give only one of them")

    def args(row: Row) -> dict[str, Any]:
        desk.task(row.task)
        return dict(desk.unmasked(edit.args, row.args))

    edited = desk.app.verbs.items.edit(
        principal, item_id, args=None if edit.args is None else args, at=edit.at or edit.due_at, queue=edit.queue,
        rank=edit.rank, tries=edit.tries,
    )  # fmt: skip
    return shown(desk, edited)


@router.post("/{item_id}/cancel", response_model=out(Changed))
def cancel_item(item_id: Id, desk: At, principal: Writer, once: Once, reason: ReasonIn | None = None) -> Response:
    """Cancel an item that waits or runs; a running handler is stopped within a second."""
    text = reason.reason if reason else ""
    return _acted(once, principal, item_id, reason, partial(desk.app.verbs.items.cancel, reason=text))


@router.post("/{item_id}/retry", response_model=out(Changed))
def retry_item(item_id: Id, desk: At, principal: Writer, once: Once, when: RetryIn | None = None) -> Response:
    """Retry a failed or cancelled item with all its tries, or run a waiting one sooner."""
    at = when.at if when else None
    return _acted(once, principal, item_id, when, partial(desk.app.verbs.items.retry, at=at))


@router.post("/{item_id}/discard", response_model=out(Changed))
def discard_item(item_id: Id, desk: At, principal: Writer, once: Once, reason: ReasonIn | None = None) -> Response:
    """Take a failed item out of review for good."""
    text = reason.reason if reason else ""
    return _acted(once, principal, item_id, reason, partial(desk.app.verbs.items.discard, reason=text))


@router.post("/{item_id}/again", status_code=201, response_model=out(Placed), responses={200: {"model": out(Placed)}})
def put_item_again(item_id: Id, desk: At, principal: Writer, once: Once, body: AgainIn | None = None) -> Response:
    """Put an ended item again as a new item. 200: a live item has the given key already."""
    given = body or AgainIn()

    def act(connection: Any) -> Any:
        items = desk.app.verbs.items
        desk.task(items.find(principal, item_id).task)
        return items.again(
            principal, item_id, key=given.key, at=given.at, delay=given.delay,
            trace=desk.app.telemetry.traceparent(), connection=connection,
        )  # fmt: skip

    return once(principal, body, act, status=placed_status)


def _acted(
    once: Once, principal: Principal, item_id: int, body: BaseModel | None, verb: Callable[..., list[int]]
) -> Response:
    """Apply a verb to an item and return the ids that it changed."""
    return once(principal, body, lambda connection: Changed(verb(principal, item_id, connection=connection)))


def shown(desk: Desk, row: Row, is_masked: bool = True) -> Row:
    """The item with secrets masked, and its key as its owner knows it."""
    key = row.key if row.key is None or row.owner is None else row.key.removeprefix(f"{row.owner}/")
    masked = {name: desk.masked(getattr(row, name), not is_masked) for name in ("args", "result", "progress")}
    return replace(row, key=key, **masked)
