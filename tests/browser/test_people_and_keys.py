"""Signing in, users, API keys, the audit log, and two people side by side."""

from __future__ import annotations

import re
from datetime import timedelta

from playwright.sync_api import Page, expect

from duly.client import Client
from duly.verbs import LOCAL
from tests.browser.nets import barriers, settled, told
from tests.browser.sites import Site, Visits
from tests.browser.world import PASSWORD, World


def test_people_sign_in_and_out(guarded: Site, visit: Visits) -> None:
    page = visit(guarded)
    visit.watch(page).expect("status of 401")
    page.goto("/schedules")
    expect(page).to_have_title("Sign in · duly")
    barriers(page)
    expect(page.get_by_label("User")).to_be_focused()
    page.get_by_label("User").fill("ana")
    page.get_by_label("Password").fill("wrong wrong wrong")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("wrong user or password")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    settled(page)
    expect(page.get_by_role("heading", name="Schedules")).to_be_visible()
    screens = page.get_by_role("navigation", name="Screens")
    expect(screens.get_by_role("link", name="Jobs")).to_be_visible()
    for name in ("Users", "Audit log", "Queues and limits"):
        expect(screens.get_by_role("link", name=name)).to_have_count(0)
    visit.watch(page).expect("status of 401")
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="Sign in to duly")).to_be_visible()
    page.goto("/items")
    expect(page.get_by_role("heading", name="Sign in to duly")).to_be_visible()


def sign_in(page: Page, name: str) -> None:
    page.get_by_label("User").fill(name)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()


def test_who_signs_in_after_another_on_the_same_page_sees_nothing_of_theirs(guarded: Site, visit: Visits) -> None:
    guarded.world.fill_for("ana")
    page = visit(guarded)
    visit.watch(page).expect("status of 401")
    page.goto("/items")
    sign_in(page, "root")
    grid = page.get_by_role("grid", name="Items")
    expect(grid.get_by_text("ana").first).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    sign_in(page, "bob")
    settled(page)
    expect(page.get_by_text("No items yet.")).to_be_visible()
    expect(grid.get_by_text("ana")).to_have_count(0)


def test_an_admin_adds_changes_and_disables_users(guarded: Site, visit: Visits) -> None:
    page, users = visit(guarded, "root"), guarded.world.app.internals.verbs.users
    page.goto("/users")
    grid = page.get_by_role("grid", name="Users")
    expect(grid.get_by_role("row", name=re.compile("root.*you"))).to_be_visible()
    barriers(settled(page))

    page.get_by_role("button", name="Add a user").click()
    dialog = page.get_by_role("dialog", name="Add a user")
    barriers(page)
    dialog.get_by_label("Name").fill("ana")
    dialog.get_by_label("Password").fill(PASSWORD)
    visit.watch(page).expect("status of 409")
    dialog.get_by_role("button", name="Add").click()
    expect(dialog.get_by_role("alert")).to_contain_text("ana")
    dialog.get_by_label("Name").fill("cleo")
    dialog.get_by_role("button", name="Add").click()
    told(page, "cleo is added.")
    cleo = grid.get_by_role("row", name=re.compile("cleo"))
    expect(cleo).to_contain_text("a password")

    page.get_by_role("button", name="Role of cleo").click()
    page.get_by_role("dialog").get_by_label("Role").select_option("admin")
    page.get_by_role("button", name="Change", exact=True).click()
    told(page, "cleo is admin now.")
    expect(cleo).to_contain_text("admin")

    page.get_by_role("button", name="Password of cleo").click()
    page.get_by_role("dialog").get_by_label("Password").fill("another good password")
    page.get_by_role("button", name="Set", exact=True).click()
    told(page, "cleo has a new password.")
    assert users.sign_in("cleo", PASSWORD) is None
    assert users.sign_in("cleo", "another good password") is not None

    page.get_by_role("button", name="Disable cleo").click()
    expect(cleo).to_contain_text("disabled")
    assert users.sign_in("cleo", "another good password") is None
    page.locator(".toasts").get_by_role("button", name="Undo").click()
    told(page, "cleo is enabled.")
    expect(page.get_by_role("button", name="Disable cleo")).to_be_visible()


