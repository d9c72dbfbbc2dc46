"""The API's own pages."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from tests.browser.nets import Watch, barriers, settled


def test_every_operation_is_told_and_found(show: Page) -> None:
    show.goto("/api/docs")
    settled(show)
    document = show.request.get("/api/openapi.json").json()
    operations = [(path, method) for path, methods in document["paths"].items() for method in methods]
    expect(show.get_by_role("status").filter(has_text="operations")).to_contain_text(f"of {len(operations)} operations")
    topics = show.get_by_role("navigation", name="Topics").get_by_role("link")
    shown = 0
    for topic in topics.all():
        topic.click()
        expect(topic).to_have_attribute("aria-current", "page")
        shown += show.get_by_role("article").count()
    assert shown == len(operations)
    barriers(show)
    show.keyboard.press("/")
    show.keyboard.type("post schedules preview")
    expect(show.get_by_role("article")).to_have_count(1)
    expect(show).to_have_url(re.compile(r"q=post\+schedules\+preview"))
    article = show.get_by_role("article")
    expect(article).to_contain_text("weekly mon,fri 08:00")
    expect(article).to_contain_text("curl -X POST")
    expect(article.get_by_text("Try it")).to_have_count(0)
    show.get_by_label("Search the API").fill("no such thing")
    expect(show.get_by_text("No operation matches.")).to_be_visible()


def test_what_only_reads_can_be_tried(show: Page) -> None:
    show.goto("/api/docs?q=list_schedules")
    article = show.get_by_role("article")
    article.get_by_text("Try it").click()
    article.get_by_label("state", exact=True).fill("paused")
    article.get_by_role("button", name="Send").click()
    expect(article.get_by_role("group", name="Answer")).to_contain_text("closing time")
    expect(article.get_by_role("group", name="Answer")).not_to_contain_text("morning report")
    barriers(show)


def test_a_refusal_is_told(show: Page, watch: Watch) -> None:
    show.goto("/api/docs?q=show_schedule")
    article = show.get_by_role("article").first
    article.get_by_text("Try it").click()
    article.get_by_label("schedule_id").fill("999999")
    watch.expect("status of 404")
    article.get_by_role("button", name="Send").click()
    expect(article.get_by_role("status").last).to_contain_text("404: there is no schedule 999999")
