"""Lists of items under any filter, and how many match, with bounded cost.

A list is a walk along one index: of all items, an owner's, those in review, a group's, a job's or a schedule's. What
the index does not know is asked of the rows that the walk meets, in portions, until the page is full or enough was
looked at. Then the page says so, and the next one goes on from there.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, cast, get_args

from msgspec import Struct
from msgspec.structs import asdict, replace

from duly.core import codec
from duly.core.errors import InputError
from duly.core.filters import LAST_ID, checked_most
from duly.core.model import STATES, State
from duly.core.results import DateField
from duly.core.shown import ActFilter, ItemsFound, Row, StateCounts
from duly.tasks.checks import KEY_LIMIT, checked_choice, checked_group, checked_moment, checked_text, checked_whole
from duly.verbs.context import Masks, Principal, VerbContext, VerbGroup
from duly.verbs.timetable import like

PORTION = 2_000  # items that are looked at in one go
SCANNED = 20_000  # items that are looked at for one page, at most
SECONDS = 2.0  # for one page, at most; a portion that was begun is finished
COUNTED = 10_000  # of each state
VALUES = 10  # the most values of one filter

ListPlace = int | datetime
LAST_TIME = datetime(9_999, 1, 1, tzinfo=UTC)
DEEP = 20  # names in one path
SPARE = timedelta(days=1)  # by which ids and times of items may be in another order

# How items of a state are found without a look at all the others.
APART: dict[State, str] = {"waiting": "some_waiting", "running": "some_leased", "failed": "walk_review"}

_UNSAID = re.compile(r'["\\\x00]')  # characters that a JSON path cannot contain


def _word(name: str, text: Any) -> str:
    return checked_text(name, text, 200)


# How each field of a filter is checked, by name.
CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "state": lambda name, text: checked_text(name, text, 100, least=0),
    "task": _word, "queue": _word, "error": _word, "key": lambda name, text: checked_text(name, text, KEY_LIMIT),
    "error_group": lambda name, text: checked_group(text, name),
    "schedule_id": lambda name, number: checked_whole(name, number, 1),
    "job_id": lambda name, number: checked_whole(name, number, 1),
    "below": lambda name, number: checked_whole(name, number, 0),
    "min_tries": lambda name, number: checked_whole(name, number, 1, 1_000_000),
    "date_field": lambda name, value: checked_choice(name, value, get_args(DateField)),
    "since": checked_moment, "until": checked_moment,
}  # fmt: skip


class Filter(ActFilter, frozen=True, kw_only=True):
    """Which items match. Fields that are not set match everything, and no `state` (an empty text) nothing.

    `key` may have its owner in front, and `error` is a part of the last error, in whatever case. `since` and `until`
    are about the time that `date_field` names (default: created); `until` itself is not meant any more. `where` are
    `name=value`: of arguments, or of the result as `result.name=value`; names have dots.
    """

    below: int | None = None  # only items with a smaller id

    def __post_init__(self) -> None:
        for name, check in CHECKS.items():
            if (value := getattr(self, name)) is not None:
                check(name, value)
        if self.since is not None and self.until is not None and self.since >= self.until:
            raise InputError("to", "must be later than from")
        if len(self.where or ()) > VALUES:
            raise InputError("where", f"at most {VALUES} values can be asked for at once")
        for pair in self.where or ():
            checked_text("where", pair, KEY_LIMIT)
        for state in self.states:
            checked_choice("state", state, STATES)
        if self.state and not self.states:
            raise InputError("state", "must name at least one state")

    @property
    def is_none(self) -> bool:
        """Whether no state is asked for, so that nothing fits."""
        return self.state == ""

    @property
    def is_all(self) -> bool:
        """Whether everything fits."""
        return all(value is None for name, value in asdict(self).items() if name != "date_field")

    @property
    def states(self) -> tuple[State, ...]:
        parts = (part.strip() for part in str(self.state or "").split(","))
        return tuple(cast("State", part) for part in parts if part)


class IndexWalk(Struct, frozen=True):
    """A walk along an index: the section that returns the next ids, its parameters, and where it starts."""

    section: str
    given: dict[str, Any]
    start: ListPlace
    is_exact: bool  # everything on the way fits
    is_own: bool  # the caller may see every row on the way
    floor: int = 0  # nothing fits from this id on downwards


class Listing(VerbGroup):
    def page(
        self,
        who: Principal,
        filter: Filter,
        *,
        owner: str | None = None,
        after: ListPlace | None = None,
        most: int = 50,
    ) -> ItemsFound:
        """The next items that fit, newest first: rows of a job by their number, a schedule's by their time.

        `after` is the place of the page before. A page may have fewer rows than `most`, even none, and a place to go
        on from: then no index knows what fits, and enough was looked at for one time.
        """
        checked_most(most)
        if filter.is_none:
            return ItemsFound([], None, 0, True)
        owner = who.among(owner)
        walk = self._between(self._walk(filter, owner), filter)
        portion = most + 1 if walk.is_exact else PORTION
        found: list[tuple[int, ListPlace]] = []
        looked, place, deadline = 0, walk.start if after is None else after, time.monotonic() + SECONDS
        goes_on: ListPlace | None = None
        while True:
            met, is_end = self._step(walk, place, portion)
            ids = [item_id for item_id, _ in met]
            fits = set(ids) if walk.is_exact else {each for each, _ in fitting(self._context, filter, owner, ids)}
            found += [each for each in met if each[0] in fits]
            looked += len(met)
            if len(found) > most:
                found, goes_on = found[:most], found[most - 1][1]
                break
            if is_end:
                break
            place = met[-1][1]
            if looked >= SCANNED or time.monotonic() >= deadline:
                goes_on = place
                break
        # Do not reveal how many rows of other owners were scanned.
        return ItemsFound(self._rows(owner, found), goes_on, looked if walk.is_own else len(found), walk.is_exact)

    def counts(self, who: Principal, filter: Filter, *, owner: str | None = None) -> StateCounts:
        """How many items of each state fit, counted up to ten thousand.

        What waits, runs or is in review is found by itself among millions of ended items; of these, the newest are
        looked at.
        """
        owner = who.among(owner)
        counts: dict[State, int] = dict.fromkeys(STATES, 0)
        capped: dict[State, bool] = dict.fromkeys(STATES, False)
        if filter.is_none:
            return StateCounts(counts, capped)
        walk = self._between(self._walk(replace(filter, state=None), owner), filter)
        met, is_end = self._step(walk, walk.start, SCANNED)
        for _, state in fitting(self._context, filter, owner, [item_id for item_id, _ in met]):
            counts[state] += 1
        if not is_end:
            capped = dict.fromkeys(STATES, True)
            for state in filter.states or STATES:
                self._count_apart(state, filter, owner, counts, capped)
        bounded: dict[State, int] = {state: min(count, COUNTED) for state, count in counts.items()}
        meant = filter.states or STATES
        return StateCounts(
            bounded, {state: state in meant and (capped[state] or counts[state] > COUNTED) for state in STATES}
        )

    def _count_apart(
        self, state: State, filter: Filter, owner: str | None, counts: dict[State, int], capped: dict[State, bool]
    ) -> None:
        """Count the items of a state that has its own index."""
        section = APART.get(state)
        if section is None:
            return
        some = [row[0] for row in self._store.read(section, {"most": SCANNED + 1, "before": LAST_ID})]
        fits = fitting(self._context, replace(filter, state=state), owner, some[:SCANNED])
        counts[state] = max(counts[state], len(fits))
        capped[state] = len(some) > SCANNED

    def _walk(self, filter: Filter, owner: str | None) -> IndexWalk:
        """The index that leads to the fewest rows, and whether it covers the whole filter."""
        used = {name for name, value in asdict(filter).items() if value not in (None, ())} - {"date_field"}
        start: ListPlace = LAST_ID if filter.below is None else filter.below

        def along(section: str, start: ListPlace, *known: str, **given: Any) -> IndexWalk:
            is_own = owner is None or "owner" in known
            return IndexWalk(section, given, start, is_own and used <= set(known), is_own)

        # Nobody learns of rows on a way that is not their own, not even how many there are: they take their own way.
        job_id, schedule_id = filter.job_id, filter.schedule_id
        if job_id is not None and (owner is None or self._store.read("job", {"id": job_id, "owner": owner})):
            return along("walk_job", LAST_ID, "job_id", "owner", job_id=job_id)
        if schedule_id is not None and (owner is None or self._peers.schedules.owned_one(schedule_id, owner)):
            return along("walk_schedule", LAST_TIME, "schedule_id", "owner", schedule_id=schedule_id)
        if owner is not None:
            return along("walk_owner", start, "owner", "below", owner=owner)
        if filter.states == ("failed",) and filter.error_group is not None:
            return along("walk_group", start, "state", "error_group", "below", error_group=filter.error_group)
        if filter.states == ("failed",):
            return along("walk_review", start, "state", "below")
        return along("walk_all", start, "below")

    def _step(self, walk: IndexWalk, place: ListPlace, most: int) -> tuple[list[tuple[int, ListPlace]], bool]:
        """The next items of a walk, each with its place, and whether these are the last."""
        given = {**walk.given, "before": place, "most": most + 1}
        rows = [(item_id, at) for item_id, at in self._store.read(walk.section, given)]
        met = [row for row in rows[:most] if row[0] > walk.floor]
        return met, len(rows) <= most or len(met) < most

    def _between(self, walk: IndexWalk, filter: Filter) -> IndexWalk:
        """The same walk without what was put long before or after the times that are asked for.

        Ids are in the order of time, but for what clocks and long transactions do, so there is a day to spare.
        """
        if filter.date_field not in (None, "created") or walk.section in ("walk_job", "walk_schedule"):
            return walk
        start, floor = walk.start, walk.floor
        if filter.until is not None:
            assert isinstance(start, int)
            start = min(start, self._first_since(filter.until + SPARE))
        if filter.since is not None:
            floor = self._first_since(filter.since - SPARE) - 1
        return replace(walk, start=start, floor=floor)

    def _first_since(self, moment: datetime) -> int:
        """The id from which on items were put at or after this moment, found by halving."""
        low, high = 0, LAST_ID
        middle = LAST_ID - 1  # first of all, the newest item
        while high - low > 1:
            rows = self._store.read("newest_until", {"id": middle})
            if rows and rows[0][1] >= moment and rows[0][0] > low:
                high = rows[0][0]
            else:
                low = middle
            middle = (low + high) // 2
        return high

    def _rows(self, owner: str | None, found: Sequence[tuple[int, ListPlace]]) -> list[Row]:
        ids = [item_id for item_id, _ in found]
        rows = {row.id: row for row in self._read.rows(ids, owner)}
        return [rows[item_id] for item_id in ids if item_id in rows]


def fitting(
    context: VerbContext, filter: Filter, owner: str | None, ids: Sequence[int], but: str | None = None
) -> list[tuple[int, State]]:
    """Those of these items that fit a filter and belong to this owner, with their states; None means any owner.

    Items of the task `but` never match.
    """
    given: dict[str, Any] = {
        **asdict(filter), "owner": owner, "but": but, "date_field": filter.date_field or "created",
        "states": f",{','.join(filter.states)}," if filter.states else None,
        "error": None if filter.error is None else like(filter.error),
        "wanted": codec.text([wanted(pair, context.masks) for pair in filter.where or ()]),
    }  # fmt: skip
    found: list[tuple[int, State]] = []
    for first in range(0, len(ids), PORTION):
        some = codec.text(list(ids[first : first + PORTION]))
        found += [(item_id, state) for item_id, state in context.store.read("fitting", {**given, "ids": some})]
    return found


def wanted(pair: str, masks: Masks) -> dict[str, Any]:
    """A condition `name=value` in the form for both databases: a path of names and list indexes."""
    name, equals, value = pair.partition("=")
    parts = name.split(".")
    of = "result" if parts[0] == "result" and len(parts) > 1 else "args"
    parts = parts[1:] if of == "result" else parts
    if not equals or not all(parts) or len(parts) > DEEP or _UNSAID.search(name):
        raise InputError("where", f"must be name=value, with dots between names, got {pair!r:.80}")
    if hidden := next((part for part in parts if masks.hides(part)), None):
        raise InputError("where", f"{hidden} is masked, so it cannot be searched for")
    named = "".join(f'."{part}"' for part in parts)
    placed = "".join(f"[{part}]" if part.isdecimal() else f'."{part}"' for part in parts)
    return {"of": of, "path": parts, "paths": [f"${named}", f"${placed}"], "value": value}
