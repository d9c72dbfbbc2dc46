"""Providers in virtual time: what they take, what they refuse, and how they fail."""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass, field

from msgspec import Struct

from duly.core.policy.adapt import Trouble

REFUSAL = 0.02  # seconds that a refusal takes
HANG = 5.0  # seconds after which a caller gives up, and five times the latency


class Answer(Struct, frozen=True):
    takes: float
    trouble: Trouble | None = None
    retry_after: float = 0.0


class Outage(Struct, frozen=True):
    start: float
    seconds: float
    hangs: bool = False  # calls time out; otherwise they fail at once

    @property
    def end(self) -> float:
        return self.start + self.seconds


class Traits(Struct, frozen=True, kw_only=True):
    """What a provider is like. `kind` says what happens to calls beyond what it takes:

    tokens   429: a bucket of `burst` calls, filled with `rate` a second
    window   429: `rate * window` calls in a window that begins anew every `window` seconds
    slots    429: `slots` calls at a time
    busy     503 at once: `slots` calls at a time
    strain   errors: the more calls above `slots`, the more of them fail
    queue    they wait: `slots` calls are worked on at a time
    """

    kind: str
    latency: float
    jitter: float = 0.2  # the standard deviation of a latency's logarithm
    rate: float = 0.0
    burst: float = 1.0
    window: float = 1.0
    slots: float = 0.0
    tells: bool = False  # with Retry-After
    errors: float = 0.0  # share of calls that fail, whatever the load
    outage: Outage | None = None
    noon: float = 1e12  # when it changes
    change: float = 1.0  # of what it takes, at noon
    slowdown: float = 1.0  # of its latency, at noon

    def patience(self) -> float:
        return HANG + 5 * self.latency * max(self.slowdown, 1.0)

    def takes(self, at: float) -> float:
        """How many calls a second it takes at best."""
        now = self.change if at >= self.noon else 1.0
        if self.rate:
            return self.rate * now
        return self.slots * now / (self.latency * (self.slowdown if at >= self.noon else 1.0))


@dataclass
class Provider:
    traits: Traits
    seed: int = 1
    in_flight: int = 0
    _free: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._tokens, self._filled = self.traits.burst, 0.0
        self._window, self._taken = -1.0, 0

    def answer(self, at: float) -> Answer:
        """How a call that begins now will end; `in_flight` counts it already."""
        traits = self.traits
        outage = traits.outage
        if outage is not None and outage.start <= at < outage.end:
            return Answer(traits.patience(), "timeout") if outage.hangs else Answer(REFUSAL, "server")
        refusal = self._refusal(at)
        if refusal is not None:
            return refusal
        is_late = at >= traits.noon
        takes = traits.latency * (traits.slowdown if is_late else 1.0)
        takes *= self._random.lognormvariate(-(traits.jitter**2) / 2, traits.jitter)
        if traits.kind == "queue":
            takes = self._queued(at, takes, traits.slots * (traits.change if is_late else 1.0))
        if takes > traits.patience():
            return Answer(traits.patience(), "timeout")
        share = traits.errors
        if traits.kind == "strain":
            slots = traits.slots * (traits.change if is_late else 1.0)
            share = 1 - (1 - share) * (1 - min(max(self.in_flight / slots - 1, 0.0), 0.95))
        return Answer(takes, "server" if share and self._random.random() < share else None)

    def _refusal(self, at: float) -> Answer | None:
        traits = self.traits
        now = traits.change if at >= traits.noon else 1.0
        if traits.kind == "tokens":
            self._tokens = min(self._tokens + (at - self._filled) * traits.rate * now, traits.burst)
            self._filled = at
            if self._tokens >= 1:
                self._tokens -= 1
                return None
            return self._refused((1 - self._tokens) / (traits.rate * now))
        if traits.kind == "window":
            window = at // traits.window
            if window != self._window:
                self._window, self._taken = window, 0
            if self._taken < traits.rate * now * traits.window:
                self._taken += 1
                return None
            return self._refused((window + 1) * traits.window - at)
        if traits.kind in ("slots", "busy") and self.in_flight > max(traits.slots * now, 1):
            return self._refused(traits.latency) if traits.kind == "slots" else Answer(REFUSAL, "server")
        return None

    def _refused(self, wait: float) -> Answer:
        # Retry-After is in whole seconds.
        return Answer(REFUSAL, "throttled", float(int(wait) + 1) if self.traits.tells else 0.0)

    def _queued(self, at: float, takes: float, slots: float) -> float:
        """How long it takes with the time in the queue: `_free` has when each slot ends its last call."""
        while self._free and self._free[0] <= at:
            heapq.heappop(self._free)
        begin = at
        if len(self._free) >= slots:
            begin = heapq.nsmallest(len(self._free) - int(slots) + 1, self._free)[-1]
        heapq.heappush(self._free, begin + takes)
        return begin + takes - at


def random_traits(chance: random.Random, *, errors: float = 0.0, outage: float = 0.0, noon: float = 1e12) -> Traits:
    """Any provider: 20 ms to 5 s, a capacity in calls a second or at a time, with or without Retry-After."""
    kind = chance.choice(("tokens", "window", "slots", "busy", "strain", "queue"))
    latency = 0.02 * 250 ** chance.random()
    slots = float(round(2 * 16 ** chance.random()))
    rate = slots / latency
    while rate > 40:  # so that a run is not millions of calls
        latency *= 2
        rate = slots / latency
    window = chance.choice((1.0, 1.0, 10.0, 60.0))
    return Traits(
        kind=kind, latency=latency, jitter=chance.choice((0.05, 0.2, 0.5)),
        rate=rate if kind in ("tokens", "window") else 0.0,
        burst=max(5.0, rate * chance.choice((0.5, 1, 5, 20))), window=max(window, 5 / rate),
        slots=0.0 if kind in ("tokens", "window") else slots, tells=chance.random() < 0.5, errors=errors,
        outage=Outage(600.0, outage, chance.random() < 0.3) if outage else None,
        noon=noon, change=chance.choice((0.5, 1.0, 2.0)),
        slowdown=1.0 if kind == "queue" else chance.choice((0.5, 1.0, 3.0)),
    )  # fmt: skip
