"""The settings of the enrichment app, and what `duly doctor` checks of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from duly.apps.enrichment.words import VARIANTS
from duly.config import section
from duly.outbound.http import check_header, checked_url
from duly.plugin import Finding, Section, setting

QUEUE = "enrichment"


def listed(text: str) -> tuple[str, ...]:
    """The words between commas, each once."""
    return tuple(dict.fromkeys(filter(None, map(str.strip, text.split(",")))))


def _check_variants(text: str) -> None:
    for each in listed(text):
        if each not in VARIANTS:
            raise ValueError(f"{each!r:.50} is none of {', '.join(VARIANTS)}")
    if not listed(text):
        raise ValueError("names none")


@dataclass(frozen=True, kw_only=True)
class EnrichmentSettings(Section):
    """The settings of the enrichment app: DULY_ENRICHMENT_… in the environment."""

    PREFIX: ClassVar[str] = "enrichment_"

    base_url: str = setting(
        "", "The URL of the provider that products are looked up at.", check=lambda url: url and checked_url(url)
    )
    api_key: str = setting(
        "", "The key for the provider.", secret=True, check=lambda key: check_header("Authorization", key)
    )
    timeout_seconds: float = setting(10.0, "How many seconds the provider has to answer.", least=0.01)
    retailers: str = setting(
        "", "The retailers to ask for, separated by commas, in order of preference. Empty: any, in one request."
    )
    variants: str = setting(
        "sku,ean,brand_title,title,plain_title", "The forms of a query, in the order in which they are tried.",
        check=_check_variants,
    )  # fmt: skip
    not_found_seconds: float = setting(
        900.0, "The pause before the next form of a query is tried. Each pause is four times as long.", least=0
    )
    calls_at_a_time: int = setting(16, "At most this many requests of one worker run at the same time.", least=1)


def is_provider_named() -> bool:
    """Whether the URL of the provider was set."""
    return bool(section(EnrichmentSettings).base_url)


def checks(settings: EnrichmentSettings, waiting: Mapping[str, int]) -> Iterator[Finding]:
    """Find rows that wait although no provider is set."""
    rows = sum(count for queue, count in waiting.items() if queue.partition("/")[0] == QUEUE)
    if rows and not settings.base_url:
        advice = "set DULY_ENRICHMENT_BASE_URL where the worker runs"
        yield Finding("bad", "enrichment", f"{rows} wait, and no provider is set", advice)
