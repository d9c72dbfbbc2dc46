"""The settings of the catalog app, and those to recommend for a number of products."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import ClassVar

from duly.apps.catalog.capacity import Plan, check_whole, plan
from duly.apps.catalog.growth import EVERY_4_HOURS, MINUTES, needs, usable
from duly.core.clock import EPOCH
from duly.core.errors import InputError
from duly.core.policy.limits import Limit
from duly.core.policy.recur import Slots, between, parse, zone_named
from duly.core.policy.retry import Windows
from duly.plugin import Section, setting

FAILURE_RATE = 0.05  # of all calls for a product, unless another is given
INSTANT = timedelta(microseconds=1)
DAY = timedelta(days=1)


@dataclass(frozen=True, kw_only=True)
class CatalogTuning(Section):
    """How a catalog is kept in step; the defaults carry 5,000 products."""

    PREFIX: ClassVar[str] = "catalog_"

    hour_buckets: int = setting(
        24, "How many slots a day has. Products are spread evenly over them.", least=1, check=Slots
    )
    retry_windows: str = setting(
        EVERY_4_HOURS, "When failed products are tried again: a cron expression in UTC.", check=parse
    )
    retry_limit: int = setting(
        50, "At most this many failed products are tried again in one window.", least=1,
        check=lambda cap: Windows(EVERY_4_HOURS, cap=cap),
    )  # fmt: skip
    max_consecutive_failures: int = setting(5, "How many failures in a row deactivate a product.", least=1)
    stuck_threshold_seconds: float = setting(
        1_800.0, "How many seconds a sync may run before it is stopped.", least=0.01
    )
    batch_size: int = setting(10, "At most this many SKUs are requested in one call.", least=1)
    calls_per_minute: int = setting(
        2, "At most this many calls are made in any minute, over all workers.", least=1,
        check=lambda most: Limit("calls", most, per="1m"),
    )  # fmt: skip

    def windows_of(self, day: datetime) -> list[datetime]:
        """When the retry windows of the day that begins here open."""
        return between(parse(self.retry_windows), day - INSTANT, day + DAY - INSTANT, zone_named("UTC"), MINUTES)

    @property
    def windows_per_day(self) -> int:
        return len(self.windows_of(EPOCH))

    def plan(self, products: int, failure_rate: float = FAILURE_RATE) -> Plan:
        return plan(
            products, self.batch_size, self.calls_per_minute, self.windows_per_day, self.retry_limit,
            self.hour_buckets, failure_rate,
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class CatalogSettings(CatalogTuning):
    """The settings of the catalog app: DULY_CATALOG_… in the environment."""

    base_url: str = setting("http://127.0.0.1:8087", "The URL of the supplier's API.", is_url=True)
    api_key: str = setting("", "The key for the supplier's API.", secret=True)
    timeout_seconds: float = setting(30.0, "How many seconds the API has to answer.", least=0.01)


def recommend(products: int, calls_per_minute: int = 2) -> CatalogTuning:
    """The tuning for this many products: the defaults up to 5,000; then larger and more retry windows.

    How many calls a minute there may be is for the API's owner to say. So more products than that can carry are not met
    with a higher rate of our own making, but with an error that names the rate to ask for.
    """
    check_whole("products", products, 0)
    check_whole("calls_per_minute", calls_per_minute, 1)
    batch = CatalogTuning.batch_size
    need = needs(products, batch, FAILURE_RATE)
    if products > (carried := usable(calls_per_minute, batch)):
        theory = batch * MINUTES * calls_per_minute
        raise InputError(
            "products",
            f"{calls_per_minute} calls a minute carry {carried:,} products with room for retries and errors "
            f"({theory:,} if each call of the day were used), not {products:,}: ask for {need.calls_per_minute} calls "
            f"a minute, then recommend({products}, calls_per_minute={need.calls_per_minute})",
        )
    return CatalogTuning(retry_windows=need.cron, retry_limit=need.cap, calls_per_minute=calls_per_minute)
