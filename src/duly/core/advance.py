"""The change of a schedule when it is due, and when a person changes it. Pure, like `decide` for items.

Between its `next_at` and now there may be one occurrence, or many after a day of downtime. Its catch-up policy says
which of them still become items; the others are line of in the audit log. Then it moves on to its next time.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

from msgspec import Struct
from msgspec.json import decode, encode
from msgspec.structs import replace

from duly.core.decide import UNKNOWN, decide
from duly.core.errors import WrongState
from duly.core.model import Cancel, Discarded, Item, NewAuditLine, Revision, Schedule, Superseded
from duly.core.policy.recur import Every, Rule, Slot, Yearly, between, latest, parse, zone_named

log = logging.getLogger("duly.engine")

# Occurrences of one schedule that become items in one transaction; the rest follows at the next tick.
MOST = 500
# The same for all schedules together, so that a transaction stays short however much was missed.
MOST_AT_ONCE = 2_000
# Where skipped occurrences can only be counted one by one, counting ends here.
COUNTED = 10_000
# With the catch-up policy `skip`, an occurrence that is no later than this does not count as missed.
GRACE = timedelta(seconds=60)
# By how much a time may move when a newer time zone database has other rules for its zone.
ZONE_CHANGE = timedelta(hours=3)

INSTANT = timedelta(microseconds=1)
# Two occurrences of a yearly rule that are closer than this are the same year's event.
EVENT = timedelta(days=2)

rule_of = lru_cache(10_000)(parse)


def advance_all(
    now: datetime, schedules: Sequence[Schedule], live: Mapping[int, list[Item]], unread: list[int] | None = None
) -> list[Revision]:
    """The revision of each schedule. A schedule with a rule or zone that is unknown here stays unchanged, and due.

    Another worker may understand it, with a newer version of duly or of the time zone database. Its id is added to
    `unread`, so that the caller can leave it alone for a while.
    """
    revisions: list[Revision] = []
    made = 0
    for schedule in schedules:
        if made >= MOST_AT_ONCE:  # the others are still due at the next tick
            break
        try:
            revisions.append(advance(schedule, live.get(schedule.id, ()), now))
        except Exception as error:
            log.debug("schedule %s (%s %s): %s", schedule.id, schedule.task, schedule.key, error)
            if unread is not None:
                unread.append(schedule.id)
            continue
        made += len(revisions[-1].occurrences) + (revisions[-1].schedule.skipped - schedule.skipped) // 10
    return revisions


def advance(schedule: Schedule, live: Sequence[Item], now: datetime) -> Revision:
    """The occurrences of a due schedule that become items now, and when it is due next."""
    rule, zone = rule_of(schedule.rule), zone_named(schedule.zone)
    assert schedule.next_at is not None
    due_at = _still(rule, schedule)
    if due_at is None or due_at > now:  # the rules of the time zone have changed since this was planned
        return Revision(replace(schedule, next_at=due_at))
    lateness = schedule.max_lateness
    cutoff = None if lateness is None else now - timedelta(seconds=lateness)
    if schedule.catch_up == "skip" and cutoff is None:
        cutoff = now - GRACE
    is_all = schedule.catch_up == "all"
    following = rule.next(due_at, zone)
    is_only_one = following is None or following > now  # nearly always: nothing was missed
    if is_only_one:
        wanted = [due_at] if cutoff is None or due_at >= cutoff else []
    elif is_all and schedule.overlap == "allow":
        first = due_at if cutoff is None else max(due_at, cutoff)
        wanted = between(rule, first - INSTANT, now, zone, MOST)
    else:
        newest = latest(rule, due_at - INSTANT, now, zone)
        wanted = [newest] if newest is not None and (cutoff is None or newest >= cutoff) else []
    missed = _missed(rule, schedule, due_at, wanted, now)
    skipped = missed.count
    # Where items must not overlap, only the newest occurrence becomes one, and none while another is still running.
    is_stepped_over = is_all and schedule.overlap != "allow" and bool(wanted)
    why = "a newer one is due" if is_stepped_over else "too late" if is_all else f"catch-up: {schedule.catch_up}"
    notes = [_skipped(schedule, missed, why)]
    changes = []
    if wanted and schedule.overlap != "allow":
        if schedule.overlap == "supersede":
            changes = [decide(item, Superseded(), now, UNKNOWN) for item in live if item.state == "waiting"]
        if any(item.state == "running" or schedule.overlap == "skip" for item in live):
            gone = Missed(len(wanted), wanted[0], wanted[-1])
            notes.append(_skipped(schedule, gone, "the previous one has not ended"))
            skipped, wanted, changes = skipped + gone.count, [], []
    is_cut = is_all and len(wanted) == MOST
    moved = replace(
        schedule,
        next_at=following if is_only_one else rule.next(wanted[-1] if is_cut else now, zone),
        last_at=wanted[-1] if wanted else schedule.last_at,
        skipped=schedule.skipped + skipped,
    )
    return Revision(moved, tuple(wanted), tuple(changes), tuple(note for note in notes if note is not None))


def _still(rule: Rule, schedule: Schedule) -> datetime | None:
    """The planned time; if the rules of its time zone were changed meanwhile, the time by the new rules."""
    zone = zone_named(schedule.zone)
    assert schedule.next_at is not None
    if rule.next(schedule.next_at - INSTANT, zone) == schedule.next_at:
        return schedule.next_at
    since = schedule.next_at - ZONE_CHANGE
    return rule.next(max(since, schedule.last_at) if schedule.last_at else since, zone)


class Missed(Struct, frozen=True):
    """Occurrences that do not become items: how many, from the first to the last."""

    count: int
    first: datetime | None = None
    last: datetime | None = None
    is_more: bool = False  # there were more, and counting stopped at `COUNTED`


def _missed(rule: Rule, schedule: Schedule, due_at: datetime, wanted: Sequence[datetime], now: datetime) -> Missed:
    """The occurrences from the planned time to before the first one that is still wanted."""
    if wanted and wanted[0] == due_at:
        return Missed(0)
    until, zone = wanted[0] - INSTANT if wanted else now, zone_named(schedule.zone)
    last = latest(rule, due_at - INSTANT, until, zone)
    if last is None:
        return Missed(0)
    following = rule.next(due_at, zone)
    if isinstance(rule, Every | Slot) and following is not None:
        return Missed((last - due_at) // (following - due_at) + 1, due_at, last)
    counted = len(between(rule, due_at - INSTANT, last, zone, COUNTED))
    return Missed(counted, due_at, last, is_more=counted == COUNTED)


def _skipped(schedule: Schedule, missed: Missed, why: str) -> NewAuditLine | None:
    if not missed.count:
        return None
    details = {"count": missed.count, "from": missed.first, "to": missed.last, "why": why}
    return note(schedule, "schedule.skipped", "duly", {**details, "isMore": True} if missed.is_more else details)


# -- a person's acts: what each makes of a schedule, of which these items are live


def paused(schedule: Schedule, _: Sequence[Item], now: datetime, actor: str) -> Revision:
    if schedule.paused_at is not None:
        return Revision(schedule)
    moved = replace(schedule, paused_at=now, next_at=None)
    return Revision(moved, notes=(note(schedule, "schedule.paused", actor),))


def resumed(schedule: Schedule, _: Sequence[Item], now: datetime, actor: str) -> Revision:
    """Go on from now; occurrences during the pause are not made up for."""
    if schedule.paused_at is None:
        return Revision(schedule)
    moved = replace(schedule, paused_at=None)
    return Revision(replace(moved, next_at=_next(moved, now)), notes=(note(schedule, "schedule.resumed", actor),))


def reactivated(
    schedule: Schedule,
    live: Sequence[Item],
    now: datetime,
    actor: str,
    failed: Item | None = None,
    is_run: bool = False,
) -> Revision:
    """Go on after too many failures in a row, and with `is_run` also at once, unless an item of it is running.

    `failed` is an item of it that stands in review. A person has looked at the failure, so it is discarded.
    """
    if schedule.broken_at is None:
        raise WrongState(f"schedule {schedule.id} is active")
    moved = replace(schedule, broken_at=None, failures=0)
    details = {"failures": schedule.failures, "error": (schedule.last_error or "").partition("\n")[0]}
    changes = [decide(failed, Discarded(), now, UNKNOWN)] if failed is not None else []
    is_run = is_run and not any(item.state == "running" for item in live)
    if is_run and schedule.overlap != "allow":
        changes += [decide(item, Superseded(), now, UNKNOWN) for item in _waiting(live)]
    line = note(schedule, "schedule.reactivated", actor, {**details, "isRun": True} if is_run else details)
    moved = replace(moved, next_at=_next(moved, now))
    return Revision(moved, (now,) if is_run else (), tuple(changes), (line,))


def run_now(schedule: Schedule, live: Sequence[Item], now: datetime, actor: str) -> Revision:
    """Create one more item now, outside the plan. If items must not overlap, it is rejected while another is live."""
    others = [item for item in live if schedule.overlap != "allow" and item.planned_at != now]
    for item in others:
        if item.state == "running" or schedule.overlap == "skip":
            raise WrongState(
                f"schedule {schedule.id} runs one item at a time (overlap: {schedule.overlap}), and item {item.id} is "
                f"{item.state}; wait until it ends, or cancel it"
            )
    changes = tuple(decide(item, Superseded(), now, UNKNOWN) for item in others)
    return Revision(schedule, (now,), changes, notes=(note(schedule, "schedule.run_now", actor),))


def removed(schedule: Schedule, live: Sequence[Item], now: datetime, actor: str) -> Revision:
    """Remove the schedule and cancel its waiting items; running ones continue."""
    changes = tuple(decide(item, Cancel("its schedule was removed"), now, UNKNOWN) for item in _waiting(live))
    return Revision(schedule, changes=changes, notes=(note(schedule, "schedule.removed", actor),), is_removed=True)


def changed(schedule: Schedule, live: Sequence[Item], now: datetime, actor: str, **fields: Any) -> Revision:
    """Change some fields. Another rule or zone means a new plan, and items that wait by the old one are superseded."""
    after = replace(schedule, **fields)
    if after == schedule:
        return Revision(schedule)
    before = {name: _shown(getattr(schedule, name)) for name in fields if getattr(schedule, name) != fields[name]}
    details = {"before": before, "after": {name: _shown(getattr(after, name)) for name in before}}
    notes = (note(schedule, "schedule.changed", actor, details),)
    if (after.rule, after.zone) == (schedule.rule, schedule.zone):
        return Revision(after, notes=notes)
    was, rule = rule_of(schedule.rule), rule_of(after.rule)
    # A yearly event whose time of day or zone changes: a waiting item is this year's, and would not be made again.
    if isinstance(was, Yearly) and isinstance(rule, Yearly) and was.on == rule.on:
        return Revision(replace(after, next_at=_moved(schedule, after, now)), notes=notes)
    changes = tuple(decide(item, Superseded(), now, UNKNOWN) for item in _waiting(live))
    return Revision(replace(after, next_at=_next(after, now)), changes=changes, notes=notes)


def _waiting(live: Sequence[Item]) -> list[Item]:
    return [item for item in live if item.state == "waiting"]


def _moved(before: Schedule, after: Schedule, now: datetime) -> datetime | None:
    """The next time of a yearly event whose time of day or zone changed.

    Each year's event happens exactly once. If this year's has happened, moving it to a later time must not repeat it;
    if it has not, moving it to a time that is already over must not lose it.
    """
    next_at, rule, zone = _next(after, now), rule_of(after.rule), zone_named(after.zone)
    if next_at is None:
        return None
    if before.next_at is not None:
        next_at = min(next_at, rule.next(before.next_at - EVENT, zone) or next_at)
    if before.last_at is None:
        return next_at
    apart = next_at.astimezone(zone).date() - before.last_at.astimezone(zone_named(before.zone)).date()
    return rule.next(next_at, zone) if abs(apart) < EVENT else next_at


def _next(schedule: Schedule, now: datetime) -> datetime | None:
    if not schedule.is_active:
        return None
    return rule_of(schedule.rule).next(now, zone_named(schedule.zone))


def note(schedule: Schedule, action: str, actor: str, details: Mapping[str, Any] | None = None) -> NewAuditLine:
    about = {"task": schedule.task, "key": schedule.key, **(details or {})}
    return NewAuditLine(actor, action, f"schedule:{schedule.id}", encode(about))


def _shown(value: Any) -> Any:
    """A value for the audit log. JSON text is decoded, so that secrets in it can be masked by their names."""
    return decode(value) if isinstance(value, bytes) else value
