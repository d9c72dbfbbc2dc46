"""The settings of the catalog app, and what `duly doctor` checks of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from duly.core.policy.retry import Windows
from duly.plugin import Finding, Section, setting


@dataclass(frozen=True, kw_only=True)
class CatalogSettings(Section):
    """The settings of the catalog app: DULY_CATALOG_… in the environment."""

    PREFIX: ClassVar[str] = "catalog_"

    base_url: str = setting("http://127.0.0.1:8087", "The URL of the supplier's API.", is_url=True)
    api_key: str = setting("", "The key for the supplier's API.", secret=True)
    timeout_seconds: float = setting(30.0, "How many seconds the API has to answer.", least=0.01)
    hour_buckets: int = setting(24, "How many slots a day has. Products are spread evenly over them.", least=1)
    retry_windows: str = setting("30 2-22/4 * * *", "When failed products are tried again: a cron expression in UTC.")
    retry_limit: int = setting(50, "At most this many failed products are tried again in one window.", least=1)
    max_consecutive_failures: int = setting(5, "How many failures in a row deactivate a product.", least=1)
    stuck_threshold_seconds: float = setting(
        1_800.0, "How many seconds a sync may run before it is stopped.", least=0.01
    )
    batch_size: int = setting(10, "At most this many SKUs are requested in one call.", least=1)
    calls_per_minute: int = setting(2, "At most this many calls are made in any minute, over all workers.", least=1)


def checks(settings: CatalogSettings, _: Mapping[str, int]) -> Iterator[Finding]:
    """Find retry windows that are not a valid cron."""
    try:
        Windows(settings.retry_windows, cap=settings.retry_limit)
    except ValueError as error:
        yield Finding("bad", "catalog", f"catalog_retry_windows: {error}", "write a cron such as 30 2-22/4 * * *")
