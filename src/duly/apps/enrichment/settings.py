"""The settings of the enrichment app, and what `duly doctor` checks of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from duly.apps.enrichment.words import VARIANTS
from duly.config import section
from duly.core.errors import ConfigError, InputError
from duly.outbound.http import check_header, checked_url
from duly.plugin import Finding, Section, setting

QUEUE = "enrichment"


@dataclass(frozen=True, kw_only=True)
class EnrichmentSettings(Section):
    """The settings of the enrichment app: DULY_ENRICHMENT_… in the environment."""

    PREFIX: ClassVar[str] = "enrichment_"

    base_url: str = setting("", "The URL of the provider that products are looked up at.")
    api_key: str = setting("", "The key for the provider.", secret=True)
    timeout_seconds: float = setting(10.0, "How many seconds the provider has to answer.", least=0.01)
    retailers: str = setting(
        "", "The retailers to ask for, separated by commas, in order of preference. Empty: any, in one request."
    )
    variants: str = setting(
        "sku,ean,brand_title,title,plain_title", "The forms of a query, in the order in which they are tried."
    )
    not_found_seconds: float = setting(
        900.0, "The pause before the next form of a query is tried. Each pause is four times as long.", least=0
    )
    calls_at_a_time: int = setting(16, "At most this many requests of one worker run at the same time.", least=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if strange := [each for each in listed(self.variants) if each not in VARIANTS]:
            raise ConfigError(f"enrichment_variants: {strange[0]!r:.50} is none of {', '.join(VARIANTS)}")
        if not listed(self.variants):
            raise ConfigError("enrichment_variants: names none")
        try:
            if self.base_url:
                checked_url(self.base_url)
            check_header("Authorization", self.api_key)
        except InputError as error:
            name = "base_url" if error.field == "url" else "api_key"
            raise ConfigError(f"enrichment_{name}: {error.problem}") from None


def listed(text: str) -> tuple[str, ...]:
    """The words between commas, each once."""
    return tuple(dict.fromkeys(filter(None, map(str.strip, text.split(",")))))


def is_provider_named() -> bool:
    """Whether the URL of the provider was set."""
    return bool(section(EnrichmentSettings).base_url)


def checks(settings: EnrichmentSettings, waiting: Mapping[str, int]) -> Iterator[Finding]:
    """Find rows that wait although there is nobody to ask."""
    rows = sum(count for queue, count in waiting.items() if queue.partition("/")[0] == QUEUE)
    if rows and not settings.base_url:
        advice = "set DULY_ENRICHMENT_BASE_URL where the worker runs"
        yield Finding("bad", "enrichment", f"{rows} wait, and there is no provider to ask", advice)
