"""What a task says of the provider that it calls, and what each call shows. `pacing` finds the right pace from both."""

from __future__ import annotations

import math

from msgspec import Struct

from duly.core.policy.adapt import Trouble
from duly.core.policy.retry import class_name

# Exceptions that mean that a provider has failed, by name: those of duly's calls, and of common clients.
OVERLOADS = (
    "TimeoutError", "ConnectionError", "duly.outbound.http.OutboundError", "httpx.TransportError",
    "httpx.HTTPStatusError", "aiohttp.client_exceptions.ClientError", "requests.exceptions.RequestException",
    "urllib.error.URLError",
)  # fmt: skip


class Pace(Struct, frozen=True):
    """`@app.task(pace=Pace("shop-api"))`: call as much as the provider takes, and find out how much that is.

    Raise `Throttled` for a 429. Exceptions in `overloads` (classes or their names) may come from overload too: the
    number of calls is reduced if there are fewer of them then.
    """

    name: str  # of the provider
    most: float = 64.0  # calls at a time, in each worker
    longest_gap: float = 20.0  # seconds between two calls, also to a provider that rejects everything
    keep: float = 0.9  # of the level after a 429, or when errors come with load
    breather: float = 1.0  # seconds without a new call after a 429, in which the provider can catch up
    recovery: float = 30.0  # seconds until the level of the last trouble is reached again
    probe: float = 5.0  # seconds between two calls to a provider that is down, at most
    longest_wait: float = 300.0  # the most seconds that a provider may request
    overloads: tuple[str | type[BaseException], ...] = OVERLOADS

    def __post_init__(self) -> None:
        for field in ("most", "longest_gap", "breather", "recovery", "probe", "longest_wait"):
            if not 0 < getattr(self, field) < math.inf:
                raise ValueError(f"{field}: must be a positive number, got {getattr(self, field)!r}")
        if not 0 < self.keep < 1:
            raise ValueError(f"keep: must be between 0 and 1, got {self.keep!r}")

    def trouble(self, classes: tuple[str, ...]) -> Trouble | None:
        """Which trouble an exception means, by the names of its class and bases; None when it is not about load."""
        named = {each if isinstance(each, str) else class_name(each) for each in self.overloads}
        if named.isdisjoint(classes):
            return None
        is_late = any(each.endswith(("TimeoutError", "TimedOut", "Timeout")) for each in classes)
        return "timeout" if is_late else "server"


class Call(Struct, frozen=True, kw_only=True):
    """One call that has ended, in seconds of the same clock."""

    started: float
    ended: float
    in_flight: int = 1  # calls under way, or about to begin, when it started: itself included
    trouble: Trouble | None = None
    retry_after: float = 0.0  # seconds that the provider requested


# A pace has collapsed below this part of its best rate.
COLLAPSED = 0.2


class Collapse(Struct, frozen=True):
    """Far fewer calls a second than there were."""

    rate: float
    best: float


def collapse(rate: float, best: float, seconds: float) -> Collapse | None:
    """Whether calls a second, over so many seconds, are far below the best rate; not if a few calls decide it."""
    few = math.sqrt(best * seconds)  # so many calls more or less are chance
    is_low = rate < COLLAPSED * best and (best - rate) * seconds > 3 * few
    return Collapse(rate, best) if is_low else None
