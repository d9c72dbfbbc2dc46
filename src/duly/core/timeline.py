"""The story of one item as events, oldest first: from its row, its tries that did not succeed, and the audit log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from duly.core.model import Tried
from duly.core.shown import AuditLine, Event, Row


def timeline(item: Row, tries: Sequence[Tried], notes: Sequence[AuditLine]) -> list[Event]:
    """What happened to this item, oldest first. `notes` are the lines of the audit log about it."""
    acts = [note for note in notes if note.action not in ("item.put", "item.again")]
    events = [_put(item, notes), *(event for tried in tries for event in _tried(tried)), *map(_noted, acts)]
    is_ended_by_hand = bool({note.action for note in acts} & {"item.cancelled", "item.discarded"})
    events += _now(item, is_tried=bool(tries), is_ended_by_hand=is_ended_by_hand)
    return sorted(events, key=lambda event: event.at)


def _put(item: Row, notes: Sequence[AuditLine]) -> Event:
    by = next((note for note in notes if note.action in ("item.put", "item.again")), None)
    return Event(item.created_at, "put", f"put by {by.actor}" if by else "put")


def _tried(tried: Tried) -> Iterator[Event]:
    on = f" on {tried.worker}" if tried.worker else ""
    if tried.started_at is not None:
        yield Event(tried.started_at, "claimed", f"try {tried.number} started{on}", tried.number, tried.worker)
    error, rest = _lines(tried.error)
    text = f"try {tried.number} {tried.outcome}{on}"
    yield Event(tried.ended_at, tried.outcome, text, tried.number, tried.worker, error, rest)


def _noted(note: AuditLine) -> Event:
    kind = note.action.partition(".")[2]
    reason = note.details.get("reason") if isinstance(note.details, dict) else None
    return Event(note.at, kind, f"{kind} {reason} (by {note.actor})" if reason else f"{kind} by {note.actor}")


def _now(item: Row, is_tried: bool, is_ended_by_hand: bool) -> Iterator[Event]:
    """The events of its current state."""
    on = f" on {item.claimed_by}" if item.claimed_by else ""
    if item.state == "running" and item.started_at is not None:
        yield Event(item.started_at, "claimed", f"try {item.attempt} started{on}", item.attempt, item.claimed_by)
    elif item.state == "waiting":
        yield Event(item.due_at, "due", "due again" if is_tried else "due")
    elif item.state == "failed" and item.finished_at is not None:
        yield Event(item.finished_at, "given_up", "given up: in review")
    elif item.state == "cancelled" and item.finished_at is not None and not is_ended_by_hand:
        yield Event(item.finished_at, "cancelled", f"cancelled {item.last_error or ''}".rstrip())
    elif item.state == "done" and item.finished_at is not None:
        if item.started_at is not None:
            yield Event(item.started_at, "claimed", f"try {item.attempt} started{on}", item.attempt, item.claimed_by)
        error, rest = _lines(item.last_error if item.outcome != "done" else None)
        how = f"try {item.attempt} {item.outcome}{on}"
        yield Event(item.finished_at, item.outcome or "done", how, item.attempt, item.claimed_by, error, rest)


def _lines(text: str | None) -> tuple[str | None, str | None]:
    first, _, rest = (text or "").partition("\n")
    return first or None, rest or None
