"""Pending rows: of all jobs where that is turned on, and of one job always."""

from __future__ import annotations

import re
from pathlib import Path

from playwright.sync_api import Page, expect

from duly.verbs import LOCAL
from tests.browser import sites
from tests.browser.nets import barriers, settled, told
from tests.browser.sites import NARROW, Site, Visits
from tests.browser.world import STOCK, World

ROWS = "Rows of jobs"


def test_rows_of_all_jobs_are_found_by_status_type_job_and_time(show: Page) -> None:
    show.goto("/pending")
    grid = settled(show).get_by_role("grid", name=ROWS)
    expect(grid.get_by_role("row").nth(1)).to_contain_text("PENDING")
    headers = [each.inner_text() for each in grid.get_by_role("columnheader").all()]
    wanted = ["Item", "Job", "Input", "Status", "Attempts", "Locked by", "Updated", "Job type", "Progress"]
    assert [name for name in headers if name in wanted] == wanted
    expect(grid.get_by_role("row").filter(has_text="Kettle · Acme")).to_contain_text("csv")
    barriers(show)
    tabs = show.get_by_role("navigation", name="Statuses")
    expect(tabs.get_by_role("link", name="Pending and processing")).to_contain_text(re.compile(r"\d+"))
    tabs.get_by_role("link", name="Error").click()
    expect(show).to_have_url(re.compile("statuses=ERROR"))
    show.get_by_label("Job type").select_option("stock")
    expect(grid.get_by_role("row")).to_have_count(3)
    search = show.get_by_role("searchbox", name="Search and filter")
    search.fill("job:3")
    search.press("Enter")
    expect(show).to_have_url(re.compile("jobId=3"))
    expect(grid.get_by_role("row")).to_have_count(3)
    show.get_by_label("From", exact=True).fill("2099-01-01T00:00:00")
    expect(show.get_by_text("No row is in this state.")).to_be_visible()
    show.go_back()
    grid.get_by_role("link", name="Go to job 3").first.click()
    expect(show.get_by_role("heading", level=1)).to_contain_text("Job 3")


def test_selected_rows_of_several_jobs_are_reprocessed_and_all_that_fit(page: Page, world: World) -> None:
    with world.past(minutes=5):
        jobs = [world.app.job("echo", [{"text": "broken: no shelf"}, {"text": "fine"}]).id for _ in range(3)]
    page.goto("/pending?statuses=ERROR")
    boxes = settled(page).get_by_role("checkbox", name=re.compile("^Select"))
    boxes.first.click()
    expect(page.get_by_role("link", name="Go to job", exact=True)).to_be_visible()
    boxes.nth(1).click(modifiers=["Shift"])
    barriers(page)
    page.get_by_role("button", name="Reprocess selected").click()
    told(page, "2 rows are reprocessed")
    assert [world.app.internals.verbs.jobs.show(LOCAL, job).failed_items for job in jobs].count(0) == 2
    world.work()
    page.goto("/pending?statuses=ERROR")
    settled(page).get_by_role("button", name="Reprocess all 3 matching").click()
    question = page.get_by_role("dialog", name="Reprocess all 3 rows?")
    expect(question.get_by_role("button", name="Reprocess")).to_be_disabled()
    question.get_by_label(re.compile("^Type")).fill("3")
    question.get_by_role("button", name="Reprocess").click()
    told(page, "3 rows will be reprocessed")
    world.work()
    lines = world.app.internals.verbs.audit.page()
    assert sum(line.action == "job.reprocessed" for line in lines) >= 5


def test_rows_of_one_job_have_the_same_list(showroom: Site, visit: Visits) -> None:
    page = visit(showroom, viewport=NARROW, color_scheme="dark")
    page.goto("/jobs/5?tab=pending")
    grid = settled(page).get_by_role("grid", name=ROWS)
    expect(grid.get_by_role("row").nth(1)).to_contain_text("PENDING")
    expect(grid.get_by_role("columnheader", name="Job", exact=True)).to_have_count(0)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "nothing is wider than the phone"
    barriers(page)


def test_where_the_list_is_turned_off_the_page_says_how_to_turn_it_on(
    database_url: str, tmp_path: Path, visit: Visits
) -> None:
    with World(database_url, tmp_path, pending_enabled=False) as world, sites.local(world) as site:
        world.send(STOCK, "stock.csv", "stock")
        page = visit(site)
        page.goto("/pending")
        expect(settled(page).get_by_text("DULY_PENDING_ENABLED=true duly serve")).to_be_visible()
        expect(page.get_by_role("navigation", name="Screens").get_by_role("link", name="Pending")).to_have_count(0)
        barriers(page)
