"""`app.job`: any number of rows as one whole, which is counted, waited for, paused, cancelled and followed up."""

from __future__ import annotations

import asyncio
import itertools
import random
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from duly import Backoff, Duly, GiveUp, InputError, Limit, NotFound
from duly.core.clock import ManualClock
from duly.core.errors import DoesNotExist, WrongState
from duly.core.model import Failed
from duly.store.migrate import dialect_of
from duly.testing import World
from duly.verbs import LOCAL, Principal, job_rows, job_walks
from duly.verbs.job_walks import cancel_rows
from duly.verbs.jobs import row_of
from tests.support import after, claim, decided, query, share

START = datetime(2031, 5, 1, 8, 0, tzinfo=UTC)


@pytest.fixture
def app(database_url: str) -> Iterator[Duly]:
    app = Duly(database_url, clock=ManualClock(START))

    @app.task(retry=Backoff(base=60, tries=2))
    def ring(n: int, how: str = "well") -> dict[str, int]:
        if how == "badly":
            raise GiveUp("no")
        if how == "nowhere":
            raise NotFound("nobody")
        return {"n": n}

    @app.task
    def report(to: str = "ana", job: dict[str, int] | None = None) -> dict[str, Any]:
        return {"to": to, "job": job}

    app.migrate()
    yield app
    app.close()


@pytest.fixture
def world(app: Duly) -> Iterator[World]:
    assert isinstance(app.clock, ManualClock)
    with asyncio.Runner() as runner:
        yield World(app, app.clock, runner)


def someone(name: str) -> Principal:
    return Principal(name, "user", frozenset(("read", "write")), "key")


def rows(*hows: str) -> list[dict[str, Any]]:
    return [{"n": n, "how": how} for n, how in enumerate(hows)]


def reports(world: World) -> list[Any]:
    return [item.result for item in world.items(task="report")]


def test_what_comes_then_is_told_how_the_rows_ended(app: Duly, world: World) -> None:
    job = app.job("ring", rows("well", "badly", "nowhere", "well"), then=app.tasks["report"])
    world.run()
    assert job.wait(0).is_over
    counts = {"id": job.id, "total": 4, "done": 2, "not_found": 1, "failed": 1, "skipped": 0}
    assert reports(world) == [{"to": "ana", "job": counts}]


def test_what_comes_then_may_have_arguments_of_its_own(app: Duly, world: World) -> None:
    app.job("ring", [], then=app.tasks["report"].new(to="bob"))
    world.run()
    (told,) = reports(world)
    assert (told["to"], told["job"]["total"]) == ("bob", 0)


def test_what_comes_then_is_named_as_the_task_of_the_rows_is(app: Duly, world: World) -> None:
    job = app.job("ring", rows("well"), then="report")
    world.run()
    assert job.wait(0).is_over
    assert [each["to"] for each in reports(world)] == ["ana"]


@pytest.mark.parametrize("then", ["nobody", 3, {"to": "bob"}])
def test_what_cannot_come_then_is_refused_before_there_is_a_job(app: Duly, then: Any) -> None:
    with pytest.raises(InputError):
        app.job("ring", rows("well"), then=then)
    assert app.internals.verbs.jobs.page(LOCAL) == []


def test_a_job_is_waited_for_but_not_for_ever(app: Duly) -> None:
    job = app.job("ring", rows("well"))
    with pytest.raises(TimeoutError, match="0 of 1 rows have ended"):
        job.wait(0)


def test_waiting_ends_with_the_last_row(database_url: str) -> None:
    app = Duly(database_url)
    app.migrate()

    @app.task
    def ring(n: int) -> None: ...

    worker = app.worker()
    running = threading.Thread(target=worker.run)
    running.start()
    try:
        assert app.job(ring, ({"n": n} for n in range(300))).wait(30).done == 300
    finally:
        worker.stop()
        running.join()
        app.close()


def test_under_a_key_a_job_goes_on_where_it_was_interrupted(app: Duly, world: World) -> None:
    def interrupted() -> Iterator[dict[str, Any]]:
        yield from rows("well", "well")
        raise ZeroDivisionError

    first = app.internals.verbs.jobs.open(LOCAL, app.tasks["ring"], key="march")
    (one,) = app.tasks["ring"].items(rows("well"))
    app.internals.store.load_rows(first.id, 1, [row_of(first, 1, one)])
    with pytest.raises(ZeroDivisionError):
        app.job("ring", interrupted(), key="march")
    job = app.job("ring", rows("well", "well", "well"), key="march")
    assert job.id == first.id
    assert app.job("ring", rows("never looked at"), key="march").id == job.id
    world.run()
    assert job.wait(0).done == 3


