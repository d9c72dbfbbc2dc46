"""Jobs that are over go after a while with all they have; so do files that nobody made a job of."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pytest

from duly import Duly
from duly.intake.intake import kept_by
from duly.testing import World
from duly.verbs import LOCAL
from tests.bulk.servers import bucket
from tests.intake.conftest import Open, kept, look, send
from tests.support import query, scaled

KEPT = scaled(3, 30)  # days
TABLE = "title,sku\ncup,7\npot,8\n"


@pytest.fixture
def app(open_app: Open) -> Duly:
    """Keeps jobs for KEPT days: thirty take ten times as long to live through as three."""
    app = open_app(jobs_keep_seconds=KEPT * 86_400)
    app.migrate()
    return app


def left(app: Duly) -> tuple[int, ...]:
    """How many jobs, rows and files there are."""
    tables = ("duly_job", "duly_item where job_id is not null", "duly_file")
    return tuple(query(app.internals.store, f"select count(*) from {table}")[0][0] for table in tables)


def test_a_job_goes_with_its_rows_and_file_when_it_has_been_over_for_long(app: Duly, world: World) -> None:
    old = send(app, TABLE)
    world.run()
    world.advance(days=KEPT - 1)
    young = send(app, "title\ncup\n")
    world.advance(hours=22)
    assert left(app) == (2, 3, 2)
    world.advance(hours=3)
    assert left(app) == (1, 1, 1)
    assert len(kept(app)) == 1
    assert look(app, young).done == 1
    (line,) = app.internals.verbs.audit.page(f"job:{old.id}")[:1]
    assert (line.actor, line.action) == ("retention", "job.removed")
    world.advance(days=KEPT + 1)
    assert (left(app), kept(app)) == ((0, 0, 0), [])
    assert len(world.items(task="duly.tidy")) == 1, "one, however many jobs there were"


def test_jobs_of_code_go_too_and_what_is_not_over_stays(app: Duly, world: World) -> None:
    over = app.job("count", [{"n": 1}])
    paused = app.job("count", [{"n": 2}])
    paused.pause()
    unread = send(app, b"%PDF-1.7 nothing")
    world.advance(days=KEPT + 1)
    assert [each.id for each in app.internals.verbs.jobs.page(LOCAL)] == [unread.id, paused.id]
    assert over.id < paused.id
    paused.resume()
    world.advance(days=KEPT + 1)
    assert [each.id for each in app.internals.verbs.jobs.page(LOCAL)] == [unread.id], "a person has to look at that one"


def test_they_may_be_kept_for_ever(open_app: Open) -> None:
    app = open_app(jobs_keep_seconds=0)
    app.migrate()
    tidy = app.internals.system["duly.tidy"]
    job = app.job("count", [])
    app.clock.set(app.clock.now() + timedelta(days=3650))  # type: ignore[attr-defined]
    with pytest.raises(Exception, match="3600"):
        tidy()
    assert job.counts().is_over


def test_a_job_that_begins_anew_is_not_removed(app: Duly, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    job = send(app, "title\nbroken\n")
    world.run()
    read = app.internals.store.read

    def revived(name: str, *given: object) -> list[tuple[object, ...]]:
        found = read(name, *given)  # type: ignore[arg-type]
        if name == "old_jobs":
            (row,) = app.internals.verbs.job_rows.by_number(LOCAL, job.id)
            app.internals.verbs.jobs.reprocess(LOCAL, job.id, ids=[row.id])
        return found

    monkeypatch.setattr(app.internals.store, "read", revived)
    assert app.internals.verbs.jobs.expire(app.clock.now() + timedelta(days=1)) == 0
    assert not look(app, job).is_removed


def forgotten(app: Duly) -> str:
    """A file that was kept by someone who died before making a job of it."""
    with app.internals.intake.receive() as writer:
        writer.write(b"nobody's")
    return kept_by(writer).key


def test_a_file_that_became_no_job_is_removed_a_day_later(open_app: Open, tmp_path: Path) -> None:
    app = open_app()
    app.migrate()
    job = send(app, TABLE)
    key, young = forgotten(app), forgotten(app)
    folder = Path(app.internals.intake.settings.files_url)
    (folder / "uploads" / "another-databases").write_text("not ours")
    for name in (key, app.internals.verbs.files.of(job).place, "uploads/another-databases"):
        os.utime(folder / name, (1, 1))
    assert app.internals.intake.sweep() == 1
    assert set(kept(app)) == {young, app.internals.verbs.files.of(job).place, "uploads/another-databases"}
    assert open_app(files_url=str(tmp_path / "nowhere")).internals.intake.sweep() == 0
    assert not (tmp_path / "nowhere").exists()


def test_the_same_in_a_bucket(open_app: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with bucket("swept") as (s3, client):
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", str(s3.access_key_id))
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", str(s3.secret_access_key))
        monkeypatch.setenv("AWS_REGION", s3.region or "us-east-1")
        monkeypatch.setattr("duly.intake.intake.LEFT_FOR", -60.0)  # whatever is there is old enough
        app = open_app(s3_endpoint=s3.endpoint, files_url=f"s3://swept/{tmp_path.name}")
        app.migrate()
        job, key = send(app, TABLE), forgotten(app)
        client.put_object(Bucket="swept", Key=f"{tmp_path.name}/uploads/deeper/{Path(key).name}", Body=b"x")
        assert app.internals.intake.sweep() == 1
        found = client.list_objects(Bucket="swept", Prefix=f"{tmp_path.name}/")["Contents"]
        assert {Path(each["Key"]).name for each in found} == {
            Path(key).name,
            Path(app.internals.verbs.files.of(job).place).name,
        }
