"""What a process makes of failures of one source, without a database."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest

from duly import Backoff, Duly, InputError, Source
from duly.core.decide import Rules, decide
from duly.core.model import (
    Cancel,
    Change,
    Crashed,
    Done,
    Expired,
    Failed,
    GiveUp,
    NotFound,
    Outcome,
    Released,
    Skip,
    Snooze,
    Throttled,
)
from duly.core.policy.outage import AWAY, MERCY, MIXED
from duly.engine import outage as module
from duly.engine.outages import Outages
from duly.engine.work import nothing
from tests.core.test_decide import an_item
from tests.support import NOW, after

TOWER = Source("tower", own=("NoPrice",))
GONE = Failed("Unreachable: no route", ("duly.Unreachable",))
HUNG = Failed("DeadlineExceeded: still running after 30 s", ("duly.DeadlineExceeded", "TimeoutError"))
OWN = Failed("NoPrice: 'A'", ("NoPrice",))
BAD = Failed("ValueError: no such size", ("ValueError",))
KEY = Failed("Refused: the key is not known", ("Refused",))
RULES = Rules(retry=Backoff(tries=100))


def end(
    outages: Outages, ids: Sequence[int], verdict: Outcome, now: datetime = NOW, source: Source = TOWER, **more: Any
) -> list[Change]:
    """The changes that the end of one call about these items makes."""
    items = [an_item(id=each, fence=each * 1_000, **more) for each in ids]
    changes = outages.judge(source, [(item, verdict, decide(item, verdict, now, RULES)) for item in items], now)
    outages.take_back(changes, now)
    return changes


def down(verdict: Failed = GONE, wake_settler: Callable[[], None] = nothing) -> Outages:
    outages = Outages(wake_settler=wake_settler)
    for n in range(1, 11):
        end(outages, [n], verdict)
    assert outages.is_down(TOWER)
    return outages


def alert(since: datetime, cause: str = AWAY, **more: Any) -> dict[str, dict[str, Any]]:
    return {"source:tower": {"cause": cause, "since": since, **more}}


def outcomes(changes: Sequence[Change]) -> list[str | None]:
    return [change.outcome for change in changes]


@pytest.mark.parametrize("batch", [1, 10, 99, 100, 1_000])
def test_calls_of_any_size_take_a_source_down_and_are_taken_back_whole(batch: int) -> None:
    outages, changes, calls = Outages(), [], 0
    while not outages.is_down(TOWER):
        assert calls < 20
        items = [an_item(id=calls * batch + n, fence=calls * batch + n) for n in range(1, batch + 1)]
        changes += outages.judge(TOWER, [(item, GONE, decide(item, GONE, NOW, RULES)) for item in items], NOW)
        calls += 1
    assert calls == max(3, 10 // batch)
    assert outages.corrections == len(changes)
    outages.take_back(changes, NOW)
    assert {(change.outcome, change.failures) for change in changes} == {("throttled", 0)}


def test_tasks_that_name_the_same_source_share_successes_and_failures() -> None:
    price, stock = Source("tower", own=("NoPrice",)), Source("tower")
    outages = Outages()
    for n in range(1, 30):
        end(outages, [n], GONE, source=stock)
        end(outages, [1_000 + n], Done(), source=price)
    assert not outages.is_down(stock)
    for n in range(30, 35):
        end(outages, [n], GONE, source=stock)
        end(outages, [1_000 + n], GONE, source=price)
    assert outages.is_down(stock)
    assert outages.is_down(price)


@pytest.mark.parametrize("other", [Source("tower", tries=11), Source("tower", probe=30)])
def test_two_sources_of_one_name_must_mean_the_same(other: Source) -> None:
    app = Duly("sqlite:///unused.db")
    app.task(name="a", source=Source("tower"))(lambda: None)
    app.task(name="b", source=Source("tower", own=(KeyError,)))(lambda: None)
    app.task(name="c", source=Source("radar", tries=11))(lambda: None)
    app.task(name="d")(lambda: None)
    words = rf"Source\('tower', tries={other.tries}, probe={other.probe:g}\) differs from "
    with pytest.raises(InputError, match=words + r"Source\('tower', tries=10, probe=60\) of a"):
        app.task(name="e", source=other)(lambda: None)
    assert "e" not in app.tasks


def test_while_nobody_answers_any_other_failure_is_an_answer() -> None:
    for verdict in (OWN, BAD):
        outages = down()
        assert outcomes(end(outages, [50], GONE)) == ["throttled"]
        change, *_ = end(outages, [51], verdict)
        assert (change.outcome, change.failures) == ("failed", 1), "that one is its own"
        assert not outages.is_down(TOWER)


def test_while_a_source_refuses_all_only_that_and_silence_are_excused() -> None:
    outages = down(KEY)
    assert outcomes(end(outages, [50], KEY)) == ["throttled"]
    assert outcomes(end(outages, [51], GONE)) == ["throttled"]
    assert outcomes(end(outages, [53], BAD)) == ["failed"]
    assert outages.is_down(TOWER)
    assert outcomes(end(outages, [52], KEY, failures=1)) == ["throttled"], "it keeps that failure, and no other"
    assert outcomes(end(outages, [54], OWN))[0] == "failed"
    assert not outages.is_down(TOWER), "it has answered about one item"


def test_when_so_many_fail_the_causes_do_not_matter() -> None:
    outages = Outages()
    unwritten = []
    for n in range(1, 31):
        assert not outages.is_down(TOWER)
        items = [an_item(id=n, fence=n)]
        verdict = GONE if n % 5 < 3 else BAD
        unwritten += outages.judge(TOWER, [(item, verdict, decide(item, verdict, NOW, RULES)) for item in items], NOW)
    (news,) = outages.notices()
    assert news.details["cause"] == MIXED
    assert news.message.startswith("tower is down: errors such as ")
    outages.take_back(unwritten, NOW)
    assert set(outcomes(unwritten)) == {"throttled"}
    assert outcomes(end(outages, [50], KEY)) == ["throttled"]
    assert outages.is_down(TOWER)


def test_with_several_causes_an_item_stands_as_before_its_first_failure() -> None:
    outages = Outages()
    end(outages, [1], GONE)
    end(outages, [1], BAD, attempt=2, failures=1)
    for n in range(2, 31):
        last = end(outages, [n], GONE if n % 2 else BAD)
    assert outages.is_down(TOWER)
    (first,) = [change for change in last if change.id == 1]
    assert (first.attempt, first.failures) == (0, 0)


def test_whoever_is_excused_again_and_again_waits_longer() -> None:
    outages = down()
    for n in range(100, 200):
        end(outages, [n], GONE)
    waits = [end(outages, [50], GONE)[0].due_at - NOW for _ in range(8)]
    assert waits == [timedelta(minutes=each) for each in (1, 2, 4, 8, 16, 32, 60, 60)]


def test_when_it_is_back_nobody_waits_for_a_probe_any_more() -> None:
    woken: list[int] = []
    outages = down(wake_settler=lambda: woken.append(1))
    woken.clear()
    for _ in range(4):
        (early, late) = end(outages, [50, 51], GONE)
    assert late.due_at == after(8 * 60)
    (done, first, second) = end(outages, [60], Done(), after(30))
    assert (done.id, done.state) == (60, "done")
    assert {(change.id, change.due_at, change.state, change.was) for change in (first, second)} == {
        (50, after(30), "waiting", "waiting"),
        (51, after(30), "waiting", "waiting"),
    }
    assert woken
    assert early.fence == first.fence
    assert end(outages, [61], Done(), after(31))[1:] == []


def test_what_is_due_by_then_is_left_alone() -> None:
    outages = down()
    end(outages, [50], GONE)
    outages.learn(alert(NOW, backAt=after(90).isoformat()))
    assert len(end(outages, [60], Done(), after(90))) == 1


def again(outages: Outages, item_id: int, verdict: Failed, times: int) -> list[str | None]:
    """How these many tries of an item end, one after another."""
    ends, excuses = [], 0
    for _ in range(times):
        change = end(outages, [item_id], verdict, excuses=excuses)[0]
        ends.append(change.outcome)
        excuses = change.excuses
    return ends


@pytest.mark.parametrize(
    ("why", "verdict", "excused"),
    [(GONE, GONE, 99), (GONE, HUNG, 5), (HUNG, HUNG, 5), (HUNG, GONE, 99), (KEY, KEY, 5), (KEY, GONE, 5)],
)
def test_mercy_ends_unless_nothing_answers(why: Failed, verdict: Failed, excused: int) -> None:
    assert again(down(why), 50, verdict, 99) == ["throttled"] * excused + ["failed"] * (99 - excused)


def test_mercy_is_the_same_for_all_workers_and_after_a_restart() -> None:
    one, two = down(KEY), down(KEY)
    first = end(one, [50], KEY, excuses=3)[0]
    assert (first.outcome, first.excuses) == ("throttled", 4)
    assert end(two, [50], KEY, excuses=first.excuses)[0].excuses == 5
    assert outcomes(end(down(KEY), [50], KEY, excuses=5)) == ["failed"]


def test_what_was_taken_back_too_often_is_not_taken_back_again() -> None:
    outages = Outages()
    for n in range(1, 10):
        end(outages, [n], GONE, excuses=n % 2 and MERCY)
    last = end(outages, [10], GONE)
    assert outages.is_down(TOWER)
    assert {change.id: change.excuses for change in last} == {2: 1, 4: 1, 6: 1, 8: 1, 10: 1}


def test_a_probe_is_not_the_item_that_has_just_hung() -> None:
    outages = down(HUNG)
    hung = end(outages, [50], HUNG)[0]
    assert hung.due_at - NOW >= timedelta(seconds=2 * TOWER.probe)
    first = Outages()
    for n in range(1, 11):
        taken = end(first, [n], HUNG)
    assert {change.due_at - NOW for change in taken} == {timedelta(minutes=20)}, "a round of all the others"


@pytest.mark.parametrize(
    "answer", [Skip("off"), GiveUp("404"), Snooze(5), Cancel("closed"), Throttled(60), NotFound(), OWN]
)
def test_whatever_is_not_its_failure_is_an_answer(answer: Outcome) -> None:
    outages = Outages()
    for n in range(1, 10):
        end(outages, [n], GONE)
    end(outages, [10], answer)
    end(outages, [11], GONE)
    assert not outages.is_down(TOWER), "only newer failures count"
    for why in (GONE, KEY, HUNG):
        outages = down(why)
        end(outages, [50], answer)
        assert not outages.is_down(TOWER)


@pytest.mark.parametrize(
    "nothing", [Released(), Crashed("signal 9"), Failed("no process", ("duly.NoProcess",)), Expired()]
)
def test_what_says_nothing_of_it_neither_takes_it_down_nor_brings_it_back(nothing: Outcome) -> None:
    outages = Outages()
    for n in range(1, 100):
        end(outages, [n], nothing)
    assert not outages.is_down(TOWER)
    outages = down()
    end(outages, [50], nothing)
    assert outages.is_down(TOWER)


def test_old_failures_fade() -> None:
    outages = Outages()
    for n in range(1, 10):
        end(outages, [n], GONE)
    end(outages, [10], GONE, after(3_600))
    assert not outages.is_down(TOWER)
    hourly = Outages()
    for n in range(1, 11):
        end(hourly, [n], GONE, after(3_600 * n))
    assert hourly.is_down(TOWER)


def test_an_item_that_is_given_back_shows_why() -> None:
    outages = Outages()
    for n in range(1, 11):
        taken = end(outages, [n], GONE)
    assert {change.cause for change in taken} == {"tower is down: Unreachable: no route"}
    assert end(outages, [50], GONE)[0].cause == "tower is down: Unreachable: no route"


def test_what_is_remembered_of_items_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "EXCUSED", 3)
    outages = down(KEY)
    for n in (50, 51, 52, 50, 53, 54):
        end(outages, [n], KEY)
    outage = outages._sources["tower"].outage
    assert outage is not None
    excused = outage._excused
    assert set(excused) == {50, 53, 54}
    assert {each.item.args for each in excused.values() if each.item is not None} == {b""}, "arguments may be large"
    outages = Outages()
    end(outages, [1], Done())
    for n in range(1, 1_000):
        end(outages, [n], GONE, failures=1)
    streak = outages._sources["tower"].streak
    assert streak is not None
    assert (len(streak.evidence), len(streak._blamed)) == (200, 200)
    end(outages, [1_000], GONE, after(90_000))
    assert (len(streak.evidence), len(streak._blamed)) == (1, 1), "nothing is kept for longer than a day"


def test_a_process_that_has_not_seen_it_answer_cannot_know_who_failed_alone() -> None:
    well, answered, fresh = Outages(), Outages(), Outages()
    end(well, [99], Done())
    end(answered, [99], OWN)
    for _ in range(2):
        for n in range(1, 10):
            for each in (well, answered, fresh):
                end(each, [n], GONE, failures=1)
    assert fresh.is_down(TOWER)
    assert not well.is_down(TOWER)
    assert not answered.is_down(TOWER)


def test_that_it_is_still_down_is_logged_once_an_hour(caplog: pytest.LogCaptureFixture) -> None:
    outages = down()
    with caplog.at_level(logging.INFO, "duly.engine"):
        for minute in range(180):
            end(outages, [50], GONE, after(60 * minute))
    assert [record.getMessage() for record in caplog.records] == ["tower is still down: Unreachable: no route"] * 3
    assert {record.exc_info for record in caplog.records} == {None}


# -- what other workers say


def desk(wake_watch: Callable[[], None] = nothing, **more: Any) -> Outages:
    """What a worker knows that has a task of this source."""
    app = Duly("sqlite:///unused.db")
    app.task(name="ring", source=TOWER, **more)(lambda: None)
    return Outages(app.tasks, wake_watch=wake_watch)


def test_whoever_succeeds_meanwhile_does_not_believe_that_it_is_down() -> None:
    woken: list[int] = []
    outages = desk(lambda: woken.append(1))
    end(outages, [1], Done(), after(10))
    outages.learn(alert(after(5)))
    assert not outages.is_down(TOWER)
    (news,) = outages.notices()
    assert (news.name, news.details["backAt"]) == ("source:tower", after(10).isoformat())
    assert woken


def test_whoever_has_just_had_a_success_waits_for_the_next_end() -> None:
    well, ill, idle = desk(), desk(), desk()
    for each in (well, ill, idle):
        end(each, [1], Done())
        each.learn(alert(after(60)))
        assert not each.is_down(TOWER)
        assert each.notices() == []
    end(well, [2], Done(), after(61))
    well.learn(alert(after(60)))
    assert ["backAt" in news.details for news in well.notices()] == [True]
    end(ill, [2], GONE, after(61))
    ill.learn(alert(after(60)))
    assert ill.is_down(TOWER)
    idle.learn(alert(after(61)))
    assert idle.is_down(TOWER), "its success is too long ago"


def test_whoever_is_contradicted_needs_twice_as_many_failures_until_it_succeeds() -> None:
    outages = Outages()
    numbers = iter(range(1, 100_000))
    needed = []
    for _ in range(9):
        count = 0
        while not outages.is_down(TOWER):
            end(outages, [next(numbers)], GONE)
            count += 1
        needed.append(count)
        for news in outages.notices():
            outages.written(news)
        outages.learn(alert(NOW))
        assert outages.is_down(TOWER)
        outages.learn(alert(NOW, backAt=NOW.isoformat()))
        assert not outages.is_down(TOWER)
    assert needed == [10, 20, 40, 80, 160, 320, 640, 640, 640]
    end(outages, [next(numbers)], Done())
    for _ in range(10):
        end(outages, [next(numbers)], GONE)
    assert outages.is_down(TOWER)


def test_whoever_only_believed_others_is_not_contradicted() -> None:
    outages = Outages()
    outages.learn(alert(NOW))
    outages.learn({})
    for n in range(1, 11):
        end(outages, [n], GONE)
    assert outages.is_down(TOWER)


def test_a_success_while_the_watch_writes_that_it_is_down_is_news() -> None:
    outages = down()
    (news,) = outages.notices()
    end(outages, [50], Done())
    outages.written(news)
    assert ["backAt" in each.details for each in outages.notices()] == [True]
