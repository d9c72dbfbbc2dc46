"""A provider in virtual time, and clients that call it as fast as their policy allows."""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from duly.core.policy.adapt import Trouble
from duly.core.policy.pace import Call, Pace, Pacing

NOON = 12 * 3600.0
REFUSAL = 0.02  # seconds that a 429 takes


@dataclass
class Provider:
    """Answers 429 above so many calls in any second; takes `latency(t)` seconds, more the more it has to do."""

    limit: int = 20
    latency: Callable[[float], float] = lambda at: 0.2 if at < NOON else 0.6
    capacity: Callable[[float], float] = lambda at: float("inf")  # answers a second
    patience: float = 5.0  # seconds after which a caller gives up
    seed: int = 1
    _taken: deque[float] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def answer(self, at: float, in_flight: int) -> tuple[float, Trouble | None]:
        """How long the call takes, and what is wrong with its answer."""
        while self._taken and self._taken[0] <= at - 1.0:
            self._taken.popleft()
        if len(self._taken) >= self.limit:
            return REFUSAL, "throttled"
        self._taken.append(at)
        takes = self.latency(at) * self._random.uniform(0.8, 1.2)
        takes = max(takes, in_flight / self.capacity(at) * self._random.uniform(0.9, 1.1))
        return (self.patience, "timeout") if takes > self.patience else (takes, None)


@dataclass
class Constant:
    """So many calls at a time, come what may."""

    calls: int

    def concurrency(self, now: float) -> int:
        return self.calls

    def gap(self, now: float) -> float:
        return 0.0

    def ended(self, call: Call) -> None:
        pass

    def not_before(self) -> float:
        return 0.0


class Adaptive:
    """The pace that is being tested, with a note of its level at every end of a call."""

    def __init__(self, now: float, bounds: Pace | None = None) -> None:
        self.bounds = bounds or Pace("p")
        self.pace = Pacing.first(now, self.bounds)
        self.levels: list[tuple[float, float]] = []
        self.decreases: list[float] = []

    def concurrency(self, now: float) -> int:
        return self.pace.concurrency(now, self.bounds)

    def gap(self, now: float) -> float:
        return self.pace.gap(now, self.bounds)

    def ended(self, call: Call) -> None:
        since = self.pace.since
        self.pace = self.pace.after(call, self.bounds)
        if self.pace.since != since:
            self.decreases.append(call.ended)
        self.levels.append((call.ended, self.pace.level(call.ended, self.bounds)))

    def not_before(self) -> float:
        return self.pace.not_before


@dataclass
class Told:
    """What came of it: when good answers and when troubles came."""

    good: list[float]
    bad: list[float]

    def rate(self, start: float, end: float) -> float:
        """Good answers a second."""
        return sum(start <= at < end for at in self.good) / (end - start)

    def error_share(self, start: float, end: float) -> float:
        bad = sum(start <= at < end for at in self.bad)
        return bad / max(bad + sum(start <= at < end for at in self.good), 1)


def run(provider: Provider, policy: Constant | Adaptive, start: float, end: float) -> Told:
    """Call the provider from start to end as often as the policy lets us; there is always more to do."""
    told = Told([], [])
    under_way: list[tuple[float, int, Call]] = []
    now = next_start = start
    count = 0
    while now < end:
        while under_way and under_way[0][0] <= now:
            call = heapq.heappop(under_way)[2]
            (told.bad if call.trouble else told.good).append(call.ended)
            policy.ended(call)
        may_start = max(next_start, policy.not_before())
        if len(under_way) < policy.concurrency(now) and now >= may_start:
            takes, trouble = provider.answer(now, len(under_way) + 1)
            call = Call(started=now, ended=now + takes, in_flight=len(under_way) + 1, trouble=trouble)
            count += 1
            heapq.heappush(under_way, (call.ended, count, call))
            next_start = now + policy.gap(now)
            continue
        # A pace may wait for a start; a full house waits for an end. The level grows meanwhile: look again soon.
        upcoming = [now + 0.05]
        if len(under_way) < policy.concurrency(now):
            upcoming.append(max(may_start, now + 1e-6))
        if under_way:
            upcoming.append(under_way[0][0])
        now = min(upcoming)
    return told


def best_constant(make: Callable[[], Provider], start: float, end: float, most: int = 24) -> tuple[int, float]:
    """The constant number of calls at a time that gets the most good answers a second, and how many."""
    rates = {calls: run(make(), Constant(calls), start, end).rate(start, end) for calls in range(1, most + 1)}
    best = max(rates.values())
    return min(calls for calls, rate in rates.items() if rate >= 0.99 * best), best
