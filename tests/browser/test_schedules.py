"""Schedules: their list, one of them with all that can be done to it, a new one, and the slots of rings."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from duly.core.policy.recur import Slots
from duly.verbs import LOCAL
from tests.browser.nets import PAINTED, Watch, barriers, refreshed, settled, told
from tests.browser.world import World


def test_schedules_are_found_and_acted_on_together(page: Page, world: World) -> None:
    page.goto("/schedules?task=echo")
    expect(page.get_by_text("No schedule fits.")).to_be_visible()
    world.fill_schedules()
    page.reload()
    grid = page.get_by_role("grid", name="Schedules")
    expect(grid.get_by_role("row", name=re.compile("morning report"))).to_contain_text(
        "every day at 02:30 (Europe/Zagreb)"
    )
    barriers(settled(page))
    expect(grid.get_by_role("row")).to_have_count(5)
    page.get_by_role("navigation", name="States").get_by_role("link", name="Paused").click()
    expect(grid.get_by_role("row")).to_have_count(2)
    expect(grid.get_by_role("row").nth(1)).to_contain_text("closing time")
    page.get_by_role("button", name="Remove State paused").click()
    page.get_by_label("Search and filter").fill("Beat")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("keyContains=Beat"))
    expect(grid.get_by_role("row")).to_have_count(2)
    expect(grid.get_by_role("row").nth(1)).to_contain_text("heartbeat")
    page.get_by_role("button", name="Remove Key contains Beat").click()
    page.get_by_label("Order").select_option("next first")
    expect(page).to_have_url(re.compile("sort=next"))
    page.evaluate(PAINTED)
    settled(page)
    times = grid.locator("time").evaluate_all("(times) => times.map((time) => time.dateTime)")
    assert len(times) >= 3
    assert times == sorted(times)
    expect(grid.get_by_role("row").nth(2)).not_to_contain_text("closing time")
    page.get_by_role("link", name="clear all").click()

    for key in ("heartbeat", "stand-up"):
        grid.get_by_role("row", name=re.compile(key)).get_by_role("checkbox").click()
    page.get_by_role("button", name="Pause", exact=True).click()
    told(page, "2 schedules paused.")
    expect(grid.get_by_role("row", name=re.compile("paused"))).to_have_count(3)
    grid.get_by_role("row", name=re.compile("heartbeat")).get_by_role("checkbox").click()
    page.get_by_role("button", name="Remove", exact=True).click()
    dialog = page.get_by_role("dialog", name="Remove 1 schedule")
    expect(dialog.get_by_role("button", name="Remove")).to_be_disabled()
    dialog.get_by_label("Type 1 to confirm").fill("1")
    dialog.get_by_role("button", name="Remove").click()
    told(page, "1 schedule removed.")
    expect(grid.get_by_role("link", name="heartbeat")).to_have_count(0)


def test_one_schedule_is_told_paused_run_edited_and_removed(page: Page, world: World, watch: Watch) -> None:
    watch.expect("status of 422")  # a rule and a zone that do not exist
    made = world.app.schedules.create("echo", "daily 02:30", {"text": "hello"}, key="report", zone="Europe/Zagreb")
    page.goto(f"/schedules/{made.id}")
    expect(page.get_by_role("heading", name="report", level=1)).to_be_visible()
    expect(page.get_by_text("every day at 02:30 (Europe/Zagreb)")).to_be_visible()
    expect(page.get_by_role("list", name="Next runs").get_by_role("listitem")).to_have_count(5)
    expect(page.get_by_role("list", name="Next runs")).to_contain_text("02:30:00")
    barriers(settled(page))

    page.get_by_role("button", name="Run now").click()
    history = page.get_by_role("region", name="History").last
    expect(history).to_contain_text("waiting")
    world.work()
    refreshed(page)
    expect(history).to_contain_text("done")

    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_text("Occurrences missed meanwhile are not made up for.")).to_be_visible()
    page.locator(".toasts").get_by_role("button", name="Undo").click()
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    page.get_by_role("button", name="Pause").click()
    page.get_by_role("button", name="Resume").click()
    told(page, "report goes on.")

    page.get_by_role("button", name="Edit").click()
    dialog = page.get_by_role("dialog", name="Edit report")
    preview = dialog.get_by_role("status", name="Preview")
    expect(preview.get_by_role("listitem")).to_have_count(5)
    barriers(page)
    dialog.get_by_label("Rule", exact=True).fill("daily 25:00")
    expect(preview).to_contain_text("rule")
    dialog.get_by_role("button", name="every 15m").click()
    expect(preview).to_contain_text("every 15 minutes")
    dialog.get_by_label("Zone").fill("Europe/Atlantis")
    expect(preview).to_contain_text("zone")
    dialog.get_by_label("Zone").fill("UTC")
    expect(preview.get_by_role("listitem")).to_have_count(5)
    dialog.get_by_label("text", exact=True).fill("good morning")
    dialog.get_by_text("When it is late").click()
    dialog.get_by_label("While the last one still runs").select_option("skip")
    dialog.get_by_role("button", name="Save").click()
    expect(page.get_by_text("skips while the last one is live")).to_be_visible()
    expect(page.get_by_role("group", name="Arguments")).to_contain_text("good morning")
    assert world.app.schedules.get(made.id).rule == "every 15m"
    expect(page.get_by_role("region", name="Audit").last).to_contain_text("schedule.changed")

    page.get_by_role("button", name="Remove").click()
    page.get_by_label("Type report to confirm").fill("report")
    page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    told(page, "report is removed.")
    expect(page).to_have_url(re.compile("/schedules$"))


def test_a_deactivated_schedule_says_why_and_is_reactivated(page: Page, world: World) -> None:
    with world.past(hours=2):
        world.fill_schedules()
    page.goto("/schedules?state=broken")
    page.get_by_role("link", name="fragile feed").click()
    expect(page.get_by_text("It failed 3 times in a row: ConnectionError: feed does not answer.")).to_be_visible()
    page.get_by_role("button", name="Reactivate").click()
    told(page, "fragile feed is active again.")
    expect(page.get_by_role("list", name="Next runs").get_by_role("listitem")).to_have_count(5)


def test_the_days_when_clocks_change_are_noted(page: Page, world: World) -> None:
    made = world.app.schedules.create(
        "echo", "yearly 03-28 02:30", {"text": "hello"}, key="lost hour", zone="Europe/Zagreb"
    )
    page.goto(f"/schedules/{made.id}")
    runs = page.get_by_role("list", name="Next runs")
    expect(runs.get_by_role("listitem").first).to_contain_text("2027")
    expect(runs).to_contain_text("does not exist that day")


def test_a_new_schedule_is_made_from_the_signature_of_its_task(page: Page, world: World) -> None:
    page.goto("/schedules")
    expect(page.get_by_text("There is no schedule yet.")).to_be_visible()
    page.get_by_role("button", name="New schedule").click()
    dialog = page.get_by_role("dialog", name="New schedule")
    expect(dialog.get_by_role("button", name="Create")).to_be_disabled()
    dialog.get_by_label("Task", exact=True).select_option("print_label")
    expect(dialog.get_by_text("the first printer is always jammed")).to_be_visible()
    dialog.get_by_label("Key").fill("labels")
    dialog.get_by_role("button", name="weekly mon,fri 08:00").click()
    dialog.get_by_label("Zone").fill("America/New_York")
    expect(dialog.get_by_role("status", name="Preview")).to_contain_text("Monday")
    dialog.get_by_label("parcel").fill("P-1")
    dialog.get_by_label("copies").fill("9007199254740993")
    dialog.get_by_label("urgent").select_option("true")
    barriers(page)
    dialog.get_by_role("button", name="Create").click()
    expect(page.get_by_role("heading", name="labels", level=1)).to_be_visible()
    arguments = page.get_by_role("group", name="Arguments")
    expect(arguments).to_contain_text("9007199254740993")
    expect(arguments).to_contain_text("true")
    (made,) = world.app.internals.verbs.schedules.page(task="print_label")
    assert (made.rule, made.zone) == ("weekly mon,fri 08:00", "America/New_York")


def test_slots_show_their_members_and_what_a_rebalance_would_move(page: Page, world: World) -> None:
    world.app.schedules.create_many("echo", Slots(6), [{"key": f"s-{n}", "args": {"text": "hello"}} for n in range(12)])
    seated = world.app.internals.verbs.schedules.page(ring="echo", slot=2, most=9)
    world.app.internals.verbs.schedules.remove(LOCAL, *(each.id for each in seated))
    page.goto("/schedules")
    page.get_by_role("navigation", name="Views").get_by_role("link", name="Slots").click()
    expect(page.get_by_text("10 active members in 6 slots: at least 0, at most 2 in one.")).to_be_visible()
    moves = page.get_by_role("region", name="Moves in echo")
    expect(moves.get_by_role("row")).to_have_count(2)
    barriers(settled(page))
    page.get_by_role("link", name="2 members of slot 0").click()
    expect(page.get_by_role("grid", name="Schedules").get_by_role("row")).to_have_count(3)
    expect(page.get_by_role("button", name="Remove Ring echo")).to_be_visible()
