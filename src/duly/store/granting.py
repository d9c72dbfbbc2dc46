"""What claims under limits may take: pure arithmetic between reading the meters and writing the leases.

A store locks the meters of many asks and picks items for what the `MeterBudget` allows each ask. Then it writes what
the budget counted for the items that were really there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeAlias

from msgspec.structs import replace

from duly.core.model import Ask, Grant, Item, Meter, Share
from duly.core.policy.limits import tokens, worth_keeping
from duly.core.shown import MeterRow

# Leases that are needed: for each, its items and the meters that it counts for.
Leases: TypeAlias = Sequence[tuple[list[Item], list[str] | None]]
# The times of all grants that each meter counts, by its name.
Hits: TypeAlias = Mapping[str, Sequence[datetime]]


class MeterBudget:
    """The free calls of the meters of some asks. They are granted ask by ask, to the first asks first."""

    def __init__(
        self, asks: Sequence[Ask], rows: Sequence[MeterRow], running: Mapping[str, int], now: datetime
    ) -> None:
        self._now = now
        self._kept = {row.name: row for row in rows}
        self._as_set: dict[Meter, Meter] = {}
        self._free: dict[Meter, int] = {}
        self._until: dict[Meter, datetime | None] = {}
        for meter in {meter for ask in asks for meter in ask.meters}:
            as_set = self._as_set[meter] = self._set_by_people(meter)
            self._free[meter], self._until[meter] = tokens(
                as_set, self._hits(meter.name), running.get(meter.name, 0), now
            )
        self._exhausted = {meter for meter, free in self._free.items() if not free}
        self._spent: Counter[str] = Counter()

    def refusal(self, ask: Ask) -> Grant | None:
        """The refusal of an ask that a meter has no room for. It names the time at which the last of them has room."""
        waits = [self._until[meter] for meter in ask.meters if meter in self._exhausted]
        if not waits:
            return None
        known = [wait for wait in waits if wait is not None]
        return Grant(is_refused=True, until=max(known) if len(known) == len(waits) else None)

    def offer(self, ask: Ask, calls: int, batch: int) -> tuple[int, Share | None]:
        """Reserve calls and items for this ask; None when the asks before it took everything."""
        items = min((self._free[meter] for meter in ask.meters if meter.since is not None), default=calls * batch)
        calls = min((calls, *(self._free[meter] for meter in ask.meters if meter.since is None)))
        items = min(items, calls * batch, ask.share.limit)
        calls = min(calls, -(-items // batch))
        if items <= 0:
            return 0, None
        for meter in ask.meters:
            self._free[meter] -= items if meter.since is not None else calls
        return calls, replace(ask.share, limit=items)

    def grant(self, ask: Ask, items: list[Item], offered: int, batch: int, is_short: bool) -> Grant:
        """Count how much of an offer was used, after the number of items is known."""
        calls = min(offered, calls_for(items, batch))
        for name, counts_items in {meter.name: meter.since is not None for meter in ask.meters}.items():
            self._spent[name] += len(items) if counts_items else calls
        rates = [per for meter in ask.meters if (per := self._as_set[meter].per) is not None]
        return Grant(items, calls, is_short=is_short, per=min(rates, default=None))

    def hits(self) -> Iterator[tuple[str, list[datetime]]]:
        """The times of all grants that each meter with a window counts after this claim.

        Meters of one name share their list of times. It goes back as far as any of them needs, also the one in the
        code, to which a person may return.
        """
        logs: dict[str, list[datetime]] = {}
        for meter, as_set in self._as_set.items():
            if not as_set.is_concurrency and self._spent[meter.name]:
                kept = [worth_keeping(each, self._hits(meter.name), self._now) for each in {meter, as_set}]
                logs[meter.name] = max((*kept, logs.get(meter.name, [])), key=len)
        return ((name, [*kept, *[self._now] * self._spent[name]]) for name, kept in logs.items())

    def _hits(self, name: str) -> Sequence[datetime]:
        return self._kept[name].hits if name in self._kept else ()

    def _set_by_people(self, meter: Meter) -> Meter:
        """The meter with the values that a person set, if any, in place of those in the code."""
        kept = self._kept.get(meter.name)
        if kept is None or kept.most is None:
            return meter
        return replace(meter, most=kept.most, per=kept.per if kept.per is not None else meter.per)


def grant_calls(
    asks: Sequence[Ask], budget: MeterBudget, calls: int, batch: int, pick: Callable[[list[Share]], list[list[Item]]]
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
        answers[place] = budget.grant(asks[place], items, offered, batch, len(items) < share.limit)
    return [answer or Grant(is_asked=False) for answer in answers]


def once(picked: Sequence[list[Item]]) -> list[list[Item]]:
    """The items of each share, without those that an earlier share has: late and fresh parts of a line may overlap."""
    seen: set[int] = set()
    own = []
    for items in picked:
        own.append([item for item in items if item.id not in seen])
        seen.update(item.id for item in items)
    return own


def calls_of(items: Sequence[Item], batch: int) -> Iterator[list[Item]]:
    """The items of each call of a handler; a suspect is called alone."""
    if batch == 1:
        yield from ([item] for item in items)
        return
    yield from ([item] for item in items if item.crashes)
    rest = [item for item in items if not item.crashes]
    yield from (rest[place : place + batch] for place in range(0, len(rest), batch))


def calls_for(items: Sequence[Item], batch: int) -> int:
    """How many calls of a handler these items are."""
    suspects = sum(item.crashes > 0 for item in items) if batch > 1 else len(items)
    return suspects + -(-(len(items) - suspects) // batch)


def leases_for(asks: Sequence[Ask], grants: Sequence[Grant], batch: int) -> Leases:
    """The leases that these grants need.

    A call under a limit on calls at the same time has a lease of its own, whose end makes room. The rest share one.
    """
    leases: list[tuple[list[Item], list[str] | None]] = []
    together: list[Item] = []
    for ask, grant in zip(asks, grants, strict=True):
        if held := [meter.name for meter in ask.meters if meter.is_concurrency]:
            leases.extend((call, held) for call in calls_of(grant.items, batch))
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
