"""A pace that has collapsed while work waits is an alert, so that health does not report that all is well."""

from __future__ import annotations

from contextlib import closing
from datetime import datetime, timedelta

import pytest
from msgspec.json import encode

from duly import Duly, Pace
from duly.core.clock import ManualClock, begin_of
from duly.core.settings import Settings
from duly.core.shown import Measured
from duly.engine.watch import Watch
from duly.store import Store
from duly.verbs.read import Read
from tests.support import NOW, after, put

QUIET = Settings(alert_late_items=1_000_000, alert_oldest_seconds=0)


@pytest.fixture
def app() -> Duly:
    app = Duly("sqlite://")
    app.task(name="look_up", pace=Pace("shop"))(lambda: None)
    app.task(name="ring")(lambda: None)
    return app


def watch(store: Store, app: Duly) -> Watch:
    return Watch(store, "w1", ["look_up"], QUIET, post=lambda *_: None, known=app.tasks)


def calls(store: Store, count: int, at: datetime, pace: str = "shop") -> None:
    """So many calls ended at that time."""
    given = {
        "short": 10, "short_bucket": begin_of(at, 10), "long": 300, "long_bucket": begin_of(at, 300),
        "rows": encode([Measured("pace", pace, "rate", count)]).decode(),
    }  # fmt: skip
    store.write("add_history", given)


def alerts(store: Store) -> list[str]:
    return [alert.name for alert in Read(store, ManualClock(NOW)).alerts()]


def worked_well(store: Store, until: datetime = NOW, pace: str = "shop") -> None:
    """A hundred and sixty calls a second for ten minutes."""
    for step in range(60):
        calls(store, 1_600, until - timedelta(seconds=10 * step + 10), pace)


def test_a_pace_far_below_its_best_with_work_waiting_is_an_alert_until_it_is_back(store: Store, app: Duly) -> None:
    put(store, 5, task="look_up")
    worked_well(store)
    seen = watch(store, app)
    seen.tick(after(10))
    assert alerts(store) == [], "it has only just stopped"
    for second in range(0, 300, 10):
        calls(store, 2, after(second))
    seen.tick(after(300))
    (alert,) = Read(store, ManualClock(NOW)).alerts()
    assert alert.name == "pace:shop"
    assert alert.message.startswith("shop is called 0.2 times a second, after 160 at best")
    assert alert.details["queue"] == "look_up"
    assert alert.details["tasks"] == ["look_up"]
    for second in range(300, 420, 10):
        calls(store, 1_200, after(second))
    seen.tick(after(425))
    assert alerts(store) == []


def test_no_calls_at_all_are_a_collapse_too(store: Store, app: Duly) -> None:
    put(store, task="look_up")
    worked_well(store)
    watch(store, app).tick(after(180))
    assert alerts(store) == ["pace:shop"]


def test_a_quiet_provider_is_no_collapse(store: Store, app: Duly) -> None:
    worked_well(store)
    put(store, task="ring")
    put(store, task="look_up", due_at=after(250))
    watch(store, app).tick(after(300))
    assert alerts(store) == []


def test_paused_work_and_work_behind_a_source_that_is_down_are_no_collapse(store: Store, app: Duly) -> None:
    put(store, task="look_up")
    worked_well(store)
    store.pause("look_up", NOW)
    watch(store, app).tick(after(300))
    assert alerts(store) == []


def test_few_calls_say_nothing(store: Store, app: Duly) -> None:
    put(store, task="look_up")
    calls(store, 3, after(-600))
    watch(store, app).tick(after(300))
    assert alerts(store) == []


def test_a_worker_leaves_alerts_of_paces_that_it_does_not_have_and_ends_those_that_no_task_has(
    store: Store, app: Duly
) -> None:
    put(store, task="look_up")
    worked_well(store)
    watch(store, app).tick(after(180))
    stranger = Duly("sqlite://")
    stranger.task(name="other")(lambda: None)
    watch(store, stranger).tick(after(200))
    assert alerts(store) == ["pace:shop"]
    changed = Duly("sqlite://")
    changed.task(name="look_up")(lambda: None)
    watch(store, changed).tick(after(230))
    assert alerts(store) == []


def test_more_lines_than_one_look_do_not_hide_it(store: Store, app: Duly, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("duly.engine.slow_paces.LINES", 2)
    for name in "abcde":
        put(store, task="ring", queue=name)
    put(store, task="look_up", queue="z")
    worked_well(store)
    watch(store, app).tick(after(180))
    assert alerts(store) == ["pace:shop"]


def test_health_is_not_ok_while_a_pace_has_collapsed(database_url: str) -> None:
    with closing(Duly(database_url)) as app:
        app.task(name="look_up", pace=Pace("shop"))(lambda: None)
        app.migrate()
        app.tasks["look_up"].put_many({} for _ in range(5))
        store, now = app.internals.store, app.internals.store.now()
        seen = watch(store, app)
        seen.tick(now)
        assert app.client.now().health == "ok"
        worked_well(store, now)
        seen.tick(now + timedelta(seconds=300))
        picture = app.client.now()
        assert picture.health == "bad"
        assert any("shop is called 0 times a second" in reason.text for reason in picture.reasons)
