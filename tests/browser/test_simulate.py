"""Simulate: days in virtual time, from a form to curves and plain words."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from tests.browser.nets import barriers, settled

# Notes what is written on canvases: the axes of charts.
DRAWN = """
window.drawn = [];
const plain = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (text, ...at) {
    window.drawn.push(text);
    plain.call(this, text, ...at);
};
"""


def test_days_are_simulated_from_the_page(page: Page) -> None:
    page.add_init_script(DRAWN)
    page.goto("/simulate")
    expect(page.get_by_text("Nothing was simulated yet.")).to_be_visible()
    barriers(settled(page))
    page.get_by_label("App", exact=True).select_option("birthdays")
    expect(page.get_by_text("duly simulate birthdays")).to_be_visible()
    page.get_by_label("App", exact=True).select_option("reminders")
    expect(page.get_by_label("Reminders")).to_have_value("1000")
    page.get_by_label("App", exact=True).select_option("catalog")
    page.get_by_label("Days").fill("1")
    page.get_by_label("Products").fill("20")
    page.get_by_label("Calls that fail (%)").fill("10")
    page.get_by_role("button", name="Simulate").click()
    expect(page.get_by_role("region", name="In plain words").get_by_role("listitem").first).to_be_visible(
        timeout=120_000
    )
    ends = page.get_by_role("group", name="Where everything that was planned ended")
    expect(ends).to_contain_text("Planned20")
    for name in ("Done in time", "Done late", "In review", "Deactivated", "Skipped", "Still failing", "Still waiting"):
        expect(ends.get_by_text(name, exact=True)).to_be_visible()
    expect(ends).to_contain_text("more than 1 h after their time")
    curves = page.get_by_role("region", name="Curves").get_by_role("figure")
    expect(curves.first).to_be_visible()
    times = page.get_by_role("banner").get_by_label("Times")
    for choice, said in (("local", "01:00"), ("utc", "00:00"), ("relative", " ago")):
        times.select_option(choice)
        page.evaluate("() => { window.drawn = []; }")
        page.set_viewport_size({"width": 1400 if choice == "utc" else 1300, "height": 900})
        page.wait_for_function("(said) => window.drawn.some((text) => text.includes(said))", arg=said)
    curves.first.get_by_role("button", name="Table").click()
    expect(curves.first.get_by_role("table")).to_contain_text("2026-01-01")
    barriers(settled(page))
    expect(page).to_have_url(re.compile("app=catalog&days=1&products=20"))
    page.reload()
    expect(page.get_by_label("Products")).to_have_value("20")


def test_what_cannot_be_simulated_is_refused(page: Page) -> None:
    page.goto("/simulate?days=99")
    page.get_by_role("button", name="Simulate").click()
    expect(page.get_by_text("Nothing was simulated yet.")).to_be_visible()
    assert page.get_by_label("Days").evaluate("(field) => field.validity.rangeOverflow")
