"""Schedules as a program makes and mends them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from duly import NEVER, Daily, Duly, Every, InputError, Limit, Slots, testing
from duly.core.clock import ManualClock
from duly.core.errors import DoesNotExist, DulyError, WrongState
from duly.testing import World

START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def world() -> Iterator[World]:
    app = Duly("sqlite:///unused.db")

    @app.task
    def tick(n: int = 0) -> None: ...

    @app.task(limits=Limit("tenant", 1, per="1m", by="user"))
    def serve(user: str) -> None: ...

    with testing.virtual(app, START) as one:
        yield one


def test_what_code_declares_is_written_changed_and_removed_with_the_code(world: World) -> None:
    app = world.app
    app.tasks["tick"].every(Every("1h")).put()
    (declared,) = app.schedules.pages()
    assert declared.is_declared
    assert world.advance(hours=3) == 3
    later = Duly(store=app.internals.store, clock=world.clock)

    @later.task
    def tick(n: int = 0) -> None: ...

    tick.every(Daily("09:00")).put(n=1)
    tick.every(Daily("09:00")).put(n=2)
    later.schedules.reconcile()
    assert [(each.rule, each.args) for each in later.schedules.pages()] == [
        ("daily 09:00", b'{"n":1}'),
        ("daily 09:00", b'{"n":2}'),
    ]


def test_a_schedule_with_a_key_stays_when_the_code_forgets_it(world: World) -> None:
    app = world.app
    app.tasks["tick"].every(Every("1h"), key="mine").put()
    later = Duly(store=app.internals.store, clock=world.clock)

    @later.task
    def tick(n: int = 0) -> None: ...

    later.schedules.reconcile()
    assert [each.key for each in later.schedules.pages()] == ["mine"]


def test_workers_that_start_together_remove_what_code_forgot_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = world.app
    app.tasks["tick"].every(Every("1h")).put()
    later = Duly(store=app.internals.store, clock=world.clock)

    @later.task
    def tick(n: int = 0) -> None: ...

    stale = app.internals.store.read("declared", {})
    later.schedules.reconcile()
    read = app.internals.store.read
    monkeypatch.setattr(
        app.internals.store, "read", lambda name, *given: stale if name == "declared" else read(name, *given)
    )
    later.schedules.reconcile()
    monkeypatch.undo()
    assert list(later.schedules.pages()) == []


def test_creating_again_changes_what_is_there(world: World) -> None:
    schedules = world.app.schedules
    first = schedules.create("tick", "daily 09:00", {"n": 1}, key="a")
    again = schedules.create("tick", "daily 10:00", {"n": 2}, key="a", zone="Asia/Tokyo", max_lateness=60)
    assert (again.id, again.rule, again.zone, again.args, again.max_lateness) == (
        first.id, "daily 10:00", "Asia/Tokyo", b'{"n":2}', 60,
    )  # fmt: skip
    assert again.next_at == datetime(2026, 1, 1, 1, tzinfo=UTC)


def test_a_slot_is_neither_won_nor_lost_by_creating_again(world: World) -> None:
    schedules = world.app.schedules
    schedules.create("tick", Slots(24), key="even")
    schedules.create("tick", "daily 09:00", key="plain")
    for key, rule in (("even", "daily 09:00"), ("plain", Slots(24))):
        with pytest.raises(InputError, match="another kind of rule"):
            schedules.create("tick", rule, key=key)
    with pytest.raises(InputError, match="the same slots, which are 24"):
        schedules.create("tick", Slots(12), key="other")
    with pytest.raises(InputError, match="the same slots, which are 24"):
        schedules.create_many("tick", Slots(12), [{"key": "other"}])
    with pytest.raises(InputError, match="keeps its slot"):
        schedules.change(schedules.find("tick", "even").id, rule="daily 09:00")


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("rule", {"rule": "now and then"}),
        ("rule", {"rule": 7}),
        ("zone", {"zone": "Mars/Olympus"}),
        ("catch_up", {"catch_up": "some"}),
        ("overlap", {"overlap": "maybe"}),
        ("max_lateness", {"max_lateness": -1}),
        ("max_lateness", {"max_lateness": "soon"}),
        ("rank", {"rank": 1000}),
        ("n", {"args": {"n": "x"}}),
        ("queue", {"queue": "other"}),
    ],
)
def test_a_wrong_value_is_refused_by_its_name(world: World, field: str, fields: dict[str, object]) -> None:
    made = world.app.schedules.create("tick", "daily 09:00", key="a")
    with pytest.raises(InputError) as refusal:
        world.app.schedules.change(made.id, **fields)
    assert refusal.value.field == field
    assert world.app.schedules.get(made.id) == made


def test_every_value_can_be_changed(world: World) -> None:
    schedules = world.app.schedules
    made = schedules.create("tick", "daily 09:00", key="a")
    changed = schedules.change(
        made.id,
        rule="every 1h",
        zone="Asia/Tokyo",
        catch_up="all",
        overlap="skip",
        max_lateness=5,
        rank=3,
        args={"n": 4},
    )
    assert (changed.rule, changed.zone, changed.catch_up, changed.overlap) == ("every 1h", "Asia/Tokyo", "all", "skip")
    assert (changed.max_lateness, changed.rank, changed.args) == (5, 3, b'{"n":4}')


def test_what_is_not_there_is_told(world: World) -> None:
    for act in (world.app.schedules.pause, world.app.schedules.remove, world.app.schedules.get):
        with pytest.raises(DoesNotExist, match="schedule 99"):
            act(99)
    with pytest.raises(DoesNotExist):
        world.app.schedules.find("tick", "nobody")
    with pytest.raises(DulyError):
        world.app.schedules.create("nope", "daily 09:00", key="a")


def test_paused_twice_is_paused_once(world: World) -> None:
    schedules = world.app.schedules
    made = schedules.create("tick", "every 1h", key="a")
    schedules.pause(made.id)
    schedules.pause(made.id)
    assert world.advance(hours=5) == 0
    schedules.resume(made.id)
    schedules.resume(made.id)
    assert world.advance(hours=2) == 2
    assert [note.action for note in schedules.audit(made.id)] == [
        "schedule.resumed", "schedule.paused", "schedule.created",
    ]  # fmt: skip


def test_run_now_is_one_more(world: World) -> None:
    made = world.app.schedules.create("tick", "every 1h", key="a")
    world.app.schedules.run_now(made.id)
    assert world.run() == 1
    assert world.advance(hours=1) == 1
    assert len(world.app.schedules.occurrences(made.id)) == 2


def test_run_now_takes_the_place_of_what_waits_where_there_may_be_one_only(world: World) -> None:
    schedules = world.app.schedules
    world.app.pause("tick")
    made = schedules.create("tick", Slots(24), key="even")
    world.advance(hours=25)
    schedules.run_now(made.id)
    world.advance(days=1)
    states = [(each.state, each.outcome) for each in schedules.occurrences(made.id)]
    assert states == [("waiting", None), ("cancelled", "superseded"), ("cancelled", "superseded")]


def test_run_now_does_not_break_one_at_a_time(world: World) -> None:
    schedules = world.app.schedules
    world.app.pause("tick")
    made = schedules.create("tick", "every 1h", key="a", overlap="skip")
    schedules.run_now(made.id)
    world.clock.move(1)
    with pytest.raises(WrongState, match="one item at a time"):
        schedules.run_now(made.id)
    world.advance(hours=1)
    assert len(schedules.occurrences(made.id)) == 1, "and what is planned is skipped beside it"
    world.app.resume("tick")
    world.run()
    schedules.run_now(made.id)
    assert world.run() == 1


def test_a_limit_per_key_lets_nobody_wait_for_others(world: World) -> None:
    serve = world.app.tasks["serve"]
    for user in ("ann", "ann", "ann", "bob", "name with / and ü"):
        serve.put(user=user)
    assert world.run() == 3, "the first of each"
    assert world.advance(minutes=3) == 2
    assert {row.state for row in world.items()} == {"done"}


def test_schedules_that_differ_in_zone_only_are_two(world: World) -> None:
    tick = world.app.tasks["tick"]
    tick.every(Daily("09:00"), zone="Europe/Zagreb").put()
    tick.every(Daily("09:00"), zone="Asia/Tokyo").put()
    assert sorted(each.zone for each in world.app.schedules.pages()) == ["Asia/Tokyo", "Europe/Zagreb"]
    with pytest.raises(InputError, match="has this schedule already"):
        tick.every(Daily("09:00"), zone="Asia/Tokyo").put()


def test_a_default_is_a_value_like_any_other_to_a_limit(world: World) -> None:
    app = Duly(store=world.app.internals.store, clock=world.clock)

    @app.task(limits=Limit("tenant", 1, per="1m", by="user"))
    def serve(user: str = "acme") -> None: ...

    assert serve.new().queue == serve.new(user="acme").queue == "serve/acme"
    for limits in ([Limit("a", 1, by="user"), Limit("b", 1, by="n")], [Limit("a", 1), Limit("a", 2, per="1m")]):
        with pytest.raises(InputError, match="limits"):

            @app.task(name="other", limits=limits)
            def other(user: str, n: int) -> None: ...


def test_a_zone_that_is_not_known_here_spoils_no_list(world: World) -> None:
    made = world.app.schedules.create("tick", "daily 09:00", key="a")
    with world.app.internals.store.transaction() as connection:
        connection.execute("update duly_schedule set zone = 'America/Newtown'")
    assert world.app.schedules.describe(world.app.schedules.get(made.id)) == "daily 09:00 (America/Newtown)"


@pytest.fixture
def failing(database_url: str) -> Iterator[World]:
    """A world whose task `fall` goes to review at every try, and its schedule is deactivated with the second."""
    clock = ManualClock(START)
    app = Duly(database_url, clock=clock)

    @app.task(retry=NEVER, breaker=2)
    def fall() -> None:
        raise ValueError("it fell")

    with asyncio.Runner() as runner:
        yield World(app, clock, runner)
    app.close()


def deactivated(world: World, *keys: str) -> list[int]:
    made = [world.app.schedules.create("fall", "every 1h", key=key).id for key in keys]
    world.advance(hours=2)
    assert [each.id for each in world.app.schedules.page(state="broken")] == made
    return made


def test_reactivating_leaves_review_alone_unless_asked_and_then_takes_the_last_only(failing: World) -> None:
    schedules = failing.app.schedules
    first, second, third = deactivated(failing, "a", "b", "c")

    def in_review(schedule_id: int) -> list[int]:
        return [each.id for each in schedules.occurrences(schedule_id) if each.state == "failed"]

    assert len(in_review(first)) == 2
    schedules.reactivate(first)
    assert len(in_review(first)) == 2
    _, older = in_review(second)
    schedules.reactivate(second, discard=True)
    assert in_review(second) == [older]
    _, older = in_review(third)
    assert schedules.reactivate_all("fall", cause="ValueError", discard=True) == (1, False)
    assert in_review(third) == [older]
    assert len(in_review(first)) == 2


def test_one_that_was_reactivated_or_removed_meanwhile_does_not_keep_the_others_from_it(
    failing: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedules, store = failing.app.schedules, failing.app.internals.store
    first, second, third = deactivated(failing, "a", "b", "c")
    read = store.read

    def meanwhile(name: str, *given: Any) -> Any:
        return [(first,), (second,), (third,)] if name == "broken_ids" else read(name, *given)

    schedules.reactivate(first)
    schedules.remove(second)
    monkeypatch.setattr(store, "read", meanwhile)
    assert schedules.reactivate_all() == (1, False)
    assert schedules.get(third).is_active


def test_reactivating_reads_in_the_transaction_that_it_is_part_of(failing: World) -> None:
    schedules, store = failing.app.schedules, failing.app.internals.store
    (made,) = deactivated(failing, "a")
    last = schedules.get(made).last_item
    assert last is not None
    failing.app.discard(last)
    with store.transaction() as connection:
        failing.app.retry(last, connection=connection)
        connection.execute(f"update duly_item set state = 'failed' where id = {last}")  # as nobody else sees it yet
        schedules.reactivate(made, discard=True, connection=connection)
    assert failing.app.read.item(last).outcome == "discarded"
    assert failing.app.read.item(last).state == "cancelled"
