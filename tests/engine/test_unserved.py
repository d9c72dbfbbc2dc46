"""Tasks that nobody runs are reported: by an alert after a minute, with the nearest name and what moves their items."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import pairwise

import pytest
from msgspec import convert

from duly.core.clock import EPOCH, ManualClock
from duly.core.shown import Alert
from duly.core.unserved import Fleet, ServedTask, WaitingTask, described, remedy
from duly.engine import unserved_alerts
from duly.engine.watch import Watch
from duly.store import Store
from duly.store import unserved as looking
from duly.store.unserved import UnservedTasks
from duly.verbs.read import Read
from tests.engine.test_watch import LATE, Ear
from tests.support import NOW, after, put


class Fleets:
    """Workers on one database, whose reports are made when a test says."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.began = store.now()
        self.ear = Ear()

    def at(self, seconds: float) -> datetime:
        return self.began + timedelta(seconds=seconds)

    def worker(self, name: str, *tasks: str) -> Watch:
        return Watch(self.store, name, list(tasks), LATE, post=self.ear)

    def put(self, task: str, count: int = 1, **more: object) -> None:
        put(self.store, count, task, **{"due_at": self.began, **more})

    def alerts(self) -> list[Alert]:
        found = Read(self.store, ManualClock(NOW)).alerts()
        return [alert for alert in found if alert.name.startswith("task")]

    def names(self) -> list[str]:
        return [alert.name for alert in self.alerts()]


@pytest.fixture
def fleet(store: Store) -> Fleets:
    return Fleets(store)


def test_a_task_that_nobody_runs_is_reported_after_a_minute_with_the_nearest_name(fleet: Fleets) -> None:
    worker = fleet.worker("w1", "send_mail", "ring")
    worker.tick(fleet.at(-300))
    fleet.put("sendmail", 3)
    worker.tick(fleet.at(30))
    assert fleet.names() == [], "a deploy may be under way"
    worker.tick(fleet.at(90))
    (alert,) = fleet.alerts()
    assert alert.name == "task:sendmail"
    assert alert.message == (
        "no running worker has the task sendmail, and 3 items wait for it; did you mean send_mail? "
        "`duly items retask sendmail send_mail` moves its items"
    )
    details = alert.details
    assert (details["task"], details["items"], details["near"], details["seenAt"]) == ("sendmail", 3, "send_mail", None)
    assert [body["alert"] for body in fleet.ear.heard] == ["task:sendmail"]


def test_it_clears_as_soon_as_a_worker_has_the_task(fleet: Fleets) -> None:
    old = fleet.worker("w1", "ring")
    old.tick(fleet.at(-300))
    fleet.put("toll")
    old.tick(fleet.at(90))
    assert fleet.names() == ["task:toll"]
    fleet.worker("w2", "ring", "toll").tick(fleet.at(95))
    old.tick(fleet.at(120))
    assert fleet.names() == []


def test_a_deploy_of_half_a_minute_is_quiet_whichever_worker_comes_first(fleet: Fleets) -> None:
    rings, tolls = fleet.worker("w1", "ring"), fleet.worker("w2", "toll")
    for seconds in range(-300, 1, 30):
        rings.tick(fleet.at(seconds))
        tolls.tick(fleet.at(seconds))
    fleet.put("toll", due_at=fleet.at(-600))
    rings.leave(fleet.at(1))
    tolls.leave(fleet.at(2))
    new = fleet.worker("w3", "ring")
    new.tick(fleet.at(25))
    assert fleet.names() == []
    fleet.worker("w4", "toll").tick(fleet.at(35))
    for seconds in (55, 85, 115):
        new.tick(fleet.at(seconds))
        assert fleet.names() == []


def test_a_worker_that_starts_first_after_a_long_time_without_any_does_not_accuse_the_others(fleet: Fleets) -> None:
    fleet.put("toll", due_at=fleet.at(-600))
    rings = fleet.worker("w1", "ring")
    rings.tick(fleet.at(900))
    rings.tick(fleet.at(930))
    assert fleet.names() == []
    rings.tick(fleet.at(990))
    assert fleet.names() == ["task:toll"]


def test_a_killed_worker_counts_until_it_has_missed_its_reports(fleet: Fleets) -> None:
    rings = fleet.worker("w1", "ring")
    rings.tick(fleet.at(-300))
    fleet.worker("w2", "toll").tick(fleet.at(0))
    fleet.put("toll")
    rings.tick(fleet.at(85))
    assert fleet.names() == []
    rings.tick(fleet.at(115))
    (alert,) = fleet.alerts()
    assert "the last worker that had it reported at" in alert.message
    assert "start a worker that has it; if it was renamed, `duly items retask toll NEW` moves" in alert.message