def test_a_row_that_the_task_refuses_is_told_by_its_place(app: Duly) -> None:
    with pytest.raises(InputError, match=r"rows\[1\].n: "):
        app.job("ring", [{"n": 1}, {"n": "one"}])


def test_a_task_with_a_limit_per_key_has_no_jobs(app: Duly) -> None:
    @app.task(limits=[Limit("phones", 2, per="1m", by="n")])
    def call(n: int) -> None: ...

    with pytest.raises(InputError, match="has the limit phones per n, which jobs do not support"):
        app.job(call, [{"n": 1}])


def test_a_paused_job_starts_nothing_and_others_go_on(app: Duly, world: World) -> None:
    paused, other = app.job("ring", rows("well")), app.job("ring", rows("well"))
    paused.pause()
    world.run()
    assert (paused.counts().done, other.counts().done) == (0, 1)
    assert app.internals.verbs.jobs.show(LOCAL, paused.id).queue_state == "PAUSED"
    paused.resume()
    world.run()
    assert paused.counts().is_over
    assert app.internals.verbs.jobs.show(LOCAL, paused.id).queue_state == "DONE"


def test_a_pause_of_the_task_holds_for_its_jobs(app: Duly, world: World) -> None:
    job = app.job("ring", rows("well"))
    app.pause("ring")
    world.run()
    assert app.internals.verbs.jobs.show(LOCAL, job.id).queue_state == "PAUSED"


def test_cancelling_a_job_ends_all_rows_that_have_not_ended(app: Duly, world: World) -> None:
    job = app.job("ring", rows("well", "well"), then=app.tasks["report"])
    job.cancel("a mistake")
    world.run()
    over = job.counts()
    assert (over.skipped, over.done, over.is_over) == (2, 0, True)
    assert reports(world) == [], "a task that does not ask whether the job was cancelled comes after its end only"
    assert app.internals.store.open_queues([over.rows_queue]) == {over.rows_queue}
    with pytest.raises(WrongState, match="is over"):
        job.cancel()


def test_a_job_that_is_cancelled_while_it_is_filled_takes_no_more_rows(app: Duly, world: World) -> None:
    job = app.internals.verbs.jobs.open(LOCAL, app.tasks["ring"])
    app.internals.verbs.jobs.cancel(LOCAL, job.id)
    with pytest.raises(WrongState, match="accepts no more rows"):
        app.internals.verbs.jobs.fill(job, app.tasks["ring"], rows("well"))


def test_failed_rows_are_tried_once_more(app: Duly, world: World) -> None:
    job = app.job("ring", rows("badly", "nowhere", "well"))
    world.run()
    assert job.reprocess() == 2
    world.run()
    over = job.counts()
    assert (over.failed, over.not_found, over.done, over.is_over) == (1, 1, 1, True)
    assert query(app.internals.store, "select revivals from duly_item where task = 'ring' order by id") == [
        (1,),
        (1,),
        (0,),
    ]


def test_rows_that_had_their_rounds_are_left_alone_unless_they_are_forgiven(app: Duly, world: World) -> None:
    job = app.job("ring", rows("nowhere"))
    world.run()
    for _ in range(5):
        world.advance(1)
        job.reprocess()
        world.run()
    most = app.internals.verbs.context.job_settings.max_attempts_not_found
    assert query(app.internals.store, "select revivals from duly_item where task = 'ring'") == [(most,)]
    world.advance(1)
    job.reprocess(is_reset=True)
    world.run()
    assert query(app.internals.store, "select revivals from duly_item where task = 'ring'") == [(most + 1,)]


def test_chosen_rows_are_tried_once_more_at_once(app: Duly, world: World) -> None:
    job, other = app.job("ring", rows("badly", "badly")), app.job("ring", rows("badly"))
    world.run()
    mine = [item.id for item in app.internals.verbs.job_rows.page(LOCAL, job.id)]
    (theirs,) = app.internals.verbs.job_rows.page(LOCAL, other.id)
    assert app.internals.verbs.jobs.reprocess(LOCAL, job.id, ids=mine[:1]) == 1
    assert job.counts().failed == 1
    with pytest.raises(DoesNotExist, match="has no row with the id"):
        app.internals.verbs.jobs.reprocess(LOCAL, job.id, ids=[theirs.id])
    with pytest.raises(InputError, match="itemIds: must be 1 to 1,000 ids"):
        app.internals.verbs.jobs.reprocess(LOCAL, job.id, ids=range(1_001))
    with pytest.raises(InputError, match="can be reprocessed, got DONE"):
        app.internals.verbs.jobs.reprocess(LOCAL, job.id, statuses=["DONE"])


