"""Claims due items when there is room for them, and knows when to look again.

It keeps the heads of the queues (the earliest due time of each queue, lane and rank) from a survey and from news of
puts, sleeps until the nearest of them, and claims what is due, split fairly. A group that looked due but gave nothing
belongs to someone else at this moment; it is left alone for a growing while.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol

from msgspec.structs import replace

from duly.clock import EPOCH
from duly.decide import UNKNOWN, decide
from duly.engine.metering import Meters
from duly.engine.shares import share_out
from duly.engine.work import Hands
from duly.model import Expired, Head, Item, Lane, Meter, Released, Share
from duly.policy.limits import slack
from duly.store.base import FRESH, News, Store

Group = tuple[str, Lane, int]

BARREN = timedelta(milliseconds=50)
NEWEST = timedelta(seconds=60)
NEVER_BARREN = (EPOCH, timedelta())
# After a claim that emptied a group, look for what comes next there, once for all claims of this while.
LATER = timedelta(milliseconds=100)
# A limit may be raised while we wait for it.
ASK_AGAIN = timedelta(seconds=60)
# Beside a backlog that waits for its pace, and where calls at the same time are limited, nobody tells when to ask.
SOON = timedelta(milliseconds=500)
# Of a meter's slack, the part in which a call must begin.
START_WITHIN = 0.8


class Pool(Protocol):
    """Where claimed items go: it says how many it can take now, of which tasks, from which queues."""

    tasks: Sequence[str]
    batch: int
    meters: Meters | None  # None: nothing limits its tasks

    def serves(self, queue: str) -> bool: ...

    def room(self) -> int: ...

    def allowance(self, queue: str, owner: str | None) -> int:
        """Of that room, how much may go to this queue and owner."""
        ...

    def free_calls(self) -> int:
        """How many calls could begin at once."""
        ...

    def begin(self, items: list[Item], calls: int | None = None, start_by: float = float("inf")) -> None:
        """Run these; at most so many calls, and none that cannot begin by then (on the monotonic clock)."""
        ...


class Outlook:
    """What one pool may expect: the heads it knows of, and the groups that gave nothing when asked."""

    def __init__(self, pool: Pool, longest: timedelta) -> None:
        self.pool = pool
        self._longest = longest
        self._heads: dict[Group, datetime] = {}
        self._seen: dict[Group, datetime] = {}  # the heads of the last survey
        self._barren: dict[Group, tuple[datetime, timedelta]] = {}
        self._held: dict[Group, datetime] = {}  # a meter has no room for these before then
        self._paced: dict[Group, datetime] = {}  # the same for their backlog alone
        self.fresh: set[Group] = set()  # told of, and due since a moment ago
        self.news = 0  # how often it was told of something

    def surveyed(self, heads: Sequence[Head]) -> None:
        self.fresh.clear()
        served = {head.queue for head in heads if self.pool.serves(head.queue)}
        self._seen = {(head.queue, head.lane, head.rank): head.due_at for head in heads if head.queue in served}
        self._heads = dict(self._seen)
        waits: dict[Group, Any]
        for waits in (self._barren, self._held, self._paced):
            for group in set(waits).difference(self._heads):
                waits.pop(group, None)

    def heard(self, head: Head) -> None:
        if not self.pool.serves(head.queue):
            return
        group = (head.queue, head.lane, head.rank)
        if head.due_at == EPOCH:
            self.fresh.add(group)
        else:
            self._heads[group] = min(head.due_at, self._heads.get(group, head.due_at))
        self._barren.pop(group, None)
        self.news += 1

    def due(self, now: datetime) -> list[Head]:
        """The heads of what is due; what is only known to be due since a moment ago is looked for among the newest."""
        known = {
            group: max(self._heads[group], now - NEWEST) if self._paced.get(group, EPOCH) > now else self._heads[group]
            for group, at in self._times()
            if at <= now and group in self._heads
        }
        newest = dict.fromkeys((group for group in list(self.fresh) if self._free_at(group) <= now), now - NEWEST)
        return [
            Head(*group, due_at) for group, due_at in {**newest, **known}.items() if self.pool.allowance(group[0], None)
        ]

    def next_at(self) -> datetime | None:
        """When to ask again; a queue that may have no more slots for now is left alone until something ends."""
        told = [(group, self._free_at(group)) for group in list(self.fresh)]
        return min((at for group, at in (*told, *self._times()) if self.pool.allowance(group[0], None)), default=None)

    def _times(self) -> list[tuple[Group, datetime]]:
        """When to ask each group: when it is due, or later when it gave nothing."""
        heads = list(self._heads.items())
        return [(group, max(due_at, self._free_at(group))) for group, due_at in heads]

    def _free_at(self, group: Group) -> datetime:
        return max(self._barren.get(group, NEVER_BARREN)[0], self._held.get(group, EPOCH))

    def hold(self, share: Share, until: datetime, is_late: bool) -> None:
        """A meter has no room for these groups before then; of a backlog, what is fresh is none of its business."""
        for rank in share.ranks:
            (self._paced if is_late else self._held)[share.queue, share.lane, rank] = until

    def held_until(self, now: datetime) -> datetime | None:
        waits = (*self._held.values(), *self._paced.values())
        return min((until for until in waits if until > now), default=None)

    def is_late(self, group: Group, fresh_since: datetime) -> bool:
        return self._heads.get(group, fresh_since) < fresh_since

    def claimed(self, items: Sequence[Item], fresh_since: datetime = EPOCH) -> None:
        """What is left of these items' groups is due no earlier than the last of them; a backlog, of its own last."""
        late = {group for group in self._heads if self.is_late(group, fresh_since)}
        for item in items:
            group = (item.queue, item.lane, item.rank)
            if group not in late or item.due_at < fresh_since:
                self._heads[group] = item.due_at

    def exhausted(self, group: Group, got_any: bool, now: datetime, is_limited: bool = False) -> None:
        self.fresh.discard(group)
        self._heads.pop(group, None)
        if group in self._seen and self._seen[group] > now:
            self._heads[group] = self._seen[group]  # what was put since is gone; what was to come then still is
        if got_any:
            self._barren.pop(group, None)
        else:
            longest = min(self._longest, SOON) if is_limited or group in self._paced else self._longest
            pause = min(self._barren.get(group, (now, BARREN / 2))[1] * 2, longest)
            self._barren[group] = (now + pause, pause)

    def found(self, share: Share) -> None:
        """Something was there, however long there was nothing before."""
        for rank in share.ranks:
            self._barren.pop((share.queue, share.lane, rank), None)


