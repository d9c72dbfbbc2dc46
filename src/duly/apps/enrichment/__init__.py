"""Looks up products at a provider, for each row of an uploaded file: by sku, by brand and title, by image.

    DULY_ENRICHMENT_BASE_URL=https://… duly up
    curl -F file=@products.csv localhost:8086/api/jobs                 # {"jobId": 1}

    row ──▶ round: one variant of the question, at one retailer after the other
             │   found ──▶ DONE, with title, brand, sku, ean, price, currency, url, image, retailer and matched_by
             │   not found ──▶ later, the next variant; MAX_ATTEMPTS_NOT_FOUND rounds ──▶ NOT_FOUND
             │   429 ──▶ when the provider says; not a failure
             │   5xx, time-out, network, garbage ──▶ later, spaced by kind; MAX_ATTEMPTS_ERROR tries ──▶ ERROR
             └   401, 403, other 4xx ──▶ ERROR at once

Jobs of the type `csv` go by the fields of a row, jobs of the type `image` by the image and the name of its file. Every
question is an event of its row, written in the transaction that settles the row wherever that succeeds.
`enrichment_on(app)` puts the same on an app of your own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from duly import Duly
from duly.apps import alone, shipped
from duly.apps.enrichment.settings import EnrichmentSettings, checks, is_provider_named
from duly.plugin import Panel

if TYPE_CHECKING:
    from duly.apps.enrichment.lookups import Enrichment

    app: Duly
    enrichment: Enrichment

__all__ = ["EnrichmentSettings", "enrichment_on", "plugin"]


# EnrichmentSettings of jobs that the environment may also name without DULY_, in upper case.
NAMES = (
    "db_ingest_enabled", "ingest_min_rows", "ingest_max_rows", "ingest_max_batch_bytes", "db_p50_ms", "db_p95_ms",
    "worker_target_slice_ms", "claim_min", "claim_max", "safety_factor", "max_attempts_error", "max_attempts_not_found",
)  # fmt: skip


def _install(app: Duly, settings: EnrichmentSettings) -> Enrichment:
    from duly.apps.enrichment.lookups import install

    return install(app, settings)


plugin = shipped(
    __name__, "Products of a file are looked up at a provider.", EnrichmentSettings, _install, checks=checks,
    metrics=lambda made: vars(made.metrics).values(), is_default=is_provider_named,
    aliases={name.upper(): name for name in NAMES},
    panels=(Panel(title="Look-ups", script="lookups.js", tasks=("enrichment.product", "enrichment.image")),),
)  # fmt: skip

# Registers the tasks `enrichment.product` and `enrichment.image` on an app.
enrichment_on = plugin.on
__getattr__ = alone(globals(), plugin, enrichment=lambda made: made)
