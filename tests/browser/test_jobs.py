"""Jobs: a file is dropped, looked at and sent; a job is followed and looked after; a refused row is fixed in place."""

from __future__ import annotations

import re
from pathlib import Path

from playwright.sync_api import Page, expect

from duly.verbs import LOCAL
from tests.browser.nets import Watch, barriers, refreshed, settled, told
from tests.browser.sites import NARROW, Site, Visits
from tests.browser.world import STOCK, TEXTS, World

FILE = "Name;Maker;Code;Cost\nTea pot;Acme;TP-7;19,90\nCup;Acme;CU-1;not a price\n"
# A file that is dragged over the page and let go, as a browser tells of it.
DROPPED = """([name, text]) => {
    const held = new DataTransfer();
    held.items.add(new File([text], name));
    const zone = document.querySelector(".drop");
    for (const kind of ["dragover", "drop"]) {
        zone.dispatchEvent(new DragEvent(kind, { dataTransfer: held, bubbles: true, cancelable: true }));
    }
}"""


def test_a_file_is_dropped_looked_at_mapped_and_sent(page: Page, world: World) -> None:
    page.goto("/jobs")
    expect(settled(page).get_by_text("Drop files here")).to_be_visible()
    page.evaluate(DROPPED, ["products.csv", FILE])
    sending = page.get_by_role("region", name="Send products.csv", exact=True)
    first = sending.get_by_role("region", name="First rows of products.csv")
    expect(first).to_contain_text("'not a price' is not a number")
    expect(first.get_by_text("fits")).to_have_count(1)
    expect(sending.get_by_label("brand")).to_have_value("Maker")
    barriers(page)
    sending.get_by_label("price").select_option("not in this file")
    expect(first.get_by_text("fits")).to_have_count(2)
    expect(sending).to_contain_text("Not used: Cost")
    sending.get_by_role("button", name="Create the job").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(re.compile(r"Job \d+ products.csv"))
    world.work()
    (job,) = world.app.internals.verbs.jobs.page(LOCAL, None, None, None, 10)
    assert (job.job_type, job.total_items) == ("csv", 2)


def test_a_file_of_another_type_and_one_that_is_refused(page: Page, world: World, watch: Watch, tmp_path: Path) -> None:
    watch.expect("status of 422")
    page.goto("/jobs")
    path = tmp_path / "stock.csv"
    path.write_text(STOCK)
    settled(page).get_by_label("Files to send").set_input_files(path)
    sending = page.get_by_role("region", name="Send stock.csv", exact=True)
    sending.get_by_label("Type of job").select_option("image (enrichment.image)")
    expect(sending.get_by_role("alert")).to_contain_text("jobs of type image accept images")
    sending.get_by_label("Type of job").select_option("stock (stock)")
    expect(sending).to_contain_text("2 would be refused")
    sending.get_by_role("button", name="Not this file").click()
    expect(sending).to_have_count(0)
    page.get_by_role("button", name="From an address").click()
    question = page.get_by_role("dialog", name="A file from an address")
    question.get_by_label("Address").fill("s3://nowhere/x.csv")
    question.get_by_role("button", name="Create the job").click()
    expect(question.get_by_role("alert")).to_contain_text("sources_allowed")
    question.get_by_role("button", name="Not now").click()
    page.get_by_role("button", name="Look for new files").click()
    told(page, "0 new files were taken")
    assert not world.app.internals.verbs.jobs.page(LOCAL, None, None, None, 10)


def test_jobs_are_listed_and_one_shows_its_rows_and_events(showroom: Site, visit: Visits) -> None:
    page = visit(showroom, viewport=NARROW, color_scheme="dark")
    page.goto("/jobs?jobType=stock")
    grid = settled(page).get_by_role("grid", name="Jobs")
    expect(grid.get_by_role("row")).to_have_count(2)
    expect(grid).to_contain_text("stock.csv")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "nothing is wider than the phone"
    barriers(page)
    wide = visit(showroom)
    wide.goto("/jobs/3")
    rows = settled(wide).get_by_role("grid", name="Rows", exact=True)
    expect(rows.get_by_role("columnheader", name="count")).to_be_visible()
    expect(rows.get_by_role("row").nth(4)).to_contain_text("12")
    expect(wide.get_by_role("link", name="Export as xlsx")).to_have_attribute("href", re.compile("format=xlsx"))
    barriers(wide)
    with wide.expect_download() as download:
        wide.get_by_role("link", name="Rejects as csv").click()
    assert download.value.suggested_filename == "job-3-rejects.csv"
    wide.get_by_role("navigation", name="Parts of the job").get_by_role("link", name="Events").click()
    expect(wide.get_by_role("grid", name="Acts of people")).to_contain_text("job.")
    wide.get_by_text("Facts and controller").click()
    expect(wide.get_by_role("link", name="as items")).to_be_visible()
    barriers(wide)


