"""The catalog's screens: its day in a picture and in tables, its products and what people do about them, and plans."""

from __future__ import annotations

import re
from datetime import timedelta

from playwright.sync_api import Page, expect

from tests.browser.nets import Watch, barriers, refreshed, settled, still
from tests.browser.sites import NARROW, Site, Visits
from tests.browser.world import World


def test_the_day_is_a_picture_with_a_table_that_says_the_same(show: Page, showroom: Site) -> None:
    day = showroom.world.catalog.day()
    show.goto("/catalog")
    settled(show)
    picture = show.get_by_role("img", name=re.compile("Products synced over the day"))
    expect(picture).to_have_attribute("aria-label", re.compile("in 24 slots and 6 retry windows"))
    expect(show.get_by_role("meter", name="API calls used today")).to_be_visible()
    expect(show.get_by_role("link", name=re.compile("^deactivated"))).to_contain_text(str(day.statuses.deactivated))
    barriers(show)
    with still(show):
        show.get_by_role("button", name="Table", exact=True).click()
        slots = show.get_by_role("region", name="Slots of the day").get_by_role("row")
        expect(slots).to_have_count(25)
    assert [int(text) for text in slots.nth(1).locator("td.number").all_inner_texts()] == [
        getattr(day.slots[0], name) for name in ("planned", "done", "failed", "running", "waiting")
    ]
    windows = show.get_by_role("region", name="Retry windows of the day").get_by_role("row")
    expect(windows).to_have_count(7)
    expect(windows.nth(1)).to_contain_text("50")
    barriers(show)


def test_products_are_found_by_filters_that_are_in_the_address(show: Page, showroom: Site) -> None:
    deactivated = [product.sku for product in showroom.world.catalog.products(is_active=False)]
    assert deactivated, "some are, whatever the time of day"
    show.goto("/catalog?active=false")
    products = show.get_by_role("grid", name="Products")
    expect(products.get_by_role("link")).to_have_text(deactivated)
    show.get_by_role("button", name="Remove Active false").click()
    show.get_by_role("searchbox", name="Search and filter").fill("jar")
    show.keyboard.press("Enter")
    expect(products.get_by_role("link")).to_have_count(6)
    show.get_by_role("combobox", name="Status").select_option("success")
    expect(show).to_have_url(re.compile(r"/catalog\?q=jar&status=success$"))
    show.go_back()
    show.go_back()
    expect(show).to_have_url(re.compile(r"/catalog$"))


def test_a_product_is_published_synced_and_withdrawn(page: Page, world: World) -> None:
    page.goto("/catalog")
    expect(page.get_by_text("There are no products yet.")).to_be_visible()
    expect(page.get_by_text("duly products publish 65-12345-1 --user shop")).to_be_visible()
    page.get_by_role("button", name="Publish product").click()
    form = page.get_by_role("dialog", name="Publish a product")
    form.get_by_label("SKU").fill("65/12345 %1")
    form.get_by_label("User").fill("shop")
    barriers(page)
    form.get_by_role("button", name="Publish").click()
    expect(page.get_by_role("status").filter(has_text="65/12345 %1 is published: slot 0.")).to_be_visible()
    row = page.get_by_role("row").filter(has_text="65/12345 %1")
    expect(row).to_contain_text("pending")
    row.get_by_role("checkbox").check()
    page.get_by_role("button", name="Sync now").click()
    expect(page.get_by_text("1 product will be synced now.")).to_be_visible()
    world.work()
    refreshed(page)
    expect(row).to_contain_text("success")
    expect(row).to_contain_text("19.99")
    row.get_by_role("checkbox").check()
    page.get_by_role("button", name="Withdraw").click()
    sure = page.get_by_role("dialog", name="Withdraw 65/12345 %1")
    expect(sure.get_by_role("button", name="Withdraw")).to_be_disabled()
    sure.get_by_label("Type 65/12345 %1 to confirm").fill("65/12345 %1")
    sure.get_by_role("button", name="Withdraw").click()
    expect(page.get_by_text("There are no products yet.")).to_be_visible()
    assert world.catalog.products() == ()


