"""Many who look at once cost the database what one does; `python -m tests.browser.looks` tells it of every screen."""

from __future__ import annotations

import pytest

from tests.browser.looks import open_pages, statements_while
from tests.browser.sites import Site, Visits

SECONDS = 15.0
PAGES = 4  # more would cost the browser, and the database the same


@pytest.mark.parametrize("path", ["/"])
def test_pages_on_one_screen_cost_at_most_a_statement_a_second(local: Site, visit: Visits, path: str) -> None:
    local.world.fill_present()
    pages = open_pages(visit, local, path, PAGES)
    seen = statements_while(local, pages[0], SECONDS)
    assert 0 < seen.total() <= SECONDS + 1, seen  # one that was under way may end within this time