def test_removing_a_job_leaves_nothing_of_it(app: Duly, world: World) -> None:
    job, other = app.job("ring", rows("well", "badly"), then=app.tasks["report"]), app.job("ring", rows("well"))
    job.remove()
    with pytest.raises(DoesNotExist):
        job.counts()
    assert [each.id for each in app.internals.verbs.jobs.page(LOCAL)] == [other.id]
    world.run()
    assert query(app.internals.store, "select count(*) from duly_item where task in ('ring', 'report')") == [(1,)]
    assert query(app.internals.store, "select id from duly_job") == [(other.id,)]


def test_rows_of_a_job_stay_as_long_as_their_job(app: Duly, world: World) -> None:
    app.job("ring", rows("well"))
    plain = app.put("ring", n=7)
    world.run()
    app.internals.store.prune(datetime(2099, 1, 1, tzinfo=UTC), 0, 100)
    assert query(app.internals.store, f"select count(*) from duly_item where id = {plain.id}") == [(0,)]
    assert query(app.internals.store, "select count(*) from duly_item where job_id is not null") == [(1,)]


def test_a_job_is_its_owners_only(app: Duly) -> None:
    job = app.job("ring", rows("well"), owner="ana")
    jobs, bob = app.internals.verbs.jobs, someone("bob")
    for act in (jobs.show, jobs.pause, jobs.resume, jobs.cancel, jobs.remove, jobs.reprocess):
        with pytest.raises(DoesNotExist):
            act(bob, job.id)
    with pytest.raises(DoesNotExist):
        app.internals.verbs.job_rows.page(bob, job.id)
    assert jobs.page(bob) == []
    assert app.internals.verbs.job_rows.pending(bob) == []
    assert jobs.show(someone("ana"), job.id).queue_state == "QUEUED"
    assert [row.job_id for row in app.internals.verbs.job_rows.pending(someone("ana"))] == [job.id]


# -- lists


def walk(app: Duly, job_id: int, most: int, **more: Any) -> list[int]:
    """The numbers of all rows, a page at a time."""
    found: list[int] = []
    after = {}
    while page := app.internals.verbs.job_rows.page(LOCAL, job_id, most=most, **after, **more):
        found += [item.row_no for item in page]
        after = {"after": (page[-1].changed_at, page[-1].id)}
    return found


def test_pages_go_on_where_they_ended_also_among_rows_of_one_moment(app: Duly, world: World) -> None:
    job = app.job("ring", rows(*["well"] * 25))
    assert len({item.changed_at for item in app.internals.verbs.job_rows.page(LOCAL, job.id)}) == 1
    assert walk(app, job.id, 7) == list(range(1, 26))
    assert walk(app, job.id, 25) == list(range(1, 26))
    assert walk(app, job.id, 7, statuses=("DONE",)) == []


def test_what_is_worked_on_is_shown_beside_what_waits(app: Duly) -> None:
    job = app.job("ring", rows(*["well"] * 6))
    queue = job.counts().rows_queue
    assert len(claim(app.internals.store, share(queue, task="ring", limit=4), now=app.clock.now())) == 4
    live = app.internals.verbs.job_rows.page(LOCAL, job.id, ("PENDING", "PROCESSING"), most=4)
    assert [item.status for item in live].count("PENDING") == 2
    assert sorted(walk(app, job.id, 2, statuses=("PENDING", "PROCESSING"))) == list(range(1, 7))
    assert all((item.claimed_by is None) == (item.status == "PENDING") for item in live)
    assert app.internals.verbs.jobs.show(LOCAL, job.id).queue_state == "RUNNING"
    everybodys = app.internals.verbs.job_rows.pending(LOCAL)
    assert sorted(item.row_no for item in everybodys) == list(range(1, 7))


def left_by_an_old_worker(app: Duly, job_id: int, state: str, status: str) -> None:
    """Two rows whose state was changed without their status, and one the other way round, and nothing was counted."""
    given = {"job": job_id, "state": state, "status": status}
    app.internals.store.query("update duly_item set state = :state where job_id = :job and row_no <= 2", given)
    app.internals.store.query("update duly_item set status = :status where job_id = :job and row_no = 3", given)


