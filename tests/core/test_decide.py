"""Decide: every state meets every outcome, and no sequence of outcomes breaks a promise."""

from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from duly.core.decide import UNKNOWN, Rules, decide, excuse
from duly.core.errors import WrongState
from duly.core.model import (
    ERROR_LIMIT,
    LIVE,
    STATES,
    Cancel,
    Change,
    Crashed,
    Done,
    Expired,
    Failed,
    Fingerprint,
    GiveUp,
    Item,
    Lost,
    Member,
    NotFound,
    Outcome,
    Released,
    Revived,
    Skip,
    Snooze,
    State,
    Superseded,
    Throttled,
    Tried,
    cut,
)
from duly.core.policy.retry import Windows
from duly.policy import NEVER, Backoff, ByError
from tests.support import NOW, RULES, after, new

OUTCOMES: dict[str, Outcome] = {
    "done": Done(),
    "done with a result": Done(b"1"),
    "skip": Skip("off"),
    "not found": NotFound("gone"),
    "throttled": Throttled(7),
    "snooze": Snooze(5),
    "released": Released(),
    "failed": Failed("busy", ("my.Busy", "Exception")),
    "give up": GiveUp("no"),
    "crashed": Crashed("signal 9"),
    "lost": Lost(),
    "cancel": Cancel("stop"),
    "revived": Revived(after(100)),
    "fingerprint": Fingerprint("v2"),
    "superseded": Superseded(),
    "expired": Expired(),
}

# What the second try of three makes of its item: the state and the label. All that is not here is refused.
EXPECTED: dict[tuple[State, str], tuple[State, str | None]] = {
    ("running", "done"): ("done", "done"),
    ("running", "done with a result"): ("done", "done"),
    ("running", "skip"): ("done", "skipped"),
    ("running", "not found"): ("done", "not_found"),
    ("running", "throttled"): ("waiting", "throttled"),
    ("running", "snooze"): ("waiting", "snoozed"),
    ("running", "released"): ("waiting", "released"),
    ("running", "failed"): ("waiting", "failed"),
    ("running", "give up"): ("failed", "gave_up"),
    ("running", "crashed"): ("waiting", "crashed"),
    ("running", "lost"): ("waiting", "lost"),
    ("running", "cancel"): ("cancelled", "cancelled"),
    ("running", "fingerprint"): ("done", "done"),
    ("running", "expired"): ("done", "expired"),
    ("waiting", "superseded"): ("cancelled", "superseded"),
    ("waiting", "cancel"): ("cancelled", "cancelled"),
    ("waiting", "revived"): ("waiting", None),
    ("failed", "revived"): ("waiting", "revived"),
    ("cancelled", "revived"): ("waiting", "revived"),
}


def an_item(state: State = "running", attempt: int = 1, **more: object) -> Item:
    item = Item(
        id=7, task="ring", queue="ring", lane="main", rank=0, state=state, planned_at=NOW, due_at=NOW, key=None,
        execution_key="abc", args=b"{}", attempt=attempt, max_attempts=None, failures=0, crashes=0, losses=0,
        fence=255, claimed_by="w1", started_at=NOW, trace=None,
    )  # fmt: skip
    return replace(item, **more)


def claimed(item: Item, change: Change) -> Item:
    """The item after this change, claimed again under the next fence."""
    return replace(
        item, lane=change.lane, due_at=change.due_at, attempt=change.attempt + 1, failures=change.failures,
        crashes=change.crashes, losses=change.losses, fence=item.fence + 1,
        rank=item.rank if change.rank is None else change.rank,
    )  # fmt: skip


@pytest.mark.parametrize("kind", OUTCOMES)
@pytest.mark.parametrize("state", STATES)
def test_every_state_meets_every_outcome(state: State, kind: str) -> None:
    item = an_item(state, attempt=2)
    expected = EXPECTED.get((state, kind))
    if expected is None:
        with pytest.raises(WrongState, match=f"item 7 is {state} and cannot "):
            decide(item, OUTCOMES[kind], after(3), RULES)
        return
    change = decide(item, OUTCOMES[kind], after(3), RULES)
    assert (change.state, change.outcome) == expected
    assert (change.id, change.was, change.fence) == (7, state, 255)
    assert change.finished_at == (None if change.state in LIVE else after(3))


