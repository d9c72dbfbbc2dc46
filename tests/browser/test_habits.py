"""Habits that are the same on every screen: keyboard, times, themes, going back, copying, narrow pages, a prefix."""

from __future__ import annotations

import re

from playwright.sync_api import Page, Route, expect

from tests.browser.nets import PAINTED, Watch, barriers, refreshed, settled, still
from tests.browser.sites import NARROW, Site, Visits

SCREENS = (
    "/",
    "/items",
    "/jobs",
    "/schedules",
    "/review",
    "/queues",
    "/workers",
    "/simulate",
    "/users",
    "/keys",
    "/audit",
    "/api/docs",
)
# How wide the page is beyond the window: nothing, on a page that fits.
OVERHANG = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
MARK_CONTROLS = (
    "() => { window.controls = [...document.querySelectorAll('main :is(a, button, input, select, summary)')]; }"
)
LOST_CONTROLS = "() => window.controls.filter((each) => !each.isConnected).map((each) => each.outerHTML)"
# What has the focus, if the header is over it.
COVERED = """() => {
    const [focused, header] = [document.activeElement, document.querySelector("header.top")];
    const bottom = header.getBoundingClientRect().bottom;
    return focused.closest("main") && focused.getBoundingClientRect().top < bottom ? focused.outerHTML : null;
}"""


def test_the_keyboard_goes_everywhere(show: Page) -> None:
    show.goto("/schedules")
    settled(show)
    grid = show.get_by_role("grid", name="Schedules")
    expect(grid.get_by_role("row").nth(1)).to_have_class(re.compile("is-here"))
    for key, row in (("j", 2), ("j", 3), ("k", 2)):
        show.keyboard.press(key)
        expect(grid.get_by_role("row").nth(row)).to_have_class(re.compile("is-here"))
    show.keyboard.press("x")
    expect(grid.get_by_role("row", selected=True)).to_have_count(1)
    show.keyboard.press("j")
    show.keyboard.press("Shift+X")
    expect(grid.get_by_role("row", selected=True)).to_have_count(2)
    expect(show).to_have_url(re.compile(r"sel=\d+,\d+"))
    show.keyboard.press("Escape")
    expect(grid.get_by_role("row", selected=True)).to_have_count(0)
    name = grid.get_by_role("row").nth(3).get_by_role("link").inner_text()
    show.keyboard.press("Enter")
    expect(show.get_by_role("heading", name=name, level=1)).to_be_focused()

    show.keyboard.press("g")
    show.keyboard.press("s")
    expect(show.get_by_role("heading", name="Schedules", level=1)).to_be_visible()
    show.keyboard.press("/")
    expect(show.get_by_label("Search and filter")).to_be_focused()
    show.keyboard.type("gr?l")  # letters and signs that are written are no commands
    expect(show.get_by_role("dialog")).to_have_count(0)
    show.keyboard.press("Control+k")
    palette = show.get_by_role("dialog", name="Commands")
    expect(palette.get_by_label("Command", exact=True)).to_be_focused()
    barriers(show)
    show.keyboard.type("aud")
    show.keyboard.press("Enter")
    expect(show.get_by_role("heading", name="Audit log", level=1)).to_be_visible()
    show.goto("/schedules")
    settled(show)
    show.get_by_role("button", name="Find or do").click()
    show.keyboard.type("new sch")
    show.keyboard.press("Enter")
    expect(show.get_by_role("dialog", name="New schedule")).to_be_visible()
    show.keyboard.press("Escape")
    show.keyboard.press("?")
    helped = show.get_by_role("dialog", name="Keyboard")
    expect(helped).to_contain_text("Schedules")
    barriers(show)
    show.keyboard.press("Escape")
    expect(helped).to_have_count(0)


def test_a_click_and_an_arrow_select_a_range(show: Page) -> None:
    show.goto("/items")
    grid = show.get_by_role("grid")
    boxes = grid.get_by_role("checkbox")
    boxes.nth(0).click()
    boxes.nth(3).click(modifiers=["Shift"])
    expect(grid.get_by_role("row", selected=True)).to_have_count(4)
    show.reload()
    expect(grid.get_by_role("row", selected=True)).to_have_count(4)
    grid.focus()
    show.keyboard.press("Escape")
    show.keyboard.press("Space")
    show.keyboard.press("Shift+ArrowDown")
    expect(grid.get_by_role("row", selected=True)).to_have_count(2)


