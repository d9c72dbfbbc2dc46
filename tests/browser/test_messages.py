"""The screen of messages: what waits and what a person has to look at, and what they do about it."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest
from msgspec.structs import replace
from playwright.sync_api import Page, expect

from duly import Duly
from duly.apps import messages
from duly.apps.messages import MessagesSettings
from duly.apps.messages.rows import Rows
from duly.bridge.message import Message
from duly.core.model import Done
from duly.web.server import Service
from tests.browser.nets import Watch, barriers, settled
from tests.browser.sites import NARROW, Site, Visits
from tests.browser.world import World, message

ID = str(UUID(int=7))


def waiting(world: World, n: int = 7, queue: str = "orders", hours: float = 20, payload: str = "") -> int:
    """A message that waits, as one that came from the broker does."""
    now = world.app.clock.now()
    said = {**message(n, queue), "message_id": str(UUID(int=n)), **({"payload": payload} if payload else {})}
    row = Rows(world.app.section(MessagesSettings)).of(Message(**said), now)
    return world.app.internals.place(replace(row, due_at=now + timedelta(hours=hours))).id


def test_messages_are_found_by_queue_status_and_id_with_the_drift_of_retries(show: Page) -> None:
    show.goto("/messages")
    settled(show)
    expect(show.get_by_role("region", name="Queues of messages")).to_contain_text("Waiting")
    expect(show.get_by_role("img", name="None was published in this time: latest –, mean –")).to_be_visible()
    rows = show.get_by_role("grid", name="Messages").get_by_role("row")
    expect(rows).to_have_count(7)
    show.get_by_role("link", name="In review").click()
    expect(rows).to_have_count(3)
    expect(rows.nth(1)).to_contain_text("used up its 3 retries")
    show.get_by_label("Last").select_option("1440")
    expect(show).to_have_url(re.compile("state=failed&minutes=1440$"))
    barriers(show)


def test_it_is_drawn_and_told_how_late_retries_went_out(page: Page, world: World) -> None:
    late = [waiting(world, n, hours=-n / 600) for n in (1, 2, 3)]  # 6, 12 and 18 s
    world.end(late, "message_retry", Done(), "message_retry/orders")
    page.goto("/messages")
    picture = page.get_by_role("img", name=re.compile("^Seconds after their time, 3 published: latest 18.* s, mean 12"))
    expect(picture).to_be_visible()
    expect(picture.locator("canvas")).to_be_visible()
    page.get_by_role("button", name="Table").click()
    told = page.get_by_role("region", name=re.compile("published, as a table$"))
    expect(told.get_by_role("row").last).to_contain_text(re.compile("18.* s12.* s"))


def test_a_word_is_the_id_of_a_message_if_one_has_it_and_a_queue_otherwise(page: Page, world: World) -> None:
    said = {**message(7, "orders"), "message_id": "order-7"}
    row = Rows(world.app.section(MessagesSettings)).of(Message(**said), world.app.clock.now())
    item = world.app.internals.place(row).id
    for word, name in (("order-7", "messageId"), ("orders", "queue"), (ID, "messageId")):
        page.goto("/messages")
        search = page.get_by_role("searchbox", name="Search and filter")
        search.fill(word)
        search.press("Enter")
        expect(page).to_have_url(re.compile(f"{name}={word}$"))
        if word != ID:
            expect(page.get_by_role("grid", name="Messages").get_by_role("link", name=str(item))).to_be_visible()


def test_what_was_published_meanwhile_is_not_sent_again(page: Page, world: World, watch: Watch) -> None:
    item = waiting(world)
    page.goto(f"/messages/{item}")
    page.get_by_role("button", name="Send").click()
    form = page.get_by_role("dialog", name=f"Send message {item}")
    watch.expect("status of 409")
    world.app.cancel(item)  # as good as published: it is over
    form.get_by_role("button", name="Send").click()
    expect(form.get_by_role("alert")).to_contain_text("ask for a replay")
    assert len(world.app.read.page(task="message_retry", state="waiting")) == 0


def test_a_message_shows_its_payload_and_is_edited_expedited_and_cancelled(page: Page, world: World) -> None:
    item = waiting(world)
    page.goto(f"/messages?messageId={ID}&queue=orders")
    page.get_by_role("grid", name="Messages").get_by_role("link", name=str(item)).click()
    payload = page.get_by_role("group", name="payload", exact=True)
    expect(payload).to_contain_text('total: "19.90"')
    page.get_by_role("button", name="Bytes").click()
    expect(page.get_by_text("7b 22 6f 72 64 65 72 22")).to_be_visible()
    with page.expect_download() as downloading:
        page.get_by_role("link", name="Download payload").click()
    assert json.loads(Path(downloading.value.path()).read_text()) == {"order": 1_007, "total": "19.90"}
    barriers(page)
    page.get_by_role("button", name="Edit", exact=True).click()
    form = page.get_by_role("dialog", name=f"Edit message {item}")
    form.get_by_label("Queue").fill("orders.repair")
    form.get_by_label("Payload").fill('{"order": 8}')
    form.get_by_label("More headers").fill("no JSON")
    form.get_by_role("button", name="Save").click()
    expect(form.get_by_role("alert")).to_contain_text("Headers must be JSON")
    form.get_by_label("More headers").fill('{"x-repaired-by": "ana"}')
    barriers(page)
    form.get_by_role("button", name="Save").click()
    expect(page.get_by_role("group", name="headers")).to_contain_text('x-repaired-by: "ana"')
    expect(page.get_by_text("7b 22 6f 72 64 65 72 22 3a 20 38 7d")).to_be_visible()
    expect(page.get_by_role("link", name="orders.repair")).to_be_visible()
    page.get_by_role("button", name="Expedite").click()
    expect(page.get_by_text(f"Message {item} is retried now.")).to_be_visible()
    assert world.app.read.item(item).due_at <= world.app.clock.now()
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("dialog", name=f"Cancel message {item}").get_by_role("button", name="Cancel it").click()
    expect(page.locator(".state")).to_contain_text("cancelled")


def test_what_is_in_review_is_sent_or_discarded_and_what_ended_is_replayed(page: Page, world: World) -> None:
    lost = [world.app.put("message_retry", **message(n, "invoices")).id for n in (1, 2)]
    world.give_up(lost, "message_retry", "used up its 3 retries")
    page.goto(f"/messages/{lost[0]}")
    page.get_by_role("button", name="Send").click()
    form = page.get_by_role("dialog", name=f"Send message {lost[0]}")
    form.get_by_label("Queue").fill("invoices.other")
    form.get_by_role("button", name="Send").click()
    expect(page.locator(".state")).to_contain_text("waiting")
    expect(page.get_by_role("link", name="invoices.other")).to_be_visible()
    page.goto(f"/messages/{lost[1]}")
    page.get_by_role("button", name="Discard").click()
    page.get_by_role("dialog", name=f"Discard message {lost[1]}").get_by_role("button", name="Discard it").click()
    expect(page.locator(".state")).to_contain_text("cancelled")
    page.get_by_role("button", name="Replay").click()
    page.get_by_role("dialog", name=f"Replay message {lost[1]}").get_by_role("button", name="Replay").click()
    expect(page.get_by_role("link", name=f"message {lost[1]}")).to_be_visible()
    barriers(page)


def test_several_are_sent_together_and_bytes_are_shown_as_what_they_are(page: Page, world: World) -> None:
    payload = b64encode(bytes(range(256))).decode()
    items = [waiting(world, n, hours=n, payload=payload) for n in range(1, 4)]
    page.goto("/messages?state=waiting")
    rows = page.get_by_role("grid", name="Messages").get_by_role("row")
    expect(rows.nth(1)).to_contain_text("00 01 02 03")
    rows.nth(1).get_by_role("checkbox").check()
    rows.nth(3).get_by_role("checkbox").click(modifiers=["Shift"])
    page.get_by_role("button", name="Send", exact=True).click()
    expect(page.get_by_text("3 messages on the way.")).to_be_visible()
    assert all(world.app.read.item(item).due_at <= world.app.clock.now() for item in items)
    page.goto(f"/messages/{items[0]}")
    expect(page.get_by_text("DULY_MESSAGE_DESCRIPTORS")).to_be_visible()
    page.set_viewport_size(NARROW)
    barriers(page)


@pytest.fixture
def without(world: World, tmp_path: Path) -> Iterator[Site]:
    """A service to which no broker was named."""
    app = Duly(f"sqlite:///{tmp_path / 'without.db'}")
    app.internals.offered["messages"] = messages.plugin
    app.migrate()
    with Service(app, "127.0.0.1", 0) as service:
        yield Site(service.url, world)
    app.close()


def test_where_no_broker_is_set_up_the_page_says_how_to_get_one(without: Site, visit: Visits) -> None:
    page = visit(without)
    page.goto("/messages")
    expect(page.get_by_text("No broker is set up here.")).to_be_visible()
    expect(page.get_by_text("RABBITMQ_URL=amqp://localhost duly up")).to_be_visible()
    barriers(page)