def test_nothing_that_is_over_is_live() -> None:
    assert {state for state, _ in EXPECTED.values()} == set(STATES) - {"running"}
    assert not [expected for expected in EXPECTED if expected[0] == "done"], "what is done is done"


@pytest.mark.parametrize(
    ("outcome", "said"),
    [(Cancel(), "be cancelled"), (Revived(NOW), "be retried"), (Lost(), r"take Lost\(\)"), (Skip("x"), "take Skip")],
)
def test_a_refusal_says_in_words_what_cannot_be(outcome: Outcome, said: str) -> None:
    with pytest.raises(WrongState, match=f"item 7 is done and cannot {said}"):
        decide(an_item("done"), outcome, NOW, RULES)


COUNTERS = {
    # what: (lane, due in seconds, attempt, failures, crashes, losses) of a second try that had failed once before
    "done": ("main", 0, 2, 1, 0, 0),
    "done with a result": ("main", 0, 2, 1, 0, 0),
    "skip": ("main", 0, 2, 1, 0, 0),
    "not found": ("main", 0, 2, 1, 0, 0),
    "throttled": ("main", 10, 1, 1, 0, 0),
    "snooze": ("main", 8, 1, 1, 0, 0),
    "released": ("main", 0, 1, 1, 0, 0),
    "failed": ("retry", 123, 2, 2, 0, 0),
    "give up": ("retry", 0, 2, 2, 0, 0),
    "crashed": ("retry", 3, 2, 1, 1, 0),
    "lost": ("retry", 3, 2, 1, 1, 1),
    "cancel": ("main", 0, 2, 1, 0, 0),
    "fingerprint": ("main", 0, 2, 1, 0, 0),
    "expired": ("main", 0, 1, 1, 0, 0),
}


@pytest.mark.parametrize("kind", COUNTERS)
def test_every_outcome_counts_what_it_should(kind: str) -> None:
    change = decide(an_item(attempt=2, failures=1), OUTCOMES[kind], after(3), RULES)
    lane, seconds, *counters = COUNTERS[kind]
    assert (change.lane, change.due_at) == (lane, after(seconds))
    assert [change.attempt, change.failures, change.crashes, change.losses] == counters


@pytest.mark.parametrize("kind", ["failed", "give up", "crashed", "lost"])
def test_a_try_that_did_not_succeed_leaves_a_record(kind: str) -> None:
    change = decide(an_item(attempt=2), OUTCOMES[kind], after(3), RULES)
    assert change.tried == Tried(
        number=2,
        attempt_key="7-2-000000ff",
        worker="w1",
        started_at=NOW,
        ended_at=after(3),
        outcome=change.outcome,
        error=change.error,
        error_class=change.error_class,
    )
    assert (change.error, change.error_class) == {
        "failed": ("busy", "my.Busy"),
        "give up": ("no", "duly.GiveUp"),
        "crashed": ("signal 9", "duly.Crashed"),
        "lost": ("w1 vanished while it ran this", "duly.Lost"),
    }[kind]


@pytest.mark.parametrize("kind", sorted(set(COUNTERS) - {"failed", "give up", "crashed", "lost"}))
def test_a_try_that_did_not_fail_leaves_none(kind: str) -> None:
    assert decide(an_item(), OUTCOMES[kind], NOW, RULES).tried is None


def test_only_a_loss_asks_for_an_expired_lease() -> None:
    for kind in COUNTERS:
        change = decide(an_item(), OUTCOMES[kind], after(3), RULES)
        assert change.expired_at == (after(3) if kind == "lost" else None)


def test_a_loss_without_a_known_worker_can_be_told() -> None:
    change = decide(an_item(claimed_by=None), Lost(), NOW, RULES)
    assert change.error == "its worker vanished while it ran this"


@pytest.mark.parametrize(("result", "plain"), [(None, True), (b"null", False)])
def test_a_success_is_plain_when_there_is_nothing_to_keep(result: bytes | None, plain: bool) -> None:
    change = decide(an_item(), Done(result), NOW, RULES)
    assert change.is_plain_success is plain
    assert change.result == result


