"""Signs of life, and alarms that are told once."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from duly import Duly, Limit, Windows
from duly.core.clock import ManualClock
from duly.core.errors import NotMigrated
from duly.core.model import Ask, Done, Failed
from duly.core.policy.lateness import Holds
from duly.core.settings import Settings
from duly.engine import late_items
from duly.engine import watch as watching
from duly.engine.metering import holds_of
from duly.engine.outages import Outages
from duly.engine.watch import EVERY, Watch
from duly.outbound.http import post_json
from duly.store import Store
from duly.store.migrate import check, latest
from duly.tasks.task import Task
from duly.verbs.read import Read
from tests.outbound.provider import Provider, answer, ok
from tests.support import NOW, after, claim, new, put, settle, share

LATE = Settings(alert_late_seconds=60, alert_late_items=10, alert_oldest_seconds=3_600, alert_webhook_url="http://x")


class Ear:
    def __init__(self) -> None:
        self.heard: list[Mapping[str, Any]] = []
        self.is_deaf = False

    def __call__(self, url: str, body: Mapping[str, Any]) -> None:
        if self.is_deaf:
            raise OSError("nobody there")
        self.heard.append(body)


def watch(store: Store, ear: Ear | None = None, name: str = "w1", settings: Settings = LATE) -> Watch:
    return Watch(store, name, ["ring"], settings, post=ear or Ear())


def alerts(store: Store) -> list[str]:
    return [alert.name for alert in Read(store, ManualClock(NOW)).alerts()]


def seen_at(store: Store) -> datetime | None:
    return Read(store, ManualClock(NOW)).seen_at()


def test_a_worker_says_that_it_is_alive_and_signs_off(store: Store) -> None:
    one = watch(store)
    assert one.tick(NOW) == NOW + EVERY
    one.tick(after(30))
    read = Read(store, ManualClock(NOW))
    assert [(life.name, life.tasks, life.started_at, life.seen_at) for life in read.workers()] == [
        ("w1", ["ring"], NOW, after(30))
    ]
    one.leave(after(40))
    assert read.workers() == []
    assert seen_at(store) == after(40), "who left in good order was seen all the same"


def test_workers_that_are_long_gone_are_forgotten_but_never_the_last_sign_of_life(store: Store) -> None:
    watch(store, name="old").tick(NOW)
    new = watch(store, name="new")
    new.tick(NOW + timedelta(days=3))
    new.leave(NOW + timedelta(days=3))
    assert seen_at(store) == NOW + timedelta(days=3)
    assert [row[0] for row in store.read("workers", {"after": "", "most": 100})] == []


def test_more_than_ten_late_items_are_told_once_by_whoever_is_first(store: Store, other: Store) -> None:
    put(store, 11)
    first, second = Ear(), Ear()
    one, two = watch(store, first), watch(other, second, "w2")
    one.tick(after(50))
    assert alerts(store) == [], "not late yet"
    one.tick(after(70))
    two.tick(after(71))
    one.tick(after(100))
    assert alerts(store) == ["late_items"]
    (told,) = first.heard + second.heard
    assert told["alert"] == "late_items"
    assert "11 items are late" in told["message"]


def test_ten_late_items_are_no_alert(store: Store) -> None:
    put(store, 10)
    watch(store).tick(after(70))
    assert alerts(store) == []


class Asked:
    """A store that remembers which reads it was asked for."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.reads: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def read(self, name: str, *more: Any) -> Any:
        self.reads.append(name)
        return self._store.read(name, *more)


def test_a_tick_asks_the_same_few_questions_however_many_queues_are_late(store: Store) -> None:
    put(store, 20)
    few, many = Asked(store), Asked(store)
    watch(few).tick(after(70))  # type: ignore[arg-type]
    store.put([new(queue=f"q{n}", rank=n % 3) for n in range(300)])
    ear = Ear()
    watch(many, ear, "w2").tick(after(500))  # type: ignore[arg-type]
    assert sorted(many.reads) == sorted(few.reads)
    assert len(many.reads) <= 6
    assert Read(store, ManualClock(NOW)).alerts()[0].message.endswith("320 items are late")