def test_times_are_told_as_one_wants_them(show: Page) -> None:
    show.goto("/audit")
    settled(show)
    when = show.get_by_role("grid").locator("time").last
    told = {"local": when.inner_text()}
    switch = show.get_by_role("banner").get_by_label("Times")
    for choice in ("utc", "relative"):
        switch.select_option(choice)
        told[choice] = when.inner_text()
    assert told["local"][-8:-6] != told["utc"][-8:-6], f"Zagreb is not Greenwich: {told}"
    assert re.match(r".* ago .*\d\d:\d\d:\d\d", told["relative"], re.DOTALL), f"the exact time stays: {told}"
    assert when.get_attribute("title").endswith(" UTC")  # type: ignore[union-attr]
    show.goto("/schedules")
    expect(show.get_by_role("banner").get_by_label("Times")).to_have_value("relative")
    show.keyboard.press("t")
    expect(show.get_by_role("banner").get_by_label("Times")).to_have_value("local")


def test_the_theme_is_the_system_s_or_one_s_own(showroom: Site, visit: Visits) -> None:
    page = visit(showroom, color_scheme="dark")
    page.goto("/schedules")
    settled(page)
    background = "() => getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(background)
    page.get_by_label("Theme").select_option("light")
    light = page.evaluate(background)
    assert dark != light
    page.reload()
    settled(page)
    assert page.evaluate(background) == light
    page.get_by_label("Theme").select_option("auto")
    assert page.evaluate(background) == dark
    barriers(page)


def test_going_back_finds_the_place_where_one_was(show: Page) -> None:
    show.goto("/items")
    grid = show.get_by_role("grid")
    settled(show)
    grid.evaluate("(box) => { box.scrollTop = 1_200; }")
    link = grid.locator("[aria-rowindex='45']").get_by_role("link").first
    number = link.inner_text()
    link.click()
    expect(show.get_by_role("heading", name=re.compile(number))).to_be_visible()
    show.go_back()
    expect(grid.get_by_role("link", name=number, exact=True)).to_be_visible()
    assert grid.evaluate("(box) => box.scrollTop") == 1_200
    show.get_by_role("navigation", name="States").get_by_role("link", name=re.compile("^Done")).click()
    expect(show).to_have_url(re.compile("state=done"))
    show.go_back()
    expect(show).not_to_have_url(re.compile("state=done"))


def test_copying_works_without_https(showroom: Site, visit: Visits) -> None:
    page = visit(showroom)
    # As on another host without HTTPS: no clipboard for scripts.
    page.add_init_script("Object.defineProperty(window, 'isSecureContext', {value: false})")
    page.goto("/schedules/1")
    page.get_by_role("button", name="Copy the rule").click()
    expect(page.get_by_role("button", name="Copy the rule")).to_contain_text("Copied")
    page.get_by_role("button", name="Edit").click()
    key = page.get_by_label("Rule", exact=True)
    key.fill("")
    key.press("Control+v")
    expect(key).to_have_value("daily 02:30")


def test_every_screen_fits_a_phone(showroom: Site, visit: Visits) -> None:
    page = visit(showroom, viewport=NARROW)
    for path in SCREENS:
        page.goto(path)
        settled(page)
        assert page.evaluate(OVERHANG) <= 0, f"{path} is wider than a phone"
    page.get_by_role("button", name="Menu").click()
    barriers(page)
    page.get_by_role("navigation", name="Screens").get_by_role("link", name="Schedules").click()
    expect(page.get_by_role("heading", name="Schedules", level=1)).to_be_visible()
    expect(page.get_by_role("navigation", name="Screens")).to_be_hidden()


def test_it_lives_under_a_prefix(mounted: Site, visit: Visits) -> None:
    mounted.world.fill_schedules()
    page = visit(mounted)
    page.goto(f"{mounted.url}/schedules")
    page.get_by_role("link", name="heartbeat").click()
    expect(page).to_have_url(re.compile(r"/duly/schedules/\d+$"))
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_role("button", name="Resume")).to_be_visible()
    page.reload()
    expect(page.get_by_role("button", name="Resume")).to_be_visible()
    page.get_by_role("link", name="duly, now").click()
    expect(page).to_have_url(re.compile(r"/duly/$"))
    page.go_back()
    expect(page.get_by_role("heading", name="heartbeat")).to_be_visible()


