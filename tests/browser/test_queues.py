"""Queues, limits and workers: what one sees of them, and a hand on the brake."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from tests.browser.nets import Watch, barriers, refreshed, settled, told
from tests.browser.world import World


def test_queues_are_seen_paused_and_resumed(page: Page, world: World) -> None:
    page.goto("/queues")
    expect(page.get_by_text("No queue has any work.")).to_be_visible()
    with world.past(minutes=10):
        world.app.put("slow", n=1)
    for n in range(3):
        world.app.put("echo", text=f"hello {n}")
    world.app.task_named("echo").after(3_600).put(text="good night")
    refreshed(page)
    grid = page.get_by_role("grid", name="Queues")
    echo = grid.get_by_role("row", name=re.compile("echo"))
    expect(echo).to_contain_text("due")
    barriers(settled(page))
    echo.get_by_role("button", name="Pause echo").click()
    told(page, "echo is paused: no further item starts.")
    expect(echo).to_contain_text("paused")
    assert world.work() == 0
    page.locator(".toasts").get_by_role("button", name="Undo").click()
    expect(echo.get_by_role("button", name="Pause echo")).to_be_visible()

    echo.get_by_role("checkbox").click()
    page.get_by_role("button", name="Pause", exact=True).click()
    told(page, "1 queue paused.")
    echo.get_by_role("button", name="Resume echo").click()
    expect(echo.get_by_role("button", name="Pause echo")).to_be_visible()
    assert world.work() == 3
    refreshed(page)
    expect(echo).to_contain_text("idle")

    page.get_by_role("button", name="Pause by name").click()
    page.get_by_role("dialog").get_by_label("Queue").fill("not there yet")
    page.get_by_role("dialog").get_by_role("button", name="Pause").click()
    told(page, "not there yet")
    assert "not there yet" in {
        each["queue"] for each in world.app.read.queues(world.app.internals.telemetry.depths()) if each["paused"]
    }


def test_limits_are_changed_while_everything_runs(page: Page, world: World, watch: Watch) -> None:
    watch.expect("status of 422")  # a limit that cannot be read
    world.app.put("print_label", parcel="P-1")
    world.work()
    page.goto("/queues")
    page.get_by_role("navigation", name="Views").get_by_role("link", name="Limits").click()
    page.get_by_role("button", name="Set a limit").click()
    dialog = page.get_by_role("dialog", name="Set a limit")
    dialog.get_by_label("Limit").fill("supplier")
    dialog.get_by_label("Allowed").fill("many")
    dialog.get_by_role("button", name="Set").click()
    expect(dialog.get_by_role("alert")).to_contain_text("limit")
    dialog.get_by_label("Allowed").fill("2/1m")
    barriers(page)
    dialog.get_by_role("button", name="Set").click()
    told(page, "supplier now allows 2/1m.")
    row = page.get_by_role("grid", name="Limits").get_by_role("row", name=re.compile("supplier"))
    expect(row).to_contain_text("2 in 1 min")
    barriers(settled(page))
    row.get_by_role("button", name="Change supplier").click()
    dialog = page.get_by_role("dialog", name="Change supplier")
    dialog.get_by_label("Allowed").fill("4")
    dialog.get_by_role("button", name="Set").click()
    expect(row).to_contain_text("4 at once")
    row.get_by_role("button", name="Clear supplier").click()
    told(page, "supplier is as in the code again.")
    expect(row).to_contain_text("as in the code")
    page.locator(".toasts").get_by_role("button", name="Undo").click()
    expect(row).to_contain_text("4 at once")


def test_workers_show_their_heartbeats_and_what_they_run(page: Page, world: World) -> None:
    page.goto("/workers")
    expect(page.get_by_text("No worker is running.")).to_be_visible()
    with world.working():
        page.reload()
        row = page.get_by_role("grid", name="Workers").get_by_role("row").nth(1)
        expect(row).to_contain_text("alive")
        expect(row).to_contain_text("echo")
        barriers(settled(page))


def test_what_was_done_lately_is_a_line(page: Page, world: World) -> None:
    with world.working():
        world.app.put("echo", text="hello").wait(60)
    world.app.task_named("echo").after(3_600).put(text="good night")
    page.goto("/queues")
    row = page.get_by_role("grid", name="Queues").get_by_role("row", name=re.compile("echo"))
    expect(row.get_by_role("img", name="Done in the last hour: 1")).to_be_visible()
