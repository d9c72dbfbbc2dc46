"""Nobody has more jobs under way than they may, whichever way they come in, and nobody waits behind another's rows."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from duly import Duly
from duly.core.errors import WrongState
from duly.intake.ingest import ingest
from duly.testing import World
from duly.verbs import LOCAL
from tests.intake.conftest import Open, kept, send, someone

ANA, BOB = someone("ana"), someone("bob")


def table(rows: int, name: str = "x") -> str:
    return "title\n" + f"{name}\n" * rows


@pytest.fixture
def inbox(tmp_path: Path) -> Path:
    folder = tmp_path / "inbox"
    folder.mkdir()
    return folder


@pytest.fixture
def app(open_app: Open, inbox: Path) -> Duly:
    app = open_app(owner_most_jobs=3, owner_most_rows=10, inbox=str(inbox), scan_settle_seconds=0, scan_owner="ana")
    app.migrate()
    return app


def live(app: Duly, owner: str = "ana") -> int:
    return sum(each.queue_state != "DONE" for each in app.internals.verbs.jobs.page(LOCAL, owner))


def test_many_who_ask_at_once_get_as_many_as_they_may_and_no_more(app: Duly) -> None:
    def ask(number: int) -> bool:
        try:
            send(app, table(1, str(number)), who=ANA)
        except WrongState:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(ask, range(24))) == 3
    assert (live(app), len(kept(app))) == (3, 3)
    send(app, table(1), who=BOB)


def test_the_limit_holds_for_uploads_addresses_and_scans(app: Duly, inbox: Path) -> None:
    (inbox / "a.csv").write_text(table(1, "a"))
    (inbox / "b.csv").write_text(table(1, "b"))
    send(app, table(1), who=ANA)
    app.internals.intake.order(ANA, "file:a.csv", job_type="csv")
    first = app.internals.intake.scanner.scan(LOCAL)
    assert (first.took, live(app)) == (1, 3)
    with pytest.raises(WrongState, match="3 jobs are not finished, which is the limit"):
        send(app, table(1), who=ANA)
    with pytest.raises(WrongState, match="3 jobs"):
        app.internals.intake.order(ANA, "file:b.csv", job_type="csv")
    (inbox / "c.csv").write_text(table(1, "c"))
    assert "3 jobs" in str(app.internals.intake.scanner.scan(LOCAL).held)
    assert live(app) == 3


def test_a_request_that_is_repeated_is_answered_also_when_no_more_may_come(app: Duly) -> None:
    jobs = [send(app, table(1), who=ANA, key=key) for key in ("a", "b", "c")]
    assert send(app, table(1), who=ANA, key="b").id == jobs[1].id


@pytest.mark.parametrize("how", ["end", "cancel", "remove"])
def test_whatever_ends_a_job_makes_room_for_one(app: Duly, world: World, how: str) -> None:
    jobs = [send(app, table(1), who=ANA) for _ in range(3)]
    for job in jobs:
        app.internals.verbs.jobs.pause(ANA, job.id)
    world.run()
    with pytest.raises(WrongState):
        send(app, table(1), who=ANA)
    match how:
        case "end":
            app.internals.verbs.jobs.resume(ANA, jobs[0].id)
        case "cancel":
            app.internals.verbs.jobs.cancel(ANA, jobs[0].id)
        case "remove":
            app.internals.verbs.jobs.remove(ANA, jobs[0].id)
    world.run()
    last = send(app, table(1), who=ANA)
    with pytest.raises(WrongState):
        send(app, table(1), who=ANA)
    app.internals.verbs.jobs.pause(ANA, last.id)


def test_rows_count_until_they_have_ended(app: Duly, world: World) -> None:
    job = send(app, table(9), who=ANA)
    ingest(app.internals.intake, job.id, lambda _: None)
    more = send(app, table(1), who=ANA)
    ingest(app.internals.intake, more.id, lambda _: None)
    with pytest.raises(WrongState, match="10 rows of jobs have not ended"):
        send(app, table(1), who=ANA)
    assert len(kept(app)) == 2
    world.run()
    send(app, table(1), who=ANA)


# -- fairness


@contextmanager
def working(app: Duly) -> Iterator[None]:
    worker = app.worker()
    running = threading.Thread(target=worker.run)
    running.start()
    try:
        yield
    finally:
        worker.stop()
        running.join()


def test_fifty_thousand_rows_of_one_owner_do_not_delay_ten_of_another(database_url: str) -> None:
    app = Duly(database_url)
    app.migrate()

    @app.task
    def work(n: int) -> None:
        time.sleep(0.001)

    large = app.job(work, ({"n": n} for n in range(50_000)), owner="ana")
    small = app.job(work, ({"n": n} for n in range(10)), owner="bob")
    with working(app):
        assert small.wait(120).done == 10
        assert large.counts().ended < 10_000, "most of the others are still to come"
        late = app.job(work, ({"n": n} for n in range(10)), owner="bob")
        begun = time.monotonic()
        assert late.wait(120).done == 10
        assert time.monotonic() - begun < 30
        assert not large.counts().is_over
        large.pause()
    app.close()