@pytest.mark.parametrize("kind", ["skip", "not found"])
def test_a_reason_is_kept_and_an_empty_one_is_none(kind: str) -> None:
    assert decide(an_item(), OUTCOMES[kind], NOW, RULES).error == OUTCOMES[kind].reason
    assert decide(an_item(), type(OUTCOMES[kind])(), NOW, RULES).error is None
    assert not decide(an_item(), OUTCOMES[kind], NOW, RULES).is_plain_success


def test_a_cancel_keeps_its_reason_and_an_empty_one_is_none() -> None:
    assert decide(an_item(), Cancel("stop"), NOW, RULES).error == "stop"
    assert decide(an_item("waiting"), Cancel(), NOW, RULES).error is None


def test_errors_are_cut_to_what_a_row_can_hold() -> None:
    change = decide(an_item(), Failed("x" * 100_000 + "\x00"), NOW, RULES)
    assert len(change.error) < ERROR_LIMIT + 20
    assert change.error.endswith("(100004 characters)")
    assert change.tried.error == change.error
    assert cut("a\x00b") == "a\\x00b"
    assert len(decide(an_item(), Skip("y" * 100_000), NOW, RULES).error) < ERROR_LIMIT + 20


def test_a_failure_without_classes_has_no_class() -> None:
    assert decide(an_item(), Failed("busy"), NOW, RULES).error_class is None


def test_the_last_try_goes_to_review_and_its_time_stays() -> None:
    change = decide(an_item(attempt=3, failures=2), Failed("busy"), after(3), RULES)
    assert (change.state, change.outcome, change.failures, change.due_at) == ("failed", "failed", 3, NOW)


@pytest.mark.parametrize(("most", "state"), [(1, "failed"), (2, "waiting"), (None, "waiting")])
def test_an_items_own_number_of_tries_wins(most: int | None, state: State) -> None:
    assert decide(an_item(max_attempts=most), Failed("busy"), NOW, RULES).state == state
    assert decide(an_item(max_attempts=most), Crashed("9"), NOW, RULES).state == state
    assert decide(an_item(max_attempts=most), Lost(), NOW, RULES).state == state


def test_errors_choose_their_policy() -> None:
    rules = Rules(retry=ByError({"my.Busy": Backoff(base=5, tries=9), "ValueError": NEVER}))
    assert decide(an_item(), Failed("x", ("my.Busy", "Exception")), NOW, rules).due_at == after(5)
    assert decide(an_item(), Failed("x", ("ValueError", "Exception")), NOW, rules).state == "failed"
    assert decide(an_item(), Failed("x", ("Exception",)), NOW, rules).due_at == after(60)


def test_a_task_that_nobody_here_knows_is_never_given_up() -> None:
    change = decide(an_item(attempt=999_999, failures=999_998), Failed("unknown"), NOW, UNKNOWN)
    assert change.state == "waiting"
    assert change.due_at == NOW + timedelta(days=1)


def test_a_revived_item_is_forgiven_the_ranks_that_windows_moved_it_back_by() -> None:
    rules = Rules(retry=Windows("30 2-22/4 * * *"))
    item = an_item("failed", lane="retry", rank=7, failures=2, streak=3)
    assert decide(item, Revived(NOW), NOW, rules).rank == 2
    assert decide(item, Revived(NOW), NOW, RULES).rank is None


def test_a_revived_item_has_all_its_tries_again() -> None:
    spent = an_item("failed", attempt=3, failures=2, crashes=1, losses=4, lane="retry")
    change = decide(spent, Revived(after(9)), NOW, RULES)
    assert (change.lane, change.due_at) == ("main", after(9))
    assert (change.attempt, change.failures, change.crashes, change.losses) == (0, 0, 0, 0)


def test_hurrying_a_waiting_item_changes_only_its_time() -> None:
    waiting = an_item("waiting", attempt=2, failures=1, crashes=1, losses=1, lane="retry")
    change = decide(waiting, Revived(after(9)), NOW, RULES)
    assert (change.lane, change.due_at, change.outcome) == ("retry", after(9), None)
    assert (change.attempt, change.failures, change.crashes, change.losses) == (2, 1, 1, 1)


