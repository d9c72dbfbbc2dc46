"""Advance: what becomes of a schedule that is due, and of one that a person changes. Every missed time has a fate."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from duly.core import advance as advancing
from duly.core.advance import (
    COUNTED,
    MOST,
    advance,
    advance_all,
    changed,
    paused,
    reactivated,
    removed,
    resumed,
    run_now,
)
from duly.core.errors import WrongState
from duly.core.model import Item, NewAuditLine, Revision, Schedule
from duly.core.policy.recur import between, parse, zone_named
from tests.core.test_decide import an_item
from tests.support import NOW, after


def a_schedule(**more: Any) -> Schedule:
    """On the hour, due at NOW."""
    schedule = Schedule(
        id=3, task="ring", key="k", queue="ring", rank=0, args=b"{}", rule="0 * * * *", zone="UTC", catch_up="latest",
        max_lateness=None, overlap="allow", ring=None, slot=None, is_declared=False, next_at=NOW, paused_at=None,
        broken_at=None, failures=0, last_at=None, last_item=None, last_success_at=None, last_error=None,
        fingerprint=None, unchanged=0, skipped=0, keep=None, created_at=after(-86_400),
    )  # fmt: skip
    return replace(schedule, **more)


def down_for(hours: int, **more: Any) -> Schedule:
    """As it is found after so many hours without a worker."""
    return replace(a_schedule(next_at=after(-3600 * hours), last_at=after(-3600 * (hours + 1))), **more)


def told(revision: Revision) -> list[dict[str, Any]]:
    return [msgspec.json.decode(note.details) for note in revision.notes]


def skips(revision: Revision) -> list[tuple[int, str]]:
    return [(each["count"], each["why"]) for each in told(revision)]


def waiting(**more: Any) -> Item:
    return an_item("waiting", schedule_id=3, **more)


def test_an_occurrence_that_is_due_becomes_an_item_and_the_next_one_is_planned() -> None:
    revision = advance(a_schedule(), (), after(2))
    assert revision == Revision(a_schedule(next_at=after(3600), last_at=NOW), (NOW,))


@pytest.mark.parametrize("catch_up", ["all", "latest", "skip"])
def test_one_that_just_came_was_not_missed(catch_up: str) -> None:
    for late in (0, 1, 59):
        assert advance(a_schedule(catch_up=catch_up), (), after(late)).occurrences == (NOW,)


# -- catch-up


def test_all_that_were_missed_become_items() -> None:
    revision = advance(down_for(5, catch_up="all"), (), after(10))
    assert revision.occurrences == tuple(after(-3600 * n) for n in range(5, -1, -1))
    assert revision.schedule == down_for(5, catch_up="all", next_at=after(3600), last_at=NOW)
    assert revision.notes == ()


def test_only_the_latest_that_was_missed_becomes_an_item_and_the_rest_leaves_a_note() -> None:
    revision = advance(down_for(5), (), after(10))
    assert revision.occurrences == (NOW,)
    assert (revision.schedule.last_at, revision.schedule.next_at, revision.schedule.skipped) == (NOW, after(3600), 5)
    (note,) = revision.notes
    assert (note.actor, note.action, note.subject) == ("duly", "schedule.skipped", "schedule:3")
    assert msgspec.json.decode(note.details) == {
        "task": "ring", "key": "k", "count": 5, "from": "2026-01-01T04:00:00Z", "to": "2026-01-01T08:00:00Z",
        "why": "catch-up: latest",
    }  # fmt: skip


def test_what_was_missed_may_be_skipped_for_good() -> None:
    revision = advance(down_for(5, catch_up="skip", skipped=2), (), after(1800))
    assert revision.occurrences == ()
    assert revision.schedule == down_for(5, catch_up="skip", next_at=after(3600), skipped=8), "last_at stays"
    assert skips(revision) == [(6, "catch-up: skip")]


def test_with_skip_the_one_of_this_minute_is_not_missed() -> None:
    revision = advance(down_for(5, catch_up="skip"), (), after(59))
    assert revision.occurrences == (NOW,)
    assert skips(revision) == [(5, "catch-up: skip")]
    assert advance(a_schedule(catch_up="skip"), (), after(60)).occurrences == (NOW,)
    assert advance(a_schedule(catch_up="skip"), (), after(60.000001)).occurrences == ()


def test_what_is_too_late_to_be_worth_it_is_not_made() -> None:
    late = advance(down_for(5, catch_up="all", max_lateness=7200), (), after(10))
    assert late.occurrences == (after(-3600), NOW)
    assert skips(late) == [(4, "too late")]
    edge = advance(down_for(5, catch_up="all", max_lateness=7200), (), NOW)
    assert edge.occurrences == (after(-7200), after(-3600), NOW), "just in time"
    nothing = advance(a_schedule(catch_up="latest", max_lateness=60), (), after(61))
    assert (nothing.occurrences, skips(nothing)) == ((), [(1, "catch-up: latest")])
    patient = advance(a_schedule(catch_up="skip", max_lateness=1800), (), after(1700))
    assert patient.occurrences == (NOW,), "its own patience counts, not the minute that skip has"


def test_a_long_downtime_is_caught_up_in_portions_that_miss_nothing() -> None:
    schedule = a_schedule(rule="* * * * *", catch_up="all", next_at=after(-1200 * 60))
    found: list[datetime] = []
    portions = []
    now = after(5)
    while schedule.next_at <= now:
        revision = advance(schedule, (), now)
        found += revision.occurrences
        portions.append(len(revision.occurrences))
        assert revision.notes == ()
        schedule = revision.schedule
    assert portions == [MOST, MOST, 201]
    assert found == [after(60 * n) for n in range(-1200, 1)]
    assert schedule.next_at == after(60)


def test_a_portion_that_ends_just_now_is_complete() -> None:
    revision = advance(a_schedule(rule="* * * * *", catch_up="all", next_at=after(-499 * 60)), (), NOW)
    assert len(revision.occurrences) == MOST
    assert revision.schedule.next_at == after(60)


def test_a_year_of_missed_minutes_is_counted_up_to_a_bound() -> None:
    revision = advance(a_schedule(rule="* * * * *", next_at=after(-365 * 86_400)), (), after(1))
    assert revision.occurrences == (NOW,)
    assert revision.schedule.skipped == COUNTED
    assert skips(revision) == [(COUNTED, "catch-up: latest")]


def test_a_rule_that_ends_has_nothing_to_come() -> None:
    last = datetime(8999, 12, 31, 23, 0, tzinfo=UTC)
    revision = advance(a_schedule(next_at=last), (), last)
    assert (revision.occurrences, revision.schedule.next_at) == ((last,), None)


# -- overlap


def test_with_skip_none_is_made_beside_one_that_is_under_way() -> None:
    for item in (waiting(), an_item("running", schedule_id=3)):
        revision = advance(a_schedule(overlap="skip"), [item], after(1))
        assert (revision.occurrences, revision.changes) == ((), ())
        assert revision.schedule == a_schedule(overlap="skip", next_at=after(3600), skipped=1)
        assert skips(revision) == [(1, "the previous one has not ended")]
    assert advance(a_schedule(overlap="skip"), (), after(1)).occurrences == (NOW,)


def test_a_newer_one_takes_the_place_of_one_that_still_waits() -> None:
    revision = advance(a_schedule(overlap="supersede"), [waiting(fence=9)], after(1))
    assert revision.occurrences == (NOW,)
    (change,) = revision.changes
    assert (change.id, change.was, change.fence, change.state, change.outcome) == (
        7, "waiting", 9, "cancelled", "superseded",
    )  # fmt: skip
    assert (change.finished_at, revision.notes, revision.schedule.skipped) == (after(1), (), 0)


def test_one_that_runs_is_not_superseded_but_waited_for() -> None:
    revision = advance(a_schedule(overlap="supersede"), [an_item("running"), waiting()], after(1))
    assert (revision.occurrences, revision.changes) == ((), ())
    assert skips(revision) == [(1, "the previous one has not ended")]


@pytest.mark.parametrize("overlap", ["skip", "supersede"])
def test_one_at_a_time_is_the_newest_also_of_all_that_were_missed(overlap: str) -> None:
    revision = advance(down_for(5, catch_up="all", overlap=overlap), (), after(1))
    assert revision.occurrences == (NOW,)
    assert skips(revision) == [(5, "a newer one is due")]
    assert revision.schedule.skipped == 5
    busy = advance(down_for(5, catch_up="all", overlap=overlap), [an_item("running")], after(1))
    assert busy.occurrences == ()
    assert skips(busy) == [(5, "a newer one is due"), (1, "the previous one has not ended")]
    assert busy.schedule.skipped == 6


def test_one_at_a_time_is_the_newest_after_any_downtime() -> None:
    """More than fits into one portion: the newest is not among the first of them."""
    schedule = a_schedule(rule="* * * * *", catch_up="all", overlap="supersede", next_at=after(-1200 * 60))
    revision = advance(schedule, (), after(1))
    assert (revision.occurrences, revision.schedule.next_at) == ((NOW,), after(60))
    assert skips(revision) == [(1200, "a newer one is due")]


def test_one_at_a_time_that_is_all_too_late_says_so() -> None:
    revision = advance(a_schedule(catch_up="all", overlap="skip", max_lateness=10), (), after(11))
    assert (revision.occurrences, skips(revision)) == ((), [(1, "too late")])


@settings(derandomize=True, max_examples=300, deadline=None)
@given(
    st.sampled_from(["all", "latest", "skip"]),
    st.sampled_from(["allow", "skip", "supersede"]),
    st.sampled_from([None, 0.0, 3600.0, 10_000.0]),
    st.sampled_from(["*/20 * * * *", "every 50m", "daily 03:00", "slot 5/24"]),
    st.lists(st.integers(0, 3 * 86_400), min_size=1, max_size=6),
    st.sampled_from([None, "waiting", "running"]),
)
def test_every_occurrence_becomes_an_item_or_is_counted_as_skipped(
    catch_up: str, overlap: str, lateness: float | None, rule: str, waits: list[int], last: str | None
) -> None:
    """Whatever the downtimes between: none is made twice or forgotten, and none is made early."""
    place = zone_named("UTC")
    schedule = a_schedule(
        rule=rule, catch_up=catch_up, overlap=overlap, max_lateness=lateness, next_at=parse(rule).next(NOW, place)
    )
    live = [] if last is None else [an_item(last)]
    now, made = NOW, []
    for wait in waits:
        now += timedelta(seconds=wait)
        while schedule.next_at <= now:
            revision = advance(schedule, live, now)
            assert revision.schedule.next_at > schedule.next_at, "it would never come to an end"
            assert all(at <= now for at in revision.occurrences)
            assert len(revision.occurrences) <= (MOST if overlap == "allow" else 1)
            made += revision.occurrences
            schedule = revision.schedule
            assert schedule.last_at == (made[-1] if made else None)
    assert all(one < two for one, two in pairwise(made))
    every = between(parse(rule), NOW, now, place, 10_000)
    assert set(made) <= set(every)
    assert len(made) + schedule.skipped == len(every)
    assert schedule.next_at == parse(rule).next(now, place)


# -- zones change their rules


def test_a_time_that_its_zone_has_moved_to_later_waits_for_it() -> None:
    """It was planned for 09:00 at the old offset, which is 08:00 by the new rules."""
    schedule = a_schedule(rule="daily 09:00", zone="Europe/Zagreb", next_at=after(-7200))
    revision = advance(schedule, (), after(-7200))
    assert revision == Revision(replace(schedule, next_at=after(-3600)))
    assert advance(revision.schedule, (), after(-3600)).occurrences == (after(-3600),)


def test_a_time_that_its_zone_has_moved_to_earlier_is_made_at_once() -> None:
    schedule = a_schedule(rule="daily 09:00", zone="Europe/Zagreb", next_at=NOW, last_at=after(-86_400))
    revision = advance(schedule, (), NOW)
    assert revision.occurrences == (after(-3600),)
    assert revision.schedule.next_at == after(-3600 + 86_400)


def test_a_moved_zone_does_not_bring_back_what_was_had() -> None:
    schedule = a_schedule(rule="0 * * * *", next_at=after(1800), last_at=NOW)
    assert advance(schedule, (), after(1800)) == Revision(replace(schedule, next_at=after(3600)))


# -- many


def test_each_is_given_its_own_live_items() -> None:
    one, two = a_schedule(id=1, overlap="skip"), a_schedule(id=2, overlap="skip")
    revisions = advance_all(after(1), [one, two], {2: [waiting()]})
    assert [revision.occurrences for revision in revisions] == [(NOW,), ()]


def test_one_that_is_not_understood_here_is_left_to_others_and_stops_nobody() -> None:
    strange = a_schedule(id=1, rule="when the moon is full")
    lost, good = a_schedule(id=2, zone="Mars/Phobos"), a_schedule(id=5)
    unread: list[int] = []
    (revision,) = advance_all(after(1), [strange, lost, good], {}, unread)
    assert (revision.schedule.id, revision.occurrences) == (5, (NOW,))
    assert unread == [1, 2], "they stay as they are, still due"
    assert advance_all(after(1), [strange, lost], {}) == []


def test_what_was_missed_is_made_up_for_in_portions() -> None:
    many = [a_schedule(id=n, rule="every 1m", catch_up="all") for n in range(1, 21)]
    revisions = advance_all(NOW + timedelta(days=1), many, {})
    assert len(revisions) == 4, "four of five hundred each, and the others at the next tick"


def test_seconds_of_a_year_are_counted_without_walking_them() -> None:
    (revision,) = advance_all(NOW + timedelta(days=365), [a_schedule(rule="every 1s")], {})
    (note,) = told(revision)
    assert (note["count"], revision.schedule.skipped) == (365 * 86_400, 365 * 86_400)


# -- a person's acts


def acts(revision: Revision) -> list[tuple[str, str]]:
    return [(note.action, note.actor) for note in revision.notes]


def test_a_paused_schedule_has_nothing_to_come() -> None:
    revision = paused(a_schedule(), (), after(5), "ana")
    assert revision.schedule == a_schedule(paused_at=after(5), next_at=None)
    assert acts(revision) == [("schedule.paused", "ana")]
    assert paused(revision.schedule, (), after(9), "ana") == Revision(revision.schedule), "once is enough"


def test_a_resumed_schedule_goes_on_from_now() -> None:
    stopped = a_schedule(paused_at=after(-86_400), next_at=None)
    revision = resumed(stopped, (), after(5), "ana")
    assert revision.schedule == a_schedule(next_at=after(3600))
    assert acts(revision) == [("schedule.resumed", "ana")]
    assert resumed(a_schedule(), (), after(5), "ana") == Revision(a_schedule())


def test_resuming_does_not_reactivate_and_reactivating_does_not_resume() -> None:
    both = a_schedule(paused_at=after(-5), broken_at=after(-5), next_at=None)
    assert resumed(both, (), NOW, "ana").schedule.next_at is None
    assert reactivated(both, (), NOW, "ana").schedule.next_at is None


def test_a_reactivated_schedule_starts_with_a_clean_sheet() -> None:
    broken = a_schedule(broken_at=after(-5), next_at=None, failures=5, last_error="busy\nTraceback")
    revision = reactivated(broken, (), after(5), "ana")
    assert revision.schedule == a_schedule(next_at=after(3600), last_error="busy\nTraceback")
    assert acts(revision) == [("schedule.reactivated", "ana")]
    assert told(revision)[0] | {"failures": 5, "error": "busy"} == told(revision)[0]
    silent = reactivated(replace(broken, last_error=None), (), after(5), "ana")
    assert told(silent)[0]["error"] == ""


def test_an_active_schedule_cannot_be_reactivated() -> None:
    with pytest.raises(WrongState, match="schedule 3 is active"):
        reactivated(a_schedule(), (), NOW, "ana")


def test_running_now_is_one_more_and_leaves_the_plan_alone() -> None:
    revision = run_now(a_schedule(paused_at=NOW, next_at=None), (), after(5), "ana")
    assert (revision.schedule, revision.occurrences) == (a_schedule(paused_at=NOW, next_at=None), (after(5),))
    assert acts(revision) == [("schedule.run_now", "ana")]


@pytest.mark.parametrize(("overlap", "state"), [("skip", "waiting"), ("skip", "running"), ("supersede", "running")])
def test_one_at_a_time_is_one_at_a_time_for_people_too(overlap: Any, state: Any) -> None:
    live = replace(waiting(), state=state)
    with pytest.raises(WrongState, match=rf"overlap: {overlap}.*item {live.id} is {state}"):
        run_now(a_schedule(overlap=overlap), [live], after(5), "ana")
    assert run_now(a_schedule(overlap="allow"), [live], after(5), "ana").occurrences == (after(5),)


def test_what_runs_goes_on_when_its_schedule_is_changed_or_removed() -> None:
    live = [replace(waiting(), state="running")]
    assert removed(a_schedule(), live, after(5), "ana").changes == ()
    assert changed(a_schedule(), live, after(5), "ana", rule="every 5m").changes == ()


def test_a_removed_schedule_takes_along_what_waits() -> None:
    revision = removed(a_schedule(), [waiting()], after(5), "ana")
    assert revision.is_removed
    (change,) = revision.changes
    assert (change.state, change.outcome, change.error) == ("cancelled", "cancelled", "its schedule was removed")
    assert acts(revision) == [("schedule.removed", "ana")]


def test_a_change_that_changes_nothing_leaves_no_trace() -> None:
    assert changed(a_schedule(), [waiting()], NOW, "ana", zone="UTC", rank=0) == Revision(a_schedule())


def test_a_change_says_what_was_before_and_after() -> None:
    revision = changed(a_schedule(), [waiting()], NOW, "ana", args=b'{"n":1}', rank=0, catch_up="all")
    assert revision.schedule == a_schedule(args=b'{"n":1}', catch_up="all")
    assert revision.changes == (), "what waits goes on as it was"
    assert acts(revision) == [("schedule.changed", "ana")]
    (details,) = told(revision)
    assert details["before"] == {"args": {}, "catch_up": "latest"}
    assert details["after"] == {"args": {"n": 1}, "catch_up": "all"}


@pytest.mark.parametrize("fields", [{"rule": "daily 12:00"}, {"rule": "daily 14:00", "zone": "Europe/Zagreb"}])
def test_another_rule_or_zone_plans_anew_and_supersedes_what_waits(fields: dict[str, str]) -> None:
    revision = changed(a_schedule(), [waiting()], after(5), "ana", **fields)
    assert revision.schedule.next_at in (after(3 * 3600), after(4 * 3600))
    assert [change.outcome for change in revision.changes] == ["superseded"]


def test_a_change_of_a_paused_schedule_plans_nothing() -> None:
    revision = changed(a_schedule(paused_at=NOW, next_at=None), (), after(5), "ana", rule="daily 12:00")
    assert revision.schedule.next_at is None


# -- yearly events are had once a year

BIRTHDAY = "yearly 01-01 09:00"
NEXT_YEAR = datetime(2027, 1, 1, tzinfo=UTC)


def hour(n: int) -> timedelta:
    return timedelta(hours=n)


def a_birthday(**more: Any) -> Schedule:
    return a_schedule(rule=BIRTHDAY, **more)


def test_a_yearly_event_that_was_had_is_not_had_again_because_its_hour_moved() -> None:
    had = a_birthday(last_at=NOW, next_at=NEXT_YEAR + hour(9))
    later = changed(had, (), after(60), "ana", rule="yearly 01-01 17:00")
    assert later.schedule.next_at == NEXT_YEAR + hour(17)
    west = changed(had, (), after(60), "ana", zone="America/Los_Angeles")
    assert west.schedule.next_at == NEXT_YEAR + hour(17)


def test_a_yearly_event_that_is_still_to_come_moves_with_its_hour() -> None:
    revision = changed(
        a_birthday(last_at=NOW - timedelta(days=365)), (), after(-3600), "ana", rule="yearly 01-01 17:00"
    )
    assert revision.schedule.next_at == after(8 * 3600)
    assert changed(a_birthday(), (), after(-3600), "ana", rule="yearly 01-01 17:00").schedule.next_at == after(8 * 3600)


def test_a_yearly_event_whose_time_is_over_by_its_new_hour_is_still_had() -> None:
    revision = changed(a_birthday(), (), after(-3600), "ana", rule="yearly 01-01 07:00")
    assert revision.schedule.next_at == after(-7200)


def test_a_yearly_event_keeps_what_waits_of_it_because_nothing_comes_in_its_place() -> None:
    had = a_birthday(last_at=NOW, next_at=NEXT_YEAR + hour(9))
    assert changed(had, [waiting()], after(60), "ana", rule="yearly 01-01 17:00").changes == ()


def test_another_day_of_the_year_is_another_event() -> None:
    had = a_birthday(last_at=NOW, next_at=NEXT_YEAR + hour(9))
    revision = changed(had, [waiting()], after(60), "ana", rule="yearly 01-02 09:00")
    assert revision.schedule.next_at == after(86_400)
    assert [change.outcome for change in revision.changes] == ["superseded"]


def test_a_paused_yearly_event_stays_paused_when_it_moves() -> None:
    still = a_birthday(paused_at=NOW, next_at=None, last_at=NOW)
    assert changed(still, (), after(60), "ana", rule="yearly 01-01 17:00").schedule.next_at is None


def test_a_yearly_event_that_was_resumed_by_its_change_has_a_next_time() -> None:
    planned = a_birthday(next_at=None)
    assert changed(planned, (), after(60), "ana", rule="yearly 01-01 17:00").schedule.next_at == after(8 * 3600)


def test_notes_are_about_their_schedule() -> None:
    assert advancing.note(a_schedule(), "x", "ana") == NewAuditLine(
        "ana", "x", "schedule:3", b'{"task":"ring","key":"k"}'
    )