def test_an_item_of_next_month_is_reported_today(fleet: Fleets) -> None:
    worker = fleet.worker("w1", "ring")
    worker.tick(fleet.at(-300))
    fleet.put("toll", due_at=fleet.at(30 * 86_400))
    worker.tick(fleet.at(90))
    assert fleet.names() == ["task:toll"]


def test_items_that_have_this_alert_do_not_raise_one_of_late_items_too(fleet: Fleets) -> None:
    worker = fleet.worker("w1", "ring")
    worker.tick(fleet.at(-300))
    fleet.put("toll", 20)
    fleet.put("toll", 20, queue="shared")
    for seconds in range(30, 4_000, 30):
        worker.tick(fleet.at(seconds))
    every = [alert.name for alert in Read(fleet.store, ManualClock(NOW)).alerts()]
    assert every == ["task:toll"]
    fleet.put("ring", 20, queue="shared", due_at=fleet.at(-900))
    for seconds in (4_030, 4_060):
        worker.tick(fleet.at(seconds))
    every = [alert.name for alert in Read(fleet.store, ManualClock(NOW)).alerts()]
    assert every == ["late_items", "task:toll"]


def test_what_is_paused_and_what_is_a_part_of_duly_is_not_reported(fleet: Fleets) -> None:
    worker = fleet.worker("w1", "ring")
    worker.tick(fleet.at(-300))
    fleet.put("toll")
    fleet.put("duly.jobs")
    fleet.store.pause("toll", fleet.began)
    worker.tick(fleet.at(90))
    assert fleet.names() == []


def test_strangers_names_make_a_bounded_number_of_alerts(fleet: Fleets, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unserved_alerts, "NAMED", 2)
    worker = fleet.worker("w1", "ring")
    worker.tick(fleet.at(-300))
    for number in range(1, 5):
        fleet.put(f"typo{number}", number)
    worker.tick(fleet.at(90))
    assert fleet.names() == ["task:typo3", "task:typo4", "tasks"]
    assert fleet.alerts()[-1].message == (
        "no running worker has 2 more tasks, and 3 items wait for them; `duly doctor` lists them"
    )


def test_a_backlog_of_other_tasks_hides_nothing(fleet: Fleets, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking, "LOOKED", 10)
    monkeypatch.setattr(looking, "LINES", 3)
    worker = fleet.worker("w1", "ring")
    worker.tick(fleet.at(-300))
    for number in range(8):
        fleet.put("ring", 2, queue=f"ring/{number}", due_at=fleet.at(-60))
    fleet.put("toll", 4)
    fleet.put("toll", 1, queue="by hand")
    worker.tick(fleet.at(60))
    found = UnservedTasks(fleet.store)
    walks = [(found.find(fleet.at(85)), found.is_complete) for _ in range(4)]
    assert [is_complete for _, is_complete in walks] == [False, False, False, True]
    assert [(each.task, each.items) for each in walks[-1][0]] == [("toll", 5)]
    for seconds in range(90, 300, 30):  # and the alert does not come and go with the walk
        worker.tick(fleet.at(seconds))
    assert fleet.names() == ["task:toll"]
    assert [body["alert"] for body in fleet.ear.heard] == ["late_items", "task:toll"]
    assert "5 items wait for it" in fleet.alerts()[0].message


def test_without_a_running_worker_no_task_is_blamed() -> None:
    waiting = [WaitingTask("toll", 3, EPOCH)]
    assert Fleet({}, None).unserved(waiting, NOW) == []
    assert Fleet({"toll": ServedTask("toll", NOW, NOW, EPOCH)}, EPOCH).unserved(waiting, NOW) == []


def test_the_time_since_when_nobody_runs_it_is_the_latest_reason_to_wait() -> None:
    times = [after(0), after(100), after(200)]
    for since, put_at, seen_at in [times, times[::-1], [times[1], times[2], times[0]]]:
        fleet = Fleet({"toll": ServedTask("toll", seen_at, None, since)}, since)
        waiting = [WaitingTask("toll", 1, put_at)]
        assert fleet.unserved(waiting, after(259)) == []
        (found,) = fleet.unserved(waiting, after(260))
        assert found.since == after(200)
    assert all(one < two for one, two in pairwise(times))


@pytest.mark.parametrize(("items", "words"), [(1, "1 item waits"), (2_000, "2,000 items wait")])
def test_the_sentence_counts_in_plain_words(items: int, words: str) -> None:
    found = Fleet({}, EPOCH).unserved([WaitingTask("toll", items, EPOCH)], NOW)[0]
    assert words in described(found)
    assert "or more" in described(found, is_more=True)
    assert "duly items retask toll NEW" in remedy(found)
    assert convert({"task": "a", "items": 1, "since": NOW, "seen_at": None, "near": "b"}, type(found)).near == "b"
