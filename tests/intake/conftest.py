"""An app that takes files, on a fresh database in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from duly import Backoff, Duly, GiveUp, NotFound
from duly.apps.enrichment.fields import PRODUCT
from duly.core.clock import ManualClock
from duly.core.model import Job
from duly.intake.intake import Intake, kept_by
from duly.testing import World
from duly.verbs import LOCAL, Principal

START = datetime(2031, 5, 1, 8, 0, tzinfo=UTC)

Open = Callable[..., Duly]


@pytest.fixture
def open_app(database_url: str, tmp_path: Path) -> Iterator[Open]:
    opened: list[Duly] = []

    def build(**settings: Any) -> Duly:
        given = {"files_url": str(tmp_path / "files"), **settings}
        app = Duly(database_url, clock=ManualClock(START), **given)
        opened.append(app)

        @app.task(retry=Backoff(base=60, tries=2))
        def look_up(title: str = "", brand: str = "", sku: str = "", price: str = "", ean: str = "") -> dict[str, str]:
            if title == "broken":
                raise GiveUp("no")
            if title == "nowhere":
                raise NotFound("nobody has it")
            return {"found": f"{brand} {title}".strip(), "cost": price}

        @app.task
        def keep(**row: Any) -> None: ...

        @app.task
        def see(name: str, format: str, width: int, height: int, bytes: int, sha256: str, thumbnail: str) -> None: ...

        @app.task
        def count(n: int) -> None: ...

        @app.task
        def say(what: Any, **more: Any) -> Any:
            return what

        @app.task
        def refuse_one(n: str, token: str = "", note: str = "", late: str = "") -> None:
            if n == "1":
                raise GiveUp("no")

        app.job_type("csv", look_up, PRODUCT)
        app.job_type("counted", refuse_one)
        app.job_type("typed", count)
        app.job_type("plain", keep)
        app.job_type("image", see, images=True)
        return app

    yield build
    for app in opened:
        app.close()


@pytest.fixture
def app(open_app: Open) -> Duly:
    app = open_app()
    app.migrate()
    return app


@pytest.fixture
def world(app: Duly) -> Iterator[World]:
    assert isinstance(app.clock, ManualClock)
    with asyncio.Runner() as runner:
        yield World(app, app.clock, runner)


def someone(name: str) -> Principal:
    return Principal(name, "user", frozenset(("read", "write")), "key")


def send(
    app: Duly,
    content: str | bytes,
    name: str = "products.csv",
    who: Principal = LOCAL,
    job_type: str = "csv",
    **more: Any,
) -> Job:
    intake: Intake = app.internals.intake
    with intake.receive() as writer:
        writer.write(content.encode() if isinstance(content, str) else content)
    return intake.create(who, kept_by(writer), name, job_type=job_type, **more)


def look(app: Duly, job: Job) -> Job:
    return app.internals.verbs.jobs.get(LOCAL, job.id)


def kept(app: Duly) -> list[str]:
    """The files that are kept."""
    root = Path(app.internals.intake.settings.files_url)
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())
