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
from typing import Protocol

from duly.clock import EPOCH
from duly.decide import UNKNOWN, decide
from duly.engine.shares import share_out
from duly.engine.work import Hands
from duly.model import Head, Item, Lane, Released
from duly.store.base import News, Store

Group = tuple[str, Lane, int]

BARREN = timedelta(milliseconds=50)
NEWEST = timedelta(seconds=60)
NEVER_BARREN = (EPOCH, timedelta())
# After a claim that emptied a group, look for what comes next there, once for all claims of this while.
LATER = timedelta(milliseconds=100)


class Pool(Protocol):
    """Where claimed items go: it says how many it can take now, of which tasks, from which queues."""

    tasks: Sequence[str]

    def serves(self, queue: str) -> bool: ...

    def room(self) -> int: ...

    def begin(self, items: list[Item]) -> None: ...


class Outlook:
    """What one pool may expect: the heads it knows of, and the groups that gave nothing when asked."""

    def __init__(self, pool: Pool, longest: timedelta) -> None:
        self.pool = pool
        self._longest = longest
        self._heads: dict[Group, datetime] = {}
        self._seen: dict[Group, datetime] = {}  # the heads of the last survey
        self._barren: dict[Group, tuple[datetime, timedelta]] = {}
        self.fresh: set[Group] = set()  # told of, and due since a moment ago
        self.news = 0  # how often it was told of something

    def surveyed(self, heads: Sequence[Head]) -> None:
        self.fresh.clear()
        served = {head.queue for head in heads if self.pool.serves(head.queue)}
        self._seen = {(head.queue, head.lane, head.rank): head.due_at for head in heads if head.queue in served}
        self._heads = dict(self._seen)
        self._barren = {group: wait for group, wait in self._barren.items() if group in self._heads}

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
        known = {group: self._heads[group] for group, at in self._times() if at <= now and group in self._heads}
        newest = dict.fromkeys(list(self.fresh), now - NEWEST)
        return [Head(*group, due_at) for group, due_at in {**newest, **known}.items()]

    def next_at(self) -> datetime | None:
        return EPOCH if self.fresh else min((at for _, at in self._times()), default=None)

    def _times(self) -> list[tuple[Group, datetime]]:
        """When to ask each group: when it is due, or later when it gave nothing."""
        heads = list(self._heads.items())
        return [(group, max(due_at, self._barren.get(group, NEVER_BARREN)[0])) for group, due_at in heads]

    def claimed(self, items: Sequence[Item]) -> None:
        """What is left of these items' groups is due no earlier than the last of them."""
        for item in items:
            self._heads[item.queue, item.lane, item.rank] = item.due_at

    def exhausted(self, group: Group, got_any: bool, now: datetime) -> None:
        self.fresh.discard(group)
        self._heads.pop(group, None)
        if group in self._seen and self._seen[group] > now:
            self._heads[group] = self._seen[group]  # what was put since is gone; what was to come then still is
        if got_any:
            self._barren.pop(group, None)
        else:
            pause = self._barren.get(group, (now, BARREN / 2))[1] * 2
            self._barren[group] = (now + min(pause, self._longest), min(pause, self._longest))


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
        is_swamped: Callable[[], bool] = lambda: False,
    ) -> None:
        self._store = store
        self._outlooks = [Outlook(pool, timedelta(seconds=sweep)) for pool in pools]
        self._hands = hands
        self._worker = worker
        self._lease = timedelta(seconds=lease)
        self._poll = timedelta(seconds=poll)
        self._is_swamped = is_swamped
        self._look = True
        self._look_at = EPOCH
        self._later = LATER
        self._turn = 0
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
        shares = share_out(outlook.due(now), room, self._turn)
        if not shares:
            return False
        self._turn += 1
        news = outlook.news
        ends = time.monotonic() + self._lease.total_seconds()
        items = self._store.claim(shares, outlook.pool.tasks, self._worker, now, now + self._lease)
        if items and self._stopped:
            self._give_back(items, now)
        elif items:
            self._hands.lease(items, now, ends)
            try:
                outlook.pool.begin(items)
            except BaseException:
                self._hands.let_go(items)  # so that the lease runs out and someone else has them
                raise
        outlook.claimed(items)
        got = Counter((item.queue, item.lane) for item in items)
        short = [share for share in shares if got[share.queue, share.lane] < share.limit]
        if short:
            self._look_at = min(self._look_at, now + self._later)
        if news != outlook.news:  # told while the claim was under way, perhaps too late for it
            self._look = True
        for share in short:
            for rank in share.ranks:
                outlook.exhausted((share.queue, share.lane, rank), got[share.queue, share.lane] > 0, now)
        return len(short) < len(shares)

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
