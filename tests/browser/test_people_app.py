"""The screen of people: who is greeted when in their own time, and how it went."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from tests.browser.nets import barriers, settled
from tests.browser.sites import NARROW, Site, Visits
from tests.browser.world import World


def test_someone_is_added_edited_seen_and_removed(page: Page, world: World) -> None:
    page.goto("/people")
    expect(page.get_by_text("There are no people yet.")).to_be_visible()
    page.get_by_role("button", name="Add person").click()
    form = page.get_by_role("dialog", name="Add a person")
    for label, text in (("Id", "user/4 %"), ("First name", "Ana"), ("Last name", "Horvat"), ("Birthday", "1990-03-15")):
        form.get_by_label(label, exact=True).fill(text)
    form.get_by_label("Time zone").select_option("Asia/Tokyo")
    barriers(page)
    form.get_by_role("button", name="Add").click()
    row = page.get_by_role("row").filter(has_text="Ana Horvat")
    expect(row).to_contain_text("15 March")
    expect(row).to_contain_text("03-15 09:00")
    barriers(page)
    row.get_by_role("link", name="Ana Horvat").click()
    expect(page.get_by_role("heading", name="Ana Horvat", level=1)).to_be_visible()
    page.get_by_role("button", name="Edit").click()
    form = page.get_by_role("dialog", name="Edit Ana Horvat")
    form.get_by_label("Last name").fill("Novak")
    form.get_by_label("Birthday").fill("02-29")
    form.get_by_label("Born on 29 February").select_option("mar1")
    form.get_by_role("button", name="Save").click()
    expect(page.get_by_role("heading", name="Ana Novak", level=1)).to_be_visible()
    expect(page.get_by_text("1 March")).to_be_visible()
    assert world.birthdays.get("user/4 %").leap == "mar1"
    page.get_by_role("button", name="Remove").click()
    sure = page.get_by_role("dialog", name="Remove Ana Novak")
    sure.get_by_label("Type user/4 % to confirm").fill("user/4 %")
    sure.get_by_role("button", name="Remove").click()
    expect(page.get_by_text("There are no people yet.")).to_be_visible()
    assert world.birthdays.list() == ()


def test_the_story_of_someone_tells_how_greetings_went(page: Page, world: World) -> None:
    world.birthdays.add("mika", "Mika", "Tanaka", "03-15", "Asia/Tokyo")
    schedule = world.app.schedules.find("birthday", "mika").id
    world.app.schedules.run_now(schedule)
    world.work()  # there is no webhook, so it fails
    page.goto("/people")
    people = page.get_by_role("grid", name="People")
    expect(people.get_by_role("link", name="Mika Tanaka")).to_be_visible()
    people.press("Enter")
    greetings = page.get_by_role("region", name="Greetings").last
    expect(greetings.get_by_role("row")).to_have_count(3)
    expect(greetings.get_by_role("row").nth(1)).to_contain_text("pending")
    expect(greetings.get_by_role("row").nth(2)).to_contain_text("birthdays_webhook_url: set the URL of the webhook")
    expect(greetings.get_by_role("link")).to_have_attribute("href", re.compile(r"/items/\d+$"))
    page.set_viewport_size(NARROW)
    barriers(page)


def test_an_admin_finds_the_people_of_users_who_see_their_own_only(guarded: Site, visit: Visits) -> None:
    for owner in ("ana", "bob"):
        guarded.world.birthdays.add("friend", f"Friend of {owner}", "Horvat", "12-24", "UTC", owner=owner)
    page = visit(guarded, user="ana")
    page.goto("/people")
    expect(page.get_by_role("grid", name="People").get_by_role("link")).to_have_text(["Friend of ana Horvat"])
    admin = visit(guarded, user="root")
    admin.goto("/people")
    admin.get_by_role("link", name="Friend of bob Horvat").click()
    settled(admin)
    expect(admin.get_by_role("heading", name="Friend of bob Horvat", level=1)).to_be_visible()
