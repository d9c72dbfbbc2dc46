"""What the catalog app has to know, and what `duly doctor` says about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from duly.core.policy.retry import Windows
from duly.plugin import Finding, Section, setting


@dataclass(frozen=True, kw_only=True)
class Settings(Section):
    """DULY_CATALOG_…"""

    PREFIX: ClassVar[str] = "catalog_"

    base_url: str = setting("http://127.0.0.1:8087", "Where the catalog app asks for products.")
    api_key: str = setting("", "The catalog app's key for it.", secret=True)
    timeout_seconds: float = setting(30.0, "How long an answer may take.", least=0.01)
    hour_buckets: int = setting(24, "Even slots of a day.", least=1)
    retry_windows: str = setting("30 2-22/4 * * *", "When failed products are tried again, as a cron in UTC.")
    retry_limit: int = setting(50, "How many of them at most in one window.", least=1)
    max_consecutive_failures: int = setting(5, "Failures in a row after which a product is deactivated.", least=1)
    stuck_threshold_seconds: float = setting(1_800.0, "How long a sync may hang.", least=0.01)
    batch_size: int = setting(10, "SKUs that one call may ask for.", least=1)
    calls_per_minute: int = setting(2, "Calls in any minute, over all workers.", least=1)


def checks(settings: Settings, _: Mapping[str, int]) -> Iterator[Finding]:
    """Retry windows that are no times at all."""
    try:
        Windows(settings.retry_windows, cap=settings.retry_limit)
    except ValueError as error:
        yield Finding("bad", "catalog", f"catalog_retry_windows: {error}", "write a cron such as 30 2-22/4 * * *")
