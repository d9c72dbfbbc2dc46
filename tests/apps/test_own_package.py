"""A plug-in in a package of its own: its tables, alert, simulation, screen and files, on both databases, for real."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.apps.conftest import eventually as soon
from tests.apps.test_package import asked, install, is_up, up, wheel
from tests.cli.test_processes import free_port
from tests.docs.pages import ROOT
from tests.outbound.provider import Provider, ok
from tests.support import opened, query

PACKAGE = Path(__file__).parent / "package"
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which the package is installed, from the wheel that its build backend makes."""
    folder = tmp_path_factory.mktemp("parcels")
    return install(wheel(PACKAGE, folder), folder / "site")


@pytest.fixture
def env(site: Path, blank_url: str, tmp_path: Path) -> dict[str, str]:
    known = {name: value for name, value in os.environ.items() if not name.startswith("DULY_")}
    path = os.pathsep.join(filter(None, (str(site), os.environ.get("PYTHONPATH"))))
    depot = tmp_path / "depot"
    (depot / "north").mkdir(parents=True)
    return {
        **known, "PYTHONPATH": path, "DULY_DATABASE_URL": blank_url, "DULY_APPS": "parcels,reminders",
        "DULY_PARCELS_DEPOT": str(depot), "DULY_SOURCES_ALLOWED": "depot://north/",
        "DULY_FILES_URL": str(tmp_path / "kept"),
    }  # fmt: skip


@pytest.fixture
def duly(env: dict[str, str], tmp_path: Path) -> Run:
    def run(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "duly.cli", *words],
            cwd=tmp_path, env={**env, **more}, capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip

    return run


def test_everything_that_it_brings_is_used_and_uninstalling_it_does_no_harm(
    env: dict[str, str], duly: Run, blank_url: str, tmp_path: Path
) -> None:
    migrated = duly("migrate")
    assert migrated.stdout.splitlines()[-3:] == [
        "applied parcels/0001_parcels", "applied parcels/0002_lost", "applied reminders/0001_views",
    ], migrated.stderr  # fmt: skip
    assert duly("migrate").stdout == "nothing to do: the database is up to date\n"

    # A file of its own source becomes a job, whose rows are written to its table by a worker.
    (tmp_path / "depot" / "north" / "new.csv").write_text("code,lost\nA1,\nA2,yes\nA3,yes\n")
    with Provider(ok) as hook:
        given = {**env, "DULY_ALERT_WEBHOOK_URL": hook.url}
        with up(given, tmp_path, free_port()) as url:
            _eventually(lambda: is_up(url))
            job = asked(f"{url}/api/jobs", {"source": "depot://north/new.csv", "jobType": "parcels"})["jobId"]
            _eventually(lambda: asked(f"{url}/api/jobs/{job}")["queueState"] == "DONE")
            assert asked(f"{url}/api/jobs/{job}")["doneItems"] == 3
            assert asked(f"{url}/api/parcels/lost") == {"codes": ["A2", "A3"]}
            sent = [asked(f"{url}/api/parcels", {"code": "A4"}, **{"Idempotency-Key": "a4"}) for _ in range(2)]
            assert sent[0] == sent[1], "a repeated request is executed once"
            _eventually(lambda: asked(f"{url}/api/items/{sent[0]['id']}")["state"] == "done")
            assert "/parcels" in {each["path"] for each in asked(f"{url}/api/dashboard")["screens"]}
            with urllib.request.urlopen(f"{url}/parcels", timeout=10) as page:
                assert b"apps/parcels/parcels.js" in page.read()
            simulations = {each["app"]: each["parameters"] for each in asked(f"{url}/api/simulate")["items"]}
            assert [each["label"] for each in simulations["parcels"]] == ["Parcels", "Lost"]
        # The next worker looks for alerts as soon as it starts.
        with up(given, tmp_path, free_port()) as url:
            (alert,) = _eventually(lambda: is_up(url) and _alerts(url))
            assert (alert["name"], alert["message"]) == ("parcels.lost", "2 parcels are lost")
            posted = _eventually(lambda: [each.body for each in hook.requests])
            assert posted[0]["alert"] == "parcels.lost"
            assert posted[0]["details"] == {"codes": ["A2", "A3"]}
        for code in ("A2", "A3"):
            assert duly("parcel-found", code).stdout == f"{code} is found\n"
        with up(given, tmp_path, free_port()) as url:
            _eventually(lambda: is_up(url) and not _alerts(url))

    # Without the package, everything else goes on; its rows and the record of its migrations stay.
    gone = {"PYTHONPATH": os.environ.get("PYTHONPATH", ""), "DULY_APPS": "reminders", "DULY_SOURCES_ALLOWED": ""}
    assert "parcel-found" not in duly("--help", **gone).stdout
    assert duly("migrate", **gone).stdout == "nothing to do: the database is up to date\n"
    assert len(json.loads(duly("items", "--task", "parcels.send", "--json", **gone).stdout)) == 4
    assert "there is no app 'parcels' here" in duly("up", PYTHONPATH=gone["PYTHONPATH"]).stderr
    with opened(blank_url) as store:
        assert sorted(query(store, "select code from parcels_parcel")) == [("A1",), ("A2",), ("A3",), ("A4",)]


def test_a_worker_does_not_start_before_its_tables_are_there(duly: Run, blank_postgres_url: str) -> None:
    given = {"DULY_DATABASE_URL": blank_postgres_url}
    assert duly("migrate", DULY_APPS="reminders", **given).returncode == 0
    refused = duly("worker", "duly.apps.builtin:app", **given)
    assert "the tables of the app parcels are at migration 0, it needs 2: run `duly migrate`" in refused.stderr
    assert duly("migrate", "duly.apps.builtin:app", **given).stdout.split() == [
        "applied", "parcels/0001_parcels", "applied", "parcels/0002_lost",
    ]  # fmt: skip


def test_alembic_migrates_its_tables_too(env: dict[str, str], blank_url: str) -> None:
    for _ in range(2):
        subprocess.run(
            [sys.executable, "-m", "alembic", "upgrade", "head"], cwd=ROOT, env=env, check=True, timeout=120,
            capture_output=True,
        )  # fmt: skip
    with opened(blank_url) as store:
        assert query(store, "select count(*) from parcels_lost") == [(0,)]
        applied = "select app, version from duly_app_migration where app = 'parcels' order by version"
        assert query(store, applied) == [("parcels", 1), ("parcels", 2)]


def test_it_is_simulated_from_the_command_line(duly: Run) -> None:
    told = duly("simulate", "parcels", "--days", "1", "--parcels-sent", "7", "--lost", "2", "--json")
    assert json.loads(told.stdout)["attempts"] == 7, told.stderr


def _eventually(look: Callable[[], Any]) -> Any:
    """With time enough for programs that start on a busy machine."""
    return soon(look, 120)


def _alerts(url: str) -> list[dict[str, str]]:
    found: list[dict[str, str]] = asked(f"{url}/api/alerts")
    return found
