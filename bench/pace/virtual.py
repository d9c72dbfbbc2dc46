"""Workers that call a provider in virtual time, as fast as their policy lets them: there is always more to do."""

from __future__ import annotations

import heapq
from array import array
from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Protocol

from bench.pace.provider import Provider, Traits
from duly.core.policy.pace import Call, Pace
from duly.core.policy.pacing import Pacing

REFUSED = 0.05  # the share of 429s that a constant pace may have
LOOK = 0.25  # seconds between two looks at a level that grows


class Policy(Protocol):
    def concurrency(self, now: float) -> int: ...
    def turn(self, now: float) -> float: ...
    def ended(self, call: Call) -> None: ...


@dataclass
class Constant:
    """So many calls a second, evenly, and so many at a time at most."""

    rate: float
    most: int
    next_at: float = 0.0

    def concurrency(self, now: float) -> int:
        return self.most

    def turn(self, now: float) -> float:
        if self.next_at > now:
            return self.next_at - now
        self.next_at = max(self.next_at, now - 1 / self.rate) + 1 / self.rate
        return 0.0

    def ended(self, call: Call) -> None:
        pass


class Adaptive:
    """The pace, with a note of its level at every end of a call."""

    def __init__(self, now: float = 0.0, bounds: Pace | None = None) -> None:
        self.bounds = bounds or Pace("p")
        self.pacing = Pacing.first(now, self.bounds)
        self.levels: list[tuple[float, float]] = []

    def concurrency(self, now: float) -> int:
        return self.pacing.concurrency(now, self.bounds)

    def turn(self, now: float) -> float:
        wait, self.pacing = self.pacing.turn(now, self.bounds)
        return wait

    def ended(self, call: Call) -> None:
        self.pacing = self.pacing.after(call, self.bounds)
        self.levels.append((call.ended, self.pacing.level(call.ended, self.bounds)))


@dataclass
class Ends:
    """When calls of one worker ended: well, refused, in an error; and when they began."""

    good: array[float] = field(default_factory=lambda: array("d"))
    refused: array[float] = field(default_factory=lambda: array("d"))
    failed: array[float] = field(default_factory=lambda: array("d"))
    begun: array[float] = field(default_factory=lambda: array("d"))

    def rate(self, start: float, end: float) -> float:
        """Good answers a second."""
        return count(self.good, start, end) / (end - start)


def count(times: array[float], start: float, end: float) -> int:
    return bisect_left(times, end) - bisect_left(times, start)


def run(traits: Traits, policies: list[Policy], end: float, seed: int = 1) -> list[Ends]:
    """Call the provider from 0 to `end`."""
    provider = Provider(traits, seed)
    ends = [Ends() for _ in policies]
    flying = [0] * len(policies)
    planned = [0.0] * len(policies)  # when a worker looks again, if nothing ends before
    number = 0
    events: list[tuple[float, int, int, Call | None]] = [
        (0.0, who - len(policies), who, None) for who in range(len(policies))
    ]
    while events:
        now, _, who, call = heapq.heappop(events)
        if now >= end:
            break
        policy = policies[who]
        if call is not None:
            flying[who] -= 1
            provider.in_flight -= 1
            seen = ends[who]
            (
                seen.good if call.trouble is None else seen.refused if call.trouble == "throttled" else seen.failed
            ).append(now)
            policy.ended(call)
        elif planned[who] != now:
            continue
        wait = LOOK
        while flying[who] < (width := policy.concurrency(now)):
            if (wait := policy.turn(now)) > 0:
                break
            flying[who] += 1
            provider.in_flight += 1
            ends[who].begun.append(now)
            answer = provider.answer(now)
            number += 1
            ended = Call(
                started=now, ended=now + answer.takes, in_flight=max(width, flying[who]),
                trouble=answer.trouble, retry_after=answer.retry_after,
            )  # fmt: skip
            heapq.heappush(events, (ended.ended, number, who, ended))
            wait = LOOK
        if planned[who] <= now or planned[who] > now + wait:
            planned[who] = now + wait
            number += 1
            heapq.heappush(events, (planned[who], number, who, None))
    return ends


def best_constant(traits: Traits, start: float, end: float, seed: int = 1, most: int = 64) -> tuple[float, float]:
    """The best constant pace from start to end: calls a second, and good answers a second.

    A constant is so many calls a second, or so many at a time. Among those of which at most `REFUSED` are refused, the
    one with the most good answers wins.
    """
    known = traits.takes((start + end) / 2)
    tried = [Constant(known * part, most) for part in (0.7, 0.8, 0.85, 0.9, 0.95, 1.0, 1.05, 1.2)]
    if traits.slots:
        slots = traits.slots * (traits.change if start >= traits.noon else 1.0)
        tried += [Constant(1e6, max(1, round(slots * part))) for part in (0.7, 0.85, 1.0, 1.1, 1.25)]
    found = []
    for constant in tried:
        (ends,) = run(traits, [constant], end, seed)
        begun = max(count(ends.begun, start, end), 1)
        good = ends.rate(start, end)
        found.append((count(ends.refused, start, end) <= REFUSED * begun, good, constant.rate))
    _, best, rate = max(found)
    return rate, best
