"""The whole state machine: the change of an item by an outcome. Pure, and complete over all states and outcomes.

               put                    claim
    (nothing) ─────▶ waiting ───────────────────────▶ running
                      ▲  ▲ │ cancel                    │ │ │ │
      failed, crashed,│  │ ▼                           │ │ │ │ done, skip, not found
      lost, tries left│  │ cancelled ◀── cancel ───────┘ │ │ └──────────────────────▶ done
      snooze, throttled  │                               │ │ give up, no tries left
      released ──────────│──────────◀────────────────────┘ └──────────────────────▶ failed (in review)
                         └────────── revive ───────────────────────── failed, cancelled

An attempt is counted when the item is claimed. Snooze, throttled and released give it back. A try that failed, crashed
or was lost keeps it, so an item that takes its worker down cannot loop.

Who is to blame when a worker vanishes? The first loss counts as a crash of the item, and from then on the engine runs
it in a process of its own. There a crash ends only that process, so if the worker vanishes again, it was not this
item: the try is given back, and only after `loss_limit` losses does the item go to review. Items of a trusted task are
treated so from their first loss on.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from duly.core.errors import WrongState
from duly.core.model import (
    Cancel,
    Change,
    Crashed,
    Discarded,
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
    Status,
    Superseded,
    Throttled,
    Tried,
    cut,
)
from duly.core.policy.retry import Backoff, Retry


class Rules(Struct, frozen=True):
    """By which rules the outcomes of a task's items are decided."""

    retry: Retry = Backoff()
    crash_limit: int = 3
    loss_limit: int = 10
    breaker: int | None = None  # how many failures in a row deactivate a schedule; None: no number does
    is_trusted: bool = False  # it never takes its process down, so a lost worker is not its fault


# The highest rank that a put may set.
LAST_RANK = 100

_STATUSES: dict[State, Status] = {
    "waiting": "PENDING", "running": "PROCESSING", "failed": "ERROR", "cancelled": "SKIPPED", "done": "DONE",
}  # fmt: skip
_LABELLED: dict[str | None, Status] = {"not_found": "NOT_FOUND", "skipped": "SKIPPED", "expired": "SKIPPED"}
# Rows of a job that have ended, but not so well that they could not be processed again.
AGAIN = ("NOT_FOUND", "SKIPPED")

# The actions of people on an item, as named in errors.
_VERBS = {Cancel: "be cancelled", Revived: "be retried", Discarded: "be discarded"}

# For items of a task that is not registered in this process: never give up, for another process may know the task.
UNKNOWN = Rules(retry=Backoff(base=60, tries=1_000_000))


def decide(item: Item, outcome: Outcome, now: datetime, rules: Rules) -> Change:
    """The change that this outcome makes; raises WrongState when it is not possible in the item's state."""
    change = _decide(item, outcome, now, rules)
    if item.job_id is None:
        return change
    status = status_of(change.state, change.outcome)
    return replace(change, job_id=item.job_id, was_status=item.status, status=status, changed_at=now)


def status_of(state: State, outcome: str | None) -> Status:
    """The status of a row of a job whose item is in this state."""
    return _LABELLED.get(outcome, "DONE") if state == "done" else _STATUSES[state]


def excuse(
    item: Item, blamed: Change, due_at: datetime, *, is_written: bool, excuses: int = 0, cause: str = ""
) -> Change:
    """The change that takes a failure back: the item waits until `due_at`, as it was before its try.

    `excuses` more failures of it are not counted, and `cause` says why; without one, it stays as it is in `blamed`.

    `item` is as it was in that try, or in an earlier one, if the failures since are taken back too. If the failure is
    written, the item has come into another state by it.
    """
    was, was_status = (blamed.state, blamed.status) if is_written else (blamed.was, blamed.was_status)
    # Crashes and losses still count. An item that started before it expired keeps that, however late it is now.
    kept = replace(
        item, fence=blamed.fence, crashes=blamed.crashes, losses=blamed.losses, excuses=blamed.excuses + excuses
    )
    change = _wait(kept, due_at, "throttled", cause or blamed.cause)
    started = 0 if item.expires_at is None else 1
    change = replace(change, was=was, rank=item.rank, attempt=max(change.attempt, started))
    if is_written:
        change = replace(change, was_due_at=blamed.due_at, was_rank=item.rank if blamed.rank is None else blamed.rank)
    if blamed.member is not None:
        schedule_id, at = blamed.member.schedule_id, blamed.member.at
        change = replace(change, member=Member(schedule_id, item.failures_in_a_row, at, is_excused=True))
    if item.job_id is None:
        return change
    status = status_of(change.state, change.outcome)
    return replace(change, job_id=item.job_id, was_status=was_status, status=status, changed_at=blamed.changed_at)


