"""Review: groups of failures, one of them with all that can be done about it, and deactivated schedules."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from tests.browser.nets import Watch, barriers, refreshed, settled, told
from tests.browser.world import World


def fail(world: World, text: str, count: int) -> list[int]:
    """Items that are in review because of this."""
    with world.past(hours=1):
        return [world.app.put("echo", text=f"broken: {text}", password="sesame").id for _ in range(count)]


def test_failures_are_grouped_and_inspected(page: Page, world: World) -> None:
    page.goto("/review")
    expect(page.get_by_text("Nothing is in review.")).to_be_visible()
    fail(world, "no such shelf", 3)
    fail(world, "the printer is out of paper", 2)
    refreshed(page)
    grid = page.get_by_role("grid", name="Groups of failures")
    expect(grid.get_by_role("row")).to_have_count(3)
    expect(page.get_by_text("5 items in 2 groups")).to_be_visible()
    largest = grid.get_by_role("row", name=re.compile("no such shelf"))
    expect(largest.get_by_role("img", name="Given up in the last 24 hours: 3")).to_be_visible()
    barriers(settled(page))
    largest.get_by_role("link").click()

    expect(page.get_by_role("heading", name="broken: no such shelf", level=1)).to_be_visible()
    expect(page.get_by_label("Error of a sample")).to_contain_text("broken: no such shelf")
    expect(page.get_by_role("grid", name="Items of this group").get_by_role("row")).to_have_count(4)
    barriers(settled(page))
    page.get_by_label("A note about this group").fill("Bob builds a shelf.")
    page.get_by_role("button", name="Write").click()
    told(page, "Noted.")
    expect(page.get_by_role("region", name="Notes")).to_contain_text("Bob builds a shelf.")
    page.reload()
    expect(page.get_by_role("region", name="Notes")).to_contain_text("Bob builds a shelf.")


def test_one_is_edited_with_its_difference_and_tried_again(page: Page, world: World) -> None:
    first, *_ = fail(world, "no such shelf", 3)
    page.goto("/review")
    page.get_by_role("link", name="broken: no such shelf").click()
    grid = page.get_by_role("grid", name="Items of this group")
    grid.get_by_role("checkbox", name=f"Select {first}").click()
    page.get_by_role("button", name="Edit", exact=True).click()
    dialog = page.get_by_role("dialog", name=f"Edit item {first}")
    dialog.get_by_label("Arguments").fill("{")
    expect(dialog.get_by_role("alert")).to_contain_text("not JSON")
    expect(dialog.get_by_role("button", name="Save", exact=True)).to_be_disabled()
    dialog.get_by_label("Arguments").fill('{"text": "mended", "note": "", "password": "***"}')
    difference = dialog.get_by_role("group", name="Difference")
    expect(difference).to_contain_text(re.compile(r'-\s+"text": "broken: no such shelf", \(removed\)'))
    expect(difference).to_contain_text(re.compile(r'\+\s+"text": "mended", \(added\)'))
    barriers(page)
    dialog.get_by_role("button", name="Save and try again").click()
    told(page, f"Item {first} is changed and tried again.")
    expect(grid.get_by_role("row")).to_have_count(3)
    world.work()
    story = world.app.read.item(first)
    assert story.state == "done"
    assert story.result == {"text": "mended", "password": "sesame"}, "what was masked stayed as it was"


def test_a_canary_a_selection_and_then_the_whole_group(page: Page, world: World) -> None:
    ids = fail(world, "no such shelf", 6)
    page.goto("/review")
    page.get_by_role("link", name="broken: no such shelf").click()
    grid = page.get_by_role("grid", name="Items of this group")
    expect(grid.get_by_role("row")).to_have_count(7)
    page.get_by_role("button", name="Try one").click()
    told(page, "is tried again. See how it ends")
    expect(grid.get_by_role("row")).to_have_count(6)

    boxes = grid.get_by_role("checkbox")
    boxes.nth(0).click()
    page.get_by_role("button", name="Retry", exact=True).click()
    told(page, "1 item tried again.")
    expect(grid.get_by_role("row")).to_have_count(5)
    boxes.nth(0).click()
    page.get_by_role("button", name="Discard", exact=True).click()
    dialog = page.get_by_role("dialog", name="Discard 1 item?")
    dialog.get_by_label("Type discard to confirm").fill("discard")
    dialog.get_by_role("button", name="Discard").click()
    told(page, "1 item discarded.")
    expect(page.get_by_role("main")).to_contain_text(re.compile("Items ?3"))

    page.get_by_role("button", name="Revive all").click()
    dialog = page.get_by_role("dialog", name="Revive 3 items")
    dialog.get_by_label("Items per second").fill("1000")
    dialog.get_by_label("Reason").fill("there is a shelf now")
    barriers(page)
    dialog.get_by_role("button", name="Revive").click()
    progress = page.get_by_role("group", name="Revive the group")
    expect(progress).to_contain_text("0 revived, 0 of 3 looked at")
    world.work()
    expect(progress).to_contain_text("3 revived")
    expect(progress).to_contain_text("done")
    states = [world.app.read.item(each).state for each in ids]
    assert states.count("cancelled") + states.count("failed") >= 1, "what was discarded stays out"


def test_a_group_is_redirected_or_discarded_or_its_act_is_stopped(page: Page, world: World, watch: Watch) -> None:
    watch.expect("status of 404")  # a group is gone when nothing of it is in review
    ids = fail(world, "no such shelf", 2)
    page.goto("/review")
    page.get_by_role("link", name="broken: no such shelf").click()
    page.get_by_role("button", name="Redirect").click()
    dialog = page.get_by_role("dialog", name="Redirect 2 items")
    dialog.get_by_label("Queue").fill("echo/elsewhere")
    dialog.get_by_role("button", name="Redirect").click()
    progress = page.get_by_role("group", name="Revive the group")
    expect(progress).to_contain_text("running")
    progress.get_by_role("button", name="Stop").click()
    told(page, "Stopped.")
    expect(progress).to_contain_text("cancelled")

    page.get_by_role("button", name="Redirect").click()
    dialog.get_by_label("Queue").fill("echo/elsewhere")
    dialog.get_by_role("button", name="Redirect").click()
    expect(progress).to_have_count(2)
    world.work()
    assert {world.app.read.item(each).queue for each in ids} == {"echo/elsewhere"}

    expect(page.get_by_role("button", name="Discard all")).to_be_visible()
    page.get_by_role("button", name="Discard all").click()
    dialog = page.get_by_role("dialog", name="Discard 2 items")
    expect(dialog.get_by_role("button", name="Discard")).to_be_disabled()
    dialog.get_by_label("Type 2 to confirm").fill("2")
    dialog.get_by_role("button", name="Discard").click()
    expect(page.get_by_role("group", name="Discard the group")).to_contain_text("running")
    world.work()
    refreshed(page)
    expect(page.get_by_role("heading", name="This group is empty")).to_be_visible()


def test_deactivated_schedules_are_reactivated_by_cause(page: Page, world: World) -> None:
    with world.past(hours=3):
        for n in range(3):
            world.app.schedules.create("fragile", "every 10m", {"source": f"feed {n}"}, key=f"feed {n}")
    page.goto("/review")
    page.get_by_role("navigation", name="What is in review").get_by_role("link", name="Deactivated schedules").click()
    cause = page.get_by_role("region", name="ConnectionError: feed # does not answer").first
    expect(cause.get_by_role("row")).to_have_count(4)
    barriers(settled(page))
    cause.get_by_role("button", name="Reactivate feed 1").click()
    told(page, "1 schedule reactivated.")
    cause.get_by_role("button", name="Reactivate all 2").click()
    page.get_by_role("dialog").get_by_role("button", name="Reactivate 2").click()
    told(page, "2 schedules reactivated.")
    expect(page.get_by_text("No schedule is deactivated.")).to_be_visible()