def test_jitter_is_reproducible_and_differs_between_items_and_failures() -> None:
    rules = Rules(retry=Backoff(base=60, factor=1, jitter=30, tries=9))

    def due(**more: object):
        return decide(an_item(**more), Failed("busy"), NOW, rules).due_at

    assert due() == due()
    assert len({due(), due(execution_key="other"), due(failures=1)}) == 3
    assert all(after(60) <= due(execution_key=str(n)) < after(90) for n in range(100))


# -- windows

# At half past 2, 6, 10, 14, 18 and 22; NOW is nine o'clock.
WINDOWS = Rules(retry=Windows("30 2-22/4 * * *", cap=50))
OPENS = after(90 * 60)


def test_a_failure_waits_for_the_next_window_in_the_retry_lane() -> None:
    change = decide(an_item(), Failed("busy"), NOW, WINDOWS)
    assert (change.state, change.lane, change.rank) == ("waiting", "retry", 1)
    assert OPENS <= change.due_at < OPENS + timedelta(seconds=1)


def test_in_a_window_whoever_failed_less_goes_first_and_then_whoever_failed_first() -> None:
    once = decide(an_item(), Failed("busy"), after(600), WINDOWS)
    earlier = decide(an_item(), Failed("busy"), after(599), WINDOWS)
    twice = decide(claimed(an_item(), decide(an_item(), Failed("busy"), NOW, WINDOWS)), Failed("busy"), NOW, WINDOWS)
    days = decide(an_item(streak=4), Failed("busy"), NOW, WINDOWS)
    order = sorted([days, twice, once, earlier], key=lambda change: (change.rank, change.due_at))
    assert order == [earlier, once, twice, days]
    assert [change.rank for change in order] == [1, 1, 2, 5]


def test_the_rank_that_was_asked_for_is_where_the_count_begins_and_it_ends_at_the_last() -> None:
    assert decide(an_item(rank=-10, streak=2), Failed("busy"), NOW, WINDOWS).rank == -7
    assert decide(an_item(rank=7, lane="retry", failures=3, streak=9), Failed("busy"), NOW, WINDOWS).rank == 8
    assert decide(an_item(rank=60, streak=70), Failed("busy"), NOW, WINDOWS).rank == 100


def test_without_windows_a_failure_leaves_the_rank_alone() -> None:
    assert decide(an_item(rank=3, streak=5), Failed("busy"), NOW, RULES).rank is None


@pytest.mark.parametrize("lane", ["main", "retry"])
@pytest.mark.parametrize("outcome", [Crashed("9"), Lost()])
def test_whoever_was_torn_from_its_work_does_not_wait_for_a_window(outcome: Outcome, lane: str) -> None:
    for item in (an_item(lane=lane), an_item(lane=lane, attempt=2, crashes=1)):
        change = decide(item, outcome, after(3), WINDOWS)
        assert (change.state, change.lane, change.due_at, change.rank) == ("waiting", lane, after(3), None)


def test_windows_may_be_for_some_errors_only() -> None:
    rules = Rules(retry=ByError({"my.Busy": Windows("30 2-22/4 * * *")}, default=Backoff(base=5, tries=2)))
    waits = decide(an_item(), Failed("x", ("my.Busy", "Exception")), NOW, rules)
    assert OPENS <= waits.due_at < OPENS + timedelta(seconds=1)
    assert decide(an_item(), Failed("x", ("ValueError",)), NOW, rules).due_at == after(5)


def test_windows_end_when_the_tries_do() -> None:
    rules = Rules(retry=Windows("30 2-22/4 * * *", tries=2))
    change = decide(an_item(attempt=2, failures=1, lane="retry", rank=1), Failed("busy"), NOW, rules)
    assert (change.state, change.rank) == ("failed", None)


# -- schedules

BREAKER = Rules(retry=Backoff(base=60, tries=10), breaker=5)
FAULTS = {"failed": Failed("busy"), "give up": GiveUp("no")}


def a_members_item(**more: object) -> Item:
    return an_item(schedule_id=3, **{"streak": 0, **more})


@pytest.mark.parametrize("kind", FAULTS)
def test_a_failure_counts_for_the_schedule_it_came_from(kind: str) -> None:
    change = decide(a_members_item(streak=2, failures=1), FAULTS[kind], after(3), BREAKER)
    assert change.member == Member(3, 4, after(3), error=change.error)


