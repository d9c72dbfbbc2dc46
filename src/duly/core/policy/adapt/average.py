"""An exponentially weighted moving average (EWMA)."""

from __future__ import annotations

from msgspec import Struct


class Average(Struct, frozen=True):
    """Of about the last `over` values; None before the first.

    >>> Average(3).fed(10).fed(20).value
    15.0
    """

    over: float = 20.0
    value: float | None = None

    def fed(self, value: float) -> Average:
        if self.value is None:
            return Average(self.over, float(value))
        return Average(self.over, self.value + (value - self.value) * 2 / (self.over + 1))

    def get(self, otherwise: float) -> float:
        return otherwise if self.value is None else self.value
