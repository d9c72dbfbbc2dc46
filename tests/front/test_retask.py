"""`retask`: what waits, failed or recurs of one task is given to another; all of it or, with `skip`, what can be."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from duly import Daily, Duly, GiveUp, InputError, Limit, Slots
from duly.core.clock import ManualClock
from duly.core.errors import UnknownTask, WrongState
from duly.core.model import Done
from duly.store import Store
from duly.testing import World
from duly.verbs import LOCAL, Principal
from duly.verbs import tasks as room
from tests.support import claim, settle, share

START = datetime(2031, 5, 1, 8, 0, tzinfo=UTC)


def someone(name: str) -> Principal:
    return Principal(name, "user", frozenset(("read", "write")), "key")


@pytest.fixture
def app(database_url: str) -> Iterator[Duly]:
    """The app after the deploy: what was `send-mail` is `send_mail` now."""
    app = Duly(database_url, clock=ManualClock(START))

    @app.task
    def send_mail(to: str, n: int = 0) -> str:
        return to

    @app.task(limits=Limit("calls", 5, per="1m", by="to"))
    def call(to: str, n: int = 0) -> str:
        return to

    app.migrate()
    yield app
    app.close()


@pytest.fixture
def before(database_url: str, app: Duly) -> Iterator[Duly]:
    """The app before the deploy."""
    before = Duly(database_url, clock=app.clock)

    @before.task(name="send-mail")
    def send_mail(to: str, n: int = 0, **more: str) -> str:
        if to == "nobody":
            raise GiveUp("no such person")
        return to

    yield before
    before.close()


@pytest.fixture
def world(app: Duly) -> Iterator[World]:
    assert isinstance(app.clock, ManualClock)
    with asyncio.Runner() as runner:
        yield World(app, app.clock, runner)


def old_work(app: Duly) -> None:
    """Let the old version work for a moment."""
    assert isinstance(app.clock, ManualClock)
    with asyncio.Runner() as runner:
        World(app, app.clock, runner).run()


def lines(app: Duly, subject: str) -> list[str]:
    return [line.action for line in app.internals.verbs.audit.page(subject)]


def test_waiting_and_failed_items_run_under_the_new_name(app: Duly, before: Duly, world: World) -> None:
    mail = before.tasks["send-mail"]
    failed = mail.put(to="nobody").id
    old_work(before)
    waiting = mail.options(delay=3_600, key="k").put(to="ana").id
    done = app.retask("send-mail", "send_mail")
    assert (done.items, done.schedules, done.jobs, done.running, done.refused) == (2, 0, 0, 0, [])
    rows = {each: app.read.item(each) for each in (failed, waiting)}
    assert {(row.task, row.queue) for row in rows.values()} == {("send_mail", "send_mail")}
    assert (rows[failed].state, rows[waiting].state, rows[waiting].key) == ("failed", "waiting", "k")
    assert lines(app, f"item:{waiting}") == ["item.retasked"]
    (line,) = app.internals.verbs.audit.page("task:send-mail")
    assert line.details == {"to": "send_mail", "items": 2, "schedules": 0, "jobs": 0}
    app.retry(failed)
    world.advance(hours=2)
    assert [app.read.item(each).state for each in (failed, waiting)] == ["done", "done"]


def test_a_second_time_moves_nothing_and_says_so(app: Duly, before: Duly) -> None:
    before.tasks["send-mail"].put(to="ana")
    assert app.retask("send-mail", "send_mail").items == 1
    again = app.retask("send-mail", "send_mail")
    assert (again.items, again.running) == (0, 0)
    assert len(app.internals.verbs.audit.page("task:send-mail")) == 1


def test_a_running_item_keeps_its_task_and_is_counted(app: Duly, before: Duly) -> None:
    running, waiting = (before.tasks["send-mail"].put(to=name).id for name in ("ana", "bob"))
    claim(app.internals.store, share("send-mail", limit=1), now=START)
    done = app.retask("send-mail", "send_mail")
    assert (done.items, done.running) == (1, 1)
    assert (app.read.item(running).task, app.read.item(waiting).task) == ("send-mail", "send_mail")


def test_arguments_that_the_new_task_does_not_accept_are_reported_row_by_row(app: Duly, before: Duly) -> None:
    mail = before.tasks["send-mail"]
    good = mail.put(to="ana").id
    bad = [mail.put(to="ana", how=how).id for how in ("html", "text")]
    with pytest.raises(WrongState) as refused:
        app.retask("send-mail", "send_mail")
    text = str(refused.value)
    for item_id in bad:
        assert f"item {item_id}: send_mail does not accept its arguments: how: " in text
    assert f"item {good}:" not in text
    assert {app.read.item(each).task for each in (good, *bad)} == {"send-mail"}, "all or nothing"
    done = app.retask("send-mail", "send_mail", skip=True)
    assert (done.items, done.refused_count, [each.id for each in done.refused]) == (1, 2, bad)
    assert app.read.item(good).task == "send_mail"


def test_many_refused_rows_are_counted_and_some_are_named(app: Duly, before: Duly) -> None:
    before.tasks["send-mail"].put_many({"to": "ana", "how": "html"} for _ in range(130))
    with pytest.raises(WrongState, match=r"; and 110 more; skip them to move the rest$"):
        app.retask("send-mail", "send_mail")
    done = app.retask("send-mail", "send_mail", skip=True)
    assert (done.items, done.refused_count, len(done.refused)) == (0, 130, 100)


def test_a_key_that_a_live_item_of_the_new_task_has_is_a_collision(app: Duly, before: Duly) -> None:
    old = before.tasks["send-mail"].options(key="k", delay=60)
    mine = old.put(to="ana").id
    app.tasks["send_mail"].options(key="k", delay=60).put(to="ana")
    with pytest.raises(WrongState, match=f"item {mine}: an item of send_mail has its key"):
        app.retask("send-mail", "send_mail")
    assert app.retask("send-mail", "send_mail", skip=True).refused[0].id == mine


def test_a_failed_item_may_have_the_key_of_a_live_one(app: Duly, before: Duly) -> None:
    before.tasks["send-mail"].options(key="k").put(to="nobody")
    old_work(before)
    app.tasks["send_mail"].options(key="k", delay=60).put(to="ana")
    assert app.retask("send-mail", "send_mail").items == 1


def test_schedules_come_along_and_make_items_of_the_new_task(app: Duly, before: Duly, world: World) -> None:
    kept = before.schedules.create("send-mail", Daily("09:00"), {"to": "ana"}, key="mornings")
    done = app.retask("send-mail", "send_mail")
    assert (done.items, done.schedules) == (0, 1)
    assert lines(app, f"schedule:{kept.id}")[0] == "schedule.retasked"
    world.advance(hours=2)
    assert [(item.task, item.queue) for item in world.items()] == [("send_mail", "send_mail")]


def test_a_schedule_whose_key_is_taken_is_refused_and_a_declared_one_gives_way(app: Duly, before: Duly) -> None:
    for each, name in ((before, "send-mail"), (app, "send_mail")):
        each.tasks[name].every(Daily("09:00")).put(to="ana")
        each.schedules.reconcile()
    assert app.retask("send-mail", "send_mail").schedules == 1
    assert [each.task for each in app.schedules.page()] == ["send_mail"], "the code declares it under the new name"
    taken = before.schedules.create("send-mail", Daily("09:00"), {"to": "ana"}, key="mornings")
    app.schedules.create("send_mail", Daily("10:00"), {"to": "ana"}, key="mornings")
    bad = before.schedules.create("send-mail", Daily("09:00"), {"to": "ana", "how": "html"}, key="evenings")
    words = f"schedule {taken.id}: a schedule of send_mail has its key; schedule {bad.id}"
    with pytest.raises(WrongState, match=words):
        app.retask("send-mail", "send_mail")
    assert app.retask("send-mail", "send_mail", skip=True).schedules == 0


def test_members_of_even_slots_keep_their_slots_and_the_next_one_gets_the_emptiest(app: Duly, before: Duly) -> None:
    def create(each: Duly, name: str, key: str, slots: int = 3) -> int | None:
        return each.schedules.create(name, Slots(slots), {"to": "ana"}, key=key).slot

    given = [create(before, "send-mail", f"k{n}") for n in range(4)]
    assert app.retask("send-mail", "send_mail").schedules == 4
    assert [each.slot for each in app.schedules.page()] == given
    assert {load.slot: load.members for load in app.schedules.slots("send_mail")} == {0: 2, 1: 1, 2: 1}
    assert [load.members for load in app.schedules.slots("send-mail") if load.members] == []
    assert create(app, "send_mail", "k4") == 1
    create(before, "send-mail", "other", 4)
    with pytest.raises(WrongState, match="all members of send_mail must have the same slots, which are 3"):
        app.retask("send-mail", "send_mail")


def test_a_job_goes_on_under_the_new_name_and_its_counts_stay_exact(app: Duly, before: Duly, world: World) -> None:
    job = before.job("send-mail", [{"to": str(n)} for n in range(4)])
    claimed = claim(app.internals.store, share(f"send-mail/job-{job.id}", limit=1, task="send-mail"), now=START)
    job.pause()
    done = app.retask("send-mail", "send_mail")
    assert (done.items, done.jobs, done.running) == (3, 1, 1)
    job.resume()
    world.run()
    counts = app.client.job(job.id)
    assert (counts.task, counts.total_items, counts.processed_items) == ("send_mail", 4, 3)
    settle(app.internals.store, claimed, Done(), START)  # the worker that had it ends it under its old name
    assert app.client.job(job.id).queue_state == "DONE"
    assert lines(app, f"job:{job.id}").count("job.retasked") == 1


def test_a_job_whose_key_is_taken_and_rows_that_a_job_cannot_have_are_refused(app: Duly, before: Duly) -> None:
    first = before.job("send-mail", [{"to": "ana"}], key="march")
    app.job("send_mail", [{"to": "ana"}], key="march")
    with pytest.raises(WrongState, match=f"job {first.id}: a job of send_mail has its key"):
        app.retask("send-mail", "send_mail")
    with pytest.raises(WrongState, match="call has a limit per argument value, which jobs do not support"):
        app.retask("send-mail", "call")


def test_what_a_job_puts_at_its_end_is_of_the_new_task_too(app: Duly, before: Duly, world: World) -> None:
    rows = before.task(name="rows")(lambda n: None)
    app.task(name="rows")(lambda n: None)
    job = before.job(rows, [{"n": 1}], then=before.tasks["send-mail"].new(to="ana"))
    assert app.retask("send-mail", "send_mail").jobs == 1
    world.run()
    assert job.counts().is_over
    assert [item.result for item in world.items(task="send_mail")] == ["ana"]


def test_each_value_under_a_limit_gets_its_queue_and_a_queue_chosen_by_hand_stays(app: Duly, before: Duly) -> None:
    mail = before.tasks["send-mail"]
    by_hand, plain = mail.put(to="ana").id, mail.put(to="bob").id
    before.edit(by_hand, queue="slowly")
    app.retask("send-mail", "send_mail")
    assert [app.read.item(each).queue for each in (by_hand, plain)] == ["slowly", "send_mail"]
    app.retask("send_mail", "call")
    assert [app.read.item(each).queue for each in (by_hand, plain)] == ["call/ana", "call/bob"]


def test_a_user_moves_only_what_is_their_own(app: Duly, before: Duly) -> None:
    mail, verbs = before.tasks["send-mail"], app.internals.verbs
    ours = mail.put(to="ana").id
    theirs = verbs.items.put(someone("ana"), mail.make_item({"to": "ana"}, {}, owner="ana")).id
    schedule = before.schedules.create("send-mail", Daily("09:00"), {"to": "ana"}, key="mornings")
    job = before.job("send-mail", [{"to": "ana"}])
    done = verbs.tasks.retask(someone("ana"), "send-mail", "send_mail")
    assert (done.items, done.schedules, done.jobs, done.running) == (1, 0, 0, 0)
    assert [app.read.item(each).task for each in (theirs, ours)] == ["send_mail", "send-mail"]
    assert app.schedules.get(schedule.id).task == "send-mail"
    assert app.client.job(job.id).task == "send-mail"


def test_more_than_one_portion_is_moved_as_a_whole(app: Duly, before: Duly, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "STEP", 3)
    before.tasks["send-mail"].put_many({"to": str(n)} for n in range(10))
    part = app.internals.verbs.tasks.retask(LOCAL, "send-mail", "send_mail", most=4)
    assert (part.items, part.is_more) == (4, True)
    monkeypatch.setattr(room.Tasks.retask, "__kwdefaults__", {**(room.Tasks.retask.__kwdefaults__ or {}), "most": 2})
    assert app.retask("send-mail", "send_mail").items == 6
    assert app.client.item_counts(task="send_mail").counts["waiting"] == 10


def test_with_skip_no_more_is_checked_than_is_moved(app: Duly, before: Duly, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "STEP", 3)
    mail = before.tasks["send-mail"]
    ids = [mail.put(to=str(n), **({"how": "html"} if n in (0, 8) else {})).id for n in range(9)]
    plan = app.internals.verbs.tasks.plan(LOCAL, "send-mail", "send_mail", skip=True, most=3)
    assert (plan.ids, [each.id for each in plan.refused], plan.is_more) == (ids[1:4], ids[:1], True)
    done = app.retask("send-mail", "send_mail", skip=True)
    assert (done.items, [each.id for each in done.refused], done.is_more) == (7, [ids[0], ids[8]], False)


def test_an_item_that_a_schedule_makes_after_the_check_is_moved_with_it(app: Duly, before: Duly) -> None:
    made = before.schedules.create("send-mail", Daily("09:00"), {"to": "ana"}, key="mornings")
    plan = app.internals.verbs.tasks.plan(LOCAL, "send-mail", "send_mail")
    before.schedules.run_now(made.id)
    assert app.internals.verbs.tasks.retask(LOCAL, "send-mail", "send_mail", plan=plan).items == 1
    assert [row.task for row in app.read.page()] == ["send_mail"]


@pytest.mark.parametrize(
    ("old", "new", "error", "words"),
    [
        ("send_mail", "send_mail", InputError, "is the same task"),
        ("duly.jobs", "send_mail", InputError, "is a part of duly itself"),
        ("send-mail", "duly.jobs", InputError, "is a part of duly itself"),
        ("send-mail", "nobody", UnknownTask, "there is no task 'nobody' here"),
        ("not a name!", "send_mail", InputError, "old"),
    ],
)
def test_what_makes_no_sense_is_refused(app: Duly, old: str, new: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        app.retask(old, new)


def test_an_item_that_is_put_under_the_same_key_at_the_same_moment_moves_nothing(
    app: Duly, before: Duly, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = before.tasks["send-mail"].options(key="k", delay=60).put(to="ana").id
    move = room.Tasks._move_items

    def late(self: room.Tasks, *given: Any) -> int:
        put_beside(app)
        return move(self, *given)

    def put_beside(app: Duly) -> None:
        monkeypatch.setattr(room.Tasks, "_move_items", move)
        app.tasks["send_mail"].options(key="k", delay=60).put(to="ana")

    if app.settings.database_url.startswith("sqlite"):
        put_beside(app)  # here writers take turns, so it comes before or after
    else:
        monkeypatch.setattr(room.Tasks, "_move_items", late)
    with pytest.raises(WrongState, match=r"key was put meanwhile; try again|an item of send_mail has its key"):
        app.retask("send-mail", "send_mail")
    assert app.read.item(mine).task == "send-mail"


def test_only_items_in_their_states_are_looked_for(store: Store) -> None:
    for section in ("waiting_of_task", "failed_of_task"):
        assert store.read(section, {"task": "ring", "owner": None, "most": 10}) == []
