"""How many calls a provider gets at a time, and how far apart.

One number says both: `level`, the calls that are under way on average. As many calls run at the same time, and one
starts every `latency / level` seconds, so a level may also be 3.4, or 0.1 for a provider that should be left alone.

The level grows with time and shrinks with trouble (429, 5xx, time-outs): multiplicative decrease, and an increase that
slows down where the last trouble was, waits there, and only then feels its way further, faster the longer it goes well:

     level
       │        trouble                          no trouble for long: there is more room than there was
       │          ╱│                          ╱
   top │─ ─ ─ ─ ─ ─│─ ─ ─ ─ ─____──────────╱─ ─
       │           │    ╱‾
       │           │ ╱          top * (1 + (1 - keep) * ((t - recovery) / recovery)³)
       │           │╱ keep * top
       └───────────┴────────────────────────────── t
                   0          recovery

So most of the time is spent just below what the provider allows, and it is asked for more only once in a while: that
keeps the share of errors small without forgetting to look. Calls that started before the last decrease say nothing new.
Growth ends a little above what is really used, so a quiet night does not end in a burst.
"""

from __future__ import annotations

import math

from msgspec import Struct, structs

from duly.core.policy.adapt import BACK_OFF, Average, Trouble
from duly.core.policy.retry import class_name

# Exceptions that mean that a provider is overloaded, by name: those of duly's calls, and of common clients.
OVERLOADS = (
    "TimeoutError", "ConnectionError", "duly.outbound.http.OutboundError", "httpx.TransportError",
    "httpx.HTTPStatusError", "aiohttp.client_exceptions.ClientError", "requests.exceptions.RequestException",
    "urllib.error.URLError",
)  # fmt: skip


class Pace(Struct, frozen=True):
    """`@app.task(pace=Pace("shop-api"))`: call as much as the provider takes, and find out how much that is.

    Raise `Throttled` for a 429. Exceptions in `overloads` (classes or their names) count as overload too.
    """

    name: str  # of the provider
    most: float = 64.0  # calls at a time, in each worker
    longest_gap: float = 20.0  # seconds between two calls, also to a provider that rejects everything
    keep: float = 0.85  # of the level after a 429 or 5xx
    keep_after_timeout: float = 0.6
    breather: float = 1.0  # seconds without a new call after trouble, in which the provider can catch up
    recovery: float = 30.0  # seconds until the level of the last trouble is reached again, at least
    longest_recovery: float = 600.0
    patience: float = 15.0  # times that a trouble took to be seen: a late signal must not be hurried
    longest_wait: float = 300.0  # the most seconds that a provider may request
    overloads: tuple[str | type[BaseException], ...] = OVERLOADS

    def __post_init__(self) -> None:
        for field in ("most", "longest_gap", "recovery", "patience"):
            if not 0 < getattr(self, field) < math.inf:
                raise ValueError(f"{field}: must be a positive number, got {getattr(self, field)!r}")
        for field in ("keep", "keep_after_timeout"):
            if not 0 < getattr(self, field) < 1:
                raise ValueError(f"{field}: must be between 0 and 1, got {getattr(self, field)!r}")

    def trouble(self, classes: tuple[str, ...]) -> Trouble | None:
        """Which trouble an exception means, by the names of its class and bases; None when it is not about load."""
        named = {each if isinstance(each, str) else class_name(each) for each in self.overloads}
        if named.isdisjoint(classes):
            return None
        is_late = any(each.endswith(("TimeoutError", "TimedOut", "Timeout")) for each in classes)
        return "timeout" if is_late else "server"


# How many good answers are remembered.
MANY = 64


class Call(Struct, frozen=True, kw_only=True):
    """One call that has ended, in seconds of the same clock."""

    started: float
    ended: float
    in_flight: int = 1  # calls under way when it started, itself included
    trouble: Trouble | None = None
    retry_after: float = 0.0  # seconds that the provider requested


class Pacing(Struct, frozen=True, kw_only=True):
    """What is known of a provider."""

    top: float  # the level of the last trouble
    since: float  # when the level was last changed by one
    kept: float = 1.0  # of `top`, at `since`
    recovery: float = 1.0  # seconds until `top` is reached again
    used: float = 0.0  # the most calls under way since then
    not_before: float = 0.0  # the provider is to be left alone until then
    rate: float = 0.0  # calls a second at the last 429; 0 where the last trouble was another one
    answers: tuple[float, ...] = ()  # when the last good ones came
    latency: Average = Average(100.0)
    throttled: Average = Average(200.0)  # share of calls that ended in trouble: `api_throttle_rate`

    @classmethod
    def first(cls, now: float, bounds: Pace) -> Pacing:
        """Nothing is known: begin with one call, and go up as far as there is use for."""
        return cls(top=bounds.most, since=now)

    def level(self, now: float, bounds: Pace) -> float:
        passed = max(now - self.since, 0.0) / self.recovery - 1.0
        # A 429 is about calls a second: where answers take longer by now, more calls at a time are as many a second.
        top = self.rate * self._latency() if self.rate else self.top
        wanted = top * (1.0 + (1.0 - self.kept) * passed**3)
        least = max(self._latency() / bounds.longest_gap, 1e-6)
        return min(max(least, min(wanted, 1.0 + 1.5 * self.used)), bounds.most)

    def concurrency(self, now: float, bounds: Pace) -> int:
        return math.ceil(self.level(now, bounds))

    def gap(self, now: float, bounds: Pace) -> float:
        """Seconds between the starts of two calls."""
        return min(self._latency() / self.level(now, bounds), bounds.longest_gap)

    def after(self, call: Call, bounds: Pace) -> Pacing:
        is_trouble = call.trouble in BACK_OFF
        took = call.ended - call.started
        seen = structs.replace(
            self,
            used=max(self.used, float(call.in_flight)),
            # A refusal comes at once and does not show how long an answer takes.
            latency=self.latency if call.trouble == "throttled" else self.latency.fed(took),
            throttled=self.throttled.fed(is_trouble),
        )
        if not is_trouble:
            return structs.replace(seen, answers=(*self.answers[1 - MANY :], call.ended))
        wait = max(min(call.retry_after, bounds.longest_wait), bounds.breather)
        seen = structs.replace(seen, not_before=max(self.not_before, call.ended + wait))
        if call.started < self.since:
            return seen
        level = self._bearable(self.level(call.ended, bounds), call.ended)
        kept = bounds.keep_after_timeout if call.trouble == "timeout" else bounds.keep
        recovery = max(bounds.recovery, min(bounds.patience * took, bounds.longest_recovery))
        rate = level / self._latency() if call.trouble == "throttled" and self._latency() else 0.0
        return structs.replace(seen, top=level, since=call.ended, kept=kept, recovery=recovery, used=level, rate=rate)

    def _bearable(self, level: float, now: float) -> float:
        """What the provider can take by the good answers of the last second; at least half of the level that it met."""
        recent = [at for at in self.answers if at > now - 1.0]
        rate = len(recent) / (now - recent[0]) if len(recent) == MANY else float(len(recent))
        return max(level / 2, min(rate * self._latency(), level))

    def _latency(self) -> float:
        """Seconds that an answer takes; a guess where nothing but trouble was seen."""
        return self.latency.get(1.0 if self.kept < 1.0 else 0.0)