class Claimer:
    def __init__(
        self,
        store: Store,
        pools: Sequence[Pool],
        hands: Hands,
        worker: str,
        *,
        lease: float,
        poll: float,
        sweep: float,
        fresh_now: Callable[[], datetime] | None = None,
        is_swamped: Callable[[], bool] = lambda: False,
        turn: int = 0,
    ) -> None:
        self._store = store
        self._outlooks = [Outlook(pool, timedelta(seconds=sweep)) for pool in pools]
        self._hands = hands
        self._worker = worker
        self._lease = timedelta(seconds=lease)
        self._poll = timedelta(seconds=poll)
        self._is_swamped = is_swamped
        self._fresh_now = fresh_now
        self._look = True
        self._look_at = EPOCH
        self._later = LATER
        self._turn = turn
        self._stopped = False
        self.heard: Callable[[], None] = lambda: None

    def hear(self, news: News) -> None:
        """A put tells of a new head, or something unknown changed: look soon."""
        if news is None:
            self._look = True
        else:
            for outlook in self._outlooks:
                outlook.heard(news)
        self.heard()

    def stop(self) -> None:
        """Claim nothing more."""
        self._stopped = True

    def tick(self, now: datetime) -> datetime:
        if self._stopped:
            return now + self._poll
        if self._is_swamped():
            return now + BARREN
        if self._look or self._look_at <= now:
            self._survey(now)
        for outlook in self._outlooks:
            while (room := outlook.pool.room()) > 0 and not self._stopped and self._claim(outlook, room, now):
                pass
        return self._next(now)

    def _survey(self, now: datetime) -> None:
        self._look = False
        news = [outlook.news for outlook in self._outlooks]
        begun = time.monotonic()
        try:
            heads = self._store.survey()
        except BaseException:
            self._look = True
            raise
        self._look_at = now + self._poll
        # Where a look is costly, it is taken more rarely.
        self._later = max(LATER, timedelta(seconds=20 * (time.monotonic() - begun)))
        for outlook, before in zip(self._outlooks, news, strict=True):
            outlook.surveyed(heads)
            if outlook.news != before:  # told while the survey was under way, perhaps too late for it
                self._look = True

    def _claim(self, outlook: Outlook, room: int, now: datetime) -> bool:
        """Claim once for this pool; whether it is worth another go."""
        shares = share_out(outlook.due(now), room, self._turn, now - FRESH, outlook.pool.batch)
        self._turn += 1
        allowances = {share.queue: outlook.pool.allowance(share.queue, None) for share in shares}
        shares = [replace(share, limit=min(share.limit, allowances[share.queue])) for share in shares]
        plain: list[Share] = []
        is_worth = False
        for share in shares:
            if meters := self._meters(outlook, share, now):
                is_worth |= self._claim_metered(outlook, share, meters, now)
            else:
                plain.append(share)
        return (bool(plain) and self._claim_plain(outlook, plain, now)) or is_worth

    def _meters(self, outlook: Outlook, share: Share, now: datetime) -> tuple[Meter, ...]:
        if outlook.pool.meters is None:
            return ()
        return outlook.pool.meters.of(share.queue, share.lane, _is_late(share, now), now)

    def _claim_plain(self, outlook: Outlook, shares: list[Share], now: datetime) -> bool:
        news = outlook.news
        ends = time.monotonic() + self._lease.total_seconds()
        items = self._store.claim(shares, outlook.pool.tasks, self._worker, now, now + self._lease)
        self._begin(outlook, items, now, ends)
        outlook.claimed(items, now - FRESH)
        short = self._short(shares, items, now)
        if short:
            self._look_at = min(self._look_at, now + self._later)
        if news != outlook.news:  # told while the claim was under way, perhaps too late for it
            self._look = True
        for share, got in short:
            for rank in share.ranks:
                outlook.exhausted((share.queue, share.lane, rank), got > 0, now)
        return len(short) < len(shares)

    def _short(self, shares: list[Share], items: Sequence[Item], now: datetime) -> list[tuple[Share, int]]:
        """The shares that got less than they asked for, with how much; the part for what is fresh says nothing."""
        split = {(share.queue, share.lane) for share in shares if share.is_fresh}
        got = Counter(
            (item.queue, item.lane)
            for item in items
            if (item.queue, item.lane) not in split or item.due_at < now - FRESH
        )
        return [
            (share, got[share.queue, share.lane])
            for share in shares
            if not share.is_fresh and got[share.queue, share.lane] < share.limit
        ]

    def _claim_metered(self, outlook: Outlook, share: Share, meters: tuple[Meter, ...], tick: datetime) -> bool:
        """Claim under limits, for calls that can begin at once; whether there may be more."""
        pool = outlook.pool
        # The time of the claim is what the meters count from, so it must not be older than it is.
        now = self._fresh_now() if self._fresh_now is not None else tick
        begun = time.monotonic()
        calls = min(pool.free_calls(), -(-share.limit // pool.batch))
        is_counted = any(meter.per is None and meter.since is None for meter in meters)
        if calls <= 0:
            return False
        if share.limit > pool.batch:  # a call costs the same with half a batch
            share = replace(share, limit=share.limit - share.limit % pool.batch)
        items, granted, until = self._store.claim_metered(
            share, pool.tasks, self._worker, now, now + self._lease, meters, calls, pool.batch
        )
        rates = [meter.per for meter in meters if meter.per is not None]
        start_by = begun + START_WITHIN * slack(min(rates)).total_seconds() if rates else float("inf")
        self._begin(outlook, items, now, begun + self._lease.total_seconds(), granted, start_by)
        outlook.claimed(items, now - FRESH)
        if items:
            outlook.found(share)
            return True
        if until is not None:
            outlook.hold(share, min(until, now + ASK_AGAIN), _is_late(share, tick))
        elif not share.is_fresh:
            for rank in share.ranks:
                outlook.exhausted((share.queue, share.lane, rank), False, now, is_counted)
            self._look_at = min(self._look_at, now + self._later)
        return not share.is_fresh  # out of the way, so that others have their turn

    def _begin(
        self,
        outlook: Outlook,
        items: list[Item],
        now: datetime,
        ends: float,
        calls: int | None = None,
        start_by: float = float("inf"),
    ) -> None:
        if items and self._stopped:
            self._give_back(items, now)
            return
        # Only what was never begun: a try that failed is no longer about being in time.
        late = [item for item in items if item.attempt == 1 and item.expires_at is not None and item.expires_at < now]
        if late:
            closed = [late[0].fence] if len(late) == len(items) else []
            self._store.settle([decide(item, Expired(), now, UNKNOWN) for item in late], closed)
            gone = {item.id for item in late}
            items = [item for item in items if item.id not in gone]
        if items:
            self._hands.lease(items, now, ends)
            try:
                outlook.pool.begin(items, calls, start_by)
            except BaseException:
                self._hands.let_go(items)  # so that the lease runs out and someone else has them
                raise

    def held_until(self, now: datetime) -> datetime | None:
        """When a limit that held something back has room again."""
        times = [until for outlook in self._outlooks if (until := outlook.held_until(now)) is not None]
        return min(times, default=None)

    def _give_back(self, items: list[Item], now: datetime) -> None:
        """The worker was stopped while this claim was under way."""
        self._store.settle([decide(item, Released(), now, UNKNOWN) for item in items], [items[0].fence])

    def _next(self, now: datetime) -> datetime:
        times = [self._look_at]
        for outlook in self._outlooks:
            next_at = outlook.next_at()
            if next_at is not None and outlook.pool.room() > 0:  # a pool that gets room wakes us
                times.append(next_at)
        return min(times)


def _is_late(share: Share, now: datetime) -> bool:
    """Whether this is the part of a queue that is for its backlog."""
    return share.lane == "main" and not share.is_fresh and bool(share.floors) and min(share.floors) < now - FRESH
