"""A worker that dies during a retry window: what the window and the limit count, and when the tries go on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

from duly import Duly, Limit, Windows
from duly.core.model import Done, Failed, Item
from duly.engine.calls import Verdicts
from duly.tasks.task import Task
from duly.virtual.simulation import Conditions, Simulation
from duly.virtual.story import busiest_minute
from duly.virtual.world import stage
from tests.virtual.days import START

OPENS = START + timedelta(hours=2, minutes=30)


class Outside:
    """What calls come to, and when the worker dies: at its first calls of a window."""

    def __init__(self, world: Simulation, is_down_until: datetime, deaths: int) -> None:
        self._world = world
        self._is_down_until = is_down_until
        self._deaths = deaths
        self.calls: list[tuple[datetime, list[Item]]] = []
        world.answer = self.answer
        world.upstream.crashes = self.crashes  # type: ignore[method-assign]

    def answer(self, _: Task[..., object], items: list[Item]) -> Verdicts:  # type: ignore[misc]
        now = self._world.clock.now()
        self.calls.append((now, items))
        return [Failed("busy") if now < self._is_down_until else Done()] * len(items)

    def crashes(self) -> bool:
        is_now = self._world.clock.now() >= OPENS and self._deaths > 0
        self._deaths -= is_now
        return is_now


@contextmanager
def failed(products: int, deaths: int) -> Iterator[tuple[Simulation, Outside, Duly]]:
    """So many items that failed at midnight and wait for the window, in which the worker dies at so many calls."""
    app = Duly("sqlite:///unused.db")

    @app.task(batch=10, limits=Limit("supplier", 2, per="1m"), retry=Windows("30 2-22/4 * * *", cap=50))
    def sync(rows: list[dict[str, int]]) -> None: ...

    with stage(app, START) as (clock, runner):
        world = Simulation(app, clock, runner, Conditions())
        outside = Outside(world, START + timedelta(hours=1), deaths)
        sync.put_many({"n": n} for n in range(products))
        world.run_until(OPENS - timedelta(seconds=1))
        outside.calls.clear()
        world.ledger.calls.clear()
        yield world, outside, app


def counted(app: Duly, prefix: str) -> int:
    rows = app.internals.store.read("all_meters", {"after": "", "most": 100})
    return sum(len(row[3]) for row in rows if row[0].startswith(prefix))


def test_what_a_dead_worker_ran_is_tried_again_in_as_many_calls_as_before() -> None:
    with failed(20, deaths=2) as (world, outside, app):
        world.run_until(OPENS + timedelta(minutes=2))
        assert [len(items) for _, items in outside.calls] == [10, 10]
        assert outside.calls[-1][0] <= OPENS + timedelta(seconds=62), "as soon as the limit allows"
        assert counted(app, "window:") == 20, "each item once, however often it was started"
        outcomes = Counter(change.outcome for _, change in world.ledger.ends)
        assert outcomes == {"failed": 20, "lost": 20, "done": 20}, "and nothing was granted for nothing"
        assert busiest_minute(world.ledger.calls) <= 2


def test_suspects_do_not_take_the_place_of_others() -> None:
    with failed(40, deaths=2) as (world, outside, _):
        world.run_until(OPENS + timedelta(minutes=4))
        assert [{item.crashes for item in items} for _, items in outside.calls] == [{0}, {0}, {1}, {1}]


def test_a_window_in_which_a_worker_died_has_its_cap_and_the_next_one_too() -> None:
    with failed(120, deaths=2) as (world, outside, app):
        world.run_until(OPENS + timedelta(hours=1))
        assert len({item.id for _, items in outside.calls for item in items}) == 50
        assert counted(app, "window:") == 50
        world.run_until(OPENS + timedelta(hours=5))
        assert len({item.id for _, items in outside.calls for item in items}) == 100
        assert [window.dispatched for window in world.story(START, START + timedelta(hours=8)).windows] == [50, 50]


def test_a_worker_that_dies_again_and_again_leaves_the_innocent_out_of_review() -> None:
    with failed(20, deaths=4) as (world, outside, app):
        world.run_until(OPENS + timedelta(hours=1))
        assert counted(app, "window:") == 20
        assert len({item.id for _, items in outside.calls for item in items}) == 20
        assert app.read.page(state="failed") == []
