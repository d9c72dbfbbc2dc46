"""The app that docs/apps.md builds, as a package that someone installs: duly finds everything that it announces."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from tests.apps.conftest import eventually
from tests.cli.test_processes import free_port
from tests.docs.pages import ROOT, blocks
from tests.outbound.provider import Provider, ok

PAGE = ROOT / "docs" / "apps.md"


def source(folder: Path) -> Path:
    """The folder of the package that the page tells to make, file by file."""
    page = PAGE.read_text(encoding="utf8")
    (project,), (screen,), (table,) = (
        re.findall(rf"^```{kind}\n(.*?)^```", page, re.MULTILINE | re.DOTALL) for kind in ("toml", "js", "sql")
    )
    files = {
        "pyproject.toml": project,
        "duly_texts/__init__.py": "\n\n".join(blocks(PAGE)[:-2]),
        "duly_texts/static/texts.js": screen,
        **{f"duly_texts/migrations/{database}/0001_sent.sql": table for database in ("sqlite", "postgres")},
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf8")
    return folder


def wheel(package: Path, folder: Path) -> Path:
    """The wheel of a package, built by the backend that its pyproject.toml names, from a copy of its folder."""
    copy = shutil.copytree(package, folder / "source", ignore=shutil.ignore_patterns("__pycache__"))
    backend = tomllib.loads((copy / "pyproject.toml").read_text())["build-system"]
    assert backend == {"requires": ["hatchling"], "build-backend": "hatchling.build"}
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(build, cwd=copy, check=True, timeout=120, capture_output=True)
    (built,) = folder.glob("*.whl")
    shutil.rmtree(copy)  # so that nothing is found there in place of what the wheel has
    return built


def install(built: Path, target: Path) -> Path:
    """Install a wheel into a folder, with uv, which made the .venv that these tests run in."""
    uv = shutil.which("uv") or ROOT / ".scratch" / "uv" / "bin" / "uv"
    subprocess.run(
        [uv, "pip", "install", "--offline", "--no-deps", "--no-cache", "--quiet", "--python", sys.executable,
         "--target", target, built],
        check=True, timeout=120,
    )  # fmt: skip
    return target


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wheel(source(tmp_path_factory.mktemp("source")), tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(built: Path) -> Path:
    return install(built, built.parent / "site")


Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def env(installed: Path, tmp_path: Path) -> dict[str, str]:
    known = {name: value for name, value in os.environ.items() if not name.startswith("DULY_")}
    return {**known, "PYTHONPATH": str(installed), "DULY_DATABASE_URL": f"sqlite:///{tmp_path / 'duly.db'}"}


@pytest.fixture
def duly(env: dict[str, str], tmp_path: Path) -> Run:
    def run(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "duly.cli", *words]
        return subprocess.run(
            command, cwd=tmp_path, env={**env, **more}, capture_output=True, text=True, check=False, timeout=60
        )

    return run


@contextmanager
def up(env: dict[str, str], folder: Path, port: int) -> Iterator[str]:
    """`duly up` for a while; its address."""
    command = [sys.executable, "-m", "duly.cli", "up", "--http-port", str(port)]
    running = subprocess.Popen(command, cwd=folder, env=env)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        running.terminate()
        running.wait(30)


def asked(url: str, body: Any = None, **headers: str) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json", **headers})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read())


def is_up(url: str) -> bool:
    try:
        return bool(urllib.request.urlopen(f"{url}/readyz", timeout=5).status == 200)
    except OSError:
        return False


def test_its_wheel_has_the_sql_and_the_screens_and_announces_the_plugin(built: Path) -> None:
    with ZipFile(built) as archive:
        assert {name for name in archive.namelist() if "dist-info" not in name} == {
            "duly_texts/__init__.py", "duly_texts/static/texts.js",
            "duly_texts/migrations/sqlite/0001_sent.sql", "duly_texts/migrations/postgres/0001_sent.sql",
        }  # fmt: skip
        assert archive.read("duly_texts-1.0.dist-info/entry_points.txt").split() == [
            b"[duly.apps]", b"texts", b"=", b"duly_texts:plugin",
        ]  # fmt: skip


def test_its_settings_are_shown_with_their_sources(duly: Run) -> None:
    shown = duly("settings", "--json", SMS_GATEWAY_URL="http://gateway", DULY_TEXTS_API_KEY="sk-1")
    assert shown.returncode == 0, shown.stderr
    ours = {each["name"]: each for each in json.loads(shown.stdout) if each["app"] == "texts"}
    assert {name: (each["value"], each["source"]) for name, each in ours.items()} == {
        "texts_gateway_url": ("http://gateway", "SMS_GATEWAY_URL"),
        "texts_api_key": ("***", "DULY_TEXTS_API_KEY"),
        "texts_longest": (160, "default"),
    }
    assert "DULY_TEXTS_LONGEST" in duly("settings").stdout
    refused = duly("settings", DULY_TEXTS_LONGEST="0")
    assert (refused.returncode, "DULY_TEXTS_LONGEST: must be at least 1" in refused.stderr) == (2, True)


def test_its_command_puts_and_the_doctor_finds_what_is_missing(duly: Run) -> None:
    assert duly("migrate").returncode == 0
    assert "Send a text message." in duly("--help").stdout
    healthy = json.loads(duly("doctor", "--json").stdout)
    assert "texts" not in {each["subject"] for each in healthy}
    put = duly("text", "+385 1 234", "hello")
    assert put.stdout == "text 1 is on its way\n", put.stderr
    refused = duly("text", "+385 1 234", "hello", DULY_TEXTS_LONGEST="4")
    assert (refused.returncode, "text: has 5 characters; 4 is the limit" in refused.stderr) == (2, True)
    unwell = duly("doctor", "--json")
    (finding,) = [each for each in json.loads(unwell.stdout) if each["subject"] == "texts"]
    assert (unwell.returncode, finding["level"]) == (1, "bad")
    assert finding["text"] == "1 wait, and there is no gateway"
    assert "texts" not in duly("doctor", "--json", DULY_APPS="reminders").stdout


def test_an_unknown_app_is_an_error_that_lists_it_among_the_known(duly: Run) -> None:
    refused = duly("up", DULY_APPS="texts, tests")
    assert refused.returncode == 2
    known = "birthdays, catalog, deliver, enrichment, messages, reminders, texts"
    assert f"there is no app 'tests' here; known: {known}" in refused.stderr


def test_its_task_and_its_route_work_where_the_setting_apps_names_it(env: dict[str, str], tmp_path: Path) -> None:
    with Provider(ok) as gateway:
        given = {**env, "DULY_APPS": "texts, reminders", "SMS_GATEWAY_URL": f"{gateway.url}/texts"}
        with up(given, tmp_path, free_port()) as url:
            eventually(lambda: is_up(url))
            for _ in range(2):
                text = {"phone": "+385 1 234", "text": "Your order is ready"}
                assert asked(f"{url}/api/texts", text, **{"Idempotency-Key": "order-7"}) == {"id": 1}
            (request,) = eventually(lambda: gateway.requests)
            assert request.body == {"to": "+385 1 234", "text": "Your order is ready"}
            eventually(lambda: asked(f"{url}/api/items/1")["state"] == "done")
            paths = asked(f"{url}/api/openapi.json")["paths"]
            assert "/api/texts" in paths
            assert "/api/reminders" in paths
            assert "/api/products" not in paths
            screens = {each["path"]: each for each in asked(f"{url}/api/dashboard")["screens"]}
            assert {"/texts", "/reminders"} <= set(screens)
            assert "/catalog" not in screens
            with urllib.request.urlopen(f"{url}/texts", timeout=60) as page:
                (static,) = set(re.findall(r'"(/static/[0-9a-f]+)/', page.read().decode()))
            with urllib.request.urlopen(f"{url}{static}/{screens['/texts']['script']}", timeout=60) as script:
                assert script.headers["Content-Type"].startswith("text/javascript")
                assert b"export default function Texts()" in script.read()
