"""The screen that docs/apps.md teaches to write, in a package that was installed, beside those of duly's own apps."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from playwright.sync_api import expect

from tests.apps.conftest import eventually
from tests.apps.test_package import built, env, installed, is_up, up
from tests.browser.nets import barriers
from tests.browser.sites import Site, Visits
from tests.browser.world import World
from tests.cli.test_processes import free_port
from tests.outbound.provider import Provider, ok

__all__ = ["built", "env", "installed"]  # fixtures


def test_an_app_brings_its_own_screen(env: dict[str, str], tmp_path: Path, visit: Visits) -> None:
    with Provider(ok) as gateway:
        given = {name: value for name, value in env.items() if name != "RABBITMQ_URL"}
        given["SMS_GATEWAY_URL"] = f"{gateway.url}/texts"
        with up(given, tmp_path, free_port()) as url:
            eventually(lambda: is_up(url))
            page = visit(Site(url, cast(World, None)))
            page.goto("/texts")
            page.get_by_role("button", name="Send a text").click()
            form = page.get_by_role("dialog", name="Send a text")
            form.get_by_label("Phone").fill("+385 1 234")
            form.get_by_label("Text").fill("Your order is ready")
            form.get_by_role("button", name="Send").click()
            row = page.get_by_role("row").filter(has_text="Your order is ready")
            expect(row).to_contain_text("done")
            barriers(page)
            page.get_by_role("navigation", name="Screens").get_by_role("link", name="Messages").click()
            expect(page.get_by_text("No broker is set up here.")).to_be_visible()
