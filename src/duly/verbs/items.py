"""Items: put, put again, show, edit, cancel, retry, discard; one, or a selection."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from duly.core import codec
from duly.core.decide import decide
from duly.core.errors import KeyConflict, WrongState
from duly.core.filters import checked_id, checked_ids, is_id
from duly.core.model import LIVE, Cancel, Change, Discarded, Item, NewItem, Outcome, Placed, Revived, State
from duly.core.shown import Action, Row, Story
from duly.store.borrow import put_borrowed
from duly.tasks.checks import checked_key, checked_name, checked_rank, checked_tries, when
from duly.verbs.context import Principal, VerbContext, VerbGroup, refusal, selected

# Arguments as a whole, or a function that makes them of the item as it is. Bytes are JSON that was checked already.
Args = Mapping[str, Any] | bytes
AskArgs = Callable[[Row], Args]

TURNS = 10  # how often a change is decided again when a worker was faster
OWN = "duly."  # what the names of duly's own tasks begin with

# The states in which items can be acted on, by action, and what the audit log calls it.
STATES: dict[Action, tuple[State, ...]] = {
    "cancel": ("waiting", "running"),
    "retry": ("failed", "cancelled", "waiting"),
    "discard": ("failed",),
}
NOTED: dict[Action, str] = {"cancel": "item.cancelled", "retry": "item.retried", "discard": "item.discarded"}


class Items(VerbGroup):
    # -- in

    def put(self, who: Principal, new: NewItem, connection: Any = None) -> Placed[Any]:
        """Put an item that belongs to the principal.

        An item of another owner may have the same key, such as one of the code that looks like a user's. Then the
        error only reports that the key is taken.
        """
        return self._put(who, new, "item.put", {"task": new.task}, connection)

    def _put(
        self, who: Principal, new: NewItem, action: str, details: Mapping[str, Any], connection: Any
    ) -> Placed[Any]:
        with self._context.joining(connection) as connection:
            try:
                placed = put_borrowed(connection, new)
                known = None if placed.fresh else placed.id
            except KeyConflict as error:
                if self._read.row(error.item_id, new.owner, connection) is not None:
                    raise
                known = error.item_id
            if known is not None and self._read.row(known, new.owner, connection) is None:
                raise KeyConflict(f"the key {who.unscoped(new.key or '')!r} is already used; choose another key", 0)
            if placed.fresh:
                self._audit.note(who, action, f"item:{placed.id}", details, connection)
        return placed

    def again(
        self,
        who: Principal,
        item_id: int,
        *,
        key: str | None = None,
        at: datetime | str | None = None,
        delay: float | timedelta | None = None,
        trace: str | None = None,
        connection: Any = None,
    ) -> Placed[Any]:
        """Put an item that has ended again, as a new one of its owner: same task, arguments, queue, rank, tries.

        A row of a job comes as an item of its own, which the job does not count. It has no key, unless one is given.
        """
        self.find(who, item_id, connection)
        (item,) = self._store.fetch([item_id], connection)
        if item.state in LIVE:
            raise WrongState(f"item {item_id} is {item.state}; only an item that has ended can be put again")
        if item.task.startswith(OWN):
            raise WrongState(f"item {item_id} is a part of duly itself and cannot be put again")
        due_at = when(at, delay, self._now) if at is not None or delay is not None else None
        lateness = None if item.expires_at is None else item.expires_at - item.planned_at
        owned = None if key is None else checked_key(f"{item.owner}/{key}" if item.owner is not None else key)
        new = NewItem(
            task=item.task, queue=item.queue.removesuffix(f"/job-{item.job_id}"), args=item.args, due_at=due_at,
            key=owned, rank=item.rank, max_attempts=item.max_attempts, trace=trace, owner=item.owner,
            expires_at=None if lateness is None else (due_at or self._now()) + lateness, is_relative=at is None,
        )  # fmt: skip
        return self._put(who, new, "item.again", {"task": item.task, "of": item_id}, connection)

    def keep_late(self, item_id: int, fence: int, result: Any) -> bool:
        """Keep what a try brought although its item was cancelled meanwhile; False when it was not."""
        given = {"id": item_id, "fence": fence, "result": codec.text(result)}
        return bool(self._store.write("late_result", given))

    # -- looks

    def find(self, who: Principal, item_id: int, connection: Any = None) -> Row:
        """The item, if it may be reached; an item of another owner is reported as missing."""
        given = {"ids": codec.text([checked_id(item_id, "item_id")]), "owner": who.reach}
        return self._read.found(f"item {item_id}", Row, "rows", given, connection)

    def show(self, who: Principal, item_id: int, *, is_revealed: bool = False) -> tuple[Row, Story]:
        """The item with its tries. `is_revealed` shows masked values too, and is written to the audit log."""
        row = self.find(who, item_id)
        if is_revealed:
            self._audit.note(who, "item.revealed", f"item:{item_id}", {})
        return row, self._read.story(item_id)

    # -- care

    def cancel(self, who: Principal, *ids: int, reason: str = "", connection: Any = None) -> list[int]:
        """Cancel waiting and running items; a running handler is stopped within a second. Returns the ids."""
        return self._act(who, "cancel", ids, reason, connection)

    def retry(
        self,
        who: Principal,
        *ids: int,
        at: datetime | str | None = None,
        delay: float | timedelta | None = None,
        action: str | None = None,
        details: Mapping[str, Any] | None = None,
        connection: Any = None,
    ) -> list[int]:
        """Have failed or cancelled items tried again with all their tries, and waiting ones sooner.

        `action` and `details` go to the audit log instead of the usual ones, if this is a part of something larger.
        """
        due_at = when(at, delay, self._now) if at is not None or delay is not None else None
        line = (action or NOTED["retry"], {"at": due_at} if details is None else details)
        return self._decide_all(who, ids, lambda now: Revived(due_at or now), line, connection)

    def discard(self, who: Principal, *ids: int, reason: str = "", connection: Any = None) -> list[int]:
        """Take failed items out of review for good."""
        return self._act(who, "discard", ids, reason, connection)

    def act(
        self,
        who: Principal,
        action: Action,
        ids: Sequence[int],
        *,
        reason: str = "",
        skip: bool = False,
        connection: Any = None,
    ) -> list[int]:
        """Cancel, retry or discard a selection of items: all of them, or none. Returns the ids that were changed.

        If one of them cannot be changed, the error names each such item with the reason. With `skip`, such items are
        left as they are, and the others are changed: a list on a screen is always a little old. Two items of the
        selection that had the same key are rejected in both cases, because only one of them can live.
        """
        return self._act(who, action, selected(ids), reason, connection, skip)

    def _act(
        self, who: Principal, action: Action, ids: Sequence[int], reason: str, connection: Any, skip: bool = False
    ) -> list[int]:
        line = (NOTED[action], {"reason": reason})
        return self._decide_all(who, ids, lambda now: outcome_of(action, reason, now), line, connection, skip)

    def edit(
        self,
        who: Principal,
        item_id: int,
        *,
        args: Args | AskArgs | None = None,
        at: datetime | str | None = None,
        queue: str | None = None,
        rank: int | None = None,
        tries: int | None = None,
        is_retried: bool = False,
        action: str = "item.edited",
        details: Mapping[str, Any] | None = None,
        connection: Any = None,
    ) -> Row:
        """Change an item that waits or is in review, unless someone else changes it at the same time.

        With another time, everything that was counted from the old one moves too: lateness, drift and expiry. With
        other arguments, the item moves to the queue that its task has for them. With `is_retried`, it is also tried
        again. The audit log says what was changed; if the arguments are not readable, `details` stand there instead.
        """
        store = self._store
        # Read first, so that every change from here on is noticed.
        version = store.read("item_version", {"id": checked_id(item_id, "item_id")}, connection)
        row = self.find(who, item_id, connection)
        if row.state not in ("waiting", "failed"):
            raise WrongState(f"item {item_id} is {row.state} and cannot be edited")
        (item,) = store.fetch([item_id], connection)
        options = {"at": at, "queue": queue, "rank": rank, "tries": tries}
        before, after = _content(item), self._edited(item, args(row) if callable(args) else args, options)
        now = self._now()
        with self._context.joining(connection) as connection:
            changed = {
                **after, **_moved(item, None if at is None else after["at"]), "args": after["args"].decode(),
                "id": item_id, "owner": who.reach, "was": item.state, "fence": row.fence,
                "version": version[0][0] if version else None, "now": now,
            }  # fmt: skip
            is_done = bool(store.write("edit_item", changed, connection))
            if is_done and is_retried:
                revived = decide(item, Revived(now), now, self._context.rules_of(item.task))
                is_done = not self._context.observed().settle([revived], (), connection)
            if not is_done:
                raise WrongState(
                    f"item {item_id} was changed meanwhile, or its schedule has another item at this time; reload it"
                )
            self._audit.note(who, action, f"item:{item_id}", self._difference(before, after, details), connection)
            return self.find(who, item_id, connection)

    def _edited(self, item: Item, args: Args | None, options: Mapping[str, Any]) -> dict[str, Any]:
        """The new content of the item: the given values, checked, and its own for the rest."""
        checked: dict[str, Callable[[Any], Any]] = {
            "at": lambda at: when(at, None, self._now), "queue": lambda queue: checked_name("queue", queue),
            "rank": checked_rank, "tries": checked_tries,
        }  # fmt: skip
        given = {name: checked[name](value) for name, value in options.items() if value is not None}
        if args is not None:
            given = {**self._with_args(item, args), **given}
        return {**_content(item), **given}

    def _with_args(self, item: Item, given: Args) -> dict[str, Any]:
        """These arguments, checked, and their queue; an item that was moved to another queue by hand stays there."""
        if isinstance(given, bytes):
            return {"args": given}
        task = self._context.task_named(item.task)
        is_as_put = item.queue == task.queue_for(codec.decode(item.args))
        return {"args": task.checked_args(dict(given)), "queue": task.queue_for(given) if is_as_put else item.queue}

    def _difference(
        self, before: Mapping[str, Any], after: Mapping[str, Any], details: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        difference = {name: [before[name], after[name]] for name in before if before[name] != after[name]}
        args = [codec.shown(each) for each in difference.pop("args", ())]
        if details is None:
            # The same values may be written as different JSON text.
            is_other = bool(args) and args[0] != args[1]
            details = {"args": [self._context.masks.masked(each) for each in args]} if is_other else {}
        return {**difference, **details}

    def _decide_all(
        self,
        who: Principal,
        ids: Sequence[int],
        outcome: Callable[[datetime], Outcome],
        line: tuple[str, Mapping[str, Any]],
        connection: Any,
        skip: bool = False,
    ) -> list[int]:
        """Decide for each item and write the changes; if a worker was faster, look at the item and decide again.

        `line` is the action and the details for the audit log.
        """
        wanted = checked_ids(ids)
        # Decided before the transaction, because others may have to wait for that.
        changes = self._changes(who, wanted, outcome, skip, connection)
        with self._context.joining(connection) as connection:
            done: set[int] = set()
            for _ in range(TURNS):
                left = self._context.observed().settle(changes, (), connection)
                done |= {change.id for change in changes} - set(left)
                if not left:
                    break
                changes = self._changes(who, left, outcome, skip, connection)
            else:
                if not skip:
                    raise WrongState(f"item {', '.join(map(str, left))} keeps changing; try again")
            changed = [item_id for item_id in wanted if item_id in done]
            if changed:
                action, details = line
                self._audit.note_each(who, action, [f"item:{item_id}" for item_id in changed], details, connection)
        return changed

    def _changes(
        self, who: Principal, ids: Sequence[int], outcome: Callable[[datetime], Outcome], skip: bool, connection: Any
    ) -> list[Change]:
        """The changes of these items by the outcome. Those that cannot change are skipped, or raise one error."""
        now = self._now()
        found = self._store.fetch([item_id for item_id in ids if is_id(item_id)], connection)
        items = {item.id: item for item in found if who.reach in (None, item.owner)}
        twins: set[int] = set()  # whose key another live item has: they cannot live again
        if isinstance(outcome(now), Revived):
            rows = self._store.read("with_live_twin", {"ids": codec.text(list(items))}, connection)
            twins = {row[0] for row in rows}
        changes, refused = [], {item_id: f"there is no item {item_id}" for item_id in ids if item_id not in items}
        for item in items.values():
            try:
                change = decide(item, outcome(now), now, self._context.rules_of(item.task))
            except WrongState as error:
                refused[item.id] = str(error)
            else:
                if item.id in twins and item.state not in LIVE:
                    refused[item.id] = f"item {item.id} cannot be retried: another live item has its key"
                else:
                    changes.append(change)
        if refused and not skip:
            raise refusal(refused, items)
        return changes


def outcome_of(action: Action, reason: str, at: datetime) -> Outcome:
    """What an action does to an item; a retried one is due at this time."""
    match action:
        case "cancel":
            return Cancel(reason)
        case "discard":
            return Discarded()
        case _:
            return Revived(at)


def possible(context: VerbContext, items: Iterable[Item], outcome: Callable[[int], Outcome]) -> list[Change]:
    """The changes of these items. Items for which the outcome is not possible, such as unreadable rows, are left out.

    `outcome` is given the number of changes so far.
    """
    now = context.now()
    changes: list[Change] = []
    for item in items:
        with suppress(WrongState):
            changes.append(decide(item, outcome(len(changes)), now, context.rules_of(item.task)))
    return changes


def _content(item: Item) -> dict[str, Any]:
    """What can be edited of an item, by the names that a put uses."""
    return {"args": item.args, "at": item.due_at, "queue": item.queue, "rank": item.rank, "tries": item.max_attempts}


def _moved(item: Item, at: datetime | None) -> dict[str, Any]:
    """The other times of an item that is moved to this time: when it is planned, and when it expires."""
    if at is None:
        return {"planned_at": item.planned_at, "expires_at": item.expires_at}
    expires_at = None if item.expires_at is None else at + (item.expires_at - item.planned_at)
    return {"planned_at": at, "expires_at": expires_at}