def test_an_app_adds_a_panel_to_the_page_of_its_jobs(page: Page, world: World) -> None:
    with world.past(minutes=5):
        job = world.send("title,brand\nTea pot,Acme\n", "products.csv", "csv").id
    page.goto(f"/jobs/{job}?tab=events")
    lookups = settled(page).get_by_role("region", name="Look-ups").get_by_role("grid", name="Look-ups")
    expect(lookups.get_by_role("columnheader", name="Retailer")).to_be_visible()
    expect(lookups.get_by_role("row").nth(1)).to_contain_text("found")
    barriers(page)


def test_a_refused_row_is_fixed_in_place_and_tried(page: Page, world: World, watch: Watch, tmp_path: Path) -> None:
    watch.expect("status of 422")
    with world.past(minutes=5):
        job = world.send(STOCK, "stock.csv", "stock").id
    page.goto(f"/jobs/{job}?tab=refused")
    rows = settled(page).get_by_role("grid", name="Refused rows")
    expect(rows).to_contain_text("must be a number, 0 or more")
    rows.get_by_role("button", name="Fix row 2").click()
    form = page.get_by_role("dialog", name="Fix row 2")
    form.get_by_label("count").fill("some")
    barriers(page)
    form.get_by_role("button", name="Try it with this").click()
    expect(form.get_by_role("alert")).to_contain_text("must be a number, 0 or more")
    form.get_by_label("count").fill("7")
    form.get_by_role("button", name="Try it with this").click()
    told(page, "Row 2 is tried again")
    expect(rows.get_by_role("button", name="Fix row 2")).to_have_count(0)
    mended = tmp_path / "mended.csv"
    mended.write_text("duly row,sku,count\n3,CU-1,4\n4,CU-2,5\n")
    page.get_by_label("File of mended rejects").set_input_files(mended)
    told(page, "1 of 2 rows are tried again")
    expect(page.get_by_role("region", name="Still refused")).to_contain_text("row 4 of the job is not in error")
    world.work()
    assert world.app.internals.verbs.jobs.show(LOCAL, job).done_items == 4
    refreshed(page)
    expect(page.get_by_text("No row was refused or failed.")).to_be_visible()


def test_a_job_is_paused_resumed_kicked_off_reprocessed_cancelled_and_removed(page: Page, world: World) -> None:
    jobs = world.app.internals.verbs.jobs
    job = world.send(TEXTS).id
    world.work()
    held = world.app.job("echo", [{"text": f"letter {n}"} for n in range(5)]).id
    page.goto(f"/jobs/{held}")
    settled(page).get_by_role("button", name="Pause").click()
    told(page, f"Job {held} is paused")
    assert jobs.show(LOCAL, held).queue_state == "PAUSED"
    page.get_by_role("button", name="Resume").click()
    told(page, "goes on")
    page.get_by_role("button", name="Kick off").click()
    told(page, "5 rows ended")
    expect(page.get_by_text("letter 4")).to_be_visible()
    more = world.app.job("echo", [{"text": f"note {n}"} for n in range(5)]).id
    page.goto(f"/jobs/{more}")
    settled(page).get_by_role("button", name="Cancel", exact=True).click()
    question = page.get_by_role("dialog", name=f"Cancel job {more}?")
    question.get_by_label(re.compile("^Type")).fill("cancel")
    question.get_by_label("Reason").fill("the wrong file")
    question.get_by_role("button", name="Cancel the job").click()
    told(page, "is being cancelled")
    page.goto(f"/jobs/{job}")
    settled(page).get_by_role("button", name="Reprocess…").click()
    question = page.get_by_role("dialog", name="Reprocess rows")
    question.get_by_label(re.compile("^Not found")).uncheck()
    barriers(page)
    question.get_by_role("button", name="Reprocess").click()
    told(page, "At most 1 rows are reprocessed")
    page.get_by_role("button", name="Remove").click()
    question = page.get_by_role("dialog", name=f"Remove job {job}?")
    question.get_by_label(re.compile("^Type")).fill(str(job))
    question.get_by_role("button", name="Remove").click()
    told(page, "is removed")
    expect(page.get_by_role("heading", level=1)).to_contain_text("Jobs")
    world.work()
    assert {each.id for each in jobs.page(LOCAL, None, None, None, 10)} == {held, more}
