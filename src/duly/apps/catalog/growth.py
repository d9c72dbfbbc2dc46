"""What to change in the settings of a catalog as it grows. Pure."""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct

from duly.core.wire import Doc

MINUTES = 1_440  # of a day
# Of what a limit on calls could carry, the part to count on, 20,000 of 28,800 products: the rest is for retries.
USABLE = 20_000 / 28_800

EVERY_4_HOURS = "30 2-22/4 * * *"
EVERY_2_HOURS = "30 */2 * * *"
SIZES = (1_000, 5_000, 10_000, 20_000)


class Size(Struct, frozen=True, kw_only=True):
    """A catalog of this many products: whether these settings carry it, and which settings would."""

    products: int
    per_hour: Annotated[int, Doc("Products from slot to slot.")]
    day_used_percent: float
    fits: Annotated[bool, Doc("With the settings as they are.")]
    changes: Annotated[tuple[str, ...], Doc("What to change, in plain words.")]
    settings: Annotated[dict[str, int | str], Doc("The same as settings.")]


class Needs(Struct, frozen=True):
    """The settings that a number of products needs."""

    calls_per_minute: int
    windows: int
    cap: int

    @property
    def cron(self) -> str:
        return EVERY_4_HOURS if self.windows == 6 else EVERY_2_HOURS

    def changes(self, rate: float, windows: int, cap: int) -> dict[str, tuple[str, int | str]]:
        """What differs from these settings: for each setting the change in plain words, and the value."""
        found: dict[str, tuple[str, int | str]] = {}
        if self.calls_per_minute > rate:
            text = f"ask for {self.calls_per_minute} calls a minute"
            found["catalog_calls_per_minute"] = text, self.calls_per_minute
        if self.windows > windows:
            every = "every 2 hours" if self.windows == 12 else "every 4 hours"
            found["catalog_retry_windows"] = f"add retry windows ({every})", self.cron
        if self.cap > cap:
            found["catalog_retry_limit"] = f"increase the retry limit to {self.cap:,}", self.cap
        return found


def usable(rate: float, batch: int) -> int:
    """How many products so many calls a minute carry with room for retries and errors."""
    return int(batch * MINUTES * rate * USABLE)


def needs(products: int, batch: int, failure_rate: float) -> Needs:
    """The settings for this many products, of which this part fails."""
    rate = -int(-products // (batch * MINUTES * USABLE))
    windows = 6 if products <= 10_000 else 12
    # 50 up to 5,000 products, 100 for 10,000, 150 for 20,000, and on in between and beyond, in whole batches.
    usual = 50 + max(min(products, 10_000) - 5_000, 0) / 100 + max(products - 10_000, 0) / 200
    cap = max(usual, wanted(products, failure_rate) / windows)
    return Needs(max(rate, 1), windows, int(-(-cap // batch) * batch))


def wanted(products: int, failure_rate: float) -> float:
    """Retries a day: of what fails, some fails again."""
    return products * failure_rate / (1 - failure_rate)
