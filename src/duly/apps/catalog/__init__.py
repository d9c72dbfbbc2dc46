"""Syncs a catalog with its supplier: every product once a day, evenly over 24 hours, with separate retries.

    from duly.apps.catalog import catalog
    catalog.publish("user-1", "65-12345-1")

    DULY_CATALOG_BASE_URL=https://… duly worker duly.apps.catalog:app        # on as many servers as you like

`catalog_on(app)` puts the same on an app of your own. A product is a schedule that got the emptiest of 24 slots when it
was published, for good; at its hour it becomes an item:

    :00  main lane    all active products of the slot, whatever failed before: always as many
    :30  retry lane   six times a day, at most 50 of those that failed: fewest failures first, then oldest

    pending ──▶ syncing ──▶ success             unchanged ones are counted, and nothing follows from them
                  │    ▲
                  ▼    │ next window
                 failed ──▶ deactivated         five in a row, over days; a person reactivates

Both share one limit, 2 calls in any minute over all workers, and a call asks for 10 products.

It differs from its original specification (docs/requirements.md) in four ways:

- A product gets its slot in the transaction that counts the slots, so that concurrent publishing stays even.
- A sync of yesterday that still waits is superseded by the sync of today, and the number of its failures is kept.
- Any number of dispatchers may run, and there is no hourly reset of stuck rows: the products of a dead worker are taken
  over in seconds, and the half hour is a deadline for calls that hang.
- A 429 response does not count as a failure. Nor does a supplier that is down: it is probed once a minute until it is
  back, and no product is deactivated.

The example of the specification counts five failures by 22:30; its own order, fewest failures first, gives four.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from duly import Duly
from duly.apps import alone, shipped
from duly.apps.catalog.capacity import plan
from duly.apps.catalog.products import Catalog, Product, install, simulated
from duly.apps.catalog.settings import CatalogSettings, CatalogTuning, recommend
from duly.plugin import Parameter, Screen, Simulated
from duly.tasks.task import Task

if TYPE_CHECKING:
    app: Duly
    catalog: Catalog
    sync: Task[..., Any]

__all__ = [
    "Catalog",
    "CatalogSettings",
    "CatalogTuning",
    "Product",
    "catalog_on",
    "plan",
    "plugin",
    "recommend",
    "simulated",
]


plugin = shipped(
    __name__, "A catalog kept in step with its supplier, every product once a day.", CatalogSettings, install,
    simulation=Simulated(
        parameters=(Parameter(name="products", label="Products", default=5_000),), fill=simulated, late_after=3_600.0
    ),
    screens=(
        Screen(path="catalog", title="Catalog", script="catalog.js"),
        Screen(path="plan", title="Plan", script="plan.js"),
    ),
)  # fmt: skip


def catalog_on(app: Duly, on_change: Task[..., Any] | None = None, settings: CatalogTuning | None = None) -> Catalog:
    """Register the task `catalog.sync` on this app.

    `on_change` is put for each product whose price, quantity or stock changed, in the transaction that says so: a task
    that takes user_id, sku, price, quantity and in_stock.
    """
    return plugin.adopt(app, lambda: install(app, app.section(CatalogSettings), on_change, settings))


__getattr__ = alone(globals(), plugin, catalog=lambda made: made, sync=lambda made: made.task)
