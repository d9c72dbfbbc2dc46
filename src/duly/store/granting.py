"""What claims under limits may take: pure arithmetic between reading the meters and writing the leases.

A store locks the meters of many asks and picks items for what the `MeterBudget` allows each ask. Then it writes what
the budget counted for the items that were really there.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice, repeat
from typing import Any, TypeAlias

from msgspec.structs import replace

from duly.core.model import ALONE, AT_ONCE, Ask, CallStart, Grant, Item, Meter, MeterHit, Share, StartTiming, Suspects
from duly.core.policy.limits import (
    AHEAD_UP_TO,
    MOST_AHEAD,
    MOST_SPREAD,
    SPREAD_WITHIN,
    START_WITHIN,
    as_known,
    grants_ahead,
    next_free,
    slack,
    tokens,
    worth_keeping,
)
from duly.core.shown import MeterRow

# Leases that are needed: for each, its items and the meters that it counts for.
Leases: TypeAlias = Sequence[tuple[list[Item], list[str] | None]]
# The times of all grants that each meter counts, by its name.
Hits: TypeAlias = Mapping[str, Sequence[datetime]]


class MeterBudget:
    """The free calls of the meters of some asks. They are granted ask by ask, to the first asks first."""

    def __init__(
        self,
        asks: Sequence[Ask],
        rows: Sequence[MeterRow],
        running: Mapping[str, int],
        now: datetime,
        timing: StartTiming = AT_ONCE,
    ) -> None:
        self._now = now
        self._timing = timing
        self._kept = {row.name: row for row in rows}
        self._as_set: dict[Meter, Meter] = {}
        self._free: dict[Meter, int] = {}  # of meters without a sliding window
        self._until: dict[Meter, datetime | None] = {}
        self._calls: dict[Meter, list[datetime]] = {}  # of meters with one: by when each of its calls begins
        self._rates: dict[str, list[Meter]] = {}  # these meters by their names, which meters may share
        for meter in {meter for ask in asks for meter in ask.meters}:
            as_set = self._as_set[meter] = self._set_by_people(meter)
            hits = self._hits(meter.name)
            if as_set.is_rate:
                self._calls[meter] = as_known(as_set, worth_keeping(as_set, hits, now), timing)
                self._rates.setdefault(meter.name, []).append(meter)
            else:
                self._free[meter], self._until[meter] = tokens(as_set, hits, running.get(meter.name, 0), now)
        self._offered = {meter: list(calls) for meter, calls in self._calls.items()}
        self._spent: dict[str, list[datetime]] = {}
        # How many lines ask for the calls of each meter.
        self._asking = Counter(meter for meter, _ in {(meter, ask.share.line) for ask in asks for meter in ask.meters})

    def refusal(self, ask: Ask) -> Grant | None:
        """The refusal of an ask that a meter has no room for. It names the time at which the last of them has room."""
        waits = [self._until[meter] for meter in ask.meters if self._free.get(meter) == 0]
        for meter in ask.meters:
            if meter in self._calls:
                at = next_free(self._as_set[meter], self._calls[meter], self._now)
                if at is None or at > self._now + self._ahead(ask):
                    waits.append(None if at is None else at - self._ahead(ask))
        if not waits:
            return None
        known = [wait for wait in waits if wait is not None]
        return Grant(is_refused=True, until=max(known) if len(known) == len(waits) else None)

    def offer(self, ask: Ask, calls: int, batch: int) -> tuple[int, Share | None]:
        """Reserve calls and items for this ask; None when the asks before it took everything."""
        items = min((self._free[meter] for meter in ask.meters if meter.since is not None), default=calls * batch)
        calls = min((calls, *(self._free[meter] for meter in self._counted(ask) if meter.since is None)))
        calls = min((calls, *(self._part(ask, meter) for meter in ask.meters if self._asking[meter] > 1)))
        items = min(items, calls * batch, ask.share.limit)
        calls = sum(1 for _ in self._starts(ask, min(calls, -(-items // batch)), self._offered))
        items = min(items, calls * batch)
        if items <= 0:
            return 0, None
        for meter in self._counted(ask):
            self._free[meter] -= items if meter.since is not None else calls
        return calls, replace(ask.share, limit=items)

    def _part(self, ask: Ask, meter: Meter) -> int:
        """The part of a line that is not alone: the first ones do not take all calls of a window.

        What the others leave is claimed next.
        """
        if meter not in self._calls:
            return ask.share.limit
        as_set = self._as_set[meter]
        most = as_set.most * (1 + self._ahead(ask).total_seconds() / (as_set.per or 1.0))
        return max(int(most / self._asking[meter]), 1)

    def grant(self, ask: Ask, calls: list[list[Item]], is_short: bool) -> Grant:
        """Count how much of an offer was used, after it is known which items there are."""
        starts = []
        for call, start in zip(calls, self._starts(ask, len(calls), self._calls), strict=True):
            starts.append(start if len(call) == 1 else replace(start, size=len(call)))
            for hit in start.hits:
                self._spent.setdefault(hit.name, []).append(hit.at)
        items = [item for call in calls for item in call]
        return Grant(items, len(calls), is_short=is_short, starts=tuple(starts), seats=self._seats(ask, items))

    def hits(self) -> Iterator[tuple[str, list[datetime]]]:
        """The times of all grants that each meter with a window counts after this claim.

        Meters of one name share their list of times. It goes back as far as any of them needs, also the one in the
        code, to which a person may return.
        """
        logs: dict[str, list[datetime]] = {}
        for meter, as_set in self._as_set.items():
            if self._spent.get(meter.name):
                kept = [worth_keeping(each, self._hits(meter.name), self._now) for each in {meter, as_set}]
                logs[meter.name] = max((*kept, logs.get(meter.name, [])), key=len)
        return ((name, sorted([*kept, *self._spent[name]])) for name, kept in logs.items())

    def _starts(self, ask: Ask, calls: int, taken: dict[Meter, list[datetime]]) -> Iterator[CallStart]:
        """When each of so many calls of this ask may begin; what they take of meters is added to `taken`."""
        own = [meter for meter in ask.meters if meter in taken]
        if not own:
            yield from (CallStart() for _ in range(calls))
            return
        timing, latest = self._timing, self._now + self._ahead(ask)
        windows = {name: [each.per or 0.0 for each in self._named(name)] for name in {meter.name for meter in own}}
        within = {name: START_WITHIN * min(map(slack, windows[name])) for name in windows}
        spread = min(within.values())
        if timing.spread:
            per = timedelta(seconds=min(map(min, windows.values())))
            if per.total_seconds() > AHEAD_UP_TO:  # of these windows, no worker knows when its own calls began
                spread = max(min(timing.spread, MOST_SPREAD * per), spread)
            else:
                spread = min(max(timing.spread, SPREAD_WITHIN * per), MOST_SPREAD * per)
        while calls > 0:
            free = [next_free(self._as_set[meter], taken[meter], self._now) for meter in own]
            times = [at for at in free if at is not None and at <= latest]
            if len(times) < len(free):
                return
            # So many calls may begin at that time: what is free at once, and else one by one.
            count = min(calls, *(max(self._as_set[meter].most - len(taken[meter]), 1) for meter in own))
            at = max(times)
            soon = max(at, self._now + timing.delay)
            hits = []
            for name, part in within.items():
                by = soon + spread - part  # by which it begins, but for that part of the slack
                for meter in self._rates[name]:
                    _insert(taken[meter], by, count)
                hits.append(MeterHit(name, by + timing.blur, by, max(windows[name])))
            yield from repeat(CallStart(at=at, by=soon + spread, hits=tuple(hits)), count)
            calls -= count

    def _counted(self, ask: Ask) -> Iterator[Meter]:
        """The meters of this ask without a sliding window."""
        return (meter for meter in ask.meters if meter in self._free)

    def _named(self, name: str) -> Iterator[Meter]:
        """The meters of this name, as they are set."""
        return (self._as_set[meter] for meter in self._rates[name])

    def _seats(self, ask: Ask, items: list[Item]) -> dict[int, tuple[str, datetime]]:
        """Count the items for the retry window of this ask: each once, however often it is started in it."""
        seats: dict[int, tuple[str, datetime]] = {}
        for meter in ask.meters:
            if meter.since is not None:
                new = [item for item in items if item.started_at is None or item.started_at < meter.since]
                seats.update((item.id, (meter.name, self._now)) for item in new)
                self._spent.setdefault(meter.name, []).extend([self._now] * len(new))
        return seats

    def _ahead(self, ask: Ask) -> timedelta:
        own = [self._as_set[meter] for meter in ask.meters]
        return min(self._timing.ahead, MOST_AHEAD) if grants_ahead(own) else timedelta()

    def _hits(self, name: str) -> Sequence[datetime]:
        return self._kept[name].hits if name in self._kept else ()

    def _set_by_people(self, meter: Meter) -> Meter:
        """The meter with the values that a person set, if any, in place of those in the code."""
        kept = self._kept.get(meter.name)
        if kept is None or kept.most is None:
            return meter
        return replace(meter, most=kept.most, per=kept.per if kept.per is not None else meter.per)


def _insert(times: list[datetime], at: datetime, count: int) -> None:
    place = len(times) if not times or times[-1] <= at else bisect_right(times, at)
    times[place:place] = [at] * count


def grant_calls(
    asks: Sequence[Ask],
    budget: MeterBudget,
    calls: int,
    batch: int,
    pick: Callable[[list[Share]], list[list[Item]]],
    suspects: Suspects = ALONE,
) -> list[Grant]:
    """Answer each ask with items that `pick` finds, as far as its meters have room, for at most `calls` calls."""
    answers: list[Grant | None] = [None] * len(asks)
    offers: list[tuple[int, int, Share]] = []
    for place, ask in enumerate(asks):
        answers[place] = budget.refusal(ask)
        if answers[place] is None and calls > 0:
            offered, share = budget.offer(ask, calls, batch)
            if share is not None:
                offers.append((place, offered, share))
                calls -= offered
    picked = once(pick([share for _, _, share in offers])) if offers else []
    for (place, offered, share), items in zip(offers, picked, strict=True):
        granted = list(islice(calls_of(items, batch, suspects), offered))
        answers[place] = budget.grant(asks[place], granted, len(items) < share.limit)
    return [answer or Grant(is_asked=False) for answer in answers]


def once(picked: Sequence[list[Item]]) -> list[list[Item]]:
    """The items of each share, without those that an earlier share has: late and fresh parts of a line may overlap."""
    seen: set[int] = set()
    own = []
    for items in picked:
        own.append([item for item in items if item.id not in seen])
        seen.update(item.id for item in items)
    return own


def calls_of(items: Sequence[Item], batch: int, suspects: Suspects = ALONE) -> Iterator[list[Item]]:
    """The items of each call of a handler. Those under suspicion come last, and share no call with others."""
    if batch == 1:
        yield from ([item] for item in items)
        return
    alone = [item for item in items if suspects.is_alone(item)]
    together = [item for item in items if item.crashes and not suspects.is_alone(item)]
    for same in ([item for item in items if not item.crashes], together):
        yield from (same[place : place + batch] for place in range(0, len(same), batch))
    yield from ([item] for item in alone)


def leases_for(asks: Sequence[Ask], grants: Sequence[Grant]) -> Leases:
    """The leases that these grants need.

    A call under a limit on calls at the same time has a lease of its own, whose end makes room. The rest share one.
    """
    leases: list[tuple[list[Item], list[str] | None]] = []
    together: list[Item] = []
    for ask, grant in zip(asks, grants, strict=True):
        if held := [meter.name for meter in ask.meters if meter.is_concurrency]:
            items = iter(grant.items)
            leases.extend((list(islice(items, start.size)), held) for start in grant.starts)
        else:
            together.extend(grant.items)
    if together:
        leases.append((together, None))
    return leases


def under(fences: Mapping[int, int], grants: Sequence[Grant], **given: Any) -> list[Grant]:
    """The grants, with their items as they are once they run: each with its fence."""
    return [
        replace(
            grant,
            items=[
                replace(item, state="running", attempt=item.attempt + 1, fence=fences[item.id], **given)
                for item in grant.items
            ],
        )
        if grant.items
        else grant
        for grant in grants
    ]
