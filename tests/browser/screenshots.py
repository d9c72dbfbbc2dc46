"""Pictures of every screen, light and dark, wide and narrow, for docs/img. `make screenshots` makes them.

Each is taken of a filled world on SQLite, when the page's main part says that it is no longer busy. The nets of the
browser tests are under them: a screen that shows or logs an error ends the run, and so does a picture that is too large
to be kept in a repository.
"""

from __future__ import annotations

import argparse
import io
import itertools
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from duly.verbs import LOCAL
from tests.browser import sites
from tests.browser.nets import chromium_path, settled
from tests.browser.sites import NARROW, WIDE, Site, Visits
from tests.browser.world import World

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "img"
LARGEST = 150_000  # bytes of one picture
COLOURS = 256
SCHEMES = ("light", "dark")
WIDTHS: dict[str, Any] = {"wide": WIDE, "narrow": NARROW}


class Screen(NamedTuple):
    """What a picture is called, and where on the dashboard it is taken."""

    name: str
    path: str


def screens(world: World) -> list[Screen]:
    """Every screen. Those of one item and one job show rows that have something to tell."""
    failed = world.app.read.page(task="print_label", state="failed", most=1)[0].id
    job = next(job.id for job in world.app.internals.verbs.jobs.page(LOCAL) if job.job_type == "texts")
    morning = next(each.id for each in world.app.internals.verbs.schedules.page() if each.key == "morning report")
    group = world.app.internals.verbs.review.groups(LOCAL)[0].id
    return [
        Screen("now", "/"),
        Screen("items", "/items"),
        Screen("item", f"/items/{failed}"),
        Screen("pending", "/pending"),
        Screen("jobs", "/jobs"),
        Screen("job", f"/jobs/{job}"),
        Screen("schedules", "/schedules"),
        Screen("schedule", f"/schedules/{morning}"),
        Screen("slots", "/schedules?show=slots"),
        Screen("review", "/review"),
        Screen("group", f"/review/{group}"),
        Screen("queues", "/queues"),
        Screen("limits", "/queues?show=limits"),
        Screen("workers", "/workers"),
        Screen("simulate", "/simulate"),
        Screen("plan", "/plan"),
        Screen("users", "/users"),
        Screen("keys", "/keys"),
        Screen("audit", "/audit"),
        Screen("api", "/api/docs"),
        Screen("catalog", "/catalog"),
        Screen("people", "/people"),
        Screen("reminders", "/reminders"),
        Screen("messages", "/messages"),
    ]


class ScreenError(Exception):
    """A screen cannot be shown as it should be."""


def take(visits: Visits, site: Site, wanted: Sequence[Screen], folder: Path) -> list[Path]:
    """Take these pictures into a folder; returns where they are."""
    folder.mkdir(parents=True, exist_ok=True)
    taken = []
    for scheme, (width, viewport) in itertools.product(SCHEMES, WIDTHS.items()):
        page = visits(site, viewport=viewport, color_scheme=scheme, reduced_motion="reduce")
        for screen in wanted:
            _load(page, screen)
            try:
                visits.watch(page).check()
            except AssertionError as error:
                raise ScreenError(f"{screen.name} ({screen.path}), {scheme} and {width}: {error}") from None
            path = folder / f"{screen.name}-{scheme}-{width}.png"
            path.write_bytes(small(screen, page.screenshot(animations="disabled", caret="hide")))
            taken.append(path)
        page.context.close()
    return taken


def _load(page: Page, screen: Screen) -> None:
    answer = page.goto(screen.path)
    if answer is None or not answer.ok:
        status = answer.status if answer else "no answer"
        raise ScreenError(f"{screen.name}: {screen.path} answers {status}")
    settled(page)
    if (alerts := page.get_by_role("alert").filter(visible=True)).count():
        raise ScreenError(f"{screen.name}: {screen.path} says {alerts.first.inner_text()!r}")


def small(screen: Screen, picture: bytes) -> bytes:
    """The same picture with a palette, as small as PNG makes it."""
    out = io.BytesIO()
    with Image.open(io.BytesIO(picture)) as image:
        image.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(out, "PNG", optimize=True)
    if len(out.getvalue()) > LARGEST:
        raise ScreenError(f"{screen.name}: its picture has {len(out.getvalue()):,} bytes; at most {LARGEST:,} are kept")
    return out.getvalue()


@contextmanager
def staged(*, is_working: bool = True) -> Iterator[Site]:
    """A filled world on SQLite behind the service, with a worker or without."""
    with tempfile.TemporaryDirectory(prefix="duly-screenshots-") as name:
        folder = Path(name)
        with World(f"sqlite:///{folder / 'duly.db'}", folder) as world:
            world.app.migrate()
            world.fill()
            with world.working() if is_working else nullcontext(), sites.local(world) as site:
                yield site


def main() -> None:
    parser = argparse.ArgumentParser(description="Take pictures of the dashboard's screens.")
    parser.add_argument("names", nargs="*", help="only these screens, such as now or items")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where they go; default docs/img")
    given = parser.parse_args()
    with staged() as site, sync_playwright() as playwright:
        wanted = screens(site.world)
        if strange := set(given.names) - {screen.name for screen in wanted}:
            parser.error(f"there is no screen {', '.join(sorted(strange))}")
        visits = Visits(playwright.chromium.launch(executable_path=chromium_path(), args=sites.SWITCHES))
        chosen = [screen for screen in wanted if not given.names or screen.name in given.names]
        try:
            taken = take(visits, site, chosen, given.folder)
        except ScreenError as error:
            raise SystemExit(f"make screenshots: {error}") from None
        finally:
            visits.close()
    print(f"{len(taken)} pictures in {given.folder}, {sum(path.stat().st_size for path in taken):,} bytes")


if __name__ == "__main__":
    main()
