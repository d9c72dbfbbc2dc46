"""From a file to rows: each of them once, whatever happens on the way, and none that is bad ends the job."""

from __future__ import annotations

import asyncio
import io
import os
from datetime import timedelta
from pathlib import Path
from secrets import token_hex
from typing import Any
from unittest.mock import MagicMock

import pytest
from msgspec.structs import replace

from duly import Duly, GiveUp
from duly.bulk.buckets import BucketError
from duly.bulk.sources import Changed, SourceError, registry
from duly.bulk.sources.ftp import FtpSource
from duly.core.clock import ManualClock
from duly.core.errors import DoesNotExist, StoreUnavailable, WrongState
from duly.core.model import Job
from duly.errors import ConfigError, InputError
from duly.intake import ingest as room
from duly.intake.ingest import Ingest, ingest
from duly.intake.intake import FileOptions, new_file, shown_name, type_of
from duly.intake.sources import checked
from duly.testing import World
from duly.verbs import LOCAL
from duly.verbs.files import FileVersion
from tests.bulk.read.test_images import painted
from tests.bulk.servers import bucket, ftp_server
from tests.intake.conftest import Open, kept, look, send, someone
from tests.support import query

TABLE = 'Product Name,Manufacturer,Item No.,Price\ntea pot,Acme,7,"1,50"\ncup,Acme,8,2\n'


def many(count: int) -> str:
    return "title,sku\n" + "".join(f"thing {n},{n}\n" for n in range(1, count + 1))


def rows(app: Duly, job: Any) -> list[Any]:
    return list(app.internals.verbs.job_rows.each(LOCAL, job.id))


def test_a_file_becomes_rows_which_are_worked_off(app: Duly, world: World) -> None:
    job = send(app, TABLE, ip_address="10.0.0.7")
    assert app.internals.verbs.jobs.show(LOCAL, job.id).queue_state == "QUEUED"
    world.run()
    first, second = rows(app, job)
    assert first.input == {"Product Name": "tea pot", "Manufacturer": "Acme", "Item No.": "7", "Price": "1,50"}
    assert (first.args["title"], first.args["price"]) == ("tea pot", "1.50")
    assert (first.result, second.status) == ({"found": "Acme tea pot", "cost": "1.50"}, "DONE")
    shown = app.internals.verbs.jobs.show(LOCAL, job.id)
    assert (shown.queue_state, shown.total_items, shown.processed_items, shown.attempts) == ("DONE", 2, 2, 1)
    assert (shown.ip_address, shown.job_type, shown.is_complete) == ("10.0.0.7", "csv", True)
    page = app.internals.verbs.job_rows.by_number(LOCAL, job.id)
    assert [(item.title, item.brand, item.sku) for item in page] == [("tea pot", "Acme", "7"), ("cup", "Acme", "8")]
    file = app.internals.verbs.files.of(look(app, job))
    assert (file.name, file.type, file.size) == ("products.csv", "csv", len(TABLE))


def test_a_bad_row_is_a_row_in_error_that_says_where_and_why(app: Duly, world: World) -> None:
    job = send(app, 'title,price\ngood,1\n"never closed,2\nbad,many\n,3\nlast,4\n')
    world.run()
    told = [(row.status, row.last_error) for row in rows(app, job)]
    assert [status for status, _ in told] == ["DONE", "ERROR", "ERROR", "ERROR", "DONE"]
    assert [str(error).partition(":")[0] for _, error in told[1:4]] == ["line 3", "line 4", "line 5"]
    assert "'many' is not a number" in str(told[2][1])
    over = look(app, job)
    assert (over.failed, over.done, over.is_over) == (3, 2, True)
    assert rows(app, job)[2].input == {"title": "bad", "price": "many"}


def test_what_its_task_refuses_is_a_row_in_error_too(app: Duly, world: World) -> None:
    job = send(app, b'{"n": 1}\n{"n": "one"}\n', "rows.jsonl", job_type="typed")
    world.run()
    assert [(row.status, row.last_error) for row in rows(app, job)] == [
        ("DONE", None), ("ERROR", "line 2: n: expected `int`, got `str`")
    ]  # fmt: skip


