"""Verbs: one for each act, with the same line in the audit log whatever door it came through."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from duly import Duly, Limit
from duly.core.errors import DoesNotExist, InputError, WrongState
from duly.core.shown import Occurrence
from duly.verbs import LOCAL, Principal


@pytest.fixture
def app(database_url: str) -> Iterator[Duly]:
    app = Duly(database_url)

    @app.task
    def ring(phone: str, n: int = 0) -> None: ...

    app.migrate()
    yield app
    app.close()


def actions(app: Duly, subject: str | None = None) -> list[tuple[str, str]]:
    """Who did what, the oldest first."""
    return [(line.actor, line.action) for line in reversed(app.internals.verbs.audit.page(subject))]


def someone(name: str) -> Principal:
    return Principal(name, "user", frozenset(("read", "write")), "key")


def test_code_that_looks_after_queues_and_limits_is_in_the_audit_log(app: Duly) -> None:
    app.pause("ring")
    app.resume("ring")
    app.set_limit("boeing", "2/1m")
    assert actions(app) == [("local", "queue.paused"), ("local", "queue.resumed"), ("local", "limit.set")]


def test_a_limit_that_cannot_be_read_is_refused_by_its_name(app: Duly) -> None:
    with pytest.raises(InputError, match="limit: "):
        app.set_limit("boeing", "many")
    assert actions(app) == []


def test_an_act_and_its_line_come_and_go_with_the_callers_transaction(app: Duly) -> None:
    with suppress(ZeroDivisionError), app.internals.store.transaction() as connection:
        app.pause("ring", connection)
        app.internals.verbs.users.create(LOCAL, "ana", connection=connection)
        raise ZeroDivisionError
    assert actions(app) == []
    assert app.internals.verbs.users.page(LOCAL) == []
    assert app.internals.store.open_queues(["ring"]) == {"ring"}


def test_for_a_user_there_is_nobody_but_themselves(app: Duly) -> None:
    for name in ("ana", "bob"):
        app.internals.verbs.users.create(LOCAL, name)
        app.internals.verbs.users.make_key(LOCAL, name, "k")
    users, ana = app.internals.verbs.users, someone("ana")
    assert users.get(ana, "ana").id == "ana"
    assert [each.id for each in users.page(ana)] == ["ana"]
    (key,) = users.keys(LOCAL, "bob")
    assert {each.user_id for each in users.keys(ana, "bob")} == {"ana"}
    for act in (lambda: users.get(ana, "bob"), lambda: users.key(ana, key.id), lambda: users.revoke_key(ana, key.id)):
        with pytest.raises(DoesNotExist):
            act()


# -- items

AT = datetime(2030, 1, 1, 9, tzinfo=UTC)
LATER = datetime(2030, 1, 2, 9, tzinfo=UTC)


def test_code_that_looks_after_items_is_in_the_audit_log(app: Duly) -> None:
    item_id = app.task_named("ring").at(AT).put(phone="+1").id
    app.cancel(item_id, reason="twice")
    app.retry(item_id, at=LATER)
    app.edit(item_id, rank=3)
    lines = app.internals.verbs.audit.page(f"item:{item_id}")
    assert [line.action for line in lines] == ["item.edited", "item.retried", "item.cancelled"]
    assert [line.details for line in lines[1:]] == [{"at": "2030-01-02T09:00:00Z"}, {"reason": "twice"}]


def test_an_act_on_many_items_writes_all_its_lines_at_once(app: Duly, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = [app.tasks["ring"].put(phone="1", n=n).id for n in range(30)]
    asked: list[str] = []
    write = app.internals.store.write

    def counting(name: str, parameters: Any, connection: Any = None) -> Any:
        asked.append(name)
        return write(name, parameters, connection)

    monkeypatch.setattr(app.internals.store, "write", counting)
    app.cancel(*ids, reason="wrong list")
    assert asked == ["note_each"]
    lines = app.internals.verbs.audit.page()
    assert [line.subject for line in reversed(lines)] == [f"item:{item_id}" for item_id in ids]
    assert {(line.actor, line.action) for line in lines} == {("local", "item.cancelled")}


def test_none_of_several_is_changed_when_one_of_them_cannot_be(app: Duly) -> None:
    first, second = (app.task_named("ring").at(AT).put(phone="+1").id for _ in range(2))
    app.cancel(second)
    with pytest.raises(WrongState):
        app.cancel(first, second)
    assert app.read.item(first).state == "waiting"
    assert len(actions(app)) == 1


def test_another_time_moves_everything_that_is_counted_from_it(app: Duly) -> None:
    item_id = app.task_named("ring").options(at=AT, max_lateness=60).put(phone="+1").id
    row = app.edit(item_id, at=LATER)
    assert (row.due_at, row.planned_at) == (LATER, LATER)
    (item,) = app.internals.store.fetch([item_id])
    assert item.expires_at == LATER + timedelta(seconds=60), "it is worth starting as long after its time as before"
    (line,) = app.internals.verbs.audit.page(f"item:{item_id}")
    assert line.details == {"at": ["2030-01-01T09:00:00Z", "2030-01-02T09:00:00Z"]}


def test_an_item_moves_to_another_queue_with_other_tries(app: Duly) -> None:
    item_id = app.task_named("ring").at(AT).put(phone="+1").id
    row = app.edit(item_id, queue="calls", tries=7, args={"phone": "+2"})
    assert (row.queue, row.max_attempts, row.args) == ("calls", 7, {"phone": "+2", "n": 0})
    assert row.planned_at == AT
    assert [each.id for each in app.read.page(queue="calls")] == [item_id]
    assert app.edit(item_id, args={"phone": "+3"}).queue == "calls", "whoever moved it by hand meant it"


def test_arguments_that_choose_the_queue_move_the_item(app: Duly) -> None:
    @app.task(limits=Limit("mails", 2, by="to"))
    def mail(to: str) -> None: ...

    item_id = mail.at(AT).put(to="ana").id
    assert app.edit(item_id, args={"to": "bob"}).queue == "mail/bob"


def test_arguments_that_say_the_same_in_another_order_are_no_difference(app: Duly) -> None:
    item_id = app.task_named("ring").at(AT).put(phone="+1", n=2).id
    with app.internals.store.transaction() as connection:
        mark = "%s" if app.internals.store.url.startswith("postgres") else "?"
        text = '{"n": 2, "phone": "+1"}'
        connection.execute(f"update duly_item set args = {mark} where id = {mark}", (text, item_id))
    app.edit(item_id, args={"phone": "+1", "n": 2}, rank=4)
    (line,) = app.internals.verbs.audit.page(f"item:{item_id}")
    assert line.details == {"rank": [0, 4]}


@pytest.mark.parametrize("wrong", [{"queue": "\x00"}, {"rank": 101}, {"tries": 0}, {"at": "soon"}, {"args": {"x": 1}}])
def test_what_an_item_cannot_be_is_refused(app: Duly, wrong: dict[str, Any]) -> None:
    item_id = app.task_named("ring").at(AT).put(phone="+1").id
    with pytest.raises(InputError):
        app.edit(item_id, **wrong)
    assert actions(app) == []


def test_an_item_of_a_schedule_is_not_moved_to_the_time_of_another(app: Duly) -> None:
    schedule = app.schedules.create("ring", "every 1h", {"phone": "+1"}, key="k")
    first, second = (_occurrence(app, schedule.id) for _ in range(2))
    with pytest.raises(WrongState, match="another item at this time"):
        app.edit(first.id, at=second.planned_at)
    assert app.edit(first.id, at=LATER).planned_at == LATER


def _occurrence(app: Duly, schedule_id: int) -> Occurrence:
    app.schedules.run_now(schedule_id)
    return app.schedules.occurrences(schedule_id)[0]


def test_another_users_item_is_not_found(app: Duly) -> None:
    items, bob = app.internals.verbs.items, someone("bob")
    item_id = items.put(bob, app.task_named("ring").make_item({"phone": "+1"}, {"at": AT}, owner="bob")).id
    acts: list[Callable[[Principal], object]] = [
        lambda who: items.find(who, item_id), lambda who: items.show(who, item_id, is_revealed=True),
        lambda who: items.edit(who, item_id, rank=1), lambda who: items.retry(who, item_id),
        lambda who: items.cancel(who, item_id),
    ]  # fmt: skip
    for act in acts:
        with pytest.raises(DoesNotExist):
            act(someone("ana"))
    for act in acts:
        act(bob)
    assert actions(app) == [
        ("bob", f"item.{what}") for what in ("put", "revealed", "edited", "retried", "cancelled")
    ]  # fmt: skip


# -- schedules


def test_a_schedule_is_created_once_and_changed_from_then_on(app: Duly) -> None:
    made = app.schedules.create("ring", "every 1h", {"phone": "+1"}, key="k")
    app.schedules.create("ring", "every 2h", {"phone": "+1"}, key="k")
    app.schedules.create("ring", "every 2h", {"phone": "+1"}, key="k")
    assert actions(app, f"schedule:{made.id}") == [("local", "schedule.created"), ("local", "schedule.changed")]


def test_another_users_schedule_is_not_found(app: Duly) -> None:
    schedules, bob = app.internals.verbs.schedules, someone("bob")
    made = schedules.create(bob, "ring", "every 1h", {"phone": "+1"}, key="k")
    assert (made.owner, made.key) == ("bob", "bob/k")
    acts: list[Callable[[Principal], object]] = [
        lambda who: schedules.reached(who, made.id), lambda who: schedules.change(who, made.id, rule="every 2h"),
        lambda who: schedules.pause(who, made.id), lambda who: schedules.resume(who, made.id),
        lambda who: schedules.run_now(who, made.id), lambda who: schedules.remove(who, made.id),
    ]  # fmt: skip
    for act in acts:
        with pytest.raises(DoesNotExist):
            act(someone("ana"))
    for act in acts:
        act(bob)
    done = ("created", "changed", "paused", "resumed", "run_now", "removed")
    assert actions(app, f"schedule:{made.id}") == [("bob", f"schedule.{what}") for what in done]


# -- ids

BEYOND = (2**63, 2**200, -(2**64))  # numbers that no database can hold as an id


@pytest.mark.parametrize("number", BEYOND)
def test_a_number_that_no_id_can_be_is_just_not_there(app: Duly, number: int) -> None:
    verbs, job = app.internals.verbs, app.job("ring", [])
    acts: dict[str, Callable[[], Any]] = {
        f"there is no item {number}": lambda: verbs.items.find(LOCAL, number),
        f"there is no item {number}.": lambda: verbs.items.show(LOCAL, number),
        f"there is no item {number}..": lambda: app.read.story(number),
        f"there is no item {number}...": lambda: verbs.items.again(LOCAL, number),
        f"there is no item {number}....": lambda: verbs.items.edit(LOCAL, number, rank=1),
        f"there is no item {number}.....": lambda: app.cancel(number),
        f"there is no item {number}......": lambda: app.retry(number),
        f"there is no item {number}.......": lambda: app.discard(number),
        f"there is no schedule {number}": lambda: app.schedules.get(number),
        f"there is no schedule {number}.": lambda: app.schedules.change(number, rank=1),
        f"there is no schedule {number}..": lambda: app.schedules.pause(number),
        f"there is no schedule {number}...": lambda: app.schedules.reactivate(number, discard=True),
        f"there is no job {number}": lambda: verbs.jobs.show(LOCAL, number),
        f"there is no job {number}.": lambda: verbs.jobs.remove(LOCAL, number),
        f"there is no job {number}..": lambda: verbs.job_rows.page(LOCAL, number),
        f"there is no job {number}...": lambda: verbs.history.look(LOCAL, job_id=number),
        f"there is no act {number}": lambda: verbs.acts.cancel(LOCAL, number),
        f"has no row with the id {number}": lambda: verbs.jobs.reprocess(LOCAL, job.id, ids=[number]),
    }
    for problem, act in acts.items():
        with pytest.raises(DoesNotExist, match=problem.rstrip(".")):
            act()
    assert verbs.items.act(LOCAL, "cancel", [number], skip=True) == []
    assert app.schedules.occurrences(number) == []
    assert verbs.job_rows.pending(LOCAL, job_ids=[number]) == []
    for name in ("job_id", "schedule_id"):
        with pytest.raises(InputError, match=f"{name}: "):
            verbs.acts.count(LOCAL, "cancel", {name: number})


def test_a_selection_has_a_thousand_ids_at_most_and_code_acts_on_any_number(app: Duly) -> None:
    many = range(1, 1_002)
    verbs, job = app.internals.verbs, app.job("ring", [])
    for act in (
        lambda: verbs.items.act(LOCAL, "cancel", many, skip=True), lambda: verbs.schedules.act(LOCAL, "pause", many),
    ):  # fmt: skip
        with pytest.raises(InputError, match="ids: must be 1 to 1,000 ids"):
            act()
    with pytest.raises(InputError, match="itemIds: must be 1 to 1,000 ids"):
        verbs.jobs.reprocess(LOCAL, job.id, ids=many)
    assert verbs.jobs.reprocess(LOCAL, job.id, ids=[]) == 0
    later = app.task_named("ring").at(AT)
    later.put_many({"phone": str(n)} for n in many)
    ids = [row.id for row in app.client.items()]
    assert sorted(app.cancel(*ids)) == sorted(ids)
    assert sorted(app.retry(*ids)) == sorted(ids)
    with pytest.raises(DoesNotExist):
        app.schedules.pause(*many)
    assert (app.cancel(), app.schedules.pause()) == ([], [])


def test_an_option_with_a_wrong_name_is_refused_before_it_means_everything(app: Duly) -> None:
    client: Any = app.client
    for call in (
        lambda: app.schedules.page(kee="a"), lambda: list(app.schedules.pages(tsk="ring")),  # type: ignore[call-arg]
        lambda: list(client.schedules(kee="a")), lambda: client.put("ring", {"phone": "+1"}, dely=60),
        lambda: client.put("ring", {"phone": "+1"}, connection=None), lambda: client.reprocess_job(7, ids=[1]),
        lambda: client.pending_counts(job_id=[3]), lambda: list(client.pending(job_id=[3])),
        lambda: list(client.items(tsk="ring")), lambda: client.again(7, kee="a"), lambda: client.edit(7, tris=2),
    ):  # fmt: skip
        with pytest.raises((TypeError, InputError), match=r"kee|tsk|dely|connection|ids|job_id|tris"):
            call()


def test_an_id_that_is_given_twice_counts_once(app: Duly) -> None:
    item_id = app.task_named("ring").at(AT).put(phone="+1").id
    schedule_id = app.schedules.create("ring", "every 1h", {"phone": "+1"}, key="k").id
    assert app.cancel(item_id, item_id) == [item_id]
    assert app.internals.verbs.schedules.act(LOCAL, "pause", [schedule_id, schedule_id]) == [schedule_id]
    assert app.schedules.resume(schedule_id, schedule_id) == [schedule_id]
    assert len(actions(app, f"item:{item_id}")) == 1
    assert len(actions(app, f"schedule:{schedule_id}")) == 3
    job = app.job("ring", [{"phone": "+1"}])
    (row,) = app.internals.verbs.job_rows.page(LOCAL, job.id)
    app.cancel(row.id)
    assert app.internals.verbs.jobs.reprocess(LOCAL, job.id, ids=[row.id, row.id]) == 1
