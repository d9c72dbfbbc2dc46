"""When calls under limits begin: what this worker knows of the time between a claim and the starts of its calls.

A grant says when a call may begin at the earliest, and by when it has to. Both are times of the database, which is some
milliseconds away. `DatabaseTime` is how this worker reads them: never later than the database's clock shows, and at
most `blur` earlier. `Starts` measures how long claims and starts take, so that calls are granted as early as needed and
can begin in time. It holds the works whose time has not come. And it remembers when the calls of this worker began:
between two of them only its own clock counts, so that the distance of the database costs nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from heapq import heappop, heappush
from math import inf
from typing import Protocol

from duly.core.clock import EPOCH, ticks
from duly.core.model import Ask, CallStart, Grant, Item, MeterHit, OwnStart, StartTiming, UnusedCall
from duly.core.policy.limits import AHEAD_UP_TO, MOST_AHEAD, slack
from duly.engine.work import Wake, Work, nothing

# How many seconds two clocks may go apart in a second.
DRIFT = 0.0005
# After this many seconds the database's clock is read again; a reading counts for twice as long at most.
READ_EVERY = 5.0
# A reading that took longer than this is repeated, at most so often in all. If a better one differs by more from the
# last one, calls that have the old time are given back.
MOST_WIDTH = 0.5
READINGS = 3
# How much earlier than a claim takes calls are granted, and how much later than usual they may begin: at least this.
LEAST_AHEAD = 0.25
LEAST_SPREAD = 0.005
# After one late answer, calls are not granted for much later; what is longer on its way then is given back.
MOST_DELAY = 2.0
# A grant must lie within what the meter keeps, so nothing that is added to its time may be longer than this.
MOST_BLUR = 10.0
# For how many seconds a measurement counts at least.
LATELY = 10.0
# What retry windows count for items, by their ids.
Seats = Mapping[int, tuple[str, datetime]]
NO_SEATS: Seats = {}
# How many meters' calls are remembered before those of idle ones are dropped.
MANY = 1_000


class Recent:
    """The largest of the values of the last 10 to 20 seconds."""

    def __init__(self) -> None:
        self._since = -inf
        self._last = self._now = 0.0

    def add(self, value: float, at: float) -> None:
        self.get(at)
        self._now = max(self._now, value)

    def get(self, at: float) -> float:
        if at - self._since > LATELY:
            self._last = self._now if at - self._since <= 2 * LATELY else 0.0
            self._since, self._now = at, 0.0
        return max(self._last, self._now)


class DatabaseTime:
    """The database's time, never later than it is, and at most `blur` seconds earlier."""

    def __init__(self, read: Callable[[], datetime], clock: Callable[[], float]) -> None:
        self._read = read
        self._clock = clock
        self._read_at = -inf
        self._offset = 0.0
        self._width = inf  # how long the reading took

    @property
    def blur(self) -> float:
        return self._width + 4 * DRIFT * READ_EVERY

    def renew(self, *, at_once: bool = False) -> bool:
        """Read the clock, if that is due or it must be `at_once`; False when it was set since the last reading."""
        if self._clock() - self._read_at < READ_EVERY and not at_once:
            return True
        for _ in range(READINGS):
            asked = self._clock()
            theirs = (self._read() - EPOCH).total_seconds()
            answered = self._clock()
            offset, width = theirs - answered, answered - asked
            if width <= MOST_WIDTH:
                break
        drift = DRIFT * (answered - self._read_at)
        is_close = self._offset - drift <= offset + width and offset <= self._offset + self._width + drift
        is_better = width <= self._width or answered - self._read_at > 2 * READ_EVERY
        if is_better or not is_close:
            is_close = is_close and (self._width == inf or abs(offset - self._offset) <= MOST_WIDTH)
            self._offset, self._width, self._read_at = offset, width, answered
        return is_close

    def at(self, tick: float) -> datetime:
        return EPOCH + timedelta(seconds=tick + self._offset - 2 * DRIFT * READ_EVERY)

    def tick_of(self, at: datetime) -> float:
        return (at - EPOCH).total_seconds() - self._offset + 2 * DRIFT * READ_EVERY


@dataclass(slots=True, eq=False)
class OwnCall:
    """A granted call of this worker, on its own clock: by when it has to begin, and when it did."""

    by: float
    per: float
    begun: float | None = None

    def counts_until(self) -> float:
        """Until when it may count, for certain."""
        return self.by + self.per + slack(self.per).total_seconds() + 1.0


@dataclass(slots=True, eq=False)
class Permit:
    """The permission for one call of a handler to begin, between two times of this worker's clock."""

    starts: Starts
    size: int = 1  # how many items the call is for
    since: float = -inf  # when it could begin here
    at: float = -inf
    by: float = inf
    hits: tuple[MeterHit, ...] = ()
    calls: tuple[OwnCall, ...] = ()

    def begin(self) -> bool:
        """Whether the call may begin now, which then counts as begun."""
        return self.starts.begin(self)

    def unused(self, items: Iterable[Item], seats: Seats) -> UnusedCall:
        """What is given back if the call with these items does not begin."""
        of_items = [(item.id, item.fence) for item in items]
        hits = [(hit.name, hit.at) for hit in self.hits] + [seats[each] for each, _ in of_items if each in seats]
        return UnusedCall(tuple(hits), tuple(of_items))


class Entrance(Protocol):
    """A pool, where works go when their time has come."""

    def enter(self, works: list[Work]) -> None: ...