def test_late_items_are_counted_up_to_so_many_in_all(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "COUNTED", 15)
    store.put([new(queue=f"q{n}") for n in range(40)])
    watch(store).tick(after(70))
    (alert,) = Read(store, ManualClock(NOW)).alerts()
    assert "15 items or more are late" in alert.message
    assert alert.details["lateEvents"] == 15


def test_only_open_queues_and_the_main_lane_count_for_the_number(store: Store) -> None:
    store.put([new(queue="closed") for _ in range(11)])
    store.pause("closed", NOW)
    put(store, 11)
    settle(store, claim(store), Failed("busy"))
    watch(store).tick(after(400))
    assert alerts(store) == [], "retries and what is paused are not late"


@pytest.mark.parametrize("closed", [1, 9])
def test_a_backlog_of_paused_queues_hides_nothing_of_the_others(
    store: Store, monkeypatch: pytest.MonkeyPatch, closed: int
) -> None:
    monkeypatch.setattr(watching, "COUNTED", 12)
    monkeypatch.setattr(late_items, "LINES", 4)
    for n in range(90):
        store.put([new(queue=f"closed {n % closed}")])
    for n in range(closed):
        store.pause(f"closed {n}", NOW)
    one = watch(store)
    one.tick(after(100))
    assert alerts(store) == [], "nobody waits for what is paused"
    for n in range(11):
        store.put([new(queue=f"q{n}", due_at=after(10), rank=n % 2)])
    ticks = 0
    while alerts(store) != ["late_items"]:
        ticks += 1
        one.tick(after(100 + ticks))
        assert ticks < 10, "it is not seen"
    (alert,) = Read(store, ManualClock(NOW)).alerts()
    assert alert.details == {"lateEvents": 11, "oldestEventAge": 1}
    for more in range(8):
        one.tick(after(200 + more))
        assert alerts(store) == ["late_items"], "seen once, it stands until a whole walk says otherwise"
    for n in range(11):
        assert claim(store, share(f"q{n}", ranks=(0, 1), task="ring"), now=after(300))
    for more in range(12):
        one.tick(after(300 + more))
    assert alerts(store) == []


def test_a_worker_that_has_seen_a_part_only_does_not_call_off_what_another_saw(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "COUNTED", 12)
    put(store, 90, queue="closed")
    store.pause("closed", NOW)
    store.put([new(queue=f"q{n}", due_at=after(10)) for n in range(11)])
    watch(store).tick(after(100))
    assert alerts(store) == ["late_items"]
    monkeypatch.setattr(late_items, "LINES", 4)
    other = watch(store, name="w2")
    for n in range(6):
        other.tick(after(101 + n))
        assert alerts(store) == ["late_items"]


def test_the_oldest_of_an_open_queue_is_seen_behind_paused_ones(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "COUNTED", 12)
    put(store, 50)
    store.pause("ring", NOW)
    store.put([new(queue="open", due_at=after(5))])
    ear = Ear()
    watch(store, ear).tick(after(3_700))
    assert [told["alert"] for told in ear.heard] == ["oldest_due"]


