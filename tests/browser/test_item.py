"""One item: its story, its values, and every act on it."""

from __future__ import annotations

import re
from datetime import timedelta

from playwright.sync_api import Page, expect

from duly.verbs import LOCAL
from tests.browser.nets import Watch, barriers, refreshed, settled, told
from tests.browser.sites import NARROW, Site, Visits
from tests.browser.world import World

BIG = 12345678901234567890


def test_the_story_of_an_item_has_its_tries_with_their_tracebacks(show: Page, showroom: Site) -> None:
    failed = next(row for row in showroom.world.app.read.page(state="failed", task="print_label"))
    show.goto(f"/items/{failed.id}")
    story = settled(show).get_by_role("region", name="Timeline")
    expect(story).to_contain_text("try 4 failed on virtual")
    expect(story).to_contain_text("given up: in review")
    story.get_by_text("Traceback").first.click()
    expect(story.get_by_text("raise OSError").first).to_be_visible()
    expect(show.get_by_role("group", name="Arguments")).to_contain_text("P-00")
    expect(show.get_by_role("link", name="failures like this")).to_have_attribute(
        "href", re.compile("^/review/[0-9a-f]+$")
    )
    show.get_by_role("button", name="Copy the execution key").click()
    expect(show.get_by_role("button", name="Copied: Copy the execution key")).to_be_visible()
    barriers(show)


def test_an_item_leads_to_its_schedule_and_its_job(showroom: Site, visit: Visits) -> None:
    page = visit(showroom, viewport=NARROW, color_scheme="dark")
    app = showroom.world.app
    made = next(row for row in app.read.page() if row.schedule_id and row.task == "echo")
    page.goto(f"/items/{made.id}")
    expect(settled(page).get_by_role("link", name="heartbeat")).to_have_attribute(
        "href", f"/schedules/{made.schedule_id}"
    )
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "nothing is wider than the phone"
    barriers(page)
    row = app.internals.verbs.job_rows.by_number(LOCAL, 1)[0]
    page.goto(f"/items/{row.id}")
    expect(settled(page).get_by_role("link", name="job 1")).to_be_visible()


def test_an_item_is_edited_with_a_difference_and_run_at_another_time(page: Page, world: World, watch: Watch) -> None:
    watch.expect("status of 422")
    later = world.app.clock.now() + timedelta(hours=1)
    item = world.app.task_named("echo").at(later).put(text="parcel", password="hidden words").id
    page.goto(f"/items/{item}")
    values = settled(page).get_by_role("region", name="Values")
    expect(values).not_to_contain_text("hidden words")
    values.get_by_role("button", name="Reveal masked values").click()
    expect(values).to_contain_text("hidden words")
    values.get_by_role("button", name="Mask again").click()
    page.get_by_role("button", name="Edit", exact=True).click()
    form = page.get_by_role("dialog", name=f"Edit item {item}")
    expect(form.get_by_role("button", name="Save")).to_be_disabled()
    form.get_by_label("Arguments").fill("{")
    expect(form.get_by_role("alert")).to_contain_text("not JSON")
    form.get_by_label("Arguments").fill('{"text": 5, "password": "***"}')
    form.get_by_role("button", name="Save").click()
    expect(form.get_by_role("alert")).to_contain_text("text")
    form.get_by_label("Arguments").fill('{"text": "letter", "password": "***"}')
    form.get_by_label("Rank").fill("-3")
    difference = form.get_by_role("group", name="Difference")
    expect(difference).to_contain_text('- "text": "parcel"')
    expect(difference).to_contain_text('+ "text": "letter"')
    barriers(page)
    form.get_by_role("button", name="Save").click()
    told(page, "is changed")
    row = world.app.read.item(item)
    assert (row.args["text"], row.args["password"], row.rank) == ("letter", "hidden words", -3)
    expect(page.get_by_role("region", name="Timeline")).to_contain_text("edited by local")
    page.get_by_role("button", name="Run at…").click()
    question = page.get_by_role("dialog", name="Try it at a time")
    question.get_by_label("At").fill("2031-07-01T12:00:00")
    question.get_by_role("button", name="Try it then").click()
    told(page, "is tried then")
    assert world.app.read.item(item).due_at.isoformat() == "2031-07-01T10:00:00+00:00"
    page.get_by_role("button", name="Run now").click()
    told(page, "is tried now")
    assert world.app.read.item(item).due_at <= world.app.clock.now()


def test_an_item_is_cancelled_undone_put_again_and_discarded(page: Page, world: World) -> None:
    item = world.app.task_named("echo").after(3_600).put(text="broken: no shelf").id
    page.goto(f"/items/{item}")
    settled(page).get_by_role("button", name="Cancel", exact=True).click()
    told(page, "is cancelled")
    expect(page.get_by_role("region", name="Timeline")).to_contain_text("cancelled by local")
    page.get_by_role("button", name="Undo").click()
    told(page, "is tried now")
    expect(page.get_by_role("button", name="Run now")).to_be_visible()
    world.work()
    refreshed(page)
    expect(page.get_by_role("button", name="Retry now")).to_be_visible()
    page.get_by_role("button", name="Again as new").click()
    question = page.get_by_role("dialog", name="Put it again as a new item")
    question.get_by_label("Key").fill("again-1")
    barriers(page)
    question.get_by_role("button", name="Put again").click()
    expect(page.get_by_role("heading", level=1)).not_to_contain_text(f"Item {item}")
    made = world.app.read.page(state="waiting")[0]
    assert (made.args["text"], made.key) == ("broken: no shelf", "again-1")
    page.go_back()
    settled(page).get_by_role("button", name="Retry now").click()
    # Not its message: that of the retry before may still be shown.
    expect(page.get_by_role("button", name="Run now")).to_be_visible()
    world.work()
    refreshed(page).get_by_role("button", name="Discard").click()
    question = page.get_by_role("dialog", name=f"Discard item {item}?")
    question.get_by_label(re.compile("^Type")).fill("discard")
    question.get_by_role("button", name="Discard").click()
    told(page, "is discarded")
    assert world.app.read.item(item).state == "cancelled"


def test_numbers_are_shown_with_all_their_digits(page: Page, world: World) -> None:
    @world.app.task
    def measure(value: int) -> dict[str, int]:
        return {"value": value}

    item = world.app.put("measure", value=BIG).id
    world.work()
    page.goto(f"/items/{item}")
    expect(settled(page).get_by_role("group", name="Result")).to_contain_text(str(BIG))
