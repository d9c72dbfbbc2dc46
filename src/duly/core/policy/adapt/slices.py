"""How many items a worker claims for one slice of time.

    claim = clamp(target / average * safety, least, most)

It claims fewer while the machine is short of CPU or memory, or while many items fail.
"""

from __future__ import annotations

from msgspec import Struct, structs

from duly.core.policy.adapt.average import Average


class SliceBounds(Struct, frozen=True, kw_only=True):
    target: float = 5.0  # seconds; WORKER_TARGET_SLICE_MS
    least: int = 1  # CLAIM_MIN
    most: int = 500  # CLAIM_MAX
    safety: float = 0.7  # SAFETY_FACTOR
    easy: float = 0.8  # share of CPU or memory up to which nothing is held back
    hard: float = 0.95  # share at which only a tenth is claimed
    rush: float = 0.3  # share of errors above which half is claimed, and retries are spaced out


class Load(Struct, frozen=True):
    """How much of the machine is in use, each from 0 to 1."""

    cpu: float = 0.0
    memory: float = 0.0


class Slice(Struct, frozen=True):
    """What is known of the items so far."""

    seconds: Average = Average(50.0)
    errors: Average = Average(50.0)

    def after(self, seconds: float, is_error: bool = False) -> Slice:
        """One item has taken so long."""
        return structs.replace(self, seconds=self.seconds.fed(max(seconds, 0.0)), errors=self.errors.fed(is_error))

    def claim(self, bounds: SliceBounds, load: Load | None = None, concurrency: float = 1.0) -> int:
        """How many items to claim for one slice, when so many of them run at the same time."""
        if self.seconds.value is None:
            return bounds.least
        each = max(self.seconds.value, 1e-6) / max(concurrency, 1e-6)
        wanted = bounds.target / each * bounds.safety * _share(load or Load(), bounds)
        if self.is_rush(bounds):
            wanted /= 2
        return int(max(bounds.least, min(wanted, bounds.most)))

    def is_rush(self, bounds: SliceBounds) -> bool:
        """Whether so many items fail that more of the same would be a waste."""
        return self.errors.get(0.0) > bounds.rush

    def spacing(self, bounds: SliceBounds) -> float:
        """By how much the pauses before retries are stretched."""
        return 1.0 + 3.0 * self.errors.get(0.0) if self.is_rush(bounds) else 1.0


def _share(load: Load, bounds: SliceBounds) -> float:
    """From 1 where there is room to a tenth where there is none."""
    used = max(load.cpu, load.memory)
    if used <= bounds.easy:
        return 1.0
    if used >= bounds.hard:
        return 0.1
    return 1.0 - 0.9 * (used - bounds.easy) / (bounds.hard - bounds.easy)
