"""Retry policies. A policy is a value that decides how many tries there are, and when to try after a failure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol, runtime_checkable
from zlib import crc32

import msgspec
from msgspec import Struct

from duly.core.policy.recur import Rule, latest, parse, zone_named

# A century: beyond any delay that makes sense, and far from where date arithmetic overflows.
LONGEST = 3.15e9


@runtime_checkable
class Retry(Protocol):
    """The interface of retry policies. `seed` makes the jitter of one try reproducible."""

    @property
    def has_windows(self) -> bool:
        """Whether failures wait for fixed windows, where the number of tries is capped."""
        ...

    def tries_for(self, classes: tuple[str, ...]) -> int: ...

    def next_at(self, now: datetime, failures: int, classes: tuple[str, ...], seed: str) -> datetime: ...


class Backoff(Struct, frozen=True, kw_only=True):
    """`base`, `base*factor`, `base*factor²`, … seconds, at most `cap`, plus up to `jitter` seconds; `tries` in all.

    >>> [Backoff(base=60, tries=3).delay(n) for n in (1, 2, 3)]
    [60.0, 120.0, 240.0]
    """

    base: float = 60.0
    factor: float = 2.0
    cap: float = 86_400.0
    jitter: float = 0.0
    tries: int = 3

    @property
    def has_windows(self) -> bool:
        return False

    def __post_init__(self) -> None:
        for name in ("base", "cap", "jitter"):
            value = getattr(self, name)
            if not (isinstance(value, int | float) and 0 <= value <= LONGEST):
                raise ValueError(f"{name}: must be a number of seconds between 0 and a century, got {value!r}")
        if 0 < self.base < 1e-6:  # times have microseconds, and less would overflow the arithmetic
            raise ValueError(f"base: must be 0 or at least a microsecond, got {self.base!r}")
        if not (isinstance(self.factor, int | float) and 1 <= self.factor <= 1e6):
            raise ValueError(f"factor: must be between 1 and 1,000,000, got {self.factor!r}")
        if not (isinstance(self.tries, int) and 1 <= self.tries <= 1_000_000):
            raise ValueError(f"tries: must be between 1 and 1,000,000, got {self.tries!r}")

    def delay(self, failures: int) -> float:
        """Seconds to wait after the n-th failure, before jitter."""
        if self.base == 0:
            return 0.0
        # The exponent is clamped before it is raised, so no count of failures can overflow a float.
        room = math.log(max(self.cap / self.base, 1.0), self.factor) if self.factor > 1 else 0.0
        exponent = min(max(failures, 1) - 1, math.ceil(room))
        return min(self.base * self.factor**exponent, self.cap)

    def tries_for(self, classes: tuple[str, ...]) -> int:
        return self.tries

    def delay_for(self, failures: int, seed: str) -> float:
        """Seconds to wait after the n-th failure, with jitter."""
        return self.delay(failures) + self.jitter * spread(f"{seed}:{failures}")

    def next_at(self, now: datetime, failures: int, classes: tuple[str, ...], seed: str) -> datetime:
        return now + timedelta(seconds=self.delay_for(failures, seed))


class Windows(Struct, frozen=True):
    """Failed items wait for fixed windows. Each lets in at most `cap` of them, fewest failures first, then oldest.

    `Windows("30 2-22/4 * * *", cap=50)`: at half past 2, 6, 10, 14, 18 and 22, fifty each time.
    """

    rule: Rule | str
    cap: int = 50
    zone: str = "UTC"
    tries: int = 1_000_000

    @property
    def has_windows(self) -> bool:
        return True

    def __post_init__(self) -> None:
        if isinstance(self.rule, str):
            msgspec.structs.force_setattr(self, "rule", parse(self.rule))
        zone_named(self.zone)
        if isinstance(self.cap, bool) or not isinstance(self.cap, int) or not 1 <= self.cap <= 100_000:
            raise ValueError(f"cap: must be a whole number from 1 to 100,000, got {self.cap!r}")
        if not (isinstance(self.tries, int) and 1 <= self.tries <= 1_000_000):
            raise ValueError(f"tries: must be between 1 and 1,000,000, got {self.tries!r}")

    def tries_for(self, classes: tuple[str, ...]) -> int:
        return self.tries

    def next_at(self, now: datetime, failures: int, classes: tuple[str, ...], seed: str) -> datetime:
        """The next window, plus a fraction of a second that is smaller for items that failed earlier: they go first."""
        opened, opens = self.around(now)
        return opens + (now - opened) / (opens - opened) * SPREAD

    def around(self, now: datetime) -> tuple[datetime, datetime]:
        """When the last window opened and when the next one does."""
        assert not isinstance(self.rule, str)
        known = _WINDOWS.get((self.rule, self.zone))
        if known is None or not known[0] <= now < known[1]:
            place = zone_named(self.zone)
            opened = latest(self.rule, now - LOOK_BACK, now, place) or now - LOOK_BACK
            known = _WINDOWS[self.rule, self.zone] = (opened, self.rule.next(now, place) or now + LOOK_BACK)
        return known


# All items that waited for a window are due within this time after it opens. Only then are they claimed, so that the
# order is by failures and not by due time.
SPREAD = timedelta(milliseconds=100)
# The last and the next window of each rule: every claim asks for them, and they change a few times a day.
_WINDOWS: dict[tuple[Rule, str], tuple[datetime, datetime]] = {}
LOOK_BACK = timedelta(days=366)


@dataclass(frozen=True, init=False)
class ByError:
    """A policy for each class of error. The nearest base class of the exception counts; without one, `default`."""

    policies: tuple[tuple[str, Retry], ...]
    default: Retry

    def __init__(self, policies: Mapping[type[BaseException] | str, Retry], default: Retry | None = None) -> None:
        named = {key if isinstance(key, str) else class_name(key): policy for key, policy in policies.items()}
        for name, policy in named.items():
            if not isinstance(policy, Retry):
                raise ValueError(f"policies[{name}]: must be a retry policy, got {policy!r}")
        object.__setattr__(self, "policies", tuple(named.items()))
        object.__setattr__(self, "default", default or Backoff())

    def policy_for(self, classes: tuple[str, ...]) -> Retry:
        named = dict(self.policies)
        return next((named[name] for name in classes if name in named), self.default)

    def tries_for(self, classes: tuple[str, ...]) -> int:
        return self.policy_for(classes).tries_for(classes)

    @property
    def has_windows(self) -> bool:
        return any(policy.has_windows for policy in (self.default, *(policy for _, policy in self.policies)))

    def next_at(self, now: datetime, failures: int, classes: tuple[str, ...], seed: str) -> datetime:
        return self.policy_for(classes).next_at(now, failures, classes, seed)


def windows_of(retry: Retry) -> Windows | None:
    """The windows that failures under this policy may have to wait for."""
    if isinstance(retry, ByError):
        inner = (windows_of(policy) for policy in (retry.default, *(policy for _, policy in retry.policies)))
        return next((windows for windows in inner if windows is not None), None)
    return retry if isinstance(retry, Windows) else None


NEVER = Backoff(base=0, tries=1)


def class_name(cls: type) -> str:
    """`ValueError` for built-ins, `package.module.Name` for the rest."""
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def class_names(error: BaseException) -> tuple[str, ...]:
    """The names of an exception's class and its bases, nearest first, without Exception and what is above it."""
    return tuple(class_name(cls) for cls in type(error).__mro__ if cls not in (object, BaseException))


def spread(seed: str) -> float:
    """A number in [0, 1) that looks random and is the same for the same seed."""
    return crc32(seed.encode()) / 2**32