@pytest.mark.parametrize("streak", [0, 1, 4])
def test_the_fifth_failure_in_a_row_deactivates_over_tries_and_days(streak: int) -> None:
    item = a_members_item(streak=streak)
    for failures in range(streak + 1, 6):
        change = decide(item, Failed("busy"), NOW, BREAKER)
        assert change.member == Member(3, failures, NOW, error="busy", is_broken=failures == 5)
        assert change.state == ("failed" if failures == 5 else "waiting")
        assert change.finished_at == (NOW if failures == 5 else None)
        item = claimed(item, change)


def test_without_a_breaker_nothing_is_deactivated() -> None:
    change = decide(a_members_item(streak=1000), Failed("busy"), NOW, RULES)
    assert (change.state, change.member.failures, change.member.is_broken) == ("waiting", 1001, False)


def test_an_item_without_a_schedule_deactivates_nothing() -> None:
    item = an_item(failures=50)
    for outcome in (Failed("busy"), GiveUp("no"), Done(), Fingerprint("v1")):
        assert decide(item, outcome, NOW, BREAKER).member is None


@pytest.mark.parametrize("outcome", [Crashed("9"), Lost()])
def test_a_crash_counts_for_the_schedule_only_when_it_ends_in_review(outcome: Outcome) -> None:
    rules = Rules(retry=Backoff(tries=10), crash_limit=2, loss_limit=3, breaker=5)
    assert decide(a_members_item(), outcome, NOW, rules).member is None
    last = decide(a_members_item(streak=4, crashes=1, losses=2), outcome, NOW, rules)
    assert (last.state, last.member.failures, last.member.is_broken) == ("failed", 5, True)


def test_a_success_ends_the_row_of_failures() -> None:
    change = decide(a_members_item(streak=4, failures=2), Done(), after(3), BREAKER)
    assert change.member == Member(3, 0, after(3), is_success=True)
    assert not change.is_plain_success


@pytest.mark.parametrize(
    "kind", ["skip", "not found", "throttled", "snooze", "released", "cancel", "expired"]
)  # fmt: skip
def test_what_is_neither_a_success_nor_a_failure_leaves_the_row_alone(kind: str) -> None:
    assert decide(a_members_item(streak=4), OUTCOMES[kind], NOW, BREAKER).member is None


def test_a_superseded_item_leaves_the_row_alone() -> None:
    change = decide(a_members_item(state="waiting", failures=2), Superseded(), after(3), BREAKER)
    assert (change.state, change.outcome, change.finished_at, change.member) == (
        "cancelled", "superseded", after(3), None,
    )  # fmt: skip


def test_an_expired_item_says_since_when() -> None:
    change = decide(an_item(attempt=1, expires_at=after(-5)), Expired(), NOW, RULES)
    assert change.error == f"not started: it expired at {after(-5)}"
    assert change.attempt == 0


# -- fingerprints

FOLLOW = (new("index"),)


def test_a_new_fingerprint_is_kept_and_followed_up() -> None:
    seen = Fingerprint("v2", result=b"7", keep=b'{"etag":1}', then=FOLLOW)
    change = decide(a_members_item(fingerprint="v1"), seen, after(3), BREAKER)
    assert (change.state, change.outcome, change.result, change.then) == ("done", "done", b"7", FOLLOW)
    assert change.member == Member(3, 0, after(3), is_success=True, fingerprint="v2", keep=b'{"etag":1}')


def test_the_same_fingerprint_is_unchanged_and_nothing_follows() -> None:
    change = decide(a_members_item(fingerprint="v1"), Fingerprint("v1", result=b"7", then=FOLLOW), NOW, BREAKER)
    assert (change.state, change.outcome, change.result, change.then) == ("done", "unchanged", b"7", ())
    assert change.member == Member(3, 0, NOW, is_success=True, is_unchanged=True, fingerprint="v1")


