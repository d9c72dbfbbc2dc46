"""Users test their tasks in virtual time: the real engine, one thread, no sleeping."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from duly import Attempt, Backoff, Duly, DulyError, InputError, KeyConflict, Snooze, Throttled, testing
from duly.virtual import world as worlds

START = datetime(2026, 3, 1, 8, 0, tzinfo=UTC)


@pytest.fixture
def app(tmp_path: Any) -> Duly:
    return Duly(f"sqlite:///{tmp_path / 'real.db'}")


def test_a_retrying_task_is_tried_at_its_exact_times(app: Duly) -> None:
    tried: list[float] = []

    @app.task(retry=Backoff(base=60, tries=3))
    def remind(phone: str) -> None:
        tried.append((world.clock.now() - START).total_seconds())
        raise ConnectionError(f"{phone} is busy")

    with testing.virtual(app, START) as world:
        placed = remind.put(phone="+385 1 234")
        assert world.run() == 1
        assert world.item(placed).state == "waiting"
        assert world.item(placed).due_at == START + timedelta(seconds=60)
        assert world.advance(59.9) == 0
        assert world.advance(minutes=10) == 2
        assert tried == [0, 60, 180]
        row = world.item(placed.id)
        assert (row.state, row.attempt, row.failures) == ("failed", 3, 3)
        assert row.last_error is not None
        assert row.last_error.startswith("ConnectionError: +385 1 234 is busy")
        assert [each.ended_at for each in app.read.story(placed.id).tries] == [
            START + timedelta(seconds=after) for after in tried
        ]


def test_time_stands_where_it_was_moved_to(app: Duly) -> None:
    @app.task
    def ring() -> None: ...

    with testing.virtual(app, START) as world:
        ring.after(90).put()
        assert world.advance(timedelta(minutes=1)) == 0
        assert world.clock.now() == START + timedelta(minutes=1)
        assert world.run_until(START + timedelta(hours=1)) == 1
        assert world.clock.now() == START + timedelta(hours=1)
        (row,) = world.items(state="done")
        assert row.started_at == START + timedelta(seconds=90)


def test_the_app_gets_its_own_store_and_clock_back(app: Duly) -> None:
    @app.task
    def ring() -> None: ...

    ring.put()
    store, clock = app.internals.store, app.clock
    with testing.virtual(app) as world:
        assert app.internals.store is not store
        assert world.items() == []
        ring.put()
        ring.put()
    assert app.internals.store is store
    assert app.clock is clock
    assert len(app.read.page()) == 1
    app.close()


def test_the_app_gets_them_back_after_a_failed_test_too(app: Duly) -> None:
    with pytest.raises(ZeroDivisionError), testing.virtual(app):
        raise ZeroDivisionError
    assert app.internals.database._store is None
    assert app.internals.database._clock is None


def test_every_kind_of_handler_runs_here(app: Duly) -> None:
    ran: list[str] = []

    @app.task
    async def gentle() -> None:
        await asyncio.sleep(0)
        ran.append("async")

    @app.task
    def plain() -> None:
        ran.append("thread")

    @app.task(cpu=True)
    def hungry() -> None:
        ran.append("cpu")

    with testing.virtual(app) as world:
        for task in (gentle, plain, hungry):
            task.put()
        assert world.run() == 3
    assert sorted(ran) == ["async", "cpu", "thread"]


def test_async_handlers_share_one_event_loop(app: Duly) -> None:
    loops = []

    @app.task
    async def gentle() -> None:
        loops.append(asyncio.get_running_loop())

    with testing.virtual(app) as world:
        gentle.put()
        gentle.put()
        world.run()
    assert len(loops) == 2
    assert loops[0] is loops[1]


def test_an_async_test_may_run_async_handlers(app: Duly) -> None:
    ran = []

    @app.task
    async def gentle() -> None:
        ran.append(1)

    async def story() -> int:
        with testing.virtual(app) as world:
            await gentle.aput()
            return world.run()

    assert asyncio.run(story()) == 1
    assert ran == [1]


def test_what_a_handler_puts_runs_in_the_same_go(app: Duly) -> None:
    seen: list[int] = []

    @app.task
    def count(down: int) -> None:
        seen.append(down)
        if down:
            count.put(down=down - 1)

    with testing.virtual(app) as world:
        count.put(down=3)
        assert world.run() == 4
    assert seen == [3, 2, 1, 0]


def test_a_task_that_puts_itself_for_ever_is_told_so(app: Duly, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(testing.World, "most", 20)

    @app.task
    def again() -> None:
        again.put()

    with testing.virtual(app) as world:
        again.put()
        with pytest.raises(DulyError, match="put itself"):
            world.run()


def test_a_key_is_put_once_while_it_is_live(app: Duly) -> None:
    @app.task
    def ring(at_door: str) -> None: ...

    with testing.virtual(app) as world:
        first = ring.options(key="k").put(at_door="north")
        assert ring.options(key="k").put(at_door="north").id == first.id
        with pytest.raises(KeyConflict):
            ring.options(key="k").put(at_door="south")
        assert world.run() == 1
        assert ring.options(key="k").put(at_door="south").fresh


def test_snooze_and_throttle_come_back_without_using_up_a_try(app: Duly) -> None:
    answers = [Snooze(30), Throttled(timedelta(minutes=1)), None]

    @app.task(retry=Backoff(base=60, tries=1))
    def ask() -> Any:
        return answers.pop(0)

    with testing.virtual(app, START) as world:
        placed = ask.put()
        assert world.advance(seconds=89) == 2
        assert world.item(placed).outcome == "throttled"
        assert world.advance(seconds=1) == 1
        row = world.item(placed)
        assert (row.state, row.attempt, row.failures) == ("done", 1, 0)


def test_a_batch_is_called_with_as_many_rows_as_it_takes(app: Duly) -> None:
    sizes: list[int] = []

    @app.task(batch=4, retry=Backoff(base=60, tries=2))
    def store_rows(rows: list[dict[str, int]]) -> list[Any]:
        sizes.append(len(rows))
        return [ValueError("odd") if row["n"] == 9 else row["n"] for row in rows]

    @app.task
    def ring() -> None: ...

    with testing.virtual(app) as world:
        store_rows.put_many({"n": n} for n in range(10))
        ring.put()
        assert world.run() == 11
        assert sizes == [4, 4, 2]
        assert sorted(row.result for row in world.items(state="done", task="store_rows")) == list(range(9))
        (odd,) = world.items(state="waiting")
        assert odd.args == {"n": 9}
        assert world.advance(60) == 1
        assert world.item(odd.id).state == "failed"


def test_lateness_is_the_time_since_it_was_due(app: Duly) -> None:
    lateness: list[timedelta] = []

    @app.task
    def greet(attempt: Attempt) -> None:
        lateness.append(attempt.lateness)

    with testing.virtual(app) as world:
        greet.put()
        greet.after(60).put()
        world.clock.move(timedelta(hours=1))  # nobody was there to run them
        world.run()
    assert sorted(lateness) == [timedelta(minutes=59), timedelta(hours=1)]


def test_a_handler_may_take_its_time(app: Duly) -> None:
    @app.task
    def slow() -> None:
        world.clock.move(30)

    with testing.virtual(app, START) as world:
        placed = slow.put()
        world.run()
        row = world.item(placed)
        assert row.started_at == START
        assert row.finished_at == START + timedelta(seconds=30)


def test_effects_in_the_handlers_transaction_commit_with_the_item(app: Duly) -> None:
    @app.task(retry=Backoff(base=60, tries=2))
    def book(amount: int, attempt: Attempt) -> None:
        attempt.connection.execute("insert into ledger values (?)", (amount,))
        attempt.progress(1, 2)
        if attempt.number == 1:
            raise OSError("the line broke")

    def ledger() -> list[Any]:
        with app.internals.store.transaction() as connection:
            rows: list[Any] = connection.execute("select amount from ledger").fetchall()
            return rows

    with testing.virtual(app) as world:
        with app.internals.store.transaction() as connection:
            connection.execute("create table ledger (amount integer)")
        placed = book.put(amount=7)
        world.run()
        assert ledger() == []
        world.advance(60)
        assert ledger() == [(7,)]
        assert world.item(placed).state == "done"


def test_a_handler_that_waits_for_its_own_transaction_fails_soon(app: Duly, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worlds, "PATIENCE", 0.05)

    @app.task
    def ring() -> None: ...

    @app.task
    def book(attempt: Attempt) -> None:
        attempt.connection.execute("select 1")
        ring.put()  # without connection=attempt.connection

    with testing.virtual(app) as world:
        placed = book.put()
        assert world.run() == 1
        assert "write on its own connection" in str(world.item(placed).last_error)


def test_progress_is_kept_while_an_item_waits(app: Duly) -> None:
    @app.task
    def load(attempt: Attempt) -> Snooze:
        attempt.progress(1, 2, "half")
        return Snooze(10)

    with testing.virtual(app) as world:
        placed = load.put()
        world.run()
        assert world.item(placed).progress == {"done": 1, "total": 2, "note": "half"}


def test_a_handler_that_leaves_fails_its_item_and_not_the_test(app: Duly) -> None:
    @app.task(retry=Backoff(base=1, tries=1))
    def leave() -> None:
        raise SystemExit(3)

    with testing.virtual(app) as world:
        placed = leave.put()
        world.run()
        assert world.item(placed).state == "failed"


def test_a_paused_queue_runs_nothing_until_it_is_resumed(app: Duly) -> None:
    @app.task
    def ring() -> None: ...

    with testing.virtual(app) as world:
        ring.put()
        app.pause("ring")
        assert world.advance(hours=1) == 0
        app.resume("ring")
        assert world.run() == 1


def test_the_same_story_twice_is_the_same_story(app: Duly) -> None:
    order: list[str] = []

    for name in ("a", "b", "c"):

        @app.task(name=name, retry=Backoff(base=10, tries=3))
        def work(n: int, attempt: Attempt) -> None:
            order.append(f"{attempt.item.task}{n}.{attempt.number}")
            if n % 3 == 0:
                raise OSError

    def told() -> list[str]:
        order.clear()
        with testing.virtual(app) as world:
            for n in range(9):
                app.put("abc"[n % 3], n=n)
            world.advance(minutes=5)
        return list(order)

    assert told() == told()


@pytest.mark.parametrize(
    ("moment", "problem"),
    [(datetime(2026, 3, 1, 9, 0), "no time zone"), (START - timedelta(seconds=1), "in the past")],  # noqa: DTZ001
)
def test_time_does_not_run_backwards(app: Duly, moment: datetime, problem: str) -> None:
    with testing.virtual(app, START) as world, pytest.raises(InputError, match=problem):
        world.run_until(moment)


def test_what_is_late_and_what_is_fresh_are_each_called(app: Duly) -> None:
    seen: list[int] = []

    @app.task
    def note(n: int) -> None:
        seen.append(n)

    with testing.virtual(app) as world:
        note.put(n=1)
        world.clock.move(120)
        note.put(n=2)
        assert world.run() == 2
    assert sorted(seen) == [1, 2]
