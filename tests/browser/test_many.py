"""Many who look at once cost the database what one does."""

from __future__ import annotations

import pytest

from tests.browser.looks import open_pages, statements_while
from tests.browser.sites import Site, Visits

SECONDS = 6.0


@pytest.mark.parametrize("path", ["/", "/items"])
def test_twenty_pages_on_one_screen_cost_at_most_a_statement_a_second(local: Site, visit: Visits, path: str) -> None:
    local.world.fill_present()
    pages = open_pages(visit, local, path)
    seen = statements_while(local, pages[0], SECONDS)
    assert 0 < seen.total() <= SECONDS + 1, seen  # one that was under way may end within this time
