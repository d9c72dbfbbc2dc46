"""Acts: one action on all items that fit a filter, as durable work that continues after a crash.

An act is a row (`duly_act`) and an item, whose handler walks through the rows that fit, by id, up to the newest at the
time of the order. The changes of a portion and the place where the act stands commit together, so nothing is done or
counted twice.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, NamedTuple, get_args

from duly.core import codec
from duly.core.errors import InputError, WrongState
from duly.core.filters import LAST_ID, checked_id
from duly.core.model import Change, Item, Outcome
from duly.core.shown import Act, ActFilter, Action, ShownAct
from duly.store.borrow import put_borrowed
from duly.tasks.checks import checked_choice, checked_moment, checked_name, checked_reason, is_number
from duly.verbs.context import Principal, VerbContext, VerbGroup
from duly.verbs.items import STATES, outcome_of, possible
from duly.verbs.listing import Filter, fitting, wanted

TASK = "duly.acts"
PORTION = 500
STEP_MOST = 10_000  # items that are looked at in one go, at most
COUNTED = 1_000_000
COUNT_STEP = 10_000  # items that are looked at in one go to be counted
SECONDS = 2.0  # that counting may take

FIELDS = ActFilter.__struct_fields__
ACTIONS: tuple[Action, ...] = get_args(Action)
RATE = 10_000  # retries per second, at most


class Counted(NamedTuple):
    """How many rows a filter means, and the id of the newest row of all. There may be more than were counted."""

    items: int
    newest: int
    is_more: bool


class Acts(VerbGroup):
    def count(self, who: Principal, action: Action, filter: Mapping[str, Any], owner: str | None = None) -> Counted:
        """How many rows fit a filter now, counted up to a million and for two seconds at most."""
        checked_choice("action", action, ACTIONS)
        return self._count(meant(filter), who.among(owner))

    def _count(self, filter: Filter, owner: str | None) -> Counted:
        newest: int = self._store.read("newest_item", {})[0][0]
        walk = AscendingWalk(self._context, filter, owner)
        count, place, deadline = 0, 0, time.monotonic() + SECONDS
        while ids := walk.step(place, newest, COUNT_STEP):
            count += len(walk.fitting(ids))
            place = ids[-1]
            if count >= COUNTED or time.monotonic() >= deadline:
                return Counted(min(count, COUNTED), newest, is_more=True)
        return Counted(count, newest, is_more=False)

    def order(
        self,
        who: Principal,
        action: Action,
        filter: Mapping[str, Any],
        *,
        all: bool = False,
        rate: float | None = None,
        reason: str = "",
        queue: str | None = None,
        owner: str | None = None,
        counted: Counted | None = None,
        connection: Any = None,
    ) -> Act:
        """Order an action on all rows that match this filter. `rate` is retries per second; without it, all at once.

        A filter with no fields is refused, unless `all` says that every item is meant.

        Retried items wait in this `queue`, if one is given; rows of jobs stay in that of their job. The act and the
        item that carries it out commit together. With a `connection`, pass what was `counted` before its
        transaction began: counting takes a while, and others may wait for that transaction.
        """
        checked_choice("action", action, ACTIONS)
        if queue is not None and action != "retry":
            raise InputError("queue", "is only allowed for retries")
        chosen = {} if queue is None else {"queue": checked_name("queue", queue)}
        items = meant(filter)
        if items.is_all and not all:
            raise InputError("filter", "must not be empty; to act on every item, set `all`")
        if all and not items.is_all:
            raise InputError("all", "cannot be combined with a filter")
        options = {"rate": _checked_rate(rate), "reason": checked_reason(reason), **chosen}
        total, newest, _ = counted or self._count(items, who.among(owner))
        row = {
            "owner": who.among(owner), "author": who.user_id, "action": action,
            "filter": codec.text(_kept(items)), "options": codec.text(options),
            "total": total, "until": newest, "now": self._now(),
        }  # fmt: skip
        with self._context.joining(connection) as connection:
            act_id: int = self._store.write("act_create", row, connection)[0][0]
            new = self._context.task_named(TASK).options(key=f"act-{act_id}").new(act_id=act_id)
            put_borrowed(connection, new)
            details = {"action": action, "filter": _kept(items), "total": total, **chosen}
            self._audit.note(who, "act.ordered", f"act:{act_id}", details, connection)
            return self.get(who, act_id, connection)

    def get(self, who: Principal, act_id: int, connection: Any = None) -> Act:
        """An act, with its progress."""
        return _found(self._context, act_id, who.reach, connection)

    def page(self, who: Principal, owner: str | None = None, before: int | None = None, most: int = 100) -> list[Act]:
        """Acts, newest first; `before` is the last id of the page before."""
        given = {"owner": who.among(owner), "before": before or LAST_ID, "most": most}
        return self._read.all(Act, "acts", given)

    def cancel(self, who: Principal, act_id: int, connection: Any = None) -> Act:
        """Stop an act; what it has changed stays changed."""
        self.get(who, act_id)
        given = {"id": act_id, "owner": who.reach, "now": self._now()}
        with self._noted(who, "act.cancelled", f"act:{act_id}", connection=connection) as connection:
            if not self._store.write("act_cancel", given, connection):
                raise WrongState(f"act {act_id} is over")
            return self.get(who, act_id, connection)


def portions(context: VerbContext, act_id: int) -> Iterator[Act]:
    """Carry out an act portion by portion, from its current place; yields the act after each portion."""
    most = step = PORTION
    while (act := _found(context, act_id)).state == "running":
        if "from" not in act.options:  # a rate is counted from the real beginning
            options = codec.text({**act.options, "from": context.now()})
            context.store.write("act_begin", {"id": act_id, "options": options})
            continue
        walk = AscendingWalk(context, meant(act.filter), act.owner)
        met = walk.step(act.place, act.until, step)
        if not met:
            context.store.write("act_finish", {"id": act_id, "now": context.now()})
            return
        fits = walk.fitting(met)
        ids = fits[:most]
        # Where little fits, more is looked at in one go.
        step = PORTION if ids else min(2 * step, STEP_MOST)
        place = met[-1] if len(ids) == len(fits) else ids[-1]
        changes = _changes(context, act, context.store.fetch(ids))
        try:
            _apply(context, act, ids, changes, place)
        except _Outrun:
            continue  # it was cancelled, or another try was faster, and this portion was rolled back
        except WrongState:
            # A change was rejected, such as a second live item with the same key: continue one by one to find it.
            if most > 1:
                most = 1
                continue
            _apply(context, act, ids, (), place)
        most = PORTION
        yield _found(context, act_id)


def _apply(context: VerbContext, act: Act, ids: Sequence[int], changes: Sequence[Change], place: int) -> None:
    """Apply these changes and record the place of the act, in one transaction."""
    with context.store.transaction() as connection:
        refused = context.store.settle(changes, (), connection)
        if queue := act.options.get("queue"):
            moved_ids = codec.text([change.id for change in changes if change.id not in set(refused)])
            redirected = {"ids": moved_ids, "queue": queue, "owner": act.owner, "now": context.now()}
            context.store.write("redirect_items", redirected, connection)
        moved = {"id": act.id, "was": act.place, "place": place}
        moved |= {"seen": len(ids), "changed": len(changes) - len(refused)}
        if not context.store.write("act_move", moved, connection):
            raise _Outrun


def _changes(context: VerbContext, act: Act, items: list[Item]) -> list[Change]:
    now, rate = context.now(), act.options.get("rate")
    begun = datetime.fromisoformat(act.options["from"])

    def outcome(count: int) -> Outcome:
        # With a rate, each item is due a little after the one before, so this code does not have to wait.
        due_at = begun + timedelta(seconds=(act.changed + count) / rate) if rate else now
        return outcome_of(act.action, act.options.get("reason", ""), due_at)

    open_ones = [item for item in items if item.state in STATES[act.action]]
    return possible(context, sorted(open_ones, key=lambda item: item.id), outcome)


class AscendingWalk:
    """A walk through the items of a filter, oldest first, along the index that leads to the fewest rows."""

    def __init__(self, context: VerbContext, filter: Filter, owner: str | None) -> None:
        for pair in filter.where or ():  # masked or invalid values are rejected at once
            wanted(pair, context.masks)
        self._context = context
        self._filter = filter
        self._owner = owner
        is_review = filter.states == ("failed",)
        self._given: dict[str, Any] = {}
        if is_review and filter.error_group is not None:
            self._section, self._given = "rise_group", {"error_group": filter.error_group}
        elif is_review:
            self._section = "rise_review"
        elif owner is not None:
            self._section, self._given = "rise_owner", {"owner": owner}
        else:
            self._section = "rise_all"

    def step(self, place: int, until: int, most: int) -> list[int]:
        """The next ids after this place."""
        if self._filter.is_none:
            return []
        if self._filter.job_id is not None:
            first, last = self._bounds
            place, until = max(place, first - 1), min(until, last)
        given = {**self._given, "place": place, "until": until, "most": most}
        return [row[0] for row in self._context.store.read(self._section, given)]

    def fitting(self, ids: Sequence[int]) -> list[int]:
        """Those of these ids that match, in their order. Items of acts never match."""
        found = {item_id for item_id, _ in fitting(self._context, self._filter, self._owner, ids, but=TASK)}
        return [item_id for item_id in ids if item_id in found]

    @cached_property
    def _bounds(self) -> tuple[int, int]:
        first, last = self._context.store.read("job_bounds", {"job_id": self._filter.job_id})[0]
        return first or 1, last or 0


def meant(filter: Mapping[str, Any]) -> Filter:
    """The filter that a caller gave, or that was stored with an act, checked."""
    if unknown := sorted(filter.keys() - set(FIELDS)):
        raise InputError(unknown[0], f"is not a filter; known filters: {', '.join(FIELDS)}")
    return Filter(**_decoded(filter))


def _decoded(filter: Mapping[str, Any]) -> dict[str, Any]:
    """The given values of a filter, with times that are text as times."""
    given = {name: value for name, value in filter.items() if value is not None}
    given |= {name: checked_moment(name, given[name]) for name in ("since", "until") if name in given}
    return given | ({"where": tuple(given["where"])} if "where" in given else {})


def _checked_rate(rate: Any) -> float | None:
    if rate is not None and not (is_number(rate) and 0 < rate <= RATE):
        raise InputError(
            "rate", f"must be a number of items per second, more than 0, at most {RATE:,}, got {rate!r:.80}"
        )
    return None if rate is None else float(rate)


def shown(act: Act) -> ShownAct:
    """The act as people see it."""
    known = {name: getattr(act, name) for name in ShownAct.__struct_fields__ if name != "filter"}
    return ShownAct(**known, filter=ActFilter(**_decoded(act.filter)))


def _kept(filter: Filter) -> dict[str, Any]:
    """The filter as stored with an act and in the audit log: the given values, by the names that `meant` knows."""
    given = {name: value for name in FIELDS if (value := getattr(filter, name)) not in (None, ())}
    given |= {
        "state": None if filter.state is None else ",".join(filter.states),
        "date_field": filter.date_field or "created",
    }
    if filter.since is None and filter.until is None:
        del given["date_field"]
    return given


def _found(context: VerbContext, act_id: int, owner: str | None = None, connection: Any = None) -> Act:
    given = {"id": checked_id(act_id, "act_id"), "owner": owner}
    return context.read.found(f"act {act_id}", Act, "act", given, connection)


class _Outrun(Exception):
    pass
