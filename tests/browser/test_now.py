"""Now: one glance tells whether all is well, and if not, why and where to act."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from duly.verbs import LOCAL
from tests.browser.nets import barriers, settled, still
from tests.browser.sites import NARROW, Site, Visits
from tests.browser.world import World


def test_an_empty_service_says_what_to_do_next(page: Page, world: World) -> None:
    page.goto("/")
    settled(page)
    expect(page.get_by_role("heading", name="Now", level=1)).to_be_visible()
    expect(page.get_by_role("link", name=re.compile("no worker is running"))).to_be_visible()
    expect(page.get_by_role("region", name="Workers").first).to_contain_text("duly worker")
    barriers(page)


def test_one_glance_tells_what_is_wrong_and_leads_to_where_one_acts(show: Page) -> None:
    show.goto("/")
    settled(show)
    expect(show.get_by_role("status").filter(has_text="given up")).to_be_visible()
    for name in ("Due now", "Running", "Late", "Retry lane", "In review", "Schedules"):
        expect(show.get_by_role("link", name=re.compile(name)).first).to_be_visible()
    expect(show.get_by_role("region", name="Queues").get_by_role("row", name=re.compile("print_label"))).to_be_visible()
    barriers(show)
    show.get_by_role("link", name=re.compile("In review")).first.click()
    expect(show.get_by_role("heading", name="Review", level=1)).to_be_visible()


def test_it_moves_with_the_work_and_nothing_jumps(page: Page, world: World) -> None:
    with world.working():
        page.goto("/")
        settled(page)
        expect(page.get_by_role("region", name="Workers").get_by_role("row")).to_have_count(2)
        due = page.get_by_role("link", name=re.compile("Due now"))
        expect(due).to_contain_text("Due now0")
        world.app.internals.verbs.queues.pause(LOCAL, "echo")
        with still(page):
            for number in range(3):
                world.app.put("echo", text=f"due {number}")
            expect(due).to_contain_text("Due now3")
        row = page.get_by_role("region", name="Queues").get_by_role("row", name=re.compile("echo"))
        expect(row).to_contain_text("paused")


def test_charts_have_a_table_twin_and_their_span_is_in_the_address(show: Page) -> None:
    show.goto("/")
    settled(show)
    expect(show.get_by_role("img", name=re.compile("^Ended a minute"))).to_be_visible()
    show.get_by_label("Charts over").select_option("15 minutes")
    expect(show).to_have_url(re.compile(r"minutes=15"))
    chart = show.get_by_role("figure").filter(has_text="Ended a minute")
    chart.get_by_role("button", name="Table").click()
    expect(chart.get_by_role("columnheader")).to_have_text(["Time", "done", "retried", "given up"])
    barriers(show)


def test_a_user_sees_only_what_is_their_own(guarded: Site, visit: Visits) -> None:
    guarded.world.fill_for("ana")
    pages = {name: visit(guarded, name, viewport=NARROW) for name in ("ana", "bob")}
    for page in pages.values():
        page.goto("/")
        settled(page)
        expect(page.get_by_role("region", name="Workers")).to_have_count(0)
    expect(pages["bob"].get_by_text("You have no work here yet.")).to_be_visible()
    expect(pages["ana"].get_by_text("You have no work here yet.")).to_have_count(0)
    barriers(pages["ana"])