class Starts:
    """`read` reads the database's clock. Without it, times are those that claims are made with, and nothing waits."""

    def __init__(
        self, read: Callable[[], datetime] | None = None, *, wake: Wake = nothing, clock: Callable[[], float] = ticks
    ) -> None:
        self.clock = clock
        self._time = None if read is None else DatabaseTime(read, clock)
        self._wake = wake
        self._rounds, self._delays, self._lateness = Recent(), Recent(), Recent()
        self._own: dict[str, dict[datetime, list[OwnCall]]] = {}
        self._later: list[tuple[float, int, Entrance, Work]] = []
        self._count = 0
        self._lock = threading.Lock()

    # -- for claims

    @property
    def ahead(self) -> float:
        """How many seconds before their time calls are granted: two rounds of claims, so that none comes too late."""
        if self._time is None:
            return 0.0
        return min(LEAST_AHEAD + 2 * self._rounds.get(self.clock()), MOST_AHEAD.total_seconds())

    def timing(self, asks: Iterable[Ask]) -> StartTiming:
        """What a claim of these asks has to know; reads the database's clock now and then."""
        if self._time is None:
            return StartTiming()
        if not self._time.renew():
            self._anew()
        now = self.clock()
        names = {meter.name for ask in asks for meter in ask.meters if meter.per is not None}
        delay = 1.25 * self._delays.get(now) or 5 * (self._time.blur - 4 * DRIFT * READ_EVERY)
        return StartTiming(
            delay=timedelta(seconds=min(delay, MOST_DELAY) + LEAST_SPREAD),
            spread=timedelta(seconds=LEAST_SPREAD + 1.5 * self._lateness.get(now)),
            ahead=timedelta(seconds=self.ahead),
            blur=timedelta(seconds=min(self._time.blur, MOST_BLUR)),
            own={name: self._starts_of(name, now) for name in names & self._own.keys()},
        )

    def _anew(self) -> None:
        """The database's clock was set: forget what was measured by it, and give back calls that wait for a time."""
        self._own.clear()
        self._delays, self._lateness = Recent(), Recent()
        with self._lock:
            for *_, work in self._later:
                if work.permit is not None:
                    work.permit.at = work.permit.by = -inf
            self._later = [(-inf, count, pool, work) for _, count, pool, work in self._later]
        self._wake()

    def _starts_of(self, name: str, now: float) -> dict[datetime, list[OwnStart]]:
        assert self._time is not None
        at = self._time.at
        own = self._own[name] = {hit: calls for hit, calls in self._own[name].items() if calls[-1].counts_until() > now}
        return {
            hit: [OwnStart(at(call.by), None if call.begun is None else at(call.begun)) for call in calls]
            for hit, calls in own.items()
        }

    def took(self, seconds: float) -> None:
        """A round of claims took this long."""
        self._rounds.add(seconds, self.clock())

    def permits(self, grant: Grant, asked: float) -> list[Permit]:
        """The permits for the calls of this grant, which has items; `asked` is when it was asked for."""
        claimed_at = grant.items[0].started_at or EPOCH
        if self._time is None:  # the time of the claim stands still
            return [self._permit(start, lambda at: asked + (at - claimed_at).total_seconds()) for start in grant.starts]
        arrived = self.clock()
        latest = max((self._time.tick_of(start.at) for start in grant.starts if start.at is not None), default=arrived)
        if latest > arrived + MOST_AHEAD.total_seconds() + MOST_DELAY and not self._time.renew(at_once=True):
            self._anew()
        self._delays.add((self._time.at(arrived) - claimed_at).total_seconds(), arrived)
        if len(self._own) > MANY:
            self._forget(arrived)
        return [self._permit(start, self._time.tick_of) for start in grant.starts]

    def _permit(self, start: CallStart, tick_of: Callable[[datetime], float]) -> Permit:
        permit = Permit(self, start.size, hits=start.hits)
        if start.at is None or start.by is None:
            return permit
        permit.at, permit.by = tick_of(start.at), tick_of(start.by)
        permit.since = max(permit.at, self.clock())
        if self._time is not None:
            short = [hit for hit in start.hits if hit.per <= AHEAD_UP_TO]
            permit.calls = tuple(OwnCall(tick_of(hit.by), hit.per) for hit in short)
            for hit, call in zip(short, permit.calls, strict=True):
                self._own.setdefault(hit.name, {}).setdefault(hit.at, []).append(call)
        return permit

    def _forget(self, now: float) -> None:
        """Drop the meters whose calls no longer count."""
        self._own = {
            name: own
            for name, own in self._own.items()
            if any(calls[-1].counts_until() > now for calls in reversed(own.values()))
        }

    # -- for pools

    def hold(self, pool: Entrance, works: Iterable[Work]) -> list[Work]:
        """Keep the works that may not begin yet, until `tick` passes them on; returns the others."""
        now, ready = self.clock(), []
        with self._lock:
            for work in works:
                if work.permit is None or work.permit.at <= now:
                    ready.append(work)
                    continue
                self._count += 1
                heappush(self._later, (work.permit.at, self._count, pool, work))
        if self._later:
            self._wake()
        return ready

    def begin(self, permit: Permit) -> bool:
        now = self.clock()
        if permit.by < inf:
            self._lateness.add(now - permit.since, now)
        if now > permit.by:
            return False
        for call in permit.calls:
            call.begun = now
        return True

    def take_all(self) -> list[Work]:
        """Take out all works that wait for their time, to be released."""
        with self._lock:
            later, self._later = self._later, []
        return [work for *_, work in later]

    # -- a tick

    def tick(self, now: datetime) -> datetime:
        """Pass on the works whose time has come."""
        due: dict[Entrance, list[Work]] = {}
        with self._lock:
            at = self.clock()
            while self._later and self._later[0][0] <= at:
                _, _, pool, work = heappop(self._later)
                due.setdefault(pool, []).append(work)
            next_in = self._later[0][0] - at if self._later else 3_600.0
        for pool, works in due.items():
            pool.enter(works)
        return now + timedelta(seconds=next_in)