def test_the_value_of_an_earlier_formula_is_unchanged_too_and_the_new_one_is_kept() -> None:
    seen = Fingerprint("v2", then=FOLLOW, also=["v0", "v1"])
    change = decide(a_members_item(fingerprint="v1"), seen, NOW, BREAKER)
    assert (change.outcome, change.then) == ("unchanged", ())
    assert change.member == Member(3, 0, NOW, is_success=True, is_unchanged=True, fingerprint="v2")
    assert decide(a_members_item(fingerprint="v3"), seen, NOW, BREAKER).outcome == "done"


def test_a_fingerprint_without_a_schedule_is_a_change() -> None:
    change = decide(an_item(), Fingerprint("v1", then=FOLLOW), NOW, BREAKER)
    assert (change.outcome, change.then, change.member) == ("done", FOLLOW, None)
    assert not change.is_plain_success


def test_fingerprints_are_equal_by_content_and_short() -> None:
    assert Fingerprint("v1", keep=1) == Fingerprint("v1", keep=1) != Fingerprint("v1", keep=2)
    assert len(Fingerprint("x" * 10_000).value) < 530


# -- properties

running_ends = st.sampled_from(
    [Failed("busy"), Crashed("9"), Lost(), Snooze(1), Throttled(1), Released(), Done(), GiveUp("no"), Cancel()]
)
some_rules = st.builds(
    Rules,
    retry=st.builds(Backoff, base=st.just(1), tries=st.integers(1, 6)),
    crash_limit=st.integers(1, 5),
    loss_limit=st.integers(1, 12),
)


@settings(derandomize=True, max_examples=300, deadline=None)
@given(some_rules, st.integers(1, 6) | st.none(), st.lists(running_ends, max_size=60))
def test_no_sequence_of_outcomes_exceeds_the_tries(rules: Rules, most: int | None, ends: list[Outcome]) -> None:
    item = an_item(max_attempts=most)
    tries = most or rules.retry.tries_for(())
    given_back = 0
    for number, end in enumerate(ends, 1):
        assert 1 <= item.attempt <= tries
        now = item.due_at + timedelta(seconds=1)
        change = decide(item, end, now, rules)
        assert 0 <= change.attempt <= tries
        assert min(change.failures, change.crashes, change.losses) >= 0
        assert change.failures <= tries
        assert change.crashes <= rules.crash_limit
        assert change.losses <= max(rules.loss_limit, 2), "the first one is not counted against the limit"
        given_back += change.attempt < item.attempt
        assert change.attempt == number - given_back, "an attempt is counted once or given back"
        if change.state != "waiting":
            assert change.finished_at == now
            break
        assert change.due_at >= item.due_at
        item = claimed(item, change)


@pytest.mark.parametrize("limit", [1, 2, 3, 5])
def test_an_item_that_always_crashes_ends_in_review(limit: int) -> None:
    rules = Rules(retry=Backoff(tries=100), crash_limit=limit)
    item = an_item()
    for crash in range(1, limit + 1):
        change = decide(item, Crashed("signal 11"), NOW, rules)
        assert change.crashes == crash
        assert change.state == ("failed" if crash == limit else "waiting")
        item = claimed(item, change)


@pytest.mark.parametrize("limit", [2, 3, 10])
def test_the_first_loss_counts_and_later_ones_are_given_back_up_to_a_limit(limit: int) -> None:
    rules = Rules(retry=Backoff(tries=3), loss_limit=limit)
    item = an_item()
    for loss in range(1, limit + 1):
        change = decide(item, Lost(), NOW, rules)
        assert (change.losses, change.crashes) == (loss, 1)
        assert change.state == ("failed" if loss == limit else "waiting")
        if change.state == "waiting":
            assert change.attempt == 1, "only the first loss is this item's own"
        item = claimed(item, change)


def test_a_loss_after_a_crash_is_given_back_because_the_item_ran_in_a_process_of_its_own() -> None:
    crashed = decide(an_item(), Crashed("9"), NOW, RULES)
    change = decide(claimed(an_item(), crashed), Lost(), NOW, RULES)
    assert (change.state, change.attempt, change.crashes, change.losses) == ("waiting", 1, 1, 1)


def test_an_item_that_takes_its_worker_down_every_time_ends_in_review() -> None:
    """First the worker is lost; from then on it runs in a process of its own, which crashes."""
    item = an_item()
    for outcome, state in ((Lost(), "waiting"), (Crashed("9"), "waiting"), (Crashed("9"), "failed")):
        change = decide(item, outcome, NOW, Rules(retry=Backoff(tries=100)))
        assert change.state == state
        item = claimed(item, change)