def test_what_was_deactivated_is_reactivated_by_its_cause_or_one_by_one(page: Page, world: World) -> None:
    world.supplier.missing |= {"BOX-0", "BOX-1", "BOX-2"}
    with world.past(timedelta(days=4)):
        world.catalog.publish_many([{"user_id": "ana", "sku": f"BOX-{n}"} for n in range(4)])
    assert world.catalog.day().statuses.deactivated == 3
    world.supplier.missing.clear()
    page.goto("/catalog?active=false")
    page.get_by_role("row").filter(has_text="BOX-0").get_by_role("checkbox").check()
    page.get_by_role("button", name="Reactivate", exact=True).click()
    expect(page.get_by_text("1 product reactivated.")).to_be_visible()
    causes = page.get_by_role("region", name="Deactivated")
    causes.get_by_role("button", name=re.compile("Reactivate 2 products of .*BadEntry")).click()
    sure = page.get_by_role("dialog", name="Reactivate by cause")
    expect(sure).to_contain_text("2 products were deactivated by duly.apps.catalog.supplier.BadEntry")
    expect(sure.get_by_label("Sync now too")).to_be_checked()
    sure.get_by_role("button", name="Reactivate").click()
    expect(page.get_by_text("2 products reactivated.")).to_be_visible()
    expect(causes).to_have_count(0)
    expect(page.get_by_text("No product fits these filters.")).to_be_visible()
    world.work()
    assert {product.sync_status for product in world.catalog.products()} == {"success"}


def test_a_user_sees_and_publishes_their_own_products_only(guarded: Site, visit: Visits) -> None:
    guarded.world.catalog.publish("bob", "JAR-1", owner="bob")
    page = visit(guarded, user="ana")
    page.goto("/catalog")
    expect(page.get_by_text("There are no products yet.")).to_be_visible()
    page.get_by_role("button", name="Publish product").click()
    expect(page.get_by_label("User", exact=True)).to_have_count(0)
    page.get_by_label("SKU").fill("BOX-1")
    page.get_by_role("button", name="Publish", exact=True).click()
    expect(page.get_by_role("grid", name="Products").get_by_role("link")).to_have_text(["BOX-1"])


def test_a_plan_says_what_a_catalog_costs_and_what_gives_way_first(show: Page, watch: Watch) -> None:
    watch.expect("write: POST .*/api/plan,")  # which changes nothing
    show.goto("/plan")
    expect(show.get_by_role("status").filter(has_text="This fits.")).to_contain_text("from 5,701 products on")
    expect(show.get_by_text("26 of 120 calls")).to_be_visible()
    expect(show.get_by_role("img", name=re.compile("Calls from slot to slot"))).to_be_visible()
    expect(show.get_by_role("img", name=re.compile("Share of the allowed calls"))).to_be_visible()
    barriers(show)
    show.get_by_label("Products", exact=True).fill("40000")
    show.get_by_role("button", name="Calculate").click()
    expect(show.get_by_role("status").filter(has_text="This does not fit.")).to_be_visible()
    expect(show).to_have_url(re.compile("products=40000"))
    expect(show.get_by_role("region", name="Problems", exact=True)).to_contain_text(
        "a day has more calls than the limit allows"
    )
    sizes = show.get_by_role("region", name="Other sizes").get_by_role("row")
    expect(sizes.filter(has_text="10,000")).to_contain_text("increase the retry limit to 100")
    show.get_by_label("Products", exact=True).fill("5000")
    show.get_by_label("Calls that fail (%)").fill("10")
    show.get_by_role("button", name="Calculate").click()
    expect(show.get_by_role("status").filter(has_text="This does not fit.")).to_contain_text(
        "With 5,000 products, more products fail in a day (10.0%)"
    )
    expect(show.get_by_text("needed if 10.0 % of calls fail; windows take 300")).to_be_visible()
    expect(show).to_have_url(re.compile("fail=10"))
    show.set_viewport_size(NARROW)
    barriers(show)