@pytest.mark.parametrize("state", ["done", "failed", "cancelled"])
@pytest.mark.parametrize("act", ["cancel", "remove"])
def test_a_cancel_or_removal_ends_also_where_rows_were_not_counted(
    app: Duly, world: World, act: str, state: str
) -> None:
    job = app.job("ring", rows(*["well"] * 5))
    left_by_an_old_worker(app, job.id, state, "DONE")
    getattr(job, act)()
    world.run()
    left = query(app.internals.store, f"select status, state from duly_item where job_id = {job.id} order by row_no")
    if act == "remove":
        assert left == []
        return
    ended = {"done": "DONE", "failed": "ERROR", "cancelled": "SKIPPED"}[state]
    assert left == [(ended, state)] * 2 + [("SKIPPED", "cancelled")] * 3
    assert job.counts().finished_at is not None
    assert job.check().is_true


REFUSING = {
    "sqlite": [
        "create trigger refused before update on duly_item begin select raise(ignore); end",
        "drop trigger refused",
    ],
    "postgres": [
        "create function refused() returns trigger language plpgsql as 'begin return null; end'",
        "create trigger refused before update on duly_item for each row execute function refused()",
        "drop function refused cascade",
    ],
}


def test_a_walk_that_gets_nowhere_gives_up(app: Duly, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here the database refuses to change any row."""
    job = app.job("ring", rows("well", "well"))
    monkeypatch.setattr(job_walks, "PAUSE", 0.0)
    monkeypatch.setattr(job_walks, "STALLED", 3)
    store = app.internals.store
    *refuse, allow = REFUSING[dialect_of(store)]
    for statement in refuse:
        store.query(statement, {})
    try:
        with pytest.raises(WrongState, match=f"job {job.id}: rows that have not ended cannot be cancelled"):
            list(cancel_rows(app.internals.verbs.context, job.counts(), "no more"))
    finally:
        store.query(allow, {})


def test_counters_are_compared_with_the_rows_and_made_true(app: Duly, world: World) -> None:
    job = app.job("ring", rows(*["well"] * 5), owner="ana", then=app.tasks["report"])
    assert job.check() == app.client.check_job(job.id)
    assert (job.check().is_true, job.check().rows["total"]) == (True, 5)
    world.run()
    store = app.internals.store
    store.query("update duly_job set done = 3, finished_at = null where id = :id", {"id": job.id})
    found = job.check()
    assert (found.is_true, found.fixed, found.counters["done"], found.rows["done"]) == (False, False, 3, 5)
    assert job.check(fix=True).fixed
    assert (job.check().is_true, job.counts().finished_at is not None) == (True, True)
    (line,) = app.internals.verbs.audit.page(subject=f"job:{job.id}")[:1]
    assert (line.action, line.details["is"]["done"]) == ("job.fixed", 5)
    assert not job.check(fix=True).fixed, "there is nothing to do"
    with pytest.raises(DoesNotExist):
        app.internals.verbs.job_checks.check(someone("bob"), job.id)


FILTERS: list[dict[str, Any]] = [
    {}, {"owner": "ana"}, {"owner": "bob"}, {"job_type": "csv"}, {"job_type": "image"}, {"job_ids": [1, 4]},
    {"owner": "ana", "job_type": "csv"}, {"since": after(20), "until": after(50)},
]  # fmt: skip


@pytest.mark.parametrize("ahead", [2, 7, 1_000])
def test_a_list_over_all_jobs_has_the_rows_that_changed_first_however_they_are_found(
    app: Duly, monkeypatch: pytest.MonkeyPatch, ahead: int
) -> None:
    """Of 8 jobs, one over and one removed: a page for each filter, along the index, and merged where few rows fit."""
    monkeypatch.setattr(job_rows, "AHEAD", ahead)
    dice = random.Random(ahead)
    app.migrate()
    statuses = {"PENDING": "waiting", "ERROR": "failed", "NOT_FOUND": "done", "SKIPPED": "cancelled", "DONE": "done"}
    store, facts = app.internals.store, {}
    for number in range(1, 9):
        job = app.job("ring", rows(*["well"] * 12), owner=dice.choice(["ana", "bob"])).counts()
        of_job = {"type": "image" if number % 4 == 0 else "csv", "id": job.id}
        store.query(
            "update duly_job set job_type = :type, failed = 1, not_found = 1, skipped = 1 where id = :id", of_job
        )
        facts[job.id] = job.owner, of_job["type"]
    everything = []
    for item_id, job_id in store.query("select id, job_id from duly_item where job_id is not null", {}):
        status, at = dice.choice([*statuses]), after(dice.randrange(60))
        how = {"id": item_id, "status": status, "state": statuses[status], "at": at}
        store.query("update duly_item set status = :status, state = :state, changed_at = :at where id = :id", how)
        everything.append((at, item_id, job_id, status))
    store.query("update duly_job set is_removed = true where id = 3", {})
    store.query("update duly_job set finished_at = :at where id = 5", {"at": after(1)})
    for filter, chosen in itertools.product(FILTERS, [("PENDING",), ("ERROR", "SKIPPED"), ("PENDING", "NOT_FOUND")]):
        expected = [
            (at, item_id)
            for at, item_id, job_id, status in sorted(everything)
            if status in chosen and job_id != 3 and (job_id, status) != (5, "PENDING")
            and filter.get("owner") in (None, facts[job_id][0]) and filter.get("job_type") in (None, facts[job_id][1])
            and job_id in filter.get("job_ids", facts)
            and filter.get("since", after(0)) <= at < filter.get("until", after(60))
        ]  # fmt: skip
        found, place = [], job_rows.START
        while page := app.internals.verbs.job_rows.pending(LOCAL, chosen, place, 5, **filter):
            found += [(row.changed_at, row.id) for row in page]
            place = found[-1]
        assert found == expected, filter


def test_rows_are_found_by_their_number(app: Duly) -> None:
    job = app.job("ring", rows(*["well"] * 10))
    assert [item.row_no for item in app.internals.verbs.job_rows.by_number(LOCAL, job.id, 4, 3)] == [5, 6, 7]
    assert app.internals.verbs.job_rows.by_number(LOCAL, job.id, 10, 3) == []
    assert [row.args["n"] for row in app.internals.verbs.job_rows.each(LOCAL, job.id)] == list(range(10))
    assert app.internals.verbs.job_rows.result_names(LOCAL, job.id) == []


def test_the_key_of_a_removed_job_is_free_again(app: Duly, world: World) -> None:
    first = app.job("ring", rows("well"), key="march")
    first.remove()
    second = app.job("ring", rows("well", "well"), key="march")
    assert second.id != first.id
    world.run()
    assert second.counts().done == 2
    assert query(app.internals.store, "select count(*) from duly_queue where name like '%/job-%'") == [(0,)]


def test_a_job_whose_rows_cannot_be_taken_leaves_nothing(app: Duly, world: World) -> None:
    with pytest.raises(InputError, match=r"rows\[1\].n"):
        app.job("ring", [{"n": 1}, {"n": "many"}])
    world.run()
    assert query(app.internals.store, "select count(*) from duly_job") == [(0,)]
    with pytest.raises(InputError):
        app.job("ring", [{"n": 1}, {"n": "many"}], key="april")
    assert app.job("ring", [{"n": 1}, {"n": 2}], key="april").counts().total == 2, "and under a key it can go on"


def test_a_cancel_goes_on_until_no_row_is_left_alive(app: Duly, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker changes a row between the look at it and its cancel, which then finds it again."""
    job = app.job("ring", rows("well"))
    (item,) = claim(app.internals.store, share(job.counts().rows_queue, task="ring"), now=START)
    fetch, raced = app.internals.store.fetch, []

    def race(ids: Any) -> Any:
        found = fetch(ids)
        if not raced:
            raced.append(1)
            app.internals.store.settle([decided(item, Failed("no", ("ValueError",)), START, app.tasks["ring"].rules)])
        return found

    monkeypatch.setattr(app.internals.store, "fetch", race)
    assert list(cancel_rows(app.internals.verbs.context, job.counts(), "no"))[-1] == 1
    assert job.counts().skipped == 1


def test_a_row_that_could_not_be_read_is_tried_at_no_door(app: Duly) -> None:
    job = app.internals.verbs.jobs.open(LOCAL, app.tasks["ring"])
    new = app.tasks["ring"].new(n=1)
    bad = row_of(job, 1, new, status="ERROR", state="failed", outcome="unreadable", last_error="line 2")
    assert app.internals.store.load_rows(job.id, 1, [bad])
    (item,) = query(app.internals.store, "select id from duly_item where job_id is not null")
    with pytest.raises(WrongState, match="could not be read"):
        app.retry(item[0])
    assert app.internals.verbs.jobs.mend(LOCAL, job.id, {1: (b'{"n": 2}', b'{"n": "2"}')}) == [1]


def test_the_names_of_many_rows_are_asked_for_a_stretch_at_a_time(
    app: Duly, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_rows, "STRETCH", 2)
    job = app.job("ring", [{"n": 1}, {"n": 2}, {"n": 3}, {"n": 4}, {"n": 5, "how": "badly"}])
    world.run()
    assert app.internals.verbs.job_rows.argument_names(LOCAL, job.id) == ["how", "n"]
    assert app.internals.verbs.job_rows.result_names(LOCAL, job.id) == ["n"]