def test_an_alert_is_over_when_its_reason_is(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    put(store, 11)
    one = watch(store)
    one.tick(after(70))
    claim(store, now=after(80))
    one.tick(after(100))
    assert alerts(store) == []
    assert "alert over: late_items" in caplog.text
    put(store, 11, due_at=after(100))
    again = Ear()
    watch(store, again).tick(after(200))
    assert len(again.heard) == 1, "the next time it is told again"


def test_another_worker_clears_an_alert_that_was_standing_when_it_started(store: Store) -> None:
    put(store, 11)
    watch(store).tick(after(70))
    claim(store, now=after(80))
    watch(store, name="w2").tick(after(100))
    assert alerts(store) == []


def test_an_old_item_is_told_of_also_when_it_is_alone(store: Store) -> None:
    put(store, 1)
    ear = Ear()
    one = watch(store, ear)
    one.tick(after(3_500))
    assert ear.heard == []
    one.tick(after(3_700))
    assert [told["alert"] for told in ear.heard] == ["oldest_due"]


def test_a_webhook_that_is_away_is_told_later_and_by_another_if_need_be(store: Store, other: Store) -> None:
    put(store, 11)
    deaf, good = Ear(), Ear()
    deaf.is_deaf = True
    watch(store, deaf).tick(after(70))
    two = watch(other, good, "w2")
    two.tick(after(80))
    assert good.heard == [], "the first may still be at it"
    two.tick(after(140))
    assert [told["alert"] for told in good.heard] == ["late_items"]


def test_a_worker_that_starts_after_a_silence_tells_of_it(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    watch(store).tick(NOW)
    ear = Ear()
    back = watch(store, ear, "w2")
    back.tick(after(1_200))
    back.tick(after(1_230))
    assert [told["alert"] for told in ear.heard] == ["no_tick"]
    assert "20 minutes" in ear.heard[0]["message"]
    assert alerts(store) == [], "what it tells of is over"
    assert "Scheduler appears to have been down" in caplog.text


def test_the_first_worker_ever_has_nobody_to_miss(store: Store) -> None:
    ear = Ear()
    watch(store, ear).tick(NOW)
    assert ear.heard == []


def test_an_alert_reaches_a_real_webhook(store: Store) -> None:
    put(store, 11)
    with Provider(answer(204), ok) as provider:
        settings = Settings(alert_late_seconds=60, alert_webhook_url=f"{provider.url}/alerts")
        Watch(store, "w1", ["ring"], settings, post=post_json).tick(after(70))
    (request,) = provider.requests
    assert request.path == "/alerts"
    assert request.body["alert"] == "late_items"
    assert request.body["details"]["lateEvents"] == 11


def test_what_a_worker_did_is_summed_up_in_the_words_of_the_log(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    app = Duly(store=store, clock=ManualClock(after(7_200)))
    put(store, 2)
    observed = app.internals.telemetry.observe(store)
    items = claim(observed, now=after(7_200))
    from duly.core.decide import decide
    from duly.core.model import Done
    from tests.support import RULES

    observed.settle([decide(item, Done(), after(7_201), RULES) for item in items])
    one = Watch(store, "w1", ["ring"], LATE, post=Ear(), summary=app.internals.telemetry.summary)
    one.tick(after(7_202))
    (record,) = [each for each in caplog.records if each.message == "Scheduler job completed"]
    assert (record.processed, record.failed, record.eventsLate, record.recoveryMode) == (2, 0, 2, True)
    assert record.averageLatenessMinutes == 120
    caplog.clear()
    one.tick(after(7_232))
    assert "Scheduler job completed" not in caplog.text, "nothing happened since"


def test_without_a_webhook_an_alert_about_a_silence_is_over_by_itself(store: Store) -> None:
    settings = Settings(alert_webhook_url="")
    watch(store, settings=settings).tick(NOW)
    back = watch(store, name="w2", settings=settings)
    back.tick(after(1_200))
    assert alerts(store) == ["no_tick"]
    back.tick(after(1_230))
    assert alerts(store) == []


def test_what_nobody_uses_any_more_is_forgotten(store: Store) -> None:
    watch(store, name="killed").tick(NOW)
    one = watch(store, name="new")
    one.tick(NOW + timedelta(days=40))
    assert [row[0] for row in store.read("workers", {"after": "", "most": 100})] == ["new"]


TOWER = Limit("tower", 12, per="1m")


def limited(store: Store, ear: Ear, limit: Limit = TOWER) -> Watch:
    """A watch over a queue of 12 calls in a minute at most, whose retries wait for windows."""
    app = Duly(store=store, clock=ManualClock(NOW))
    app.task(name="ring", limits=limit, retry=Windows("30 */4 * * *", cap=2))(lambda: None)
    return Watch(store, "w1", ["ring"], LATE, post=ear, holds=holds_of(app.tasks))


def granted(store: Store, at: datetime, limit: Limit = TOWER, calls: int = 1, task: str = "ring") -> None:
    """So many calls under the limit."""
    asks = [Ask(share(task, limit=calls, task=task), (limit.meter(),))]
    (grant,) = store.claim_metered(asks, "w1", at, timedelta(seconds=60), calls, 1)
    assert len(grant.items) == calls


def test_what_a_limit_holds_back_is_late_when_it_stops_or_takes_too_long(store: Store) -> None:
    put(store, 40)
    ear = Ear()
    two = Limit("tower", 2, per="1m")
    one = limited(store, ear, two)
    for seconds in range(31, 600, 31):
        granted(store, after(seconds), two)
        one.tick(after(seconds))
        assert alerts(store) == [], "the limit works them off, as planned"
    one.tick(after(800))
    assert alerts(store) == ["late_items"], "nothing comes through any more"
    granted(store, after(4_000), two, 2)
    one.tick(after(4_001))
    assert alerts(store) == [], "an hour, and what those ahead need, a limit explains by itself"
    granted(store, after(4_300), two, 2)
    one.tick(after(4_301))
    assert alerts(store) == ["oldest_due"], "but no more than that"


@pytest.mark.parametrize("limit", [Limit("tower", 1_000, per="1m"), Limit("tower", 10)])
@pytest.mark.parametrize("task", ["ring", "other"])
def test_a_single_call_under_a_limit_explains_no_backlog(store: Store, limit: Limit, task: str) -> None:
    put(store, 50)
    store.put([new(task="other", queue="other", due_at=after(3_000))])
    granted(store, after(3_200), limit, task=task)
    limited(store, Ear(), limit).tick(after(3_300))
    assert alerts(store) == ["late_items"]


def test_a_limit_on_calls_at_the_same_time_explains_while_its_places_are_taken(store: Store) -> None:
    limit = Limit("tower", 4)
    put(store, 50)
    one = limited(store, Ear(), limit)
    granted(store, after(600), limit, 4)
    one.tick(after(610))
    assert alerts(store) == []
    watch(store).tick(after(620))
    assert alerts(store) == ["late_items"], "who knows of no limit has nothing to explain it"


def test_a_place_that_is_free_for_a_moment_does_not_make_late_what_waits_for_a_limit(store: Store) -> None:
    limit = Limit("tower", 1)
    put(store, 50)
    one = limited(store, Ear(), limit)
    asks = [Ask(share(limit=1), (limit.meter(),))]
    (grant,) = store.claim_metered(asks, "w1", after(600), timedelta(seconds=60), 1, 1)
    one.tick(after(610))
    settle(store, grant.items, Done(), closed=[grant.items[0].fence])
    one.tick(after(640))
    assert alerts(store) == []
    one.tick(after(700))
    assert alerts(store) == ["late_items"], "nobody takes its place"


def test_what_waits_for_the_next_day_of_a_limit_is_not_late(store: Store) -> None:
    limit = Limit("tower", 100, per="1d")
    put(store, 150)
    ear = Ear()
    one = limited(store, ear, limit)
    granted(store, after(10), limit, 100)
    for hour in range(1, 24):
        one.tick(after(3_600 * hour))
    assert ear.heard == []
    assert alerts(store) == []


def test_a_tick_asks_once_for_the_limits_of_ever_so_many_queues(store: Store) -> None:
    app = Duly(store=store, clock=ManualClock(NOW))
    app.task(name="ring", limits=Limit("tower", 2, per="1m", by="who"))(lambda who: None)
    store.put([new(queue=f"ring/{n}") for n in range(300)])
    asked: list[str] = []
    known = holds_of(app.tasks)

    def holds(queue: str) -> Holds:
        asked.append(queue)
        return known(queue)

    seen = Asked(store)
    Watch(seen, "w1", ["ring"], LATE, post=Ear(), holds=holds).tick(after(400))  # type: ignore[arg-type]
    assert alerts(store) == ["late_items"]
    assert len(seen.reads) <= 7
    assert len(asked) == 300, "once for each queue"


def test_what_fell_due_while_no_worker_ran_is_one_alert_that_is_told_again_until_it_is_over(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    ear = Ear()
    limited(store, ear).tick(NOW)
    put(store, 14)
    back, hours = limited(store, ear), 6 * 3_600
    back.tick(after(hours))
    other = limited(store, ear)
    for minute in range(1, 150):
        if minute % 12 == 0:
            granted(store, after(hours + 60 * minute))
        back.tick(after(hours + 60 * minute))
        other.tick(after(hours + 60 * minute + 20))
        assert alerts(store) == ["no_tick"], minute
    assert [told["alert"] for told in ear.heard] == ["no_tick"] * 3, "at once, and every hour"
    assert ear.heard[0]["message"].endswith("for 360 minutes; 14 items are late")
    assert ear.heard[2]["message"].endswith("for 360 minutes; 4 items are late")
    assert "still: Scheduler appears to have been down" in caplog.text
    granted(store, after(hours + 60 * 150))
    granted(store, after(hours + 60 * 150))
    other.tick(after(hours + 60 * 151))
    assert alerts(store) == []


def test_leftovers_of_a_window_are_not_late(store: Store) -> None:
    put(store, 12)
    settle(store, claim(store), Failed("busy"))
    ear = Ear()
    one = limited(store, ear)
    for hour in range(1, 30):
        one.tick(after(3_600 * hour))
    assert [told for told in ear.heard if told["alert"] != "no_tick"] == []


def test_retries_that_missed_more_windows_than_they_fill_are_late(store: Store) -> None:
    put(store, 12)
    settle(store, claim(store), Failed("busy"))
    one = limited(store, Ear())
    one.tick(after(3_600 * 30))
    assert alerts(store) == [], "12 of them fill 6 windows"
    one.tick(after(86_400 * 30))
    assert alerts(store) == ["oldest_due"]


def test_what_gets_late_after_workers_are_back_is_told_beside_what_they_missed(store: Store) -> None:
    watch(store).tick(NOW)
    store.put([new(task="unknown", queue="unknown")])
    ear = Ear()
    back = watch(store, ear, "w2")
    back.tick(after(7_200))
    assert alerts(store) == ["no_tick"]
    put(store, 11, due_at=after(7_210))
    back.tick(after(7_300))
    assert alerts(store) == ["late_items", "no_tick"]
    assert [told["details"]["lateEvents"] for told in ear.heard] == [1, 11]
    claim(store, now=after(7_310))
    back.tick(after(7_330))
    assert alerts(store) == ["no_tick"]


def test_what_makes_no_progress_after_workers_are_back_is_late_as_anything(store: Store) -> None:
    watch(store).tick(NOW)
    put(store, 12)
    ear = Ear()
    back, returned = watch(store, ear, "w2"), 7_200
    for minute in range(0, 60, 5):
        back.tick(after(returned + 60 * minute))
    claim(store, share(limit=11), now=after(returned + 3_500))
    for minute in range(60, 118, 5):
        back.tick(after(returned + 60 * minute))
        assert alerts(store) == ["no_tick"], minute
    back.tick(after(returned + 60 * 125))
    assert alerts(store) == ["oldest_due"], "the last one has not moved for an hour"
    back.tick(after(returned + 60 * 126))
    assert alerts(store) == ["oldest_due"]
    assert [told["alert"] for told in ear.heard] == ["no_tick", "no_tick", "oldest_due"]


def test_what_makes_no_progress_is_late_also_if_nobody_minds_the_oldest(store: Store) -> None:
    settings = replace(LATE, alert_oldest_seconds=0)
    watch(store, settings=settings).tick(NOW)
    put(store, 12)
    back = watch(store, name="w2", settings=settings)
    for minute in range(0, 60, 5):
        back.tick(after(7_200 + 60 * minute))
        assert alerts(store) == ["no_tick"], minute
    back.tick(after(7_200 + 60 * 61))
    assert alerts(store) == ["late_items"]


def test_what_was_missed_is_told_apart_behind_paused_queues_too(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "COUNTED", 12)
    watch(store).tick(NOW)
    put(store, 50, queue="closed")
    store.pause("closed", NOW)
    put(store, 3)
    back = watch(store, name="w2")
    back.tick(after(7_200))
    assert alerts(store) == ["no_tick"]
    store.put([new(queue=f"q{n}", due_at=after(7_210)) for n in range(11)])
    back.tick(after(7_300))
    assert alerts(store) == ["late_items", "no_tick"]
    counts = [alert.details["lateEvents"] for alert in Read(store, ManualClock(NOW)).alerts()]
    assert counts == [11, 3]


def test_an_alert_is_told_once_where_it_is_not_to_be_told_again(store: Store) -> None:
    put(store, 11)
    ear = Ear()
    one = watch(store, ear, settings=Settings(alert_again_seconds=0, alert_webhook_url="http://x"))
    for hour in range(1, 9):
        one.tick(after(3_600 * hour))
    assert [told["alert"] for told in ear.heard] == ["late_items"]


def down(store: Store, now: datetime, tasks: list[str]) -> None:
    """The source tower is down, on which these tasks depend."""
    details = json.dumps({"source": "tower", "tasks": tasks, "queues": tasks, "cause": "no answer"})
    store.write("source_down", {"name": "source:tower", "now": now, "message": "tower is down", "details": details})


def tasks_with(name: str, source: str | None) -> Mapping[str, Task[..., Any]]:
    """A task that depends on this source, as a worker knows it."""
    app = Duly("sqlite:///:memory:")
    app.task(lambda: None, name=name, source=source)
    return app.tasks


def test_an_outage_of_what_nothing_depends_on_any_more_is_over(store: Store) -> None:
    for task, source, is_over in (("ring", None, True), ("ring", "mill", True), ("ring", "tower", False)):
        down(store, NOW, ["ring"])
        one = Watch(store, "w1", ["ring"], LATE, post=Ear(), outages=Outages(tasks_with(task, source)))
        for seconds in (0, 30, 60):
            one.tick(after(seconds))
        assert (alerts(store) == []) == is_over
    others = Watch(store, "w2", ["sing"], LATE, post=Ear(), outages=Outages(tasks_with("sing", None)))
    others.tick(after(90))
    assert alerts(store) == ["source:tower"], "who does not know its tasks cannot tell"


def test_an_outage_does_not_explain_lateness_for_ever(store: Store) -> None:
    put(store, 20, due_at=after(-60))
    down(store, NOW, ["ring"])
    one = watch(store)
    one.tick(after(1_800))
    assert alerts(store) == ["source:tower"], "which is why nothing was done"
    back = json.dumps({"source": "tower", "tasks": ["ring"], "queues": ["ring"], "backAt": after(1_800).isoformat()})
    store.write("source_back", {"name": "source:tower", "message": "tower is back", "details": back})
    one.tick(after(3_600))
    assert alerts(store) == ["source:tower"], "what had to wait may be made up"
    for seconds in (9_100, 9_130):
        one.tick(after(seconds))
    assert "late_items" in alerts(store)
    assert "source:tower" not in alerts(store)


def test_a_worker_that_is_too_old_for_the_database_stops_claiming_and_says_so(store: Store) -> None:
    stopped: list[str] = []
    one = Watch(store, "w1", ["ring"], LATE, post=Ear(), stop_claims=lambda: stopped.append("w1"))
    one.tick(NOW)
    (life,) = Read(store, ManualClock(NOW)).workers()
    assert (life.migration, life.hindrance, stopped) == (latest(store), None, [])
    check(store)
    store.query("insert into duly_least (migration) values (99)", {})
    one.tick(after(30))
    one.tick(after(60))
    (life,) = Read(store, ManualClock(NOW)).workers()
    assert stopped == ["w1"]
    assert life.hindrance is not None
    assert "the database needs workers that know 99; upgrade duly" in life.hindrance
    with pytest.raises(NotMigrated, match="too old: it knows migrations up to"):
        check(store)
