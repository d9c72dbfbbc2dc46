"""How many products a catalog can carry: the arithmetic of slots, retry windows and a limit on calls. Pure.

plan(5_000)                  21 calls in each hour, 5 more in a retry window: 26 of 120, and 534 of 2,880 in a day
plan(5_000).fits             whether it fits
plan(5_000).breaks_first     what fails first as the catalog grows, and at how many products
plan(5_000).growth           catalogs of other sizes, and what to change for each
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from duly.apps.catalog.growth import MINUTES, SIZES, Size, needs, usable, wanted
from duly.core.errors import InputError

# The largest number of products that is searched.
MOST = 10_000_000


class Break(Struct, frozen=True):
    """Something that no longer works from this number of products on."""

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
    fits: bool = True
    growth: tuple[Size, ...] = ()
    most_products: int = 0  # if each call of a day is used
    usable_products: int = 0  # with room for retries and errors


def plan(
    products: int,
    batch: int = 10,
    rate: float = 2.0,
    windows: int = 6,
    cap: int = 50,
    slots: int = 24,
    failure_rate: float = 0.05,
) -> Plan:
    """The load of this many products: `batch` in a call, `rate` calls a minute, `cap` in each of `windows` a day.

    `failure_rate`, of all calls for a product, determines when the retry windows are too few.
    """
    for name, value, least in (
        ("products", products, 0), ("batch", batch, 1), ("windows", windows, 0), ("cap", cap, 0), ("slots", slots, 1),
    ):  # fmt: skip
        check_whole(name, value, least)
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate <= 1e6:
        raise InputError("rate", f"must be calls per minute, more than 0, got {rate!r:.40}")
    if isinstance(failure_rate, bool) or not isinstance(failure_rate, int | float) or not 0 <= failure_rate < 1:
        raise InputError("failure_rate", f"must be a part such as 0.05, less than 1, got {failure_rate!r:.40}")

    def load(products: int, rate: float = rate, windows: int = windows, cap: int = cap) -> Plan:
        return _load(products, batch, rate, windows, cap, slots, failure_rate)

    def size(products: int) -> Size:
        fits = all(each.products > products for each in breaks)
        need = needs(products, batch, failure_rate)
        found = {} if fits else need.changes(rate, windows, cap)
        changed = load(products, max(rate, need.calls_per_minute), max(windows, need.windows), max(cap, need.cap))
        left = [what for is_broken, what in _rules(half, failure_rate) if not fits and is_broken(changed)]
        return Size(
            products=products,
            per_hour=round(products / slots),
            day_used_percent=load(products).day_used_percent,
            fits=fits,
            changes=(*(text for text, _ in found.values()), *([f"even then, {' and '.join(left)}"] if left else [])),
            settings={name: value for name, (_, value) in found.items()},
        )

    half = MINUTES / slots / 2
    breaks = _breaks(load, half, failure_rate)
    return replace(
        load(products),
        breaks_first=next(iter(breaks), None),
        breaks=breaks,
        fits=all(each.products > products for each in breaks),
        growth=tuple(size(each) for each in sorted({products, *SIZES})),
        most_products=int(batch * rate * MINUTES),
        usable_products=usable(rate, batch),
    )


def _load(products: int, batch: int, rate: float, windows: int, cap: int, slots: int, failure_rate: float) -> Plan:
    """The numbers of a plan, without what breaks."""
    slot_least, fuller = divmod(products, slots)
    slot_most = slot_least + (fuller > 0)
    slot_calls, window_calls = -(-slot_most // batch), -(-cap // batch)
    worst_hour_calls = slot_calls + -(-windows // slots) * window_calls
    scheduled_calls = fuller * slot_calls + (slots - fuller) * -(-slot_least // batch)
    retry_calls = windows * window_calls
    return Plan(
        products=products,
        slot_least=slot_least,
        slot_most=slot_most,
        slot_calls=slot_calls,
        slot_minutes=slot_calls / rate,
        window_calls=window_calls,
        window_minutes=window_calls / rate,
        worst_hour_calls=worst_hour_calls,
        worst_hour_minutes=worst_hour_calls / rate,
        hour_limit=int(rate * MINUTES / slots),
        hour_used_percent=100 * worst_hour_calls / (rate * MINUTES / slots),
        scheduled_calls=scheduled_calls,
        retry_calls=retry_calls,
        day_calls=scheduled_calls + retry_calls,
        day_limit=int(rate * MINUTES),
        day_used_percent=100 * (scheduled_calls + retry_calls) / (rate * MINUTES),
        retries_wanted=wanted(products, failure_rate),
        retries_possible=windows * cap,
        breaks_first=None,
        breaks=(),
    )


def _rules(half: float, failure_rate: float) -> list[tuple[Callable[[Plan], bool], str]]:
    """What may fail, each with its sign. Retry windows open `half` the minutes of a slot after it."""
    return [
        (lambda p: p.slot_minutes > half, f"a slot is not done when a retry window opens, {half:g} minutes later"),
        (lambda p: p.worst_hour_calls > p.hour_limit, "a slot and a retry window are not done before the next slot"),
        (lambda p: p.slot_calls > p.hour_limit, "a slot is not done when the next one begins"),
        (lambda p: p.day_calls > p.day_limit, "a day has more calls than the limit allows"),
        (
            lambda p: p.retries_wanted > p.retries_possible,
            f"more products fail in a day ({failure_rate:.1%}) than retry windows allow",
        ),
    ]


def _breaks(load: Callable[[int], Plan], half: float, failure_rate: float) -> tuple[Break, ...]:
    """What fails as the catalog grows, soonest first; what never fails is left out. More products are never better."""

    def first(breaks: Callable[[Plan], bool]) -> int:
        return bisect_left(range(MOST + 1), True, key=lambda products: breaks(load(products)))

    known = sorted((first(breaks), what) for breaks, what in _rules(half, failure_rate))
    return tuple(Break(*each) for each in known if each[0] <= MOST)


def check_whole(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MOST:
        raise InputError(name, f"must be a whole number from {least} to {MOST:,}, got {value!r:.40}")
