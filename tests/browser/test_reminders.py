"""The screen of reminders: who is called when, what became of it, and the provider's id of the call."""

from __future__ import annotations

import re
from datetime import timedelta

from playwright.sync_api import Page, expect

from tests.browser.nets import Watch, barriers, refreshed, settled
from tests.browser.sites import NARROW, Site, Visits
from tests.browser.world import World


def test_a_reminder_is_scheduled_moved_called_and_has_its_call_id(page: Page, world: World, watch: Watch) -> None:
    page.goto("/reminders")
    expect(page.get_by_text("There are no reminders yet.")).to_be_visible()
    page.get_by_role("button", name="Schedule reminder").click()
    form = page.get_by_role("dialog", name="Schedule a reminder")
    watch.expect("status of 422")
    form.get_by_label("Phone").fill("none")
    form.get_by_label("Message").fill("Dentist at 9")
    form.get_by_label("When (Europe/Zagreb)").fill("2031-12-01T09:00:00")
    barriers(page)
    form.get_by_role("button", name="Schedule").click()
    expect(form.get_by_role("alert")).to_contain_text("phone: must be + and 5 to 15 digits")
    form.get_by_label("Phone").fill("+385 1 234")
    form.get_by_role("button", name="Schedule").click()
    row = page.get_by_role("row").filter(has_text="Dentist at 9")
    expect(row).to_contain_text("2031-12-01 09:00:00")
    expect(row).to_contain_text("scheduled")
    row.get_by_role("link").click()
    page.get_by_role("button", name="Change").click()
    form = page.get_by_role("dialog", name=re.compile("Change reminder"))
    form.get_by_label("When").fill("2031-12-01T10:30:00")
    form.get_by_label("Message").fill("Dentist at half past ten")
    form.get_by_role("button", name="Save").click()
    expect(page.get_by_text("2031-12-01 10:30:00")).to_be_visible()
    expect(page.get_by_text("Dentist at half past ten")).to_be_visible()
    (reminder,) = world.reminders.list()
    assert f"{reminder.date_time_utc:%Y-%m-%d %H:%M}" == "2031-12-01 09:30"
    page.get_by_role("button", name="Call now").click()
    expect(page.get_by_text(f"Reminder {reminder.id} is called now.")).to_be_visible()
    world.work()
    refreshed(page)
    expect(page.get_by_text("call-1", exact=True)).to_be_visible()
    expect(page.locator(".state")).to_contain_text("completed")
    barriers(page)


def test_the_story_tells_of_tries_and_a_cancelled_one_is_called_after_all(page: Page, world: World) -> None:
    world.phones.statuses["+3851503"] = 503
    placed = world.reminders.schedule("+385 1 503", "The provider is away", at=world.app.clock.now())
    world.work()
    page.goto(f"/reminders/{placed.id}")
    tries = page.get_by_role("region", name="Tries", exact=True).get_by_role("row")
    expect(tries).to_have_count(2)
    expect(tries.nth(1)).to_contain_text("answered 503")
    expect(page.locator(".state")).to_contain_text("waits for a retry")
    page.get_by_role("button", name="Cancel").click()
    sure = page.get_by_role("dialog", name=f"Cancel reminder {placed.id}")
    sure.get_by_label("Reason").fill("she came by")
    sure.get_by_role("button", name="Cancel it").click()
    expect(page.locator(".state")).to_contain_text("cancelled")
    assert any("she came by" in str(line.details) for line in world.app.internals.verbs.audit.page())
    page.get_by_role("button", name="Call now").click()
    expect(page.locator(".state")).to_contain_text("scheduled")
    page.set_viewport_size(NARROW)
    barriers(page)


def test_reminders_are_found_by_status_and_time_and_acted_on_together(page: Page, world: World) -> None:
    now = world.app.clock.now()
    for hours in range(1, 5):
        world.reminders.schedule("+385 1 234", f"In {hours} hours", at=now + timedelta(hours=hours))
    world.reminders.cancel(world.reminders.schedule("+385 1 235", "Never mind", at=now).id)
    page.goto("/reminders?state=scheduled")
    rows = page.get_by_role("grid", name="Reminders").get_by_role("row")
    expect(rows).to_have_count(5)
    page.get_by_role("link", name="Cancelled").click()
    expect(rows.filter(has_text="Never mind")).to_be_visible()
    page.get_by_role("link", name="Scheduled").click()
    first = rows.filter(has_text="In 4 hours").get_by_role("checkbox")
    first.check()
    rows.filter(has_text="In 2 hours").get_by_role("checkbox").click(modifiers=["Shift"])
    expect(page.get_by_text("3 selected")).to_be_visible()
    expect(page).to_have_url(re.compile("sel="))
    page.get_by_role("button", name="Cancel", exact=True).click()
    sure = page.get_by_role("dialog", name="Cancel 3 reminders")
    sure.get_by_label("Type 3 to confirm").fill("3")
    sure.get_by_role("button", name="Cancel them").click()
    expect(page.get_by_text("3 reminders cancelled.")).to_be_visible()
    assert [reminder.message for reminder in world.reminders.list(status="scheduled")] == ["In 1 hours"]
    barriers(page)


def test_a_user_does_not_reach_the_reminders_of_another(guarded: Site, visit: Visits) -> None:
    at = guarded.world.app.clock.now() + timedelta(hours=1)
    other = guarded.world.reminders.schedule("+385 1 234", "Bob's", at=at, owner="bob")
    page = visit(guarded, user="ana")
    page.goto("/reminders")
    expect(page.get_by_text("There are no reminders yet.")).to_be_visible()
    watch = visit.watch(page)
    watch.expect("status of 404")
    page.goto(f"/reminders/{other.id}")
    settled(page)
    expect(page.get_by_role("alert")).to_contain_text("belongs to someone else")
