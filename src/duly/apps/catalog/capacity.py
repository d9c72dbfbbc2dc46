"""How many products a catalog can carry: the arithmetic of slots, retry windows and a limit on calls. Pure.

plan(5_000)                  21 calls in each hour, 5 more in a retry window: 26 of 120, and 534 of 2,880 in a day
plan(5_000).breaks_first     what gives way first as the catalog grows, and at how many products
recommend(20_000)            the settings for so many
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from duly.apps.catalog.settings import CatalogSettings
from duly.core.clock import EPOCH
from duly.core.errors import InputError
from duly.core.policy.limits import Limit
from duly.core.policy.recur import Slots, between, parse, zone_named
from duly.core.policy.retry import Windows

MINUTES = 1_440  # of a day
# Of what a limit on calls could carry, the part to count on, 20,000 of 28,800 products: the rest is for retries.
USABLE = 20_000 / 28_800
# The most products that anyone is asked about: beyond it nothing here can be searched for.
MOST = 10_000_000

EVERY_4_HOURS = "30 2-22/4 * * *"
EVERY_2_HOURS = "30 */2 * * *"


class Break(Struct, frozen=True):
    """Something that gives way when there are so many products."""

    products: int
    what: str

    def __str__(self) -> str:
        return f"from {self.products:,} products on: {self.what}"


class Plan(Struct, frozen=True, kw_only=True):
    """What a catalog asks of its API. Calls and minutes are of the fullest slot and of full retry windows.

    An hour is the time from slot to slot, which with 24 of them is an hour.
    """

    products: int
    slot_least: int
    slot_most: int
    slot_calls: int
    slot_minutes: float
    window_calls: int
    window_minutes: float
    worst_hour_calls: int
    worst_hour_minutes: float
    hour_limit: int
    hour_used_percent: float
    scheduled_calls: int  # a day
    retry_calls: int
    day_calls: int
    day_limit: int
    day_used_percent: float
    retries_wanted: float  # a day: of what fails, some fails again
    retries_possible: int
    breaks_first: Break | None  # as the catalog grows; None: nothing ever does
    breaks: tuple[Break, ...]


class _Load(Struct, frozen=True, kw_only=True):
    """The arithmetic behind a plan, each of whose fields is here."""

    products: int
    batch: int
    rate: float
    windows: int
    cap: int
    slots: int
    failure_rate: float

    @property
    def slot_least(self) -> int:
        return self.products // self.slots

    @property
    def slot_most(self) -> int:
        return -(-self.products // self.slots)

    @property
    def slot_calls(self) -> int:
        return -(-self.slot_most // self.batch)

    @property
    def slot_minutes(self) -> float:
        return self.slot_calls / self.rate

    @property
    def window_calls(self) -> int:
        return -(-self.cap // self.batch)

    @property
    def window_minutes(self) -> float:
        return self.window_calls / self.rate

    @property
    def worst_hour_calls(self) -> int:
        return self.slot_calls + -(-self.windows // self.slots) * self.window_calls

    @property
    def worst_hour_minutes(self) -> float:
        return self.worst_hour_calls / self.rate

    @property
    def hour_limit(self) -> int:
        return int(self.rate * MINUTES / self.slots)

    @property
    def hour_used_percent(self) -> float:
        return 100 * self.worst_hour_calls / (self.rate * MINUTES / self.slots)

    @property
    def scheduled_calls(self) -> int:
        fuller = self.products % self.slots
        return fuller * self.slot_calls + (self.slots - fuller) * -(-self.slot_least // self.batch)

    @property
    def retry_calls(self) -> int:
        return self.windows * self.window_calls

    @property
    def day_calls(self) -> int:
        return self.scheduled_calls + self.retry_calls

    @property
    def day_limit(self) -> int:
        return int(self.rate * MINUTES)

    @property
    def day_used_percent(self) -> float:
        return 100 * self.day_calls / (self.rate * MINUTES)

    @property
    def retries_wanted(self) -> float:
        return self.products * self.failure_rate / (1 - self.failure_rate)

    @property
    def retries_possible(self) -> int:
        return self.windows * self.cap

    @property
    def breaks_first(self) -> Break | None:
        return next(iter(self.breaks), None)

    @property
    def breaks(self) -> tuple[Break, ...]:
        """What gives way as the catalog grows, soonest first; what never does is left out."""
        half = MINUTES / self.slots / 2  # after a slot, retry windows open
        found: list[tuple[Callable[[_Load], bool], str]] = [
            (lambda p: p.slot_minutes > half, f"a slot is not done when a retry window opens, {half:g} minutes later"),
            (
                lambda p: p.worst_hour_calls > p.hour_limit,
                "a slot and a retry window are not done before the next slot",
            ),
            (lambda p: p.slot_calls > p.hour_limit, "a slot is not done when the next one begins"),
            (lambda p: p.day_calls > p.day_limit, "a day has more calls than the limit allows"),
            (
                lambda p: p.retries_wanted > p.retries_possible,
                f"more fails in a day ({self.failure_rate:.1%} of all) than retry windows take",
            ),
        ]
        known = ((self._first(breaks), what) for breaks, what in found)
        return tuple(Break(*each) for each in sorted(each for each in known if each[0] <= MOST))

    def _first(self, breaks: Callable[[_Load], bool]) -> int:
        """The smallest number of products at which it does: all of these only get worse with more."""
        low, high = 0, MOST + 1
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if breaks(replace(self, products=middle)) else (middle + 1, high)
        return low


def plan(
    products: int,
    batch: int = 10,
    rate: float = 2.0,
    windows: int = 6,
    cap: int = 50,
    slots: int = 24,
    failure_rate: float = 0.05,
) -> Plan:
    """The load of so many products: `batch` in a call, `rate` calls a minute, `cap` in each of `windows` a day.

    `failure_rate`, of all calls for a product, says when the retry windows are too few.
    """
    whole = {
        "products": (products, 0),
        "batch": (batch, 1),
        "windows": (windows, 0),
        "cap": (cap, 0),
        "slots": (slots, 1),
    }
    for name, (value, least) in whole.items():
        _check_whole(name, value, least)
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate <= 1e6:
        raise InputError("rate", f"must be calls per minute, more than 0, got {rate!r:.40}")
    if isinstance(failure_rate, bool) or not isinstance(failure_rate, int | float) or not 0 <= failure_rate < 1:
        raise InputError("failure_rate", f"must be a part such as 0.05, less than 1, got {failure_rate!r:.40}")
    load = _Load(
        products=products, batch=batch, rate=rate, windows=windows, cap=cap, slots=slots, failure_rate=failure_rate
    )  # fmt: skip
    return Plan(**{name: getattr(load, name) for name in Plan.__struct_fields__})


class CatalogTuning(Struct, frozen=True, kw_only=True):
    """How a catalog is kept in step; the defaults carry 5,000 products."""

    hour_buckets: int = 24
    retry_windows: str = EVERY_4_HOURS
    retry_limit: int = 50
    max_consecutive_failures: int = 5
    stuck_threshold: timedelta = timedelta(minutes=30)
    batch_size: int = 10
    calls_per_minute: int = 2

    def __post_init__(self) -> None:
        for name in ("hour_buckets", "retry_limit", "max_consecutive_failures", "batch_size", "calls_per_minute"):
            _check_whole(name, getattr(self, name), 1)
        if not isinstance(self.stuck_threshold, timedelta) or self.stuck_threshold <= timedelta():
            raise InputError("stuck_threshold", f"must be a timedelta of more than 0, got {self.stuck_threshold!r:.40}")
        checks: dict[str, Callable[[], object]] = {
            "hour_buckets": lambda: Slots(self.hour_buckets),
            "retry_windows": lambda: Windows(parse(self.retry_windows), cap=1),
            "retry_limit": lambda: Windows("0 0 * * *", cap=self.retry_limit),
            "calls_per_minute": lambda: Limit("calls", self.calls_per_minute, per="1m"),
        }
        for name, check in checks.items():
            try:
                check()
            except (ValueError, TypeError) as error:
                raise InputError(name, str(error).partition(": ")[2] or str(error)) from None

    @classmethod
    def of(cls, settings: CatalogSettings) -> CatalogTuning:
        """What DULY_CATALOG_… says."""
        said = {name: getattr(settings, name) for name in cls.__struct_fields__ if name != "stuck_threshold"}
        return cls(**said, stuck_threshold=timedelta(seconds=settings.stuck_threshold_seconds))

    @property
    def windows_per_day(self) -> int:
        return len(
            between(parse(self.retry_windows), EPOCH - _SECOND, EPOCH + _DAY - _SECOND, zone_named("UTC"), MINUTES)
        )

    def plan(self, products: int, failure_rate: float = 0.05) -> Plan:
        return plan(
            products, self.batch_size, self.calls_per_minute, self.windows_per_day, self.retry_limit,
            self.hour_buckets, failure_rate,
        )  # fmt: skip


def recommend(products: int, calls_per_minute: int = 2) -> CatalogTuning:
    """The tuning for this many products: the defaults up to 5,000; then larger and more retry windows.

    How many calls a minute there may be is for the API's owner to say. So more products than that can carry are not met
    with a higher rate of our own making, but with an error that names the rate to ask for.
    """
    _check_whole("products", products, 0)
    _check_whole("calls_per_minute", calls_per_minute, 1)
    per_call = CatalogTuning().batch_size * MINUTES
    theory = per_call * calls_per_minute
    usable = int(theory * USABLE)
    if products > usable:
        needed = -int(-products // (per_call * USABLE))
        raise InputError(
            "products",
            f"{calls_per_minute} calls a minute carry {usable:,} products with room for retries and errors "
            f"({theory:,} if each call of the day were used), not {products:,}: ask for {needed} calls a minute, then "
            f"recommend({products}, calls_per_minute={needed})",
        )
    return CatalogTuning(
        retry_windows=EVERY_4_HOURS if products <= 10_000 else EVERY_2_HOURS,
        retry_limit=_retry_limit(products),
        calls_per_minute=calls_per_minute,
    )


def _retry_limit(products: int) -> int:
    """50 up to 5,000 products, 100 for 10,000, 150 for 20,000, and on in between and beyond, in whole batches."""
    limit = 50 + max(min(products, 10_000) - 5_000, 0) / 100 + max(products - 10_000, 0) / 200
    batch = CatalogTuning().batch_size
    return int(-(-limit // batch) * batch)


def _check_whole(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MOST:
        raise InputError(name, f"must be a whole number from {least} to {MOST:,}, got {value!r:.40}")


_SECOND = timedelta(seconds=1)
_DAY = timedelta(days=1)
