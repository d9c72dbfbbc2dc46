"""What workers write down for charts: bounded, only if something happened, and never in the way of the work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from duly import Backoff, Duly, GiveUp, Pace
from duly.core.errors import DoesNotExist, InputError, NotAllowed, StoreUnavailable
from duly.core.model import Done, Failed
from duly.core.policy.adapt import SliceBounds
from duly.core.settings import Settings
from duly.core.shown import Measured
from duly.engine import historian as room
from duly.engine.gate import PaceGate
from duly.engine.historian import Historian
from duly.store import Store
from duly.verbs import LOCAL, Principal
from duly.verbs import history as verbs
from tests.process.fleet import until
from tests.support import NOW, after, claim, put, query, settle

SETTINGS = Settings()
ANA, BOB = (Principal(name, "user", frozenset(("read", "write")), "key") for name in ("ana", "bob"))


class Watched:
    """An observer that has seen this."""

    def __init__(self, *lately: Measured, jobs: dict[tuple[int, str], int] | None = None) -> None:
        self._lately = list(lately)
        self._jobs = Counter(jobs or {})

    def lately(self) -> list[Measured]:
        lately, self._lately = self._lately, []
        return lately

    def ended_lately(self) -> Counter[tuple[int, str]]:
        jobs, self._jobs = self._jobs, Counter()
        return jobs


def historian(store: Store, observer: Any, app: Duly | None = None, **settings: Any) -> Historian:
    tasks = {} if app is None else app.tasks
    return Historian(store, observer, Settings(**settings), tasks, list)


def rows(store: Store, step: int = 10) -> list[tuple[Any, ...]]:
    found = query(store, f"select kind, subject, measure, n, total, most from duly_history where step = {step}")
    return sorted(found)


@pytest.fixture
def app(database_url: str) -> Iterator[Duly]:
    app = Duly(database_url, retry_base_seconds=0)

    @app.task(retry=Backoff(base=0, tries=2, jitter=0))
    def ring(text: str = "") -> str:
        if text == "never":
            raise GiveUp("no")
        return text

    app.migrate()
    yield app
    app.close()


def test_what_was_counted_is_written_once_and_what_comes_later_is_added(app: Duly) -> None:
    store = app.internals.telemetry.observe(app.internals.store)
    one = historian(app.internals.store, app.internals.telemetry, app)
    put(store, 3)
    items = claim(store, now=after(2))
    settle(store, items[:2], Done(), now=after(3))
    settle(store, items[2], Failed("x", ("ValueError",)), now=after(3))
    app.internals.telemetry.ran([("ring", 0.5), ("ring", 0.25)])
    assert one.tick(after(4)) == after(4) + room.BREATH * 10
    assert (
        rows(app.internals.store)
        == rows(app.internals.store, 300)
        == [
            ("task", "ring", "done", 2, 0.0, 0.0),
            ("task", "ring", "lateness", 3, 6.0, 2.0),
            ("task", "ring", "retried", 1, 0.0, 0.0),
            ("task", "ring", "run", 2, 0.75, 0.5),
        ]
    )
    one.tick(after(5))
    app.internals.telemetry.ran([("ring", 0.125)])
    one.tick(after(6))
    assert rows(app.internals.store)[-1] == ("task", "ring", "run", 3, 0.875, 0.5)


class Silent:
    """A store that nothing may be written to."""

    def write(self, name: str, given: Any) -> Any:
        assert name == "forget_history"
        return []


def test_nothing_is_written_when_nothing_happened_or_nothing_is_kept(app: Duly) -> None:
    historian(Silent(), app.internals.telemetry).tick(NOW)  # type: ignore[arg-type]
    busy = Watched(Measured("task", "ring", "done", 1))
    historian(Silent(), busy, history_seconds=0, history_long_seconds=0).tick(NOW)  # type: ignore[arg-type]


def test_what_cannot_be_written_is_dropped(store: Store) -> None:
    class Away:
        def write(self, *_: Any) -> Any:
            raise StoreUnavailable("away")

    observer = Watched(Measured("task", "ring", "done", 1))
    one = historian(Away(), observer)  # type: ignore[arg-type]
    with pytest.raises(StoreUnavailable):
        one.tick(NOW)
    historian(store, observer).tick(NOW)
    assert rows(store) == []


def test_steps_begin_at_round_times_and_only_those_that_are_kept_are_written(store: Store) -> None:
    historian(store, Watched(Measured("task", "ring", "done", 1)), history_seconds=0).tick(after(1234.5))
    assert query(store, "select distinct step from duly_history") == [(300,)]
    historian(store, Watched(Measured("task", "ring", "done", 1))).tick(after(1234.5))
    (found,) = store.read("history", {"step": 10, "since": NOW, "measure": None, "most": 9})
    assert found[0] == after(1230)
    (found,) = store.read("history", {"step": 300, "since": NOW, "measure": None, "most": 9})
    assert (found[0], found[4]) == (after(1200), 2)


def test_ten_thousand_jobs_and_tasks_make_a_bounded_number_of_rows(store: Store) -> None:
    jobs = {(number, "ring"): number for number in range(10_000)}
    historian(store, Watched(Measured("task", "ring", "done", 1), jobs=jobs)).tick(NOW)
    assert query(store, "select count(*), min(n) from duly_history where step = 10 and kind = 'job'") == [
        (room.JOBS, 10_000 - room.JOBS)
    ]
    tasks = [Measured("task", f"t{number}", "done", 1) for number in range(10_000)]
    historian(store, Watched(*tasks, jobs={(1, "ring"): 1})).tick(after(1000))
    assert query(
        store, "select count(*) from duly_history where step = 10 and subject <> 'ring' and kind = 'task'"
    ) == [(room.SUBJECTS,)]


def test_many_jobs_do_not_pile_up_where_nobody_writes_them_down(app: Duly) -> None:
    changes = [
        type("Row", (), {"job_id": number, "task": "ring", "status": "DONE", "finished_at": NOW})
        for number in range(5_000)
    ]
    for change in changes:
        app.internals.telemetry.count_rows([change])  # type: ignore[list-item]
    assert len(app.internals.telemetry.ended_lately()) == 1_000
    assert not app.internals.telemetry.ended_lately()


def test_a_pace_and_the_jobs_under_it_tell_how_it_went(store: Store, app: Duly) -> None:
    pace = Pace("google")

    @app.task(pace=pace)
    def find(text: str) -> None: ...

    ticks = iter(range(100, 200))
    gate = PaceGate(pace, SliceBounds(), lambda: float(next(ticks)))
    started = 100.0
    gate.ended(started, 1, [Done()])
    jobs = {(7, "find"): 30, (8, "ring"): 4}
    observer = Watched(Measured("task", "ring", "run", 4, 2.0, 1.0), jobs=jobs)
    one = Historian(store, observer, SETTINGS, app.tasks, lambda: [gate])  # type: ignore[arg-type]
    one.tick(NOW)
    found = {row[:3]: row[3:] for row in rows(store)}
    assert found["pace", "google", "rate"] == (1, 0.0, 0.0)
    assert found["pace", "google", "latency"][0] == 1
    for measure in ("width", "batch", "latency"):
        assert found["job", "7", measure] == found["pace", "google", measure]
    assert found["pace", "google", "width"][1] >= 1
    assert found["job", "7", "rate"][0] == 30
    assert found["job", "8", "latency"] == (1, 0.5, 0.5), "not how often its task ran, also for others"
    assert gate.lately() is None, "nothing was called since"


def test_a_job_does_not_tell_how_many_calls_there_were_for_others(store: Store, app: Duly) -> None:
    pace = Pace("google")

    @app.task(pace=pace)
    def find(text: str) -> None: ...

    gate = PaceGate(pace, SliceBounds(), lambda: 110.0)
    for started in (102.0, 106.0, 109.0):
        gate.ended(started, 1, [Done()])
    one = Historian(store, Watched(jobs={(7, "find"): 1}), SETTINGS, app.tasks, lambda: [gate])  # type: ignore[arg-type]
    one.tick(NOW)
    found = {row[:3]: row[3:] for row in rows(store)}
    assert found["pace", "google", "latency"] == (3, 13.0, 8.0)
    assert found["job", "7", "latency"] == (1, pytest.approx(13 / 3), pytest.approx(13 / 3))


def test_old_steps_are_forgotten_as_the_settings_say(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "PORTION", 2)
    for seconds in range(0, 60, 10):
        historian(store, Watched(Measured("task", "ring", "done", 1))).write(after(seconds))
    one = historian(store, Watched(), history_seconds=20, history_long_seconds=86_400)
    now = after(65)
    for _ in range(2):
        assert one.tick(now) == now + room.BREATH
        now += room.BREATH
    assert one.tick(now) == now + timedelta(seconds=10)
    assert query(store, "select step, count(*) from duly_history group by step order by step") == [(10, 1), (300, 1)]


def test_a_worker_writes_down_what_it_did_at_the_latest_when_it_leaves(app: Duly) -> None:
    worker = app.worker()
    worker.start()
    try:
        ids = [app.put("ring", text=text).id for text in ("a", "b", "never")]
        until(lambda: all(app.read.item(item).state in ("done", "failed") for item in ids), 20)
    finally:
        worker.stop()
        worker.drain()
    chart = app.internals.verbs.history.look(LOCAL, task="ring", minutes=5)
    counted = {each.measure: sum(point[1] for point in each.points) for each in chart.series}
    assert counted == {"done": 2, "failed": 1, "lateness": 3, "run": 3}


# -- reading it


def test_a_chart_has_a_series_for_each_measure_with_points_in_order(app: Duly) -> None:
    now = app.clock.now()
    for back, seconds in ((25, 1.0), (5, 3.0)):
        observer = Watched(Measured("task", "ring", "run", 2, seconds, seconds), Measured("task", "ring", "done", 2))
        historian(app.internals.store, observer).write(now - timedelta(minutes=back))
    chart = app.internals.verbs.history.look(LOCAL)
    assert (chart.step_seconds, chart.is_more) == (10, False)
    done, run = chart.series
    assert (done.kind, done.subject, done.measure, run.measure) == ("task", "ring", "done", "run")
    assert [point[1:] for point in done.points] == [(2, None, None), (2, None, None)]
    assert [point[1:] for point in run.points] == [(2, 0.5, 1.0), (2, 1.5, 3.0)]
    assert run.points[0][0] < run.points[1][0]
    assert all(point[0] % 10 == 0 for point in run.points)
    assert len(app.internals.verbs.history.look(LOCAL, minutes=10).series[0].points) == 1
    long = app.internals.verbs.history.look(LOCAL, minutes=24 * 60, measure="done")
    assert (long.step_seconds, [each.measure for each in long.series]) == (300, ["done"])


def test_more_than_one_answer_has_is_said(app: Duly, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verbs, "MOST", 1)
    observer = Watched(Measured("task", "ring", "run", 2), Measured("task", "ring", "done", 2))
    historian(app.internals.store, observer).write(app.clock.now())
    chart = app.internals.verbs.history.look(LOCAL)
    assert (len(chart.series), chart.is_more) == (1, True)


def test_a_job_is_told_to_its_owner_and_tasks_to_admins(app: Duly) -> None:
    job = app.job("ring", [{"text": "a"}], owner="ana")
    historian(app.internals.store, Watched(jobs={(job.id, "ring"): 5})).write(app.clock.now())
    for who in (LOCAL, ANA):
        (series,) = app.internals.verbs.history.look(who, job_id=job.id).series
        assert (series.kind, series.subject, series.measure, series.points[0][1]) == ("job", str(job.id), "rate", 5)
    with pytest.raises(DoesNotExist):
        app.internals.verbs.history.look(BOB, job_id=job.id)
    with pytest.raises(NotAllowed):
        app.internals.verbs.history.look(ANA)
    assert app.internals.verbs.history.look(LOCAL).series == []


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"minutes": 0}, "minutes"),
        ({"minutes": 20_161}, "minutes"),
        ({"minutes": 1.5}, "minutes"),
        ({"measure": "speed"}, "measure"),
        ({"task": "ring", "job_id": 7}, "job"),
    ],
)
def test_what_cannot_be_asked_is_refused_by_its_name(app: Duly, asked: Any, field: str) -> None:
    with pytest.raises(InputError) as refused:
        app.internals.verbs.history.look(LOCAL, **asked)
    assert refused.value.field == field


def test_the_throughput_is_that_of_the_last_minutes(app: Duly) -> None:
    now = app.clock.now()
    for minutes, count in ((2, 30), (4, 20), (20, 1000)):
        late = Measured("task", "ring", "lateness", 2, count)
        observer = Watched(Measured("task", "ring", "done", count), late)
        historian(app.internals.store, observer).write(now - timedelta(minutes=minutes))
    ring = app.internals.verbs.history.lately()["ring"]
    assert ring.per_minute == pytest.approx(10, rel=0.1)
    assert (ring.starts, ring.late) == (4, 50)
