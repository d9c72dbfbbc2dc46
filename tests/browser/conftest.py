"""The dashboard in Debian's Chromium, on SQLite and, for the screens in ON_BOTH, on PostgreSQL. How to write a test:

    def test_an_item_is_cancelled_from_its_page(page: Page, world: World) -> None:
        placed = world.app.task_named("echo").after(3_600).put(text="hello")
        page.goto(f"/items/{placed.id}")
        page.get_by_role("button", name="Cancel").click()
        expect(page.get_by_role("status")).to_contain_text("cancelled")
        barriers(page)

Run it with `tools/test tests/browser -n 1 -k cancelled`, which sees to Chromium and axe-core.

world           an empty `World` of this test alone: `world.app`, `world.fill()` or a part as `world.fill_people()`,
                `world.past()`, `world.work()` (run what is due, at once), `with world.working():` (a real worker); see
                tests/browser/world.py
local           the service over `world` on loopback, where everybody is the admin: a `Site` with `url` and `world`
guarded         the service over `world` where people sign in: users `ana` and `bob`, admin `root`, all with PASSWORD
mounted         the service over `world` within another application, under /duly: `page.goto(mounted.url + "/items")`
showroom        a filled world behind a service on loopback that all tests of a process share. Nothing may be changed: a
                page that sends anything but a GET fails its test. Prefer it, because it costs nothing
page            a page on `local`; nothing is loaded yet
show            a page on `showroom`
visit           `visit(site, user="ana", viewport=NARROW, color_scheme="dark")`: one more page, in a context of its own
watch           the nets under `page` or `show`: `watch.expect("status of 422")` where a test provokes a refusal

Every page has nets under it that fail the test at its end: any error or warning in the console, an error that no script
caught, a request to another host, a violation of the content security policy, an answer of 500 or more; see
tests/browser/nets.py. There too: `barriers(page)` for axe-core, `with still(page):` against layout shifts, and
`settled(page)`. A picture of every page of a failed test is left in .scratch/browser.

Wait with `expect(locator)…`, which looks until it is true. Find things by role and name.
"""

from __future__ import annotations

import re
import shutil
import warnings
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from coverage import Coverage
from playwright.sync_api import Browser, Error, Page, expect, sync_playwright

from tests.browser import sites
from tests.browser.nets import Watch, chromium_path
from tests.browser.sites import Site, Visits
from tests.browser.world import World
from tests.conftest import KINDS
from tests.support import fresh_database

# Longer than any screen waits between two looks.
expect.set_options(timeout=60_000)

# The screens of lists, live counts and acts, in which the databases differ most. What all others show is read by the
# API, whose own tests run on both databases.
ON_BOTH = {"test_item", "test_items", "test_jobs", "test_now", "test_queues", "test_review"}
PICTURES = Path(__file__).resolve().parents[2] / ".scratch" / "browser"
VISITS = pytest.StashKey[Visits]()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have at most two browsers at work, however many tests run at a time; the second has all tests on PostgreSQL."""
    ours = [item for item in items if Path(__file__).parent in item.path.parents]
    files = sorted({item.path for item in ours})
    for item in ours:
        number = 1 if "postgres" in item.name else files.index(item.path) % 2
        item.add_marker(pytest.mark.xdist_group(f"browser-{number}"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    kinds = KINDS if metafunc.module.__name__.rpartition(".")[2] in ON_BOTH else ("sqlite",)
    for name in ("database_url", "showroom"):
        if name in metafunc.fixturenames:
            metafunc.parametrize(name, kinds, indirect=True)


@pytest.fixture(scope="package", autouse=True)
def unmeasured() -> Iterator[None]:
    """Without coverage, which would slow every answer down: what pages ask for is measured by the tests of the API."""
    measuring = Coverage.current()
    if measuring is not None:
        measuring.stop()
    yield
    if measuring is not None:
        measuring.start()


@pytest.fixture(scope="package")
def chromium() -> Iterator[Browser]:
    """One browser for the tests of this package. Its event loop is in the way of others, so it ends with them."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_path(), args=sites.SWITCHES)
        yield browser
        browser.close()


@pytest.fixture
def visit(request: pytest.FixtureRequest, chromium: Browser) -> Iterator[Visits]:
    visits = Visits(chromium)
    request.node.stash[VISITS] = visits
    yield visits
    visits.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Have a test fail on what its nets caught, and leave pictures of what a failed one saw."""
    visits = item.stash.get(VISITS, None)
    try:
        yield
        if visits is not None:
            visits.check()
    except BaseException:
        if visits is not None:
            _take_pictures(item.name, visits)
        raise


def _take_pictures(name: str, visits: Visits) -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    for number, page in enumerate(visits.pages(), 1):
        path = PICTURES / f"{re.sub(r'[^A-Za-z0-9-]+', '_', name)}-{number}.png"
        try:
            page.screenshot(path=path, timeout=3_000)
        except Error as error:
            warnings.warn(f"no picture of {page.url}: {error.message}", stacklevel=1)


# -- worlds and sites


@pytest.fixture
def database_url(request: pytest.FixtureRequest) -> str:
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


@pytest.fixture
def world(database_url: str, tmp_path: Path) -> Iterator[World]:
    with World(database_url, tmp_path) as world:
        yield world


@pytest.fixture
def local(world: World) -> Iterator[Site]:
    with sites.local(world) as site:
        yield site


@pytest.fixture
def guarded(world: World) -> Iterator[Site]:
    with sites.guarded(world) as site:
        yield site


@pytest.fixture
def mounted(world: World) -> Iterator[Site]:
    with sites.mounted(world) as site:
        yield site


@pytest.fixture
def showroom(request: pytest.FixtureRequest) -> Site:
    site: Site = request.getfixturevalue(f"{request.param}_showroom")
    return site


@pytest.fixture(scope="package")
def sqlite_showroom(tmp_path_factory: pytest.TempPathFactory, migrated_file: Path) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("showroom")
    shutil.copy(migrated_file, folder / "duly.db")
    with World(f"sqlite:///{folder / 'duly.db'}", folder) as world:
        world.fill()
        with sites.local(world, is_shared=True) as site:
            yield site


@pytest.fixture(scope="package")
def postgres_showroom(tmp_path_factory: pytest.TempPathFactory, postgres_server: str) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("showroom")
    with fresh_database(postgres_server) as url, World(url, folder) as world:
        world.app.migrate()
        world.fill()
        with sites.local(world, is_shared=True) as site:
            yield site


# -- pages


@pytest.fixture
def page(local: Site, visit: Visits) -> Page:
    return visit(local)


@pytest.fixture
def show(showroom: Site, visit: Visits) -> Page:
    return visit(showroom)


@pytest.fixture
def watch(visit: Visits, request: pytest.FixtureRequest) -> Watch:
    name = "page" if "page" in request.fixturenames else "show"
    return visit.watch(request.getfixturevalue(name))