def _decide(item: Item, outcome: Outcome, now: datetime, rules: Rules) -> Change:
    match item.state, outcome:
        case "running", Done(result):
            return _succeed(_finish(item, now, "done", result), item, now)
        case "running", Skip():
            return _finish(item, now, "skipped", error=outcome.reason)
        case "running", NotFound():
            return _finish(item, now, "not_found", error=outcome.reason)
        case "running", Throttled():
            asked = f"asked to come back after {outcome.delay:g} s"
            return _wait(item, now + timedelta(seconds=outcome.delay), "throttled", asked)
        case "running", Snooze():
            asked = f"snoozed for {outcome.delay:g} s"
            return _wait(item, now + timedelta(seconds=outcome.delay), "snoozed", asked)
        case "running", Released():
            return _wait(item, item.due_at, "released", outcome.reason or None)
        case "running", Fingerprint():
            return _compare(item, outcome, now)
        case "running", Expired():
            late = f"not started: it expired at {item.expires_at}"
            return replace(_finish(item, now, "expired", error=late), attempt=max(item.attempt - 1, 0))
        case "running", Failed():
            return _fail(item, outcome, now, rules)
        case "running", GiveUp():
            change = _keep(item, "gave_up", now, outcome.reason, "duly.GiveUp")
            return _blame(_review(replace(change, failures=item.failures + 1), now), item, now, rules)
        case "running", Crashed():
            change = _keep(item, "crashed", now, outcome.error, "duly.Crashed")
            return _crash(replace(change, crashes=item.crashes + 1), item, now, rules)
        case "running", Lost():
            return _lose(item, now, rules)
        case "failed", Discarded():
            return replace(_still(item, "discarded"), state="cancelled", finished_at=now)
        case "waiting", Superseded():
            return replace(_still(item, "superseded"), state="cancelled", finished_at=now)
        case (("waiting" | "running"), Cancel()):
            return replace(_still(item, "cancelled"), state="cancelled", finished_at=now, error=outcome.reason or None)
        case "waiting", Revived():
            return replace(_still(item, None), due_at=outcome.due_at)
        case "failed", Revived() if item.job_id is not None and item.attempt == 0:
            raise WrongState(f"item {item.id} could not be read; correct the row and upload it again")
        case (("failed" | "cancelled" | "done"), Revived()) if item.state != "done" or item.status in AGAIN:
            return replace(
                _still(item, "revived"),
                state="waiting",
                lane="main",
                due_at=outcome.due_at,
                attempt=0,
                failures=0,
                crashes=0,
                losses=0,
                excuses=0,
                # Each failure under windows had raised its rank by one, which is taken back with the failures.
                rank=item.rank - item.failures_in_a_row if item.lane == "retry" and rules.retry.has_windows else None,
            )
        case _:
            verb = _VERBS.get(type(outcome), f"take {outcome!r}")
            raise WrongState(f"item {item.id} is {item.state} and cannot {verb}")


def _fail(item: Item, failed: Failed, now: datetime, rules: Rules) -> Change:
    error_class = cut(failed.classes[0], 200) if failed.classes else None
    failures = item.failures + 1
    change = replace(_keep(item, "failed", now, failed.error, error_class), failures=failures)
    if item.attempt >= (item.max_attempts or rules.retry.tries_for(failed.classes)):
        change = _review(change, now)
    else:
        due_at = rules.retry.next_at(now, failures, failed.classes, item.execution_key)
        change = replace(change, due_at=due_at)
        if rules.retry.has_windows:
            # In a window, items with fewer failures start first. Claims go by rank, so each failure raises it by one.
            step = item.failures_in_a_row + 1 if item.lane == "main" else 1
            change = replace(change, rank=min(item.rank + step, LAST_RANK))
    return _blame(change, item, now, rules)


