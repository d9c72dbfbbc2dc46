"""Queues, limits, workers, alerts, what is late or stuck, and the audit log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response

from duly.core import codec
from duly.core.shown import AuditLine
from duly.web.auth import Admin
from duly.web.desk import At, Desk, Once, Pages
from duly.web.schemas import Name, Page, WordFilter
from duly.web.schemas.audit import NoteOut
from duly.web.schemas.queues import (
    AlertOut,
    AliveOut,
    LateOut,
    LimitIn,
    LimitOut,
    QueueNote,
    QueueOut,
    StuckOut,
    WorkerOut,
)

router = APIRouter(tags=["queues"])

Grace = Annotated[float, Query(ge=0, le=3.15e9, allow_inf_nan=False, description="Seconds after their time.")]
Most = Annotated[int, Query(ge=1, le=10_000)]


@router.get("/api/queues", response_model=Page[QueueOut])
def list_queues(desk: At, principal: Admin, pages: Pages) -> Any:
    """What waits, is due, runs and is in review, of all owners, by queue."""

    def find(after: str | None, most: int) -> Sequence[dict[str, Any]]:
        found = desk.app.read.queues(desk.app.telemetry.depths())
        return [queue for queue in found if queue["queue"] > (after or "")][:most]

    return pages.turn(["queues"], find, place=lambda queue: queue["queue"])


@router.post(
    "/api/queues/{name:path}/{act}",
    status_code=204,
    responses={200: {"model": QueueNote, "description": "Paused, but nothing has this name yet."}},
)
def act_on_queue(name: Name, act: Literal["pause", "resume"], desk: At, principal: Admin, once: Once) -> Response:
    """Pause a queue, so that nothing more of it starts, or resume it."""

    def carry_out(connection: Any) -> tuple[int, Any]:
        queues = desk.app.verbs.queues
        note = (queues.pause if act == "pause" else queues.resume)(principal, name, connection)
        return (200, {"note": note}) if note else (204, None)

    return once(principal, None, carry_out)


@router.get("/api/limits", response_model=Page[LimitOut])
def list_limits(desk: At, principal: Admin, pages: Pages) -> Any:
    """What limits have counted, and what a person set in place of the code's values, by name."""
    read = desk.app.read
    return pages.turn(["limits"], lambda after, most: read.limits(after or "", most), place=lambda row: row.name)


@router.put("/api/limits/{name:path}", status_code=204)
def set_limit(name: Name, said: LimitIn, desk: At, principal: Admin) -> None:
    """Set a limit for all workers, in place of what the code says."""
    desk.app.verbs.limits.set(principal, name, said.limit)


@router.delete("/api/limits/{name:path}", status_code=204)
def clear_limit(name: Name, desk: At, principal: Admin) -> None:
    """Remove what was set, so that the limit of the code counts again."""
    desk.app.verbs.limits.set(principal, name, None)


@router.get("/api/workers", response_model=Page[WorkerOut])
def list_workers(desk: At, principal: Admin, pages: Pages) -> Any:
    """Workers that gave a sign of life within a day and did not sign off, by name."""
    read = desk.app.read
    return pages.turn(["workers"], lambda after, most: read.workers(after or "", most), place=lambda row: row.name)


@router.get("/api/alive", response_model=AliveOut)
def alive(desk: At, principal: Admin) -> Any:
    """When any worker gave its last sign of life: a dead-man's switch."""
    read = desk.app.read
    return {"seen_at": read.seen_at(), "age_seconds": read.silence()}


@router.get("/api/late", response_model=list[LateOut])
def list_late(desk: At, principal: Admin, grace: Grace = 300.0, most: Most = 100) -> Any:
    """Done items of all owners that were started later than so many seconds after their time, latest first."""
    return desk.app.read.late(grace, most)


@router.get("/api/stuck", response_model=list[StuckOut])
def list_stuck(desk: At, principal: Admin, grace: Grace = 3_600.0, most: Most = 100) -> Any:
    """Items of all owners that are not done so many seconds after their time, oldest first."""
    return desk.app.read.stuck(grace, most)


@router.get("/api/alerts", response_model=list[AlertOut])
def list_alerts(desk: At, principal: Admin) -> Any:
    """What is wrong now: at most one of each kind."""
    return desk.app.read.alerts()


@router.get("/api/audit", response_model=Page[NoteOut])
def list_audit(desk: At, principal: Admin, pages: Pages, subject: WordFilter = None) -> Any:
    """Who did what, newest first."""
    audit = desk.app.verbs.audit
    return pages.turn(
        ["audit", subject], lambda before, most: audit.page(subject, before, most), lambda row: note_out(desk, row)
    )


def note_out(desk: Desk, note: AuditLine) -> dict[str, Any]:
    values = {name: getattr(note, name) for name in note.__struct_fields__}
    return {**values, "details": desk.masked(codec.shown(note.details))}
