"""Items: found by what is known of them, put from a form, selected and acted on, one by one or all that fit."""

from __future__ import annotations

import re
from datetime import timedelta

from playwright.sync_api import Page, expect

from duly.verbs import LOCAL
from tests.browser.nets import barriers, refreshed, settled, told
from tests.browser.sites import NARROW, Site, Visits
from tests.browser.world import World

ROWS = "Items"


def test_items_are_found_by_state_name_value_and_time(show: Page) -> None:
    show.goto("/items")
    grid = settled(show).get_by_role("grid", name=ROWS)
    expect(grid.get_by_role("row").nth(1)).to_contain_text("print_label")
    barriers(show)
    tabs = show.get_by_role("navigation", name="States")
    tabs.get_by_role("link", name="In review").click()
    expect(show).to_have_url(re.compile(r"state=failed"))
    expect(grid.get_by_role("row").nth(1)).to_contain_text("in review")
    search = show.get_by_role("searchbox", name="Search and filter")
    for text, chip in (
        ("task:echo", "Task: echo"),
        ("error:PRINTER", "Error: PRINTER"),
        ("text=broken: the printer is out of paper", "Value: text="),
    ):
        search.fill(text)
        search.press("Enter")
        expect(show.get_by_role("list", name="Filters in force")).to_contain_text(chip)
    expect(grid.get_by_role("row")).to_have_count(4)
    expect(show.get_by_text("No index answers this search")).to_be_visible()
    search.fill("two words")
    search.press("Enter")
    expect(show.get_by_role("alert")).to_contain_text("Type name:value")
    show.get_by_role("button", name="Remove Value").click()
    show.get_by_label("From", exact=True).fill("2099-01-01T00:00:00")
    expect(show.get_by_text("No item fits.")).to_be_visible()
    show.go_back()
    show.get_by_role("link", name="clear all").click()
    expect(show).to_have_url(re.compile(r"/items$"))


def test_items_fit_a_phone_and_the_keyboard(showroom: Site, visit: Visits) -> None:
    page = visit(showroom, viewport=NARROW, color_scheme="dark")
    page.goto("/items?state=failed")
    grid = settled(page).get_by_role("grid", name=ROWS)
    expect(grid.get_by_role("row").nth(1)).to_contain_text("in review")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "nothing is wider than the phone"
    barriers(page)
    for key in ("j", "j", "x", "k", "X"):
        page.keyboard.press(key)
    expect(page.get_by_text("2 selected")).to_be_visible()
    expect(page).to_have_url(re.compile(r"sel=\d+,\d+"))
    page.keyboard.press("Escape")
    expect(page.get_by_text("2 selected")).to_have_count(0)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text("Item")
    page.go_back()
    expect(grid.get_by_role("row").nth(1)).to_be_visible()


def test_pages_instead_of_scrolling(show: Page) -> None:
    show.goto("/items?view=paged&size=25")
    grid = settled(show).get_by_role("grid", name=ROWS)
    expect(grid.get_by_role("row")).to_have_count(26)
    first = grid.get_by_role("row").nth(1).inner_text()
    show.get_by_role("link", name="Next page").click()
    expect(grid.get_by_role("row").nth(1)).not_to_have_text(first)
    barriers(show)
    show.get_by_role("link", name="First page").click()
    expect(grid.get_by_role("row").nth(1)).to_contain_text(first.split()[0])


def test_an_item_is_put_from_a_form_of_its_task(page: Page, world: World) -> None:
    page.goto("/items")
    expect(settled(page).get_by_text("No items yet.")).to_be_visible()
    page.get_by_role("button", name="Put a new item").click()
    form = page.get_by_role("dialog", name="Put a new item")
    form.get_by_label("Task").select_option("print_label")
    expect(form).to_contain_text("4 tries")
    barriers(page)
    form.get_by_label("parcel").fill("P-1")
    form.get_by_label("copies").fill("many")
    form.get_by_role("button", name="Put", exact=True).click()
    assert not form.get_by_label("copies").evaluate("field => field.checkValidity()"), "it takes a whole number"
    form.get_by_label("urgent").select_option("yes")
    form.get_by_text("When, key, rank and tries").click()
    form.get_by_label("Or after seconds").fill("3600")
    form.get_by_label("Key", exact=True).fill("label-1")
    form.get_by_label("Tries").fill("7")
    form.get_by_label("copies").fill("12")
    form.get_by_role("button", name="Put", exact=True).click()
    told(page, "is put")
    expect(page.get_by_role("heading", level=1)).to_contain_text("print_label")
    (row,) = world.app.read.page()
    assert (row.args, row.key, row.max_attempts) == ({"parcel": "P-1", "copies": 12, "urgent": True}, "label-1", 7)
    assert row.due_at > world.app.clock.now() + timedelta(minutes=50)