def _blame(change: Change, item: Item, now: datetime, rules: Rules) -> Change:
    """Count an item's own failure for the schedule that made it too, which may deactivate the schedule."""
    if item.schedule_id is None:
        return change
    failures = item.failures_in_a_row + 1
    is_broken = rules.breaker is not None and failures >= rules.breaker
    member = Member(item.schedule_id, failures, now, error=change.error, is_broken=is_broken)
    return replace(_review(change, now) if is_broken else change, member=member)


def _succeed(change: Change, item: Item, now: datetime, **seen: Any) -> Change:
    if item.schedule_id is None:
        return change
    return replace(change, member=Member(item.schedule_id, 0, now, is_success=True, **seen))


def _compare(item: Item, seen: Fingerprint, now: datetime) -> Change:
    is_unchanged = item.fingerprint in (seen.value, *seen.also)
    change = _finish(item, now, "unchanged" if is_unchanged else "done", seen.result)
    change = replace(change, then=() if is_unchanged else seen.then)
    return _succeed(change, item, now, is_unchanged=is_unchanged, fingerprint=seen.value, keep=seen.keep)


def _lose(item: Item, now: datetime, rules: Rules) -> Change:
    worker = item.claimed_by or "its worker"
    change = _keep(item, "lost", now, f"{worker} vanished while it ran this", "duly.Lost")
    change = replace(change, losses=item.losses + 1, expired_at=now)
    if item.crashes == 0 and not rules.is_trusted:
        return _crash(replace(change, crashes=1), item, now, rules)
    if change.losses >= rules.loss_limit:
        return _blame(_review(change, now), item, now, rules)
    lane = item.lane if rules.retry.has_windows else change.lane
    return replace(change, attempt=max(item.attempt - 1, 0), due_at=now, lane=lane)


def _crash(change: Change, item: Item, now: datetime, rules: Rules) -> Change:
    tries = item.max_attempts or rules.retry.tries_for(())
    if change.crashes >= rules.crash_limit or item.attempt >= tries:
        return _blame(_review(change, now), item, now, rules)
    # Only failures have to wait for a window: an item whose process died runs again at once, in the lane it was in.
    return replace(change, due_at=now, lane=item.lane if rules.retry.has_windows else change.lane)


def _finish(item: Item, now: datetime, label: str, result: bytes | None = None, error: str = "") -> Change:
    return _change(item, "running", "done", label, now, result, cut(error) if error else None)


def _still(item: Item, label: str | None) -> Change:
    """The change that changes nothing but the label."""
    return _change(item, item.state, item.state, label)


def _change(
    item: Item,
    was: State,
    state: State,
    label: str | None,
    finished_at: datetime | None = None,
    result: bytes | None = None,
    error: str | None = None,
) -> Change:
    """The change to this state that leaves everything else unchanged."""
    return Change(
        id=item.id, task=item.task, was=was, fence=item.fence, state=state, outcome=label, lane=item.lane,
        due_at=item.due_at, attempt=item.attempt, failures=item.failures, crashes=item.crashes, losses=item.losses,
        finished_at=finished_at, result=result, error=error, excuses=item.excuses,
    )  # fmt: skip


def _wait(item: Item, due_at: datetime, label: str, cause: str | None) -> Change:
    attempt = max(item.attempt - 1, 0)
    return replace(
        _still(item, label), state="waiting", due_at=due_at, attempt=attempt, cause=cause and cut(cause, 500)
    )


def _keep(item: Item, label: str, now: datetime, error: str, error_class: str | None) -> Change:
    """The try counts: the item waits again in the retry lane, with a record of how the try ended."""
    error = cut(error)
    tried = Tried(
        number=item.attempt, attempt_key=item.attempt_key, worker=item.claimed_by, started_at=item.started_at,
        ended_at=now, outcome=label, error=error, error_class=error_class,
    )  # fmt: skip
    return replace(
        _still(item, label), state="waiting", lane="retry", error=error, error_class=error_class, tried=tried
    )


def _review(change: Change, now: datetime) -> Change:
    return replace(change, state="failed", finished_at=now)
