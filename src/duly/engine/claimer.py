"""Claims due items when there is room for them, and knows when to look again.

It learns from surveys and from news of puts which lines have something due, sleeps until the nearest due time, and
claims what is due, split fairly. Where there are very many lines, it surveys them in portions, one after the other: at
first without a pause, later at a pace that costs little. Meanwhile it finds what has just fallen due by its time, so
that no item has to wait until all lines were surveyed.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Container, Sequence
from datetime import datetime, timedelta
from itertools import islice
from operator import attrgetter
from typing import Protocol

from duly.core.clock import EPOCH, JUMP, Clock
from duly.core.decide import UNKNOWN, decide
from duly.core.model import Ask, Expired, Grant, Head, Item, Released, Share, Suspects
from duly.engine.due_lines import BARREN, SOON, DueLines
from duly.engine.metering import Meters
from duly.engine.news import ClaimerInbox
from duly.engine.ready_lines import Room, TurnLog
from duly.engine.starts import NO_SEATS, Permit, Seats, Starts
from duly.engine.work import InFlight
from duly.store.contract import FRESH, START, Store

# After a claim has emptied a line, wait this long before looking for its next head, once for all claims meanwhile.
LATER = timedelta(milliseconds=100)
# While a limit has no room, try again at least this often, because a person may raise it.
ASK_AGAIN = timedelta(seconds=60)
# How long to wait when too many results are still to be written.
BREATH = timedelta(milliseconds=50)
# How many lines one survey looks at, and how many items one glance at what has just fallen due.
PORTION = 500
GLANCED = 200
# How many seconds the first surveys of all lines may cost before they pause in between.
HEAD_START = 2.0
# The next walk over all lines begins this many times as long after one as its surveys took.
WALK_REST = 40
# How many lanes and ranks of a line it looks at, if it claims from a single one.
FEW = 100
# After a glance, wait this many times as long as it took before the next one, regardless of news.
REST = 4
# If the time is earlier than the last time by more than this, the clock was set back.
SET_BACK = timedelta(seconds=JUMP)
# How many claims one tick makes before it returns, so that the loop can stop or hear news.
ROUNDS = 1_000

_place = attrgetter("queue", "task", "owner", "lane")


class Pool(Room, Protocol):
    """Where claimed items go: how many it can take now, of which tasks, and of which lines."""

    tasks: Sequence[str]
    batch: int
    meters: Meters | None  # None: its tasks have no limits

    @property
    def suspects(self) -> Suspects:
        """How items are called that may have crashed a worker."""

    def room(self) -> int: ...

    def free_calls(self) -> int:
        """How many calls could begin now."""

    def begin(self, items: list[Item], permits: Sequence[Permit] | None = None, seats: Seats = NO_SEATS) -> None:
        """Run these items. Under limits, there is a permit for each call, and seats of items in retry windows."""


class Claimer:
    def __init__(
        self,
        store: Store,
        pools: Sequence[Pool],
        in_flight: InFlight,
        worker: str,
        *,
        lease: float,
        poll: float,
        sweep: float,
        clock: Clock | None = None,
        inbox: ClaimerInbox | None = None,
        is_swamped: Callable[[], bool] = lambda: False,
        turn_log: TurnLog | None = None,
        starts: Starts | None = None,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._ticks = ticks  # measures what looks cost
        self.inbox = inbox or ClaimerInbox({task for pool in pools for task in pool.tasks})
        self._sweep = timedelta(seconds=sweep)
        self._poll = timedelta(seconds=poll)
        self._lease = timedelta(seconds=lease)
        self._turn_log = turn_log or TurnLog()
        self._pools = pools
        self._expect_anew()
        self._in_flight = in_flight
        self._worker = worker
        self._clock = clock
        self._is_swamped = is_swamped
        self._starts = starts or Starts()
        self._stopped = False

    def _expect_anew(self) -> None:
        """Forget the known state, and survey again."""
        # What falls due before the walk over the lines comes by again must be known by then.
        self._horizon = max(self._poll, timedelta(seconds=2 * WALK_REST * HEAD_START))
        self._lines_of = [(pool, DueLines(self._sweep, self._horizon, self._turn_log)) for pool in self._pools]
        self._by_task = {task: lines for pool, lines in self._lines_of for task in pool.tasks}
        self._latest = EPOCH
        self.inbox.look = True
        self._look_at = EPOCH
        self._rested_at = EPOCH  # with very many lines, news does not make it look before then
        self._later = LATER
        self._place = START  # how far the walk over all lines has come
        self._is_walking = False  # whether there are more lines than one survey sees
        self._walk_at = EPOCH
        self._walked = 0.0  # seconds that this walk has cost
        self._walk_began = EPOCH
        self._has_walked = False  # whether all lines were seen once
        self._glanced_at = EPOCH

    def stop(self) -> None:
        """Claim nothing more."""
        self._stopped = True

    def _open_inbox(self, now: datetime) -> None:
        while self.inbox.reports:
            report = self.inbox.reports.popleft()
            if isinstance(report, Head):
                self._by_task[report.line.task].hear(report, now)
            else:
                self._by_task[report.task].freed(report, now)

    # -- a tick

    def tick(self, now: datetime) -> datetime:
        if self._stopped:
            return now + self._poll
        if self._is_swamped():
            return now + BREATH
        if now < self._latest - SET_BACK:  # the clock was set back, and due times of the old clock would come too late
            self._expect_anew()
        self._latest = now
        if (self.inbox.look and self._rested_at <= now) or self._look_at <= now:
            self._look_around(now)
        for _ in range(ROUNDS):
            now = self._now(now)
            self._open_inbox(now)
            # One claim for each pool in turn, so that none keeps the others waiting.
            begun = self._starts.clock()
            has_more = [True for pool, lines in self._lines_of if self._claim(pool, lines, now)]
            self._starts.took(self._starts.clock() - begun)
            if not has_more or self._stopped:
                return self._next()
        return now

    def _now(self, tick: datetime) -> datetime:
        return tick if self._clock is None else self._clock.now()

    def _stamp(self, now: datetime) -> datetime | None:
        """The time to claim with; None lets the database use its own."""
        return now if self._clock is None else self._clock.stamp()

    def _next(self) -> datetime:
        times = [self._rested_at if self.inbox.look else self._look_at]
        for pool, lines in self._lines_of:
            next_at = lines.next_at()
            if next_at is not None and pool.room() > 0:  # a full pool wakes this loop when it has room
                times.append(next_at)
        return min(times)

    def held_until(self, now: datetime) -> datetime | None:
        """When a limit that kept items waiting has room again."""
        times = [until for _, lines in self._lines_of if (until := lines.held_until(now)) is not None]
        return min(times, default=None)

    # -- looking

    def _look_around(self, now: datetime) -> None:
        self.inbox.look = False
        begun = self._ticks()
        try:
            heads = self._survey(now) if not self._is_walking or self._walk_at <= now else []
            self._look_at = min(self._look_at, self._walk_at) if self._is_walking else now + self._poll
            if self._is_walking and not (self._is_hurrying() and now < self._glanced_at + SOON):
                begun = self._ticks()  # the walk takes its pace from what it costs
                heads += self._glance(now)
        except BaseException:
            self.inbox.look = True
            raise
        # The more a look costs, the less often it is taken.
        cost = self._ticks() - begun
        self._later = max(LATER, timedelta(seconds=20 * cost))
        self._rested_at = now + timedelta(seconds=REST * cost) if self._is_walking else EPOCH
        for head in heads:
            if self.inbox.accepts(head.line):
                self._by_task[head.line.task].add(head, now)

    def _survey(self, now: datetime) -> list[Head]:
        """Survey the next portion of the lines. They are walked over and over, at a pace that costs little."""
        if self.inbox.only is not None:
            return self._store.survey((self.inbox.only.queue, *START[1:]), FEW)[0]
        begun = self._ticks()
        is_first = self._place == START
        heads, place = self._store.survey(self._place, PORTION)
        cost = self._ticks() - begun
        self._walked = cost if is_first else self._walked + cost
        self._walk_began = now if is_first else self._walk_began
        self._is_walking = place is not None or not is_first
        self._place = place or START
        if place is None:
            self._has_walked = True
            self._walk_at = now + max(self._sweep, timedelta(seconds=WALK_REST * self._walked))
            for _, lines in self._lines_of:
                lines.horizon = max(self._horizon, 2 * (self._walk_at - self._walk_began))
        else:
            self._walk_at = now if self._is_hurrying() else now + max(LATER, timedelta(seconds=20 * cost))
        return heads

    def _is_hurrying(self) -> bool:
        """Whether to go on with the first walk at once: items may wait that nobody will announce."""
        return not self._has_walked and self._walked < HEAD_START

    def _glance(self, now: datetime) -> list[Head]:
        """Look for what has just fallen due and what waits longest, wherever the walk over the lines stands."""
        begun, self._glanced_at = self._ticks(), now
        heads, next_at = self._store.glance(now, GLANCED)
        pause = timedelta(seconds=5 * (self._ticks() - begun))
        self._look_at = self._walk_at if next_at is None else min(self._walk_at, max(next_at, now + pause))
        return heads

    # -- claiming

    def _claim(self, pool: Pool, lines: DueLines, now: datetime) -> bool:
        """Claim once for this pool; returns whether there may be more."""
        lines.wake(now)
        if not lines.ready or self._stopped or (room := pool.room()) <= 0:
            return False
        if pool.meters is not None:
            return self._claim_metered(pool, pool.meters, lines, room, now)
        shares = lines.shares(room, pool.batch, now, pool)
        if not shares:
            return False
        ends = time.monotonic() + self._lease.total_seconds()
        items = self._store.claim(shares, self._worker, self._stamp(now), self._lease)
        self._begin(pool, items, now, ends)
        lines.asked(shares)
        lines.claimed(items, now - FRESH)
        got = _got(shares, items, now - FRESH)
        for share, count in zip(shares, got, strict=True):
            self._turn_log.turns(share.line).served(share, -(-count // pool.batch))
            if count < share.limit:
                lines.exhausted(share, count > 0, now)
                self._look_soon(now)
        return True

    def _claim_metered(self, pool: Pool, meters: Meters, lines: DueLines, room: int, now: datetime) -> bool:
        """Claim under limits, only for calls that can begin now; returns whether there may be more."""
        if (calls := pool.free_calls()) <= 0:
            return False
        shares = lines.shares(room, pool.batch, now, pool, is_metered=True)
        asks = [
            Ask(part, limits)
            for share in shares
            for part, limits in meters.of(share, now, lines.may_be_torn(share.line, now))
        ]
        if not asks:
            return False
        timing, asked_at = self._starts.timing(asks), self._ticks()
        ends, begun = time.monotonic() + self._lease.total_seconds(), self._starts.clock()
        grants = self._store.claim_metered(
            asks, self._worker, self._stamp(now), self._lease, calls, pool.batch, timing, pool.suspects
        )
        for grant in grants:
            if grant.items:
                permits = self._starts.permits(grant, begun)
                self._begin(pool, grant.items, now, ends, permits, grant.seats)
        asked = [(ask, grant) for ask, grant in zip(asks, grants, strict=True) if grant.is_asked]
        lines.asked(ask.share for ask, grant in asked if not grant.is_refused)
        for ask, grant in asked:
            self._learn(lines, meters, ask, grant, now, self._ticks() - asked_at)
        lines.refused(sum(grant.is_refused for _, grant in asked), len(asked))
        return bool(asked)

    def _learn(self, lines: DueLines, meters: Meters, ask: Ask, grant: Grant, now: datetime, took: float) -> None:
        share = ask.share
        if grant.items:
            lines.found(share)
            lines.claimed(grant.items, now - FRESH)
            self._turn_log.turns(share.line).served(share, grant.calls)
        if grant.is_refused and share.started_since is None:
            lines.hold(share, self._ask_again(lines, share, grant, now), is_pace=meters.is_paced(share, now))
        elif grant.is_refused:
            lines.hasten(share, self._ask_again(lines, share, grant, now))
        elif grant.is_short:
            lines.exhausted(share, bool(grant.items), now, took)
            self._look_soon(now)

    def _ask_again(self, lines: DueLines, share: Share, grant: Grant, now: datetime) -> datetime:
        if grant.until is None:
            # A call must end first, perhaps in another worker. The more lines of an owner wait for that, the later each
            # of them asks again.
            return now + SOON * max(1, lines.held_of(share.line.owner) // 100)
        # Items that were started in a window and released may run although the window is full: look now and then.
        until = min(grant.until, now + (self._sweep if share.lane == "retry" else ASK_AGAIN))
        return max(until, now + BARREN)

    def _look_soon(self, now: datetime) -> None:
        self._look_at = min(self._look_at, now + self._later)

    # -- beginning

    def _begin(
        self,
        pool: Pool,
        items: list[Item],
        now: datetime,
        ends: float,
        permits: list[Permit] | None = None,
        seats: Seats = NO_SEATS,
    ) -> None:
        # What is claimed while the worker stops is given back. Only first tries expire: an item that was started in
        # time is retried, however late.
        granted, is_stopped = items, self._stopped
        if gone := [item for item in items if is_stopped or _is_too_late(item, now)]:
            outcome = Released("its worker stopped") if is_stopped else Expired()
            ids = {item.id for item in gone}
            items = [item for item in items if item.id not in ids]
            closed = {item.fence for item in gone} - {item.fence for item in items}
            self._store.settle([decide(item, outcome, now, UNKNOWN) for item in gone], sorted(closed))
        items = self._in_flight.lease(items, ends)
        if permits is not None and len(items) < len(granted):
            permits = self._still_needed(permits, granted, {item.id for item in items}, seats)
        if items:
            try:
                pool.begin(items, permits, seats)
            except BaseException:
                self._in_flight.let_go(items)  # so that their lease runs out and another worker takes them
                raise

    def _still_needed(
        self, permits: Sequence[Permit], granted: list[Item], ids: Container[int], seats: Seats
    ) -> list[Permit]:
        """The permits of calls that these items are left for; the others are given back."""
        rest, needed = iter(granted), []
        for permit in permits:
            call = list(islice(rest, permit.size))
            permit.size = sum(item.id in ids for item in call)
            if permit.size:
                needed.append(permit)
            else:
                self._in_flight.give_back(permit.unused(call, seats))
        return needed


def _got(shares: Sequence[Share], items: Sequence[Item], fresh_since: datetime) -> list[int]:
    """How many of these items each share got. Where a line has a late and a fresh share, the due time decides."""
    split = {(share.line, share.lane) for share in shares if share.is_fresh}
    got = Counter(map(_place, items))
    fresh = Counter(map(_place, [item for item in items if item.due_at >= fresh_since] if split else ()))

    def count(share: Share) -> int:
        queue, task, owner = share.line
        place = (queue, task, owner or None, share.lane)
        if share.is_fresh:
            return fresh[place]
        return got[place] - (fresh[place] if (share.line, share.lane) in split else 0)

    return [count(share) for share in shares]


def _is_too_late(item: Item, now: datetime) -> bool:
    """Whether a first try has expired. An item that a person retried never expires."""
    is_first = item.attempt == 1 and not item.revivals
    return is_first and item.expires_at is not None and item.expires_at < now