# Waits until this module has run, and the page has been drawn since.
DRAWN_WITH = """async (url) => {
  await import(url);
  for (let frame = 0; frame < 3; frame += 1) await new Promise(requestAnimationFrame);
}"""


def test_a_screen_that_loads_late_does_not_replace_the_one_the_person_went_back_to(page: Page) -> None:
    page.goto("/schedules")
    expect(page.get_by_role("heading", name="Schedules", level=1)).to_be_visible()
    held: list[Route] = []
    page.route("**/js/screens/audit.js", lambda route: held.append(route))
    with page.expect_request("**/js/screens/audit.js"):
        page.get_by_role("link", name="Audit log").click()
    page.go_back()
    expect(page.get_by_role("heading", name="Schedules", level=1)).to_be_visible()
    held[0].continue_()
    page.evaluate(DRAWN_WITH, held[0].request.url)
    assert page.get_by_role("heading", name="Schedules", level=1).is_visible()


def test_nothing_moves_while_live_updates_arrive(page: Page, local: Site) -> None:
    world = local.world
    world.fill_schedules()
    world.app.put("echo", text="the first")
    for path, look in (("/queues", "Queues"), ("/schedules", "Schedules"), ("/audit", "Audit log")):
        page.goto(path)
        settled(page)
        grid = page.get_by_role("grid", name=look)
        expect(grid.get_by_role("row").nth(1)).to_be_visible()
        with still(page), page.expect_response(lambda answer, path=path: f"/api{path}" in answer.url):
            for n in range(5):
                world.app.put("echo", text=f"one more {n}")
            world.app.schedules.create("echo", "daily 05:00", {"text": "more"}, key=f"more {path}")


def test_the_page_says_when_the_service_is_away(show: Page, visit: Visits) -> None:
    show.goto("/schedules")
    settled(show)
    visit.watch(show).expect("ERR_INTERNET_DISCONNECTED")
    show.context.set_offline(True)
    refreshed(show)
    expect(show.get_by_role("button", name="No connection")).to_be_visible()
    show.context.set_offline(False)
    refreshed(show)
    expect(show.get_by_role("button", name="Live")).to_be_visible()


def test_enter_follows_the_link_that_has_the_focus_also_beside_a_list(show: Page) -> None:
    show.goto("/items")
    settled(show)
    link = show.get_by_role("navigation", name="Screens").get_by_role("link", name="Review")
    link.focus()
    show.keyboard.press("Enter")
    expect(show.get_by_role("heading", name="Review", level=1)).to_be_visible()
    show.goto("/items")
    settled(show)
    show.get_by_role("grid", name="Items").get_by_role("checkbox").first.click()
    show.keyboard.press("j")
    show.keyboard.press("x")
    expect(show.get_by_text("2 selected")).to_be_visible()


def test_a_filter_that_is_no_number_is_told_and_nothing_can_be_done_to_all(show: Page, watch: Watch) -> None:
    watch.expect("status of 422")
    show.goto("/items?minTries=abc")
    expect(show.get_by_role("alert").first).to_contain_text("minTries")
    expect(show.get_by_label("Act on all that fit")).to_have_count(0)


def test_a_page_that_reads_again_keeps_its_buttons_and_links(show: Page, showroom: Site) -> None:
    item = showroom.world.app.read.page(state="failed")[0].id
    for path in (*(path for path in SCREENS if path != "/simulate"), f"/items/{item}"):  # that one reads nothing
        show.goto(path)
        settled(show).evaluate(MARK_CONTROLS)
        with show.expect_response(lambda answer: "/api/" in answer.url):
            refreshed(show)
        settled(show).evaluate(PAINTED)
        assert show.evaluate(LOST_CONTROLS) == [], path


def test_what_has_the_focus_is_never_below_the_header(showroom: Site, visit: Visits) -> None:
    page = visit(showroom, viewport={"width": 1000, "height": 420})
    item = showroom.world.app.read.page(state="failed")[0].id
    for path in ("/", "/queues", f"/items/{item}"):
        page.goto(path)
        settled(page).evaluate("() => window.scrollTo(0, document.body.scrollHeight)")
        page.locator("main").focus()
        for _ in range(25):
            page.keyboard.press("Shift+Tab")
            assert page.evaluate(COVERED) is None, path
