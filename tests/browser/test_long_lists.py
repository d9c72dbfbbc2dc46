"""Lists of any length: few rows in the document wherever one is, memory that does not grow, and the way back."""

from __future__ import annotations

import re

from bench.dashboard import scrolled
from playwright.sync_api import Page, expect

from tests.browser.nets import settled, still
from tests.browser.world import World

ROWS = 20_000
MOST = 60  # rows in the document
GROWTH = 6_000_000  # bytes that twenty times as many rows may cost


def test_a_long_list_is_scrolled_with_few_rows_and_little_memory(page: Page, world: World) -> None:
    world.app.job("echo", ({"text": f"letter {n}"} for n in range(ROWS)))
    page.goto("/pending")
    grid = settled(page).get_by_role("grid", name="Rows of jobs")
    expect(grid.get_by_role("row").nth(1)).to_be_visible()
    short = scrolled(page, 1_000)
    long = scrolled(page, ROWS)
    assert 10 < short.drawn <= MOST
    assert long.drawn <= MOST
    assert long.heap - short.heap < GROWTH, (short, long)
    expect(grid.get_by_role("row").last).to_have_attribute("aria-rowindex", str(ROWS + 1))
    # Rows that were forgotten on the way are read again when one comes back to them.
    with still(page):
        grid.evaluate("grid => { grid.scrollTop = grid.scrollHeight / 2 }")
        expect(grid.get_by_role("row").nth(10)).to_contain_text("PENDING")
    middle = grid.get_by_role("row").nth(10).get_attribute("aria-rowindex")
    grid.get_by_role("row").nth(10).get_by_role("link", name=re.compile("^Go to job")).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Job")
    page.go_back()
    expect(grid.get_by_role("row").nth(10)).to_have_attribute("aria-rowindex", str(middle))