def test_a_key_is_made_told_once_used_and_revoked(guarded: Site, visit: Visits) -> None:
    page = visit(guarded, "ana")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto("/keys")
    expect(page.get_by_text("There is no key yet.")).to_be_visible()
    page.get_by_role("button", name="New key").click()
    dialog = page.get_by_role("dialog", name="New API key")
    expect(dialog.get_by_label("admin")).to_have_count(0)
    dialog.get_by_label("Name").fill("shop")
    dialog.get_by_label("write: put, change and act").uncheck()
    ends = guarded.world.app.clock.now() + timedelta(days=30)
    dialog.get_by_label("Expires").fill(f"{ends:%Y-%m-%dT%H:%M}")
    barriers(page)
    dialog.get_by_role("button", name="Make the key").click()

    told_once = page.get_by_role("dialog", name="Copy the key now")
    secret = told_once.locator("code").first.inner_text()
    assert secret.startswith("duly_")
    told_once.get_by_role("button", name="Copy the secret").click()
    expect(told_once.get_by_role("button", name="Copy the secret")).to_contain_text("Copied")
    assert page.evaluate("() => navigator.clipboard.readText()") == secret
    barriers(page)
    with Client(guarded.url, secret) as client:
        assert client.me().scopes == ["read"]
    told_once.get_by_role("button", name="I have copied it").click()
    expect(page.get_by_text(secret)).to_have_count(0)

    row = page.get_by_role("grid", name="API keys").get_by_role("row", name=re.compile("shop"))
    expect(row).to_contain_text("valid")
    page.get_by_role("button", name="Revoke shop").click()
    confirm = page.get_by_role("dialog", name="Revoke shop")
    expect(confirm.get_by_role("button", name="Revoke")).to_be_disabled()
    confirm.get_by_label("Type shop to confirm").fill("shop")
    confirm.get_by_role("button", name="Revoke").click()
    told(page, "shop is revoked.")
    expect(row).to_contain_text("revoked")
    barriers(settled(page))


def test_the_audit_log_says_who_did_what(page: Page, world: World) -> None:
    world.add_users()
    item = world.app.task_named("echo").after(3_600).put(text="hello")
    world.app.internals.verbs.items.cancel(LOCAL, item.id, reason="not needed")
    page.goto("/audit")
    grid = page.get_by_role("grid", name="Audit log")
    row = grid.get_by_role("row", name=re.compile("item.cancelled"))
    expect(row).to_contain_text("not needed")
    barriers(settled(page))
    page.get_by_label("Search and filter").fill("user:bob")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"subject=user:bob"))
    expect(grid.get_by_role("row")).to_have_count(2)
    page.get_by_role("button", name="Remove Subject user:bob").click()
    row.get_by_role("link", name=f"item:{item.id}").click()
    expect(page).to_have_url(re.compile(f"/items/{item.id}$"))


def test_two_people_side_by_side_see_only_their_own(guarded: Site, visit: Visits) -> None:
    world = guarded.world
    for name in ("ana", "bob"):
        world.fill_for(name)
    pages = {name: visit(guarded, name) for name in ("ana", "bob")}
    for page in pages.values():
        page.goto("/")
        settled(page)
        page.evaluate(
            """() => { window.heard = []; const source = new EventSource("/api/events");
            source.addEventListener("audit", (event) => window.heard.push(event.data));
            return new Promise((done) => { source.onopen = done; }); }"""
        )
    for name in pages:
        world.app.internals.verbs.items.put(
            world.someone(name), world.app.task_named("echo").make_item({"text": f"{name} now"}, {}, owner=name)
        )
    for name, page in pages.items():
        other = "bob" if name == "ana" else "ana"
        page.wait_for_function("() => window.heard.length > 0")
        heard = page.evaluate("() => window.heard")
        assert all(f'"{other}"' not in event for event in heard), heard
        for path, own in (
            ("/schedules", f"{name}'s morning"), ("/review", "1 row"), ("/items", "5 rows"), ("/jobs", f"{name}.csv"),
        ):  # fmt: skip
            page.goto(path)
            settled(page)
            expect(page.locator("main")).to_contain_text(own)
            expect(page.locator("main")).not_to_contain_text(other)
    ana = pages["ana"]
    strange = world.app.internals.verbs.schedules.page(owner="bob", most=1)[0].id
    visit.watch(ana).expect("status of 404")
    ana.goto(f"/schedules/{strange}")
    expect(ana.get_by_role("alert")).to_contain_text("belongs to someone else")
    ana.goto("/users")
    expect(ana.get_by_role("heading", name="Not found", level=1)).to_be_visible()