def test_a_selection_is_cancelled_undone_retried_and_discarded(page: Page, world: World) -> None:
    later = world.app.clock.now() + timedelta(hours=1)
    ids = [world.app.task_named("echo").at(later).put(text=f"parcel {n}").id for n in range(6)]
    with world.past():
        failed = [world.app.put("echo", text="broken: no shelf").id for _ in range(2)]
    world.work()
    page.goto("/items?state=waiting")
    settled(page).get_by_role("checkbox", name=f"Select {ids[5]}").click()
    page.get_by_role("checkbox", name=f"Select {ids[2]}").click(modifiers=["Shift"])
    expect(page.get_by_text("4 selected")).to_be_visible()
    barriers(page)
    page.get_by_role("button", name="Cancel", exact=True).click()
    told(page, "4 items cancelled")
    assert {row.id for row in world.app.read.page(state="cancelled")} == set(ids[2:])
    page.get_by_role("button", name="Undo").click()
    told(page, "Undone")
    assert not world.app.read.page(state="cancelled")
    page.goto(f"/items?state=failed&sel={failed[0]}")
    settled(page).get_by_role("button", name="Retry", exact=True).click()
    told(page, "1 item tried again")
    assert world.app.read.item(failed[0]).state == "waiting"
    page.get_by_role("checkbox", name=f"Select {failed[1]}").click()
    page.get_by_role("button", name="Discard", exact=True).click()
    question = page.get_by_role("dialog", name="Discard 1 item?")
    expect(question.get_by_role("button", name="Discard")).to_be_disabled()
    question.get_by_label(re.compile("^Type")).fill("discard")
    question.get_by_label("Reason").fill("no such shelf")
    question.get_by_role("button", name="Discard").click()
    told(page, "1 item discarded")
    assert world.app.read.item(failed[1]).state == "cancelled"


def test_all_that_fit_are_cancelled_after_their_number_is_typed(page: Page, world: World) -> None:
    later = world.app.clock.now() + timedelta(hours=1)
    for n in range(130):
        world.app.task_named("echo").at(later).put(text=f"parcel {n}")
    keep = world.app.task_named("print_label").at(later).put(parcel="P-1").id
    page.goto("/items?state=waiting&task=echo")
    settled(page).get_by_label("Act on all that fit").select_option("cancel")
    question = page.get_by_role("dialog", name="Cancel all 130 that fit?")
    question.get_by_label(re.compile("^Type")).fill("129")
    expect(question.get_by_role("button", name="Cancel 130")).to_be_disabled()
    question.get_by_label(re.compile("^Type")).fill("130")
    barriers(page)
    with world.working():
        question.get_by_role("button", name="Cancel 130").click()
        expect(page.get_by_role("group", name=re.compile("^Cancel all"))).to_contain_text("130 cancelled")
        expect(page.get_by_text("No item fits.")).to_be_visible()
    assert world.app.read.item(keep).state == "waiting"


def test_new_items_are_counted_and_rows_stay_where_they_are(page: Page, world: World) -> None:
    later = world.app.clock.now() + timedelta(hours=1)
    first = world.app.task_named("echo").at(later).put(text="first").id
    page.goto("/items")
    grid = settled(page).get_by_role("grid", name=ROWS)
    expect(grid.get_by_role("row").nth(1)).to_contain_text(str(first))
    for n in range(3):
        world.app.task_named("echo").at(later).put(text=f"later {n}")
    refreshed(page)
    expect(page.get_by_role("button", name="3 new")).to_be_visible()
    expect(grid.get_by_role("row").nth(1)).to_contain_text(str(first))
    page.get_by_role("button", name="3 new").click()
    expect(grid.get_by_role("row").nth(1)).to_contain_text("later 2")


def test_people_see_their_own_items_only(guarded: Site, visit: Visits) -> None:
    world = guarded.world
    for name in ("ana", "bob"):
        world.fill_for(name)
    ana = visit(guarded, "ana")
    ana.goto("/items")
    grid = settled(ana).get_by_role("grid", name=ROWS)
    expect(grid.get_by_text("ana's letter")).to_be_visible()
    expect(grid.get_by_text("bob")).to_have_count(0)
    expect(ana.get_by_role("navigation", name="States").get_by_role("link", name="Waiting")).to_contain_text("1")
    expect(ana.get_by_role("columnheader", name="Owner")).to_have_count(0)
    root = visit(guarded, "root")
    root.goto("/items?userId=bob")
    expect(settled(root).get_by_role("grid", name=ROWS).get_by_text("bob's letter")).to_be_visible()
    expect(root.get_by_text("ana's letter")).to_have_count(0)
    mine = world.app.internals.verbs.items.put(LOCAL, world.app.task_named("echo").new(text="nobody's"))
    watch = visit.watch(ana)
    watch.expect("status of 404")
    ana.goto(f"/items/{mine.id}")
    expect(ana.get_by_role("alert")).to_contain_text("belongs to someone else")
