"""The built-in app on a fresh database in virtual time, its API, and people to ask it."""

from __future__ import annotations

import asyncio
import atexit
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import psycopg
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from fastapi import FastAPI

from duly import Backoff, Duly, GiveUp
from duly.apps.birthdays import birthdays_on
from duly.apps.catalog import catalog_on
from duly.apps.deliver import http_on
from duly.apps.enrichment import enrichment_on
from duly.apps.messages import message_retry_on
from duly.apps.reminders import reminders_on
from duly.core.clock import ManualClock
from duly.testing import World
from duly.verbs import LOCAL
from duly.verbs.jobs import row_of
from duly.web import api as rooms
from duly.web.auth import is_loopback
from tests.support import is_sqlite, query

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it would rather have another httpx
    from fastapi.testclient import TestClient

START = datetime(2026, 12, 1, 8, 0, tzinfo=UTC)
LATER = "2026-12-02T08:00:00+00:00"
FILES = Path(tempfile.mkdtemp(prefix="duly-test-files-"))  # where uploads are kept, of this process alone
atexit.register(shutil.rmtree, FILES, ignore_errors=True)
ANYWHERE = "0.0.0.0"  # an address that is not loopback


def build(database_url: str, **settings: Any) -> Duly:
    """The built-in apps and a task of our own, on this database."""
    given = {"pending_enabled": True, "files_url": str(FILES), **settings}
    app = Duly(database_url, clock=ManualClock(START), **given)
    reminders_on(app)
    message_retry_on(app)
    catalog_on(app)
    birthdays_on(app)
    http_on(app)

    @app.task(retry=Backoff(base=60, tries=2))
    def echo(text: str, password: str = "") -> dict[str, str]:
        if text.startswith("broken"):
            raise GiveUp(text)
        return {"text": text, "password": password}

    @app.task
    def keep(**row: Any) -> None: ...

    app.job_type("csv", echo)
    enrichment_on(app)
    return app


# A third of a second to build, the same for every test: only what they speak of is each test's own.
routes = cache(rooms.build)


def api_on(app: Duly, host: str = "127.0.0.1") -> FastAPI:
    """The API over this app; the one before it over the same kind of address speaks of this app from here on."""
    is_local = is_loopback(host)
    return rooms.furnish(routes(is_local, tuple(app.internals.plugins.values())), app, is_local)


def client_of(api: FastAPI, portal: BlockingPortal, **more: Any) -> TestClient:
    """A client whose requests share an event loop and its threads."""
    client = TestClient(api, **{"base_url": "http://127.0.0.1", **more})
    client.portal = portal
    return client


class House:
    """An app behind an API that many use, and those who use it."""

    def __init__(self, app: Duly, runner: asyncio.Runner, portal: BlockingPortal) -> None:
        self.app = app
        self._portal = portal
        self.clock: ManualClock = app.clock  # type: ignore[assignment]
        self.world = World(app, self.clock, runner)
        self._clients: list[TestClient] = []
        for name in ("ana", "bob"):
            app.internals.verbs.users.create(LOCAL, name)
        app.internals.verbs.users.create(LOCAL, "root", "admin")
        self.secrets = {
            name: app.internals.verbs.users.make_key(LOCAL, name, "tests", scopes)[1]
            for name, scopes in (("ana", ("read", "write")), ("bob", ("read", "write")), ("root", SCOPES))
        }
        self.api = api_on(app, ANYWHERE)
        self.ana, self.bob, self.root = (self.client(self.secrets[name]) for name in ("ana", "bob", "root"))
        self.nobody = self.client()

    def client(self, secret: str | None = None, api: FastAPI | None = None, **more: Any) -> TestClient:
        headers = {"Authorization": f"Bearer {secret}"} if secret else {}
        client = client_of(api or self.api, self._portal, headers=headers, **more)
        self._clients.append(client)
        return client

    def local(self) -> TestClient:
        """The same app, embedded on loopback."""
        return self.client(api=api_on(self.app))

    def key(self, user: str, *scopes: str, **more: Any) -> TestClient:
        return self.client(self.app.internals.verbs.users.make_key(LOCAL, user, "extra", scopes, **more)[1])

    def put(self, who: TestClient | None = None, **more: Any) -> int:
        """An item of Ana's, or whose client this is; far in the future unless said otherwise."""
        given = {"task": "echo", "args": {"text": "hello"}, "at": LATER, **more}
        answer = (who or self.ana).post("/api/items", json={name: value for name, value in given.items() if value})
        assert answer.status_code == 201, answer.text
        self.app.internals.telemetry.depths.forget()  # on a slow machine they are read less often
        return int(answer.json()["id"])

    def fail(self, who: TestClient | None = None, text: str = "broken") -> int:
        """An item in review."""
        item_id = self.put(who, args={"text": text}, at=None)
        self.world.run()
        return item_id

    def group(self, item_id: int) -> str:
        return str(self.app.read.row(item_id, None).error_group)

    def audit(self, subject: str | None = None) -> list[dict[str, Any]]:
        """The audit log, newest first."""
        params = {"pageSize": "500", **({"subject": subject} if subject else {})}
        return self.root.get("/api/audit", params=params).json()["items"]

    def close(self) -> None:
        for client in self._clients:
            client.close()


def unreadable_rows(house: House, count: int) -> list[int]:
    """Rows of a job that could not be read, and are in review."""
    task = house.app.tasks["echo"]
    job = house.app.internals.verbs.jobs.open(LOCAL, task)
    new = task.new(text="x")
    rows = [
        row_of(job, number, new, status="ERROR", state="failed", outcome="unreadable", last_error="line 2")
        for number in range(1, count + 1)
    ]
    assert house.app.internals.store.load_rows(job.id, 1, rows)
    return [
        row[0]
        for row in query(house.app.internals.store, f"select id from duly_item where job_id = {job.id} order by id")
    ]


SCOPES = ("read", "write", "admin")
Open = Callable[..., House]


@pytest.fixture(scope="session")
def portal() -> Iterator[BlockingPortal]:
    with start_blocking_portal() as one:
        yield one


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as one:
        yield one


@pytest.fixture
def app(database_url: str) -> Iterator[Duly]:
    app = build(database_url)
    yield app
    app.close()


@pytest.fixture
def house(app: Duly, runner: asyncio.Runner, portal: BlockingPortal) -> Iterator[House]:
    house = House(app, runner, portal)
    yield house
    house.close()


@pytest.fixture
def statements(house: House, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """All statements that reach the database."""
    seen: list[str] = []
    store: Any = house.app.internals.store
    if is_sqlite(store):
        connect = store.connect

        def traced() -> Any:
            connection = connect()
            connection.set_trace_callback(seen.append)
            return connection

        store.close()  # so that its connections are made anew
        monkeypatch.setattr(store, "connect", traced)
        return seen
    execute = psycopg.Cursor.execute

    def counted(self: Any, query: Any, *more: Any, **options: Any) -> Any:
        seen.append(str(query))
        return execute(self, query, *more, **options)

    monkeypatch.setattr(psycopg.Cursor, "execute", counted)
    return seen
