"""What happened to an item, in order: told from its row, its tries that did not succeed, and what people did to it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

from msgspec import Struct

from duly.core.model import Tried
from duly.core.shown import AuditLine, Row

Kind = Literal["put", "due", "started", "failed", "done", "cancelled", "review", "act"]

TRACEBACK = "\n\nTraceback "
# Acts that the row itself tells of.
_TOLD = ("item.put", "item.again")


class Happening(Struct, frozen=True):
    """Something that happened to an item, or is going to."""

    at: datetime
    kind: Kind
    text: str
    attempt: int | None = None
    worker: str | None = None
    actor: str | None = None
    error: str | None = None
    traceback: str | None = None


def timeline(item: Row, tries: Sequence[Tried], lines: Sequence[AuditLine] = ()) -> list[Happening]:
    """All of it, oldest first; what people did is told as far as `lines` of the audit log are given, newest first."""
    put = next((line for line in lines if line.action in _TOLD), None)
    cancel = next((line for line in lines if line.action == "item.cancelled" and item.state == "cancelled"), None)
    acts = [line for line in lines if line.action not in _TOLD and line is not cancel]
    told = [_tried(each) for each in tries]
    told += [Happening(line.at, "act", line.action.replace(".", " ", 1), actor=line.actor) for line in acts]
    first = Happening(item.created_at, "put", "put", actor=None if put is None else put.actor)
    return [first, *sorted(told, key=lambda each: each.at), _end(item, None if cancel is None else cancel.actor)]


def _tried(tried: Tried) -> Happening:
    error, _, rest = (tried.error or "").partition(TRACEBACK)
    return Happening(
        tried.ended_at, "failed", f"try {tried.number} {tried.outcome}", attempt=tried.number, worker=tried.worker,
        error=error or None,
        traceback=f"{TRACEBACK.lstrip()}{rest}" if rest else None,
    )  # fmt: skip


def _end(item: Row, cancelled_by: str | None) -> Happening:
    """How it stands: how it has ended, that it runs, or when it is due."""
    if item.state == "running":
        at = item.started_at or item.due_at
        return Happening(at, "started", f"try {item.attempt} started", item.attempt, item.claimed_by)
    if item.state == "waiting" or item.finished_at is None:
        return Happening(item.due_at, "due", "due again" if item.attempt else "due")
    if item.state == "failed":
        return Happening(item.finished_at, "review", "given up: in review")
    if item.state == "cancelled":
        text = f"cancelled {item.last_error or ''}".rstrip()
        return Happening(item.finished_at, "cancelled", text, actor=cancelled_by)
    return Happening(item.finished_at, "done", f"try {item.attempt} {item.outcome}", item.attempt, item.claimed_by)