@settings(derandomize=True, max_examples=200, deadline=None)
@given(st.sampled_from(STATES), st.sampled_from(sorted(OUTCOMES)), st.integers(0, 5), st.integers(0, 5))
def test_deciding_is_pure(state: State, kind: str, attempt: int, crashes: int) -> None:
    item = an_item(state, attempt=attempt, crashes=crashes)
    if (state, kind) in EXPECTED:
        assert decide(item, OUTCOMES[kind], NOW, RULES) == decide(item, OUTCOMES[kind], NOW, RULES)


# -- the values themselves


@pytest.mark.parametrize("delay", [-1, float("nan"), 3.3e9, timedelta(seconds=-1)])
def test_a_snooze_needs_a_sensible_delay(delay: float | timedelta) -> None:
    with pytest.raises(ValueError, match="delay: must be seconds between 0 and a hundred years"):
        Snooze(delay)


def test_verdicts_are_equal_by_kind_and_content() -> None:
    assert Snooze(60) == Snooze(timedelta(minutes=1))
    assert Snooze(60) != Throttled(60)
    assert Skip("a") != Skip("b")
    assert len({Skip("a"), Skip("a"), NotFound("a")}) == 2
    assert Throttled(5).retry_after == Throttled(5).delay == 5.0


# -- failures that are taken back


def test_a_failure_that_is_taken_back_leaves_the_item_as_it_was_before_its_try() -> None:
    item = an_item(attempt=2, failures=1, rank=3, schedule_id=5, streak=1)
    rules = Rules(retry=Windows("30 * * * *", cap=5), breaker=9)
    failed = decide(item, Failed("no route"), NOW, rules)
    assert (failed.lane, failed.attempt, failed.failures) == ("retry", 2, 2)
    written = excuse(item, failed, after(60), is_written=True)
    assert (written.was, written.state, written.lane, written.due_at) == ("waiting", "waiting", "main", after(60))
    assert (written.attempt, written.failures, written.rank, written.tried) == (1, 1, 3, None)
    assert written.member == Member(5, 2, NOW, is_excused=True)
    assert (written.was_due_at, written.was_rank) == (failed.due_at, failed.rank), "unless a person changed it"
    unwritten = excuse(item, failed, after(60), is_written=False)
    assert unwritten == replace(written, was="running", was_due_at=None, was_rank=None)


def test_the_last_failure_may_be_taken_back_before_it_is_written() -> None:
    item = an_item(attempt=3)
    failed = decide(item, Failed("no route"), NOW, Rules(retry=Backoff(tries=3)))
    assert failed.state == "failed"
    excused = excuse(item, failed, after(60), is_written=False)
    assert (excused.was, excused.state, excused.finished_at, excused.member) == ("running", "waiting", None, None)


def test_failures_since_an_earlier_try_are_taken_back_together() -> None:
    first = an_item(job_id=4, status="PROCESSING")
    change = decide(first, Failed("no route"), NOW, Rules())
    second = replace(claimed(first, change), status="PROCESSING")
    again = decide(second, Failed("no route"), NOW, Rules())
    excused = excuse(first, again, after(60), is_written=True)
    assert (excused.fence, excused.attempt, excused.failures) == (second.fence, 0, 0)
    assert (excused.job_id, excused.was_status, excused.status) == (4, "PENDING", "PENDING")
    assert excuse(first, again, after(60), is_written=False).was_status == "PROCESSING"


def test_what_is_no_failure_stays_when_failures_are_taken_back() -> None:
    first = an_item(expires_at=after(5))
    crashed = claimed(first, decide(first, Crashed("signal 9"), NOW, Rules()))
    failed = decide(crashed, Failed("no route"), after(50), Rules())
    excused = excuse(first, failed, after(60), is_written=True)
    assert (excused.crashes, excused.losses) == (failed.crashes, failed.losses) == (1, 0)
    assert (excused.failures, excused.attempt) == (0, 1), "it was started in time, so it does not expire"
    assert (excused.was_due_at, excused.was_rank) == (failed.due_at, 0)
