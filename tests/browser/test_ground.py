"""The ground of the browser tests: each net really catches, and each kind of site can be visited."""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import Page, expect
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from duly.web.api import HEADERS
from tests.browser import conftest, screenshots, sites
from tests.browser.nets import Watch, barriers, settled, still
from tests.browser.screenshots import Screen, ScreenError
from tests.browser.sites import NARROW, Site, Visits
from tests.browser.world import World

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8"><title>A page</title><link rel="icon" href="data:,"><script src="/script.js"></script>
</head>
<body><main aria-busy="false"><h1>A page</h1>{body}</main></body>
</html>"""

Show = Callable[..., Page]


@pytest.fixture
def showing(sqlite_showroom: Site, visit: Visits) -> Iterator[Show]:
    """Loads a page with this in its body and this script, under the headers of the service."""
    content = {"body": "", "script": ""}

    def answer(request: Request) -> Response:
        match request.url.path:
            case "/":
                return HTMLResponse(PAGE.format(body=content["body"]), headers=HEADERS)
            case "/script.js":
                return PlainTextResponse(content["script"], headers={**HEADERS, "Content-Type": "text/javascript"})
        return PlainTextResponse("this and no more", int(request.url.path.strip("/")), headers=HEADERS)

    paths = [Route("/{rest:path}", answer, methods=["GET", "POST"])]
    with sites.served(Starlette(routes=paths)) as url:

        def show(body: str = "", script: str = "", is_shared: bool = False) -> Page:
            content.update(body=body, script=script)
            page = visit(Site(url, sqlite_showroom.world, is_shared))
            page.goto("/", wait_until="networkidle")
            return page

        yield show


# -- nets


def test_a_quiet_page_passes(showing: Show, visit: Visits) -> None:
    page = showing("<p>Nothing special</p>", "console.info('all is well'); fetch('/200', {method: 'POST'})")
    barriers(settled(page))
    with still(page):
        page.get_by_role("heading").hover()
    visit.watch(page).check()


@pytest.mark.parametrize(
    ("body", "script", "said"),
    [
        ("", "console.error('oh dear')", "console error: oh dear"),
        ("", "console.warn('beware')", "console warning: beware"),
        ("", "console.assert(false, 'not so')", "console assert: not so"),
        ("", "throw new Error('nobody caught this')", "uncaught: .*nobody caught this"),
        ("", "Promise.reject(new Error('nor this'))", "uncaught: .*nor this"),
        ("<script>window.told = 1</script>", "", "policy: script-src-elem forbids inline"),
        ("<p style='color: red'>red</p>", "", "policy: style-src-attr forbids inline"),
        ("", "fetch('http://127.0.0.1:9/spy').catch(() => {})", "policy: connect-src forbids http://127.0.0.1:9/spy"),
        ("", "fetch('/503')", "status 503: GET .*/503"),
    ],
)
def test_what_must_not_happen_is_caught(showing: Show, visit: Visits, body: str, script: str, said: str) -> None:
    page = showing(body, script)
    with pytest.raises(AssertionError, match=said):
        visit.watch(page).check()


def test_a_request_to_another_host_is_caught_where_the_policy_would_allow_it(showing: Show, visit: Visits) -> None:
    page = showing()
    watch: Watch = visit.watch(page)
    with page.expect_event("requestfailed"):
        page.evaluate("() => { location.href = 'http://elsewhere.example/' }")
    with pytest.raises(AssertionError, match=r"request to another host: http://elsewhere.example/"):
        watch.check()


def test_a_write_on_shared_ground_is_caught(showing: Show, visit: Visits) -> None:
    page = showing(script="fetch('/200', {method: 'POST'})", is_shared=True)
    with pytest.raises(AssertionError, match=r"write: POST .*/200"):
        visit.watch(page).check()


def test_what_a_test_provokes_is_no_failure_and_has_to_happen(showing: Show, visit: Visits) -> None:
    page = showing(script="fetch('/422')")
    watch = visit.watch(page)
    watch.expect("status of 422")
    watch.check()
    watch.expect("status of 422")
    with pytest.raises(AssertionError, match="was to say"):
        watch.check()


def test_the_test_itself_fails_by_what_its_nets_caught_and_leaves_a_picture(
    showing: Show, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(conftest, "PICTURES", tmp_path)
    call = conftest.pytest_runtest_call(request.node)
    next(call)
    showing(script="console.error('oh dear')")
    with pytest.raises(AssertionError, match="console error: oh dear"):
        next(call)
    assert [path.suffix for path in tmp_path.iterdir()] == [".png"]


def test_barriers_are_found(showing: Show) -> None:
    page = showing("<p><img src='data:,'></p><button></button>")
    with pytest.raises(AssertionError) as caught:
        barriers(page)
    assert "image-alt (critical)" in str(caught.value)
    assert "button-name (critical)" in str(caught.value)
    assert "<button></button>" in str(caught.value), "it says where"


def test_a_shift_of_the_layout_is_found(showing: Show) -> None:
    page = showing("<div id=top></div><p>One</p><p>Two</p>")

    def push() -> None:
        page.evaluate("() => { document.querySelector('#top').textContent = 'new'; }")

    with pytest.raises(AssertionError, match="the layout shifted by"), still(page):
        push()
    with still(page):
        pass


# -- pictures


def test_pictures_are_taken_of_a_screen(showing: Show, visit: Visits, sqlite_showroom: Site, tmp_path: Path) -> None:
    page = showing("<p>Nothing special</p>")
    site = Site(page.url.rstrip("/"), sqlite_showroom.world)
    taken = screenshots.take(visit, site, [Screen("plain", "/")], tmp_path)
    assert sorted(path.name for path in taken) == [
        "plain-dark-narrow.png", "plain-dark-wide.png", "plain-light-narrow.png", "plain-light-wide.png",
    ]  # fmt: skip
    sizes = {}
    for path in taken:
        with Image.open(path) as image:
            sizes[path.stem.rpartition("-")[2]] = (image.mode, image.size)
    assert sizes == {"wide": ("P", (1440, 900)), "narrow": ("P", (390, 844))}


@pytest.mark.parametrize(
    ("body", "script", "path", "said"),
    [
        ("", "", "/404", "/404 answers 404"),
        ("<p role=alert>It is broken</p>", "", "/", "says 'It is broken'"),
        ("", "console.error('oh dear')", "/", "console error: oh dear"),
    ],
)
def test_no_picture_is_taken_of_an_error(
    showing: Show, visit: Visits, sqlite_showroom: Site, tmp_path: Path, body: str, script: str, path: str, said: str
) -> None:
    page = showing(body, script)
    site = Site(page.url.rstrip("/"), sqlite_showroom.world)
    if script:
        visit.watch(page).expect("oh dear")
    with pytest.raises(ScreenError, match=said):
        screenshots.take(visit, site, [Screen("bad", path)], tmp_path)
    assert list(tmp_path.iterdir()) == []
    for watch in visit.watches[1:]:
        watch.caught.clear()


def test_a_picture_that_is_too_large_is_refused() -> None:
    noise = io.BytesIO()
    Image.frombytes("RGB", (400, 400), random.Random(7).randbytes(480_000)).save(noise, "PNG")
    with pytest.raises(ScreenError, match="at most 150,000 are kept"):
        screenshots.small(Screen("noise", "/"), noise.getvalue())


def test_there_is_a_picture_of_every_screen_once(sqlite_showroom: Site) -> None:
    wanted = screenshots.screens(sqlite_showroom.world)
    assert len({screen.name for screen in wanted}) == len({screen.path for screen in wanted}) == len(wanted) == 24


# -- sites


def test_who_comes_over_loopback_is_the_admin(page: Page, world: World) -> None:
    placed = world.app.put("echo", text="hello")
    page.goto(f"/api/items/{placed.id}")
    expect(page.locator("body")).to_contain_text('"state":"waiting"')
    assert world.work() == 1
    page.reload()
    expect(page.locator("body")).to_contain_text('"state":"done"')


def test_a_worker_works_beside_the_service(page: Page, world: World) -> None:
    with world.working():
        world.app.put("echo", text="hello").wait(60)
    page.goto("/api/items?task=echo")
    expect(page.locator("body")).to_contain_text('"state":"done"')


def test_people_sign_in_and_see_their_own(guarded: Site, visit: Visits) -> None:
    for name in ("ana", "bob"):
        guarded.world.fill_for(name)
    nobody, ana, bob, root = (visit(guarded, name) for name in (None, "ana", "bob", "root"))
    visit.watch(nobody).expect("status of 401")
    for page in (nobody, ana, bob, root):
        page.goto("/api/items?task=echo")
    expect(nobody.locator("body")).to_contain_text("Sign in first")
    for page, own, other in ((ana, "ana's", "bob's"), (bob, "bob's", "ana's")):
        expect(page.locator("body")).to_contain_text(f"{own} parcel")
        expect(page.locator("body")).not_to_contain_text(other)
    expect(root.locator("body")).to_contain_text("ana's parcel")
    expect(root.locator("body")).to_contain_text("bob's parcel")


def test_a_site_may_be_beneath_a_prefix(mounted: Site, visit: Visits) -> None:
    page = visit(mounted)
    page.goto(f"{mounted.url}/api/queues")
    expect(page.locator("body")).to_contain_text('"items":[')


def test_the_showroom_has_rows_of_every_kind(showroom: Site, show: Page) -> None:
    body = show.locator("body")
    for state in ("waiting", "running", "done", "failed", "cancelled"):
        show.goto(f"/api/items?state={state}&pageSize=1")
        expect(body).to_contain_text(f'"state":"{state}"')
    for path, words in (
        ("review", ("GiveUp", "OSError", "ConnectionError", "BadEntry")),
        ("schedules", ("morning report", "closing time", "fragile feed")),
        ("jobs", ('"DONE"', '"RUNNING"', '"PAUSED"')),
        ("people", ("Lovelace", "Horvat")),
        ("products", ("BOX-3", '"syncStatus":"failed"', '"isActive":false')),
        ("reminders", ('"completed"', '"failed"', '"pending_retry"', '"scheduled"')),
        ("messages", ("orders", "invoices")),
        ("pending", ('"PENDING"',)),
    ):
        show.goto(f"/api/{path}")
        for word in words:
            expect(body, f"in {path}").to_contain_text(word)


def test_a_page_may_be_narrow_and_dark(showroom: Site, visit: Visits) -> None:
    page = visit(showroom, viewport=NARROW, color_scheme="dark")
    page.goto("/healthz")
    assert page.evaluate("() => [innerWidth, matchMedia('(prefers-color-scheme: dark)').matches]") == [390, True]