def test_rows_that_could_not_be_read_are_not_tried_again(app: Duly, world: World) -> None:
    job = send(app, "title,price\nbad,many\nbroken,1\n")
    world.run()
    bad, failed = app.internals.verbs.job_rows.by_number(LOCAL, job.id)
    with pytest.raises(WrongState, match="correct the row"):
        app.internals.verbs.jobs.reprocess(LOCAL, job.id, ids=[bad.id])
    app.internals.verbs.jobs.reprocess(LOCAL, job.id)
    world.run()
    revived = dict(query(app.internals.store, "select id, revivals from duly_item where job_id is not null"))
    assert revived == {bad.id: 0, failed.id: 1}


def test_reading_goes_on_after_a_crash_and_doubles_no_row(
    app: Duly, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = send(app, many(300) + "thing 1,1\n")
    write = Ingest._write

    def crashing(self: Ingest) -> None:
        write(self)
        raise ZeroDivisionError

    monkeypatch.setattr(Ingest, "_write", crashing)
    with pytest.raises(ZeroDivisionError):
        ingest(app.internals.intake, job.id, lambda _: None)
    assert look(app, job).total == 64
    monkeypatch.undo()
    world.run()
    over = look(app, job)
    assert (over.total, over.done, over.attempts, over.duplicates) == (301, 301, 2, 1)
    assert [row.row_no for row in rows(app, job)] == list(range(1, 302))


def test_a_write_whose_answer_was_lost_is_not_repeated(
    app: Duly, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = send(app, many(200))
    store, load, lost = app.internals.store, app.internals.store.load_rows, []
    monkeypatch.setattr(room.time, "sleep", lambda _: None)

    def forgetful(*given: Any) -> bool:
        taken = load(*given)
        if len(lost) < 3:
            lost.append(taken)
            raise StoreUnavailable("the line went dead")
        return taken

    monkeypatch.setattr(store, "load_rows", forgetful)
    assert ingest(app.internals.intake, job.id, lambda _: None) == {"rows": 200}
    assert len(lost) == 3
    assert [row.row_no for row in rows(app, job)] == list(range(1, 201))


def test_a_database_that_stays_away_leaves_it_to_a_later_try(app: Duly, monkeypatch: pytest.MonkeyPatch) -> None:
    job = send(app, many(2))
    pauses: list[float] = []
    monkeypatch.setattr(room.time, "sleep", pauses.append)

    def away(*_: Any) -> bool:
        raise StoreUnavailable("away")

    monkeypatch.setattr(app.internals.store, "load_rows", away)
    with pytest.raises(StoreUnavailable):
        ingest(app.internals.intake, job.id, lambda _: None)
    assert len(pauses) == 9


def test_two_who_read_the_same_file_do_not_double_a_row(app: Duly, monkeypatch: pytest.MonkeyPatch) -> None:
    job = send(app, many(200))
    write, is_first = Ingest._write, [True]

    def overtaken(self: Ingest) -> None:
        if is_first and is_first.pop():
            other = Ingest(app.internals.intake, look(app, job), lambda _: None)
            other.run()
        write(self)

    monkeypatch.setattr(Ingest, "_write", overtaken)
    with pytest.raises(WrongState, match="by another process"):
        ingest(app.internals.intake, job.id, lambda _: None)
    assert look(app, job).total == 200


@pytest.mark.parametrize("act", ["cancel", "remove"])
def test_a_job_that_is_stopped_while_its_file_is_read_takes_no_more(
    app: Duly, world: World, monkeypatch: pytest.MonkeyPatch, act: str
) -> None:
    job = send(app, many(300))
    write, acts = Ingest._write, [getattr(app.internals.verbs.jobs, act)]

    def stopped(self: Ingest) -> None:
        write(self)
        while acts:
            acts.pop()(LOCAL, job.id)

    monkeypatch.setattr(Ingest, "_write", stopped)
    ingest(app.internals.intake, job.id, lambda _: None)
    world.run()
    if act == "cancel":
        assert (look(app, job).skipped, look(app, job).is_over) == (64, True)
    else:
        assert query(app.internals.store, "select count(*) from duly_item where job_id is not null") == [(0,)]
    assert ingest(app.internals.intake, job.id, lambda _: None) == {"rows": 64 if act == "cancel" else 0}


def test_a_file_that_cannot_be_read_fails_its_job_until_it_is_tried_again(app: Duly, world: World) -> None:
    job = send(app, b"%PDF-1.7 nothing", "products.csv")
    world.run()
    shown = app.internals.verbs.jobs.show(LOCAL, job.id)
    assert shown.queue_state == "FAILED"
    assert "is a PDF" in str(shown.last_error)
    (reading,) = world.items(task="duly.ingest")
    assert reading.state == "failed"
    with app.internals.intake.files.writer(app.internals.verbs.files.of(job).place) as mended:
        mended.write(TABLE.encode())
    app.retry(reading.id)
    world.run()
    shown = app.internals.verbs.jobs.show(LOCAL, job.id)
    assert (shown.queue_state, shown.last_error, shown.done_items) == ("DONE", None, 2)


def test_a_job_whose_file_is_given_up_midway_is_over_when_its_rows_are(open_app: Open) -> None:
    app = open_app(job_most_rows=64, owner_most_jobs=1, ingest_min_rows=20, ingest_max_rows=20)
    app.migrate()
    clock = app.clock
    assert isinstance(clock, ManualClock)
    with asyncio.Runner() as runner:
        world = World(app, clock, runner)
        job = send(app, many(100))
        with pytest.raises(GiveUp):
            ingest(app.internals.intake, job.id, lambda _: None)
        seen = app.internals.verbs.jobs.show(LOCAL, job.id)
        assert (seen.queue_state, seen.finished_at, seen.processed_items) == ("FAILED", None, 0)
        assert 0 < look(app, job).total <= 64
        world.run()
        seen = app.internals.verbs.jobs.show(LOCAL, job.id)
        assert (seen.queue_state, seen.is_complete, seen.finished_at) == ("FAILED", False, clock.now())
        assert look(app, job).is_over
        other = send(app, TABLE)
        assert other.id != job.id, "the one that was given up counts no more"
        world.run()
        clock.set(clock.now() + timedelta(days=1))
        assert app.internals.verbs.jobs.expire(clock.now()) == 1
        assert look(app, job).is_given_up, "it stays until a person has looked at it"


def test_reading_a_file_again_opens_its_job_again(app: Duly, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    job = send(app, many(100))
    object.__setattr__(app.internals.intake.settings, "job_most_rows", 64)
    world.run()
    assert (look(app, job).is_given_up, look(app, job).finished_at is None) == (True, False)
    object.__setattr__(app.internals.intake.settings, "job_most_rows", 1_000)
    (reading,) = world.items(task="duly.ingest")
    app.retry(reading.id)
    states = []
    write = Ingest._write

    def watched(self: Ingest) -> None:
        states.append(look(app, job).finished_at)
        write(self)

    monkeypatch.setattr(Ingest, "_write", watched)
    world.run()
    assert set(states) == {None}
    assert (look(app, job).done, look(app, job).is_over, look(app, job).last_error) == (100, True, None)


def test_a_file_of_another_kind_than_the_jobs_is_refused(app: Duly, world: World) -> None:
    table, image = send(app, TABLE, job_type="image"), send(app, painted("PNG"), "a.png")
    world.run()
    assert "accept images" in str(look(app, table).last_error)
    assert "accept a table" in str(look(app, image).last_error)


def test_a_file_that_is_gone_fails_its_job(app: Duly, world: World) -> None:
    job = send(app, TABLE)
    app.internals.intake.files.delete(app.internals.verbs.files.of(job).place)
    world.advance(hours=1)  # as long as another machine may have it
    assert app.internals.verbs.jobs.show(LOCAL, job.id).queue_state == "FAILED"


def test_a_worker_that_does_not_know_the_type_leaves_it_to_others(app: Duly, world: World) -> None:
    job = send(app, TABLE)
    known = app.internals.job_types.pop("csv")
    world.run()
    assert look(app, job).total == 0
    app.internals.job_types["csv"] = known
    world.advance(60)
    assert look(app, job).done == 2


def test_a_file_with_too_many_rows_is_not_taken_to_its_end(open_app: Open) -> None:
    app = open_app(job_most_rows=100)
    app.migrate()
    job = send(app, many(101))
    with pytest.raises(Exception, match="at most 100 rows"):
        ingest(app.internals.intake, job.id, lambda _: None)


def test_an_owner_has_only_so_many_jobs_and_rows_under_way(open_app: Open) -> None:
    app = open_app(owner_most_jobs=2, owner_most_rows=3)
    app.migrate()
    ana, bob = someone("ana"), someone("bob")
    first = send(app, many(3), who=ana)
    send(app, many(1), who=ana)
    with pytest.raises(WrongState, match="2 jobs are not finished"):
        send(app, many(1), who=ana)
    assert len(kept(app)) == 2, "what is refused is not kept"
    send(app, many(1), who=bob)
    ingest(app.internals.intake, first.id, lambda _: None)
    app.internals.verbs.jobs.remove(ana, first.id + 1)
    with pytest.raises(WrongState, match="3 rows of jobs have not ended"):
        send(app, many(1), who=ana)


def test_files_may_be_turned_off(open_app: Open) -> None:
    app = open_app(db_ingest_enabled=False)
    with pytest.raises(ConfigError, match="db_ingest_enabled"):
        app.internals.intake.receive()
    with pytest.raises(ConfigError, match="db_ingest_enabled"):
        app.internals.intake.order(LOCAL, "file:a.csv", job_type="csv")


def test_under_a_key_a_file_is_one_job(app: Duly, world: World) -> None:
    first, again = send(app, TABLE, key="march"), send(app, TABLE, key="march")
    assert (first.id, len(kept(app))) == (again.id, 1)
    world.run()
    assert look(app, first).total == 2


def test_a_job_that_was_made_with_its_answer_lost_has_its_file(
    app: Duly, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = app.internals.verbs.jobs.create

    def forgetful(*given: Any, **more: Any) -> Job:
        create(*given, **more)
        raise StoreUnavailable("the line went dead")

    monkeypatch.setattr(app.internals.verbs.jobs, "create", forgetful)
    with pytest.raises(StoreUnavailable):
        send(app, TABLE, key="march")
    monkeypatch.undo()
    job = send(app, TABLE, key="march")
    world.run()
    assert (look(app, job).done, len(kept(app))) == (2, 1)


def test_an_unknown_type_is_refused_and_nothing_kept(app: Duly) -> None:
    with pytest.raises(
        InputError, match="jobType: no job type 'stock' is registered here; known types: counted, csv, image"
    ):
        send(app, TABLE, job_type="stock")
    assert kept(app) == []
    with pytest.raises(InputError, match="already"):
        app.job_type("csv", app.tasks["keep"])


def test_what_is_to_be_done_to_a_job_that_is_gone_is_done(app: Duly) -> None:
    task = app.internals.system["duly.jobs"]
    assert task(job_id=999_999, action="cancel", options={}, attempt=None) == {"rows": 0}


def test_removing_a_job_removes_its_file(app: Duly, world: World) -> None:
    job = send(app, TABLE)
    world.run()
    app.internals.verbs.jobs.remove(LOCAL, job.id)
    world.run()
    assert kept(app) == []
    assert query(app.internals.store, "select count(*) from duly_file") == [(0,)]
    with pytest.raises(DoesNotExist):
        app.internals.verbs.files.of(job)


def test_images_have_thumbnails_which_go_with_their_job(app: Duly, world: World) -> None:
    job = send(app, painted("PNG"), "cat.png", job_type="image")
    world.run()
    (row,) = rows(app, job)
    small = f"{app.internals.intake.thumbnails(job)}/1.webp"
    assert (row.status, row.args["name"], row.args["thumbnail"]) == ("DONE", "cat.png", small)
    assert len(kept(app)) == 2
    app.internals.verbs.jobs.remove(LOCAL, job.id)
    world.run()
    assert kept(app) == []


def test_databases_that_share_a_place_for_files_have_thumbnails_of_their_own(
    app: Duly, world: World, tmp_path: Path
) -> None:
    other = Duly(f"sqlite:///{tmp_path}/other.db", files_url=app.internals.intake.settings.files_url)
    other.job_type("image", other.task(name="see")(lambda **row: None), images=True)
    other.migrate()
    job = send(app, painted("PNG"), "cat.png", job_type="image")
    theirs = send(other, painted("PNG"), "dog.png", job_type="image")
    world.run()
    ingest(other.internals.intake, theirs.id, lambda _: None)
    assert other.internals.intake.thumbnails(job) != app.internals.intake.thumbnails(job), (
        "numbers of jobs are the same in many databases"
    )
    assert len(kept(app)) == 4
    app.internals.verbs.jobs.remove(LOCAL, job.id)
    world.run()
    assert len(kept(app)) == 2
    other.close()


def test_a_file_that_another_machine_may_have_is_tried_again_for_a_while(
    app: Duly, world: World, tmp_path: Path
) -> None:
    job = send(app, TABLE)
    files, aside = Path(app.internals.intake.settings.files_url), tmp_path / "aside"
    files.rename(aside)
    files.mkdir()
    world.run()
    assert app.internals.verbs.jobs.show(LOCAL, job.id).queue_state == "QUEUED"
    (item,) = app.read.page(task="duly.ingest")
    assert "all servers and workers must share that place" in str(item.last_error)
    files.rmdir()
    aside.rename(files)
    world.advance(minutes=1)
    assert (look(app, job).total, app.internals.verbs.jobs.show(LOCAL, job.id).queue_state) == (2, "DONE")

    lost = send(app, TABLE + "pan,9\n")
    files.rename(aside)
    world.advance(hours=1)
    shown = app.internals.verbs.jobs.show(LOCAL, lost.id)
    assert (shown.queue_state, f"in files_url ({files})" in str(shown.last_error)) == ("FAILED", True)


# -- columns


def test_a_mapping_that_was_said_is_remembered_for_files_of_that_shape(app: Duly, world: World) -> None:
    said = FileOptions(mapping={"title": "what", "sku": "which"})
    ana, bob = someone("ana"), someone("bob")
    table, other = "what,which\ncup,7\n", "which,what\n8,pot\n"
    jobs = [send(app, table, who=ana, file_options=said)]
    world.run()
    jobs += [send(app, other, who=ana), send(app, table, who=bob)]
    world.run()
    titles = [[row.args.get("title") for row in rows(app, job)] for job in jobs]
    assert titles[:2] == [["cup"], ["pot"]]
    assert [row.status for row in rows(app, jobs[2])] == ["ERROR"], "bob's columns are not known"


def test_a_mapping_of_columns_that_are_not_there_fails_the_job(app: Duly, world: World) -> None:
    job = send(app, TABLE, file_options=FileOptions(mapping={"title": "nothing"}))
    world.run()
    assert "there is no column 'nothing'" in str(look(app, job).last_error)


def test_columns_without_a_header_are_told_apart_by_their_values(app: Duly, world: World) -> None:
    job = send(app, "4006381333931,Stabilo point 88 blue\n5901234123457,A tea pot\n")
    world.run()
    assert [row.args["title"] for row in rows(app, job)] == ["Stabilo point 88 blue", "A tea pot"]


def test_duplicates_are_counted_and_worked_off_all_the_same(app: Duly, world: World) -> None:
    job = send(app, "sku,title\n1,cup\n2,pot\n1,cup again\n")
    world.run()
    assert (look(app, job).duplicates, look(app, job).done) == (1, 3)


def test_a_preview_tells_what_would_be_refused_and_keeps_nothing(app: Duly, tmp_path: Path) -> None:
    path = tmp_path / "seen.csv"
    path.write_text("Name,Shelf,Preis\ncup,red,2\npot,blue,many\n")
    with path.open("rb") as file:
        seen = app.internals.intake.preview(LOCAL, file, "seen.csv", job_type="csv")
    assert (seen.kind, seen.mapping["title"], seen.mapping["price"], seen.refused) == ("csv", "Name", "Preis", 1)
    assert [bool(row.problems) for row in seen.rows] == [False, True]
    with path.open("rb") as file:
        plain = app.internals.intake.preview(LOCAL, file, "seen.csv", job_type="plain", count=1)
    assert [row.values["Name"] for row in plain.rows] == ["cup"]
    assert (plain.mapping, plain.unused, plain.refused) == ({}, (), 0)
    assert app.internals.verbs.jobs.page(LOCAL) == []


def test_a_preview_tells_what_the_task_would_refuse(app: Duly) -> None:
    file = io.BytesIO(b'{"n": 1}\n{"n": "one"}\n')
    seen = app.internals.intake.preview(LOCAL, file, "rows.jsonl", job_type="typed")
    assert ([row.problems for row in seen.rows], seen.refused) == ([(), ("n: expected `int`, got `str`",)], 1)
    mapped = app.internals.intake.preview(LOCAL, io.BytesIO(b"Name,Colour of it\ncup,red\n"), "a.csv", job_type="csv")
    assert ["color" in problem for row in mapped.rows for problem in row.problems] == [True], "it has no such argument"
    picture = app.internals.intake.preview(LOCAL, io.BytesIO(painted("PNG")), "cat.png", job_type="image")
    assert [row.problems for row in picture.rows] == [()]


@pytest.mark.parametrize(
    ("name", "shown", "type"),
    [
        ("a.CSV", "a.CSV", "csv"),
        ("../../etc/passwd", "passwd", "unknown"),
        (r"C:\files\a.xlsx", "a.xlsx", "xlsx"),
        ("\x00\n", "file", "unknown"),
    ],
)
def test_names_of_files_are_only_names(name: str, shown: str, type: str) -> None:
    assert (shown_name(name), type_of(name)) == (shown, type)


# -- files that lie elsewhere


def test_a_file_of_the_inbox_is_taken_once(open_app: Open, tmp_path: Path) -> None:
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    app = open_app(inbox=str(inbox))
    app.migrate()
    (inbox / "products.csv").write_text(TABLE)
    with pytest.raises(InputError, match="jobType"):
        app.internals.intake.order(LOCAL, "file:products.csv", job_type="nothing")
    job = app.internals.intake.order(LOCAL, "file:products.csv", job_type="csv", key="march")
    assert app.internals.intake.order(LOCAL, "file:products.csv", job_type="csv", key="march").id == job.id
    assert (inbox / "products.csv").exists(), "it is taken by whoever reads it"
    assert ingest(app.internals.intake, job.id, lambda _: None) == {"rows": 2}
    assert app.internals.verbs.files.of(look(app, job)).name == "products.csv"
    assert (inbox / "done" / "products.csv").exists()
    again = app.internals.intake.order(LOCAL, "file:products.csv", job_type="csv")
    with pytest.raises(GiveUp, match=r"no file 'products\.csv' in the inbox"):
        ingest(app.internals.intake, again.id, lambda _: None)
    assert app.internals.verbs.jobs.show(LOCAL, again.id).queue_state == "FAILED"


@pytest.mark.parametrize("is_removed", [True, False])
def test_a_file_that_comes_too_late_for_its_job_is_not_kept(
    open_app: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_removed: bool
) -> None:
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    app = open_app(inbox=str(inbox))
    app.migrate()
    (inbox / "products.csv").write_text(TABLE)
    job = app.internals.intake.order(LOCAL, "file:products.csv", job_type="csv")
    keep = app.internals.intake.keep

    def slow(portions: Any) -> Any:
        made = keep(portions)
        if is_removed:
            app.internals.verbs.jobs.remove(LOCAL, job.id)
        else:
            file = new_file(made, "products.csv", None)
            seen = FileVersion("file:", "another", "products.csv")
            app.internals.verbs.scans.fetched(seen, job, replace(file, place="uploads/first"))
        return made

    monkeypatch.setattr(app.internals.intake, "keep", slow)
    if is_removed:
        assert ingest(app.internals.intake, job.id, lambda _: None) == {"rows": 0}
    else:
        with pytest.raises(WrongState, match="has a file by now"):
            ingest(app.internals.intake, job.id, lambda _: None)
    assert kept(app) == []
    assert query(app.internals.store, "select count(*) from duly_file") == [(0 if is_removed else 1,)]
    assert (inbox / "products.csv").exists()


def test_a_file_that_could_not_be_kept_is_put_back(open_app: Open, tmp_path: Path) -> None:
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    app = open_app(inbox=str(inbox), upload_max_bytes=10)
    app.migrate()
    (inbox / "products.csv").write_text(TABLE)
    job = app.internals.intake.order(LOCAL, "file:products.csv", job_type="csv")
    with pytest.raises(GiveUp, match="more than 10 bytes"):
        ingest(app.internals.intake, job.id, lambda _: None)
    assert (inbox / "products.csv").exists()


def test_what_was_half_written_a_day_ago_is_swept_away(app: Duly) -> None:
    root = Path(app.internals.intake.settings.files_url)
    (root / ".incoming").mkdir(parents=True)
    left = root / ".incoming" / "left"
    left.write_text("half")
    os.utime(left, (1, 1))
    send(app, TABLE)
    assert not left.exists()


@pytest.mark.parametrize(
    "source",
    ["file:a.csv", "s3://other/a.csv", "s3://drop/a.csv", "s3://drop/incoming-not/a.csv", "ftp://drop/incoming/a.csv"],
)
def test_only_places_that_are_allowed_are_asked(open_app: Open, source: str) -> None:
    app = open_app(sources_allowed="s3://drop/incoming, ftp://files.example/")
    with pytest.raises(InputError, match="source: "):
        app.internals.intake.order(LOCAL, source, job_type="csv")


def test_the_user_of_a_server_is_the_one_that_is_allowed(open_app: Open) -> None:
    settings = open_app(sources_allowed="ftp://ana@files.example/in, ftp://open.example").internals.intake.settings
    for source in ("ftp://files.example/in/a.csv", "ftp://ana@files.example/in/a.csv"):
        assert checked(source, settings, registry()).user == "ana"
    assert checked("ftp://open.example/a.csv", settings, registry()).user is None
    for source in ("ftp://root@files.example/in/a.csv", "ftp://root@open.example/a.csv"):
        with pytest.raises(InputError, match=r"ftp://root@\w+\.example is not in sources_allowed"):
            checked(source, settings, registry())


def test_a_bucket_and_a_server_are_asked_as_far_as_is_allowed(
    open_app: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ftp").mkdir()
    (tmp_path / "ftp" / "products.csv").write_text(TABLE)
    folder = token_hex(8)  # the other database's test has the same bucket
    with bucket("drop") as (s3, client), ftp_server(tmp_path / "ftp") as ftp:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", str(s3.access_key_id))
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", str(s3.secret_access_key))
        monkeypatch.setenv("AWS_REGION", s3.region or "us-east-1")
        client.put_object(Bucket="drop", Key="new/products.csv", Body=TABLE.encode())
        server = f"ftp://{ftp.user}@{ftp.host}:{ftp.port}"
        app = open_app(
            s3_endpoint=s3.endpoint, ftp_password=ftp.password, sources_allowed=f"s3://drop/new/,{server}",
            files_url=f"s3://drop/{folder}",
        )  # fmt: skip
        app.migrate()
        for source in ("s3://drop/new/products.csv", f"{server}/products.csv"):
            job = app.internals.intake.order(LOCAL, source, job_type="csv")
            assert ingest(app.internals.intake, job.id, lambda _: None) == {"rows": 2}
        assert len(client.list_objects(Bucket="drop", Prefix=f"{folder}/uploads/")["Contents"]) == 2
        for source in ("s3://drop/new/nothing.csv", f"{server}/nothing.csv"):
            job = app.internals.intake.order(LOCAL, source, job_type="csv")
            with pytest.raises(GiveUp, match="source: there is no"):
                ingest(app.internals.intake, job.id, lambda _: None)


def test_a_place_that_is_away_for_a_while_does_not_fail_a_job(
    open_app: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ftp").mkdir()
    (tmp_path / "ftp" / "products.csv").write_text(TABLE)
    with ftp_server(tmp_path / "ftp") as ftp:
        server = f"ftp://{ftp.user}@{ftp.host}:{ftp.port}"
        app = open_app(ftp_password=ftp.password, sources_allowed=server)
        app.migrate()
        job = app.internals.intake.order(LOCAL, f"{server}/products.csv", job_type="csv")
        for act, error in (("find", SourceError), ("portions", Changed), ("find", BucketError)):
            with monkeypatch.context() as patch:
                patch.setattr(FtpSource, act, MagicMock(side_effect=error("hiccup")))
                with pytest.raises(error, match="hiccup"):
                    ingest(app.internals.intake, job.id, lambda _: None)
            assert app.internals.verbs.jobs.show(LOCAL, job.id).queue_state == "QUEUED"
        missing = app.internals.intake.order(LOCAL, f"{server}/no/such/folder.csv", job_type="csv")
        with pytest.raises(GiveUp, match=r"source: .*550"):
            ingest(app.internals.intake, missing.id, lambda _: None)
        assert ingest(app.internals.intake, job.id, lambda _: None) == {"rows": 2}


def test_a_place_for_files_is_a_folder_or_a_bucket(open_app: Open) -> None:
    with pytest.raises(ConfigError, match="names no bucket"):
        open_app(files_url="s3://").internals.intake.receive()
