"""Files that were dropped somewhere: each becomes a job once, whoever looks, however often, and wherever one dies."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from duly import Duly, GiveUp
from duly.core.results import LISTED, ScanReport
from duly.errors import ConfigError, InputError
from duly.intake import scan as room
from duly.intake import sources
from duly.intake.ingest import ingest
from duly.intake.scan import Scanner
from duly.testing import World
from duly.verbs import LOCAL
from tests.bulk.read.test_images import painted
from tests.bulk.servers import bucket, ftp_server
from tests.intake.conftest import Open, kept, send
from tests.support import query, scaled

TABLE = "title,sku\ncup,7\npot,8\n"


@pytest.fixture
def inbox(tmp_path: Path) -> Path:
    folder = tmp_path / "inbox"
    folder.mkdir()
    return folder


@pytest.fixture
def dropped(open_app: Open, inbox: Path) -> Duly:
    """An app with an inbox, in which nothing has to settle."""
    app = open_app(inbox=str(inbox), scan_settle_seconds=0)
    app.migrate()
    return app


def scan(app: Duly, **more: Any) -> ScanReport:
    return app.internals.intake.scanner.scan(LOCAL, **more)


def jobs(app: Duly) -> list[tuple[Any, ...]]:
    return query(
        app.internals.store, "select f.name, j.id from duly_job j join duly_file f on f.id = j.file_id order by j.id"
    )


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def run(app: Duly) -> None:
    """What workers would do now."""
    with asyncio.Runner() as runner:
        World(app, app.clock, runner).run()  # type: ignore[arg-type]


def test_a_dropped_file_becomes_a_job_once_and_is_moved_to_those_that_are_done(dropped: Duly, inbox: Path) -> None:
    (inbox / "a.csv").write_text(TABLE)
    told = scan(dropped)
    ((name, job_id),) = jobs(dropped)
    assert (told.found, told.took, told.left, told.taken[0].source, told.taken[0].job_id) == (
        1, 1, 0, "file:a.csv", job_id
    )  # fmt: skip
    assert (name, names(inbox), names(inbox / "done")) == ("a.csv", [".taken", "done", "failed"], ["a.csv"])
    assert scan(dropped).found == 0
    run(dropped)
    over = dropped.internals.verbs.jobs.show(LOCAL, job_id)
    assert (over.queue_state, over.done_items, over.user_id) == ("DONE", 2, None)


def test_the_same_content_is_passed_over_as_long_as_its_job_is_kept(dropped: Duly, inbox: Path) -> None:
    (inbox / "a.csv").write_text(TABLE)
    first = scan(dropped).taken[0].job_id
    assert first is not None
    run(dropped)
    (inbox / "again.csv").write_text(TABLE)
    told = scan(dropped)
    assert (told.took, told.passed_over, told.passed[0].job_id) == (0, 1, first)
    assert "has the same content as the file of job" in str(told.passed[0].reason)
    assert (names(inbox / "done"), len(kept(dropped))) == (["a.csv", "again.csv"], 1)
    dropped.internals.verbs.jobs.remove(LOCAL, first)
    (inbox / "now.csv").write_text(TABLE)
    assert scan(dropped).took == 1
    run(dropped)
    assert len(kept(dropped)) == 1, "the file of the removed job is gone, and that of the new one is there"


def test_other_content_under_the_same_name_is_another_file(dropped: Duly, inbox: Path) -> None:
    for number in range(3):
        (inbox / "a.csv").write_text(f"title\n{number}\n")
        assert scan(dropped).took == 1
    assert [name for name, _ in jobs(dropped)] == ["a.csv"] * 3
    assert names(inbox / "done") == ["a-2.csv", "a-3.csv", "a.csv"]


def test_what_no_type_of_jobs_takes_is_refused_with_the_reason_beside_it(dropped: Duly, inbox: Path) -> None:
    (inbox / "a.csv").write_bytes(b"%PDF-1.7 nothing")
    told = scan(dropped)
    assert (told.took, told.refused) == (0, 1)
    assert "is a PDF" in str(told.refusals[0].reason)
    assert names(inbox / "failed") == ["a.csv", "a.csv.reason.txt"]
    assert "is a PDF" in (inbox / "failed" / "a.csv.reason.txt").read_text()
    assert (kept(dropped), jobs(dropped)) == ([], [])


def test_a_file_that_is_too_large_is_refused(open_app: Open, inbox: Path) -> None:
    app = open_app(inbox=str(inbox), scan_settle_seconds=0, upload_max_bytes=10)
    app.migrate()
    (inbox / "a.csv").write_text(TABLE)
    assert "more than 10 bytes" in str(scan(app).refusals[0].reason)
    assert names(inbox / "failed") == ["a.csv", "a.csv.reason.txt"]


def test_links_devices_and_names_that_lead_elsewhere_are_not_followed(
    dropped: Duly, inbox: Path, tmp_path: Path
) -> None:
    (tmp_path / "secret.csv").write_text(TABLE)
    (inbox / "link.csv").symlink_to(tmp_path / "secret.csv")
    os.mkfifo(inbox / "pipe.csv")
    (inbox / "folder").mkdir()
    (inbox / "half.csv.part").write_text(TABLE)
    told = scan(dropped)
    assert (told.found, told.took, told.refused) == (0, 0, 2)
    assert [each.source for each in told.refusals] == ["link.csv", "pipe.csv"]
    with pytest.raises(InputError, match="source"):
        dropped.internals.intake.order(LOCAL, "file:../secret.csv", job_type="csv")
    job = dropped.internals.intake.order(LOCAL, "file:link.csv", job_type="csv")
    with pytest.raises(GiveUp, match="there is no file"):
        ingest(dropped.internals.intake, job.id, lambda _: None)


def test_a_file_that_still_grows_is_left_alone_until_it_stays_the_same(open_app: Open, inbox: Path) -> None:
    app = open_app(inbox=str(inbox), scan_settle_seconds=5.0)
    app.migrate()
    growing = inbox / "a.csv"
    growing.write_text("title\n")
    pauses: list[float] = []

    def meanwhile(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) < 3:
            with growing.open("a") as file:
                file.write("more\n")

    app.internals.intake.scanner = Scanner(app.internals.intake, meanwhile)
    for _ in range(2):
        told = scan(app)
        assert (told.took, told.unsettled, told.passed[0].reason) == (0, 1, "may still be written")
    object.__setattr__(app.internals.intake.settings, "scan_settle_seconds", 0.05)
    app.internals.intake.scanner = Scanner(app.internals.intake)
    assert (scan(app).took, pauses) == (1, [5.0, 5.0])
    (live,) = app.read.page(task="duly.scan")
    assert live.state == "waiting", "a worker goes on"


def test_what_an_owner_may_not_have_yet_is_taken_when_they_may(open_app: Open, inbox: Path) -> None:
    app = open_app(inbox=str(inbox), scan_settle_seconds=0, scan_owner="ana", owner_most_jobs=2)
    app.migrate()
    for number in range(5):
        (inbox / f"{number}.csv").write_text(f"title\n{number}\n")
    told = scan(app)
    assert (told.took, told.left) == (2, 3)
    assert "2 jobs are not finished" in str(told.held)
    assert len(kept(app)) == 2, "what is not taken is not kept"
    with asyncio.Runner() as runner:
        World(app, app.clock, runner).advance(minutes=5)  # type: ignore[arg-type]
    assert [name for name, _ in jobs(app)] == [f"{number}.csv" for number in range(5)]
    assert {each.user_id for each in app.internals.verbs.jobs.page(LOCAL)} == {"ana"}


def test_one_look_takes_a_portion_and_a_worker_goes_on(
    dropped: Duly, inbox: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "PORTION", 10)
    object.__setattr__(dropped.internals.intake.settings, "owner_most_jobs", 1000)
    for number in range(35):
        (inbox / f"{number}.csv").write_text(f"title\n{number}\n")
    told = scan(dropped)
    assert (told.found, told.took, told.left) == (35, 10, 25)
    assert scan(dropped).took == 10
    (waiting,) = dropped.read.page(task="duly.scan")  # one of them, however many ask
    run(dropped)
    assert (len(jobs(dropped)), dropped.read.item(waiting.id).result) == (35, {"taken": 15})
    assert dropped.read.page(task="duly.scan")[0].id == waiting.id


def test_ten_thousand_files_are_listed_and_told_of_in_bounds(
    dropped: Duly, inbox: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "SECONDS", 0.0)
    for number in range(10_000):
        (inbox / f"{number}.csv").touch()
    told = scan(dropped)
    assert (told.found, told.took, told.left) == (10_000, 0, 10_000)
    assert max(map(len, (told.taken, told.passed, told.refusals))) <= LISTED


def test_pictures_are_jobs_of_another_type_and_a_type_may_be_said(open_app: Open, inbox: Path) -> None:
    app = open_app(inbox=str(inbox), scan_settle_seconds=0)
    app.migrate()
    (inbox / "cat.png").write_bytes(painted("PNG"))
    (inbox / "a.csv").write_text(TABLE)
    scan(app)
    assert {each.job_type for each in app.internals.verbs.jobs.page(LOCAL)} == {"csv", "image"}
    other = open_app(inbox=str(inbox), scan_settle_seconds=0, scan_type="plain")
    (inbox / "b.csv").write_text("colour\nred\n")
    scan(other)
    assert app.internals.verbs.jobs.page(LOCAL)[0].job_type == "plain"
    nowhere = open_app(inbox=str(inbox), scan_settle_seconds=0, scan_type="stock")
    (inbox / "c.csv").write_text("colour\nblue\n")
    assert "no job type stock is registered here" in str(scan(nowhere).held)
    assert (inbox / "c.csv").exists()


def test_a_process_without_types_of_jobs_leaves_files_to_a_worker_that_has_them(
    dropped: Duly, inbox: Path, database_url: str
) -> None:
    (inbox / "a.csv").write_text(TABLE)
    (inbox / "cat.png").write_bytes(painted("PNG"))
    settings = {"inbox": str(inbox), "scan_settle_seconds": 0, "files_url": dropped.internals.intake.settings.files_url}
    bare, half = (Duly(database_url, clock=dropped.clock, **settings) for _ in range(2))
    half.job_type("csv", half.task(name="look_up")(lambda **row: None))
    try:
        told = scan(bare)
        assert (told.took, told.refused, "no job type at all" in str(told.held)) == (0, 0, True)
        (waiting,) = dropped.read.page(task="duly.scan")
        assert names(inbox) == ["a.csv", "cat.png"]
        told = scan(half)
        assert (told.took, told.refused, told.left, told.held) == (1, 0, 1, None)
        assert "is left to a worker with the job type image" in str(told.passed[0].reason)
        run(half)
        assert (half.read.item(waiting.id).state, names(inbox / "failed")) == ("waiting", [])
        assert len(kept(dropped)) == 1, "what is left is not kept"
    finally:
        bare.close()
        half.close()
    with asyncio.Runner() as runner:
        World(dropped, dropped.clock, runner).advance(minutes=1)  # type: ignore[arg-type]
    assert [name for name, _ in jobs(dropped)] == ["a.csv", "cat.png"]


def test_of_many_scanners_at_the_same_moment_one_takes_a_file(open_app: Open, inbox: Path) -> None:
    apps = [open_app(inbox=str(inbox), scan_settle_seconds=0, owner_most_jobs=1000) for _ in range(4)]
    apps[0].migrate()
    for number in range(40):
        (inbox / f"{number}.csv").write_text(f"title\n{number}\n")
    with ThreadPoolExecutor(4) as pool:
        told = list(pool.map(scan, apps))
    assert sum(each.took for each in told) == 40
    assert sorted(name for name, _ in jobs(apps[0])) == sorted(f"{number}.csv" for number in range(40))
    assert (len(kept(apps[0])), len(names(inbox / "done"))) == (40, 40)


def test_files_of_a_bucket_and_a_server_are_taken_once_and_stay_there(
    open_app: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = tmp_path / "ftp"
    (server / "in").mkdir(parents=True)
    (server / "in" / "b c.csv").write_text("title\nof the server\n")
    drop = f"drop-{tmp_path.parent.name}-{tmp_path.name}".replace("_", "-")[-60:].strip("-")  # buckets outlive tests
    with bucket(drop) as (s3, client), ftp_server(server) as ftp:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", str(s3.access_key_id))
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", str(s3.secret_access_key))
        monkeypatch.setenv("AWS_REGION", s3.region or "us-east-1")
        where = f"ftp://{ftp.user}@{ftp.host}:{ftp.port}/in"
        settings = {
            "s3_endpoint": s3.endpoint, "ftp_password": ftp.password, "scan_settle_seconds": 0.01,
            "sources_allowed": f"s3://{drop},{where},ftp://127.0.0.1:1/", "files_url": f"s3://{drop}/kept",
        }  # fmt: skip
        app, other = open_app(**settings), open_app(**settings)
        app.migrate()
        client.put_object(Bucket=drop, Key="new/a.csv", Body=TABLE.encode())
        client.put_object(Bucket=drop, Key="bad.csv", Body=b"%PDF-1.7 nothing")
        told = scan(app)
        assert [each.source for each in told.taken] == [f"s3://{drop}/new/a.csv", f"{where}/b%20c.csv"]
        refusals = {each.source: str(each.reason) for each in told.refusals}
        assert "is a PDF" in refusals[f"s3://{drop}/bad.csv"]
        assert "127.0.0.1:1" in refusals["ftp://127.0.0.1:1/"], "one that is away keeps nobody from the others"
        for scanner in (app, other):
            told = scan(scanner)
            assert (told.found, told.took, told.passed_over, told.refused) == (3, 0, 2, 2), "uploads are not found anew"
        client.put_object(Bucket=drop, Key="new/a.csv", Body=b"title\nanother version\n")
        with ThreadPoolExecutor(2) as pool:
            assert sorted(each.took for each in pool.map(scan, (app, other))) == [0, 1]
        assert len(jobs(app)) == 3
        # What was refused is looked at again when someone asks for that.
        object.__setattr__(app.internals.intake.settings, "scan_type", "")
        client.delete_object(Bucket=drop, Key="bad.csv")
        client.put_object(Bucket=drop, Key="bad.csv", Body=b"%PDF-1.7 nothing")
        assert (scan(app).refused, scan(app, is_again=True).refused) == (2, 2)
        reasons = query(app.internals.store, "select reason from duly_scanned where job_id is null")
        assert len(reasons) == 1


def test_a_file_that_someone_ordered_is_not_taken_by_a_scan(dropped: Duly, inbox: Path) -> None:
    (inbox / "a.csv").write_text(TABLE)
    job = dropped.internals.intake.order(LOCAL, "file:a.csv", job_type="csv")
    ingest(dropped.internals.intake, job.id, lambda _: None)
    # As if its reader had died before it moved the file on.
    (inbox / "done" / "a.csv").rename(inbox / "a.csv")
    told = scan(dropped)
    assert (told.took, told.passed[0].job_id, told.passed[0].reason) == (0, job.id, "was taken before")
    assert names(inbox / "done") == ["a.csv"]


def test_scans_may_be_turned_off_and_places_may_be_wrong(open_app: Open, tmp_path: Path) -> None:
    app = open_app(inbox=str(tmp_path / "nowhere"), sources_allowed="gopher://drop/")
    app.migrate()
    told = scan(app)
    assert {each.source for each in told.refusals} == {"file:", "gopher://drop/"}
    off = open_app(db_ingest_enabled=False)
    with pytest.raises(ConfigError, match="db_ingest_enabled"):
        scan(off)
    off.internals.verbs.scans.go_on()
    run(off)
    assert off.read.page(task="duly.scan")[0].result == {"taken": 0}


# -- again and again


def test_a_worker_looks_every_so_often_while_the_settings_say_so(open_app: Open, inbox: Path) -> None:
    settings = {"inbox": str(inbox), "scan_settle_seconds": 0}
    app = open_app(**settings, scan_every=60)
    app.migrate()
    with asyncio.Runner() as runner:
        world = World(app, app.clock, runner)  # type: ignore[arg-type]
        World(open_app(**settings, scan_every=60), app.clock, runner)  # type: ignore[arg-type]
        (schedule,) = app.schedules.page()
        assert (schedule.task, schedule.rule) == ("duly.scan", "every 1m")
        for number in range(3):
            (inbox / f"{number}.csv").write_text(f"title\n{number}\n")
            world.advance(60)
            assert len(jobs(app)) == number + 1
        World(open_app(**settings, scan_every=300), app.clock, runner)  # type: ignore[arg-type]
        assert app.schedules.page()[0].rule == "every 5m"
        World(open_app(scan_every=0), app.clock, runner)  # type: ignore[arg-type]
        assert len(app.schedules.page()) == 1, "an app without places has no say"
        World(open_app(**settings), app.clock, runner)  # type: ignore[arg-type]
        assert app.schedules.page() == []


def test_a_worker_that_knows_no_places_leaves_it_to_others(app: Duly, world: World) -> None:
    app.internals.verbs.scans.go_on()
    world.run()
    (item,) = app.read.page(task="duly.scan")
    assert item.state == "waiting"


# -- whoever dies

STEP = scaled(19, 9)  # every so many lines
ROOMS = ("intake/scan.py", "intake/intake.py", "intake/sources.py", "verbs/scans.py", "verbs/jobs.py", "folder.py")


def _die_at(line: int, settings: dict[str, Any], url: str) -> None:
    """Scan, and be killed before the line of this number; the exit code says whether there was one."""
    from duly.apps.enrichment.fields import PRODUCT

    app = Duly(url, **settings)

    @app.task
    def look_up(title: str = "", sku: str = "", brand: str = "", price: str = "", ean: str = "") -> None: ...

    app.job_type("csv", look_up, PRODUCT)
    app.internals.store.now()
    count = 0

    def trace(frame: Any, event: str, _: Any) -> Any:
        nonlocal count
        if not frame.f_code.co_filename.endswith(ROOMS):
            return None
        if event == "line":
            count += 1
            if count == line:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    sys.settrace(trace)
    app.internals.intake.scanner.portion()
    sys.settrace(None)
    os._exit(0)


def test_wherever_a_scanner_is_killed_each_file_becomes_one_job(
    open_app: Open, inbox: Path, tmp_path: Path, database_url: str
) -> None:
    settings = {
        "inbox": str(inbox), "scan_settle_seconds": 0, "owner_most_jobs": 10_000, "files_url": str(tmp_path / "files")
    }  # fmt: skip
    app = open_app(**settings)
    app.migrate()
    app.internals.store.close()
    app.internals.database._store = None
    fork = multiprocessing.get_context("fork")
    line, drops = 1, 0
    while True:
        (inbox / "a.csv").write_text(f"title\n{line}\n")
        (inbox / "bad.csv").write_bytes(b"%%PDF-1.7 %d" % line)
        drops += 1
        child = fork.Process(target=_die_at, args=(line, settings, database_url))
        child.start()
        child.join(60)
        if child.exitcode == 0:
            break
        assert child.exitcode == -signal.SIGKILL
        if not (inbox / "a.csv").exists():  # someone else drops another file of the same name meanwhile
            (inbox / "a.csv").write_text(f"title\n{line} again\n")
            drops += 1
        scan(app)
        app.close()
        assert names(inbox) == [".taken", "done", "failed"]
        for path in (*(inbox / "done").iterdir(), *(inbox / "failed").iterdir()):
            path.unlink()
        line += STEP
    assert line > 100
    assert len(jobs(app)) == drops
    assert query(app.internals.store, "select count(distinct sha256), count(*) from duly_file") == [(drops, drops)]
    assert names(inbox / ".taken") == []
    app.close()


def test_a_place_that_does_not_answer_is_away_soon(
    open_app: Open, inbox: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "PATIENCE", 0.2)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "any")
    (inbox / "a.csv").write_text(TABLE)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        app = open_app(
            inbox=str(inbox), scan_settle_seconds=0, sources_allowed=f"ftp://127.0.0.1:{port}/,s3://drop/",
            s3_endpoint=f"http://127.0.0.1:{port}",
        )  # fmt: skip
        app.migrate()
        begun = time.monotonic()
        told = scan(app)
    assert time.monotonic() - begun < 20
    assert (told.took, [each.source for each in told.refusals]) == (1, [f"ftp://127.0.0.1:{port}/", "s3://drop/"])


def test_places_that_there_is_no_time_for_are_left_to_a_worker(
    open_app: Open, inbox: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "WHOLE", 10.3)
    (inbox / "a.csv").write_text(TABLE)
    hung = threading.Event()
    app = open_app(
        inbox=str(inbox), scan_settle_seconds=60, sources_allowed="ftp://127.0.0.1:1/,ftp://127.0.0.1:2/"
    )  # fmt: skip
    app.migrate()
    with monkeypatch.context() as patch:
        patch.setattr(sources.Remote, "look", lambda _: hung.wait(60) and [])
        begun = time.monotonic()
        told = scan(app)
        hung.set()
    assert time.monotonic() - begun < 20
    assert (told.took, told.unsettled, told.left) == (0, 1, 2)
    assert [(each.source, each.reason) for each in told.passed[:2]] == [
        ("ftp://127.0.0.1:1/", room.LATE), ("ftp://127.0.0.1:2/", room.LATE)
    ]  # fmt: skip
    (waiting,) = app.read.page(task="duly.scan")
    assert waiting.state == "waiting"


def test_uploads_are_not_mixed_up_with_scans(dropped: Duly, inbox: Path) -> None:
    sent = send(dropped, TABLE)
    (inbox / "a.csv").write_text(TABLE)
    assert scan(dropped).taken[0].job_id != sent.id
