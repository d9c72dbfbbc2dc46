"""The dashboard's pages and files, as they are served; what they show is tried in tests/browser."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from duly import Duly
from duly.apps import messages
from duly.web import asgi, dashboard
from duly.web.api import create_api
from tests.web.conftest import House, client_of

STATIC = Path(dashboard.FOLDER)
PAGES = ("/", "/items", "/items/17", "/jobs/3", "/review/0abc", "/api/docs", "/schedules", "/audit")


@pytest.mark.parametrize("path", PAGES)
def test_every_screen_is_the_same_page_without_anything_inline(house: House, path: str) -> None:
    answer = house.nobody.get(path)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["cache-control"] == "no-cache"
    assert "script-src 'self'" in answer.headers["content-security-policy"]
    # All but the names of the modules, of which each needs others.
    body = re.compile('<link rel="modulepreload".*\n')
    assert body.sub("", answer.text) == body.sub("", house.nobody.get("/").text)
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=", answer.text)


def test_what_is_no_screen_is_not_found(house: House) -> None:
    for path in ("/wp-admin", "/itemsx", "/static/../api.py", "/api/nothing"):
        answer = house.nobody.get(path)
        assert answer.status_code == 404, path
        assert answer.json()["status"] == 404


def test_the_files_of_a_page_are_there_and_are_kept_for_good(house: House) -> None:
    page = house.nobody.get("/").text
    paths = re.findall(r'(?:href|src)="(/static/[^"]+)"', page)
    assert any(path.endswith("js/main.js") for path in paths)
    for path in paths:
        answer = house.nobody.get(path)
        assert answer.status_code == 200, path
        assert "immutable" in answer.headers["cache-control"]


def test_files_are_compressed_for_those_who_take_it(house: House) -> None:
    path = re.search(r'src="(/static/[^"]+/js/main.js)"', house.nobody.get("/").text)[1]  # type: ignore[index]
    packed = house.nobody.get(path, headers={"Accept-Encoding": "gzip"})
    plain = house.nobody.get(path, headers={"Accept-Encoding": "identity"})
    assert packed.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in plain.headers
    assert packed.content == plain.content == (STATIC / "js" / "main.js").read_bytes()
    assert int(packed.headers["content-length"]) < int(plain.headers["content-length"])


def test_a_page_of_another_version_gets_no_files_of_this_one(house: House) -> None:
    answer = house.nobody.get("/static/0123456789abcdef/js/main.js")
    assert answer.status_code == 404
    assert "reload the page" in answer.json()["detail"]


def test_what_pages_have_to_know_is_for_those_who_may_read(house: House) -> None:
    assert house.nobody.get("/api/dashboard").status_code == 401
    told = house.ana.get("/api/dashboard").json()
    assert told["version"]
    assert told["pending"] is True  # as this house has it


def test_plug_ins_bring_their_screens_and_those_that_are_off_say_so(house: House, tmp_path: Path) -> None:
    told = {each["path"]: each for each in house.ana.get("/api/dashboard").json()["screens"]}
    assert {"/catalog", "/plan", "/people", "/reminders", "/messages"} <= set(told)
    assert told["/plan"] == {
        "app": "catalog", "path": "/plan", "title": "Plan", "script": "apps/catalog/plan.js", "isOn": True,
        "group": "Apps", "within": None, "key": None, "scope": "read",
    }  # fmt: skip
    offering = Duly(f"sqlite:///{tmp_path / 'duly.db'}")
    offering.internals.offered["messages"] = messages.plugin
    served = client_of(create_api(offering), house._portal)  # type: ignore[arg-type]
    page = served.get("/messages")
    assert page.status_code == 200
    (static,) = set(re.findall(r'"(/static/[0-9a-f]+)/', page.text))
    assert "No broker is set up here" in served.get(f"{static}/apps/messages/messages.js").text
    (screen,) = [each for each in served.get("/api/dashboard").json()["screens"] if each["app"] is not None]
    assert (screen["path"], screen["isOn"]) == ("/messages", False)
    assert served.get("/api/messages").status_code == 404


def test_it_can_be_mounted_under_a_path_of_another_app(house: House) -> None:
    outer = Starlette(routes=[Mount("/tools/duly", asgi(house.app))])
    client = client_of(outer, house._portal)  # type: ignore[arg-type]
    page = client.get("/tools/duly/items").text
    assert '<meta name="duly-root" content="/tools/duly">' in page
    for path in re.findall(r'(?:href|src)="([^"]+)"', page):
        assert path.startswith(("/tools/duly/static/", "/tools/duly/api/"))
        assert client.get(path).status_code == 200
    assert client.get("/tools/duly/api/me").json()["userId"] == "local"
    made = client.post("/tools/duly/api/items", json={"task": "echo", "args": {"text": "x"}})
    assert made.status_code == 201
    assert client.get("/tools/duly/api/me").headers["cache-control"] == "no-store"
    sent = client.post("/tools/duly/api/jobs", files={"file": ("a.csv", b"text\nhello\n")}, data={"jobType": "csv"})
    assert sent.status_code == 201


def test_what_is_vendored_is_as_it_came_with_its_licence() -> None:
    vendor = STATIC / "vendor"
    told = json.loads((vendor / "vendored.json").read_text())
    files = {path.relative_to(vendor).as_posix() for path in vendor.rglob("*.js")}
    assert files == set(told)
    for name, source in told.items():
        assert hashlib.sha256((vendor / name).read_bytes()).hexdigest() == source["sha256"], name
        licence = vendor / "licences" / f"{source['package'].replace('/', '+').lstrip('@')}.txt"
        assert "Permission is hereby granted" in licence.read_text() or "Apache License" in licence.read_text()


def test_no_file_speaks_to_another_host() -> None:
    for path in STATIC.rglob("*"):
        if path.suffix in (".js", ".css", ".html") and "vendor" not in path.parts:
            text = path.read_text()
            assert not re.search(r"""(?:from|import|src=|href=|url\()\s*\(?["']?https?:""", text), path


def test_the_first_page_is_small_enough_for_a_slow_line() -> None:
    """Everything that the first screen loads, compressed; the charts' library and its screen included."""
    statics = dashboard.statics_of((("", STATIC),))
    first = [*statics.modules("js/main.js", "js/screens/now.js"), "js/first.js", "css/app.css", "vendor/uplot.js"]
    assert sum(len(statics.files[name].packed) for name in first) < 140_000
    assert all(gzip.decompress(file.packed) == file.body for file in statics.files.values())


def test_every_page_names_the_modules_that_it_runs(house: House) -> None:
    """The document of an address preloads the module of the screen that the page's router finds for the address."""
    statics = dashboard.statics_of((("", STATIC),))
    served = [each for each in house.root.get("/api/dashboard").json()["screens"] if each["app"] is None]
    assert len(served) >= 17
    for screen in served:
        text = house.nobody.get(screen["path"].replace("{id}", "7")).text
        named = set(re.findall(r'modulepreload" href="/static/[0-9a-f]+/([^"]+)"', text))
        assert named == set(statics.modules("js/main.js", screen["script"])), screen
        assert {screen["script"], "js/lib/api.js", "vendor/preact.js", "vendor/signals-core.js"} <= named


def test_screens_are_listed_for_those_who_may_use_them(house: House, tmp_path: Path) -> None:
    for_ana = {each["path"]: each for each in house.ana.get("/api/dashboard").json()["screens"]}
    for_root = {each["path"]: each for each in house.root.get("/api/dashboard").json()["screens"]}
    assert set(for_root) - set(for_ana) == {"/queues", "/workers", "/simulate", "/users", "/audit"}
    assert for_root["/workers"]["within"] == "/queues"
    assert [for_root[path]["group"] for path in ("/pending", "/items", "/items/{id}")] == ["Work", "Work", None]
    plain = client_of(create_api(Duly(f"sqlite:///{tmp_path / 'duly.db'}")), house._portal)  # type: ignore[arg-type]
    told = plain.get("/api/dashboard").json()
    assert not told["pending"]
    (pending,) = [each for each in told["screens"] if each["path"] == "/pending"]
    assert pending["group"] is None  # the screen says how to turn it on; the navigation does not name it


def test_a_session_on_plain_http_is_kept_too(house: House) -> None:
    house.root.patch("/api/users/ana", json={"password": "correct horse battery"})
    said = {"userId": "ana", "password": "correct horse battery"}
    browser = house.client(base_url="http://duly.lan")
    cookie = browser.post("/api/session", json=said).headers["set-cookie"]
    assert cookie.startswith("duly=")
    assert "Secure" not in cookie
    assert "HttpOnly" in cookie
    assert browser.get("/api/me").json()["userId"] == "ana"
    behind = house.client(base_url="http://duly.lan")
    safe = behind.post("/api/session", json=said, headers={"X-Forwarded-Proto": "https"}).headers["set-cookie"]
    assert safe.startswith("__Host-duly=")
    # On a safe connection a cookie that a neighbouring site could have set is none.
    tossed = {"Cookie": cookie.partition(";")[0], "X-Forwarded-Proto": "https"}
    assert house.nobody.get("/api/me", headers=tossed).status_code == 401
    assert browser.delete("/api/session").status_code == 204
    assert browser.get("/api/me").status_code == 401
