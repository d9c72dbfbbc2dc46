"""A supplier of 5,000 products that is down for a day, in virtual time."""

from __future__ import annotations

import time
from datetime import timedelta

from tests.virtual.test_outages import check_week
from tests.virtual.watching import week


def test_five_thousand_products_and_a_supplier_that_is_down_for_a_day() -> None:
    """1,200 products can be asked for in an hour, of which the slots need 208: a day is made up in five hours."""
    begun = time.monotonic()
    found = week(5_000)
    took = time.monotonic() - begun
    syncs = found.story.done + found.story.late
    print(
        f"\n{took:.1f} s; {len(found.first)} calls until it was clear, {len(found.calls)} probes, told"
        f" {found.ear.heard.total()} times, caught up after {found.caught_up}, {syncs:,} syncs"
    )
    check_week(found, timedelta(hours=5, minutes=30))
    assert syncs > 34_000
