"""Queues, limits, workers, alerts, what is late or stuck, and the audit log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from msgspec.structs import replace

from duly.core.shown import (
    Alert,
    AuditLine,
    LateItem,
    LimitUse,
    QueueDepth,
    ShownAuditLine,
    StuckItem,
    WorkerLife,
)
from duly.verbs.audit import line_shown as audit_line
from duly.web.auth import Admin
from duly.web.desk import At, Desk, Once, Pages
from duly.web.schemas import Name, WordFilter, list_of, out, page_of
from duly.web.schemas.queues import Alive, LimitIn, QueueNote

router = APIRouter(tags=["queues"])

Grace = Annotated[float, Query(ge=0, le=3.15e9, allow_inf_nan=False, description="Seconds after the planned time.")]
Most = Annotated[int, Query(ge=1, le=10_000)]


@router.get("/api/queues", response_model=page_of(QueueDepth))
def list_queues(desk: At, principal: Admin, pages: Pages) -> Any:
    """The queues of all owners: how many items wait, are due, run and are in review."""

    def find(after: str | None, most: int) -> Sequence[dict[str, Any]]:
        found = desk.app.read.queues(desk.app.telemetry.depths())
        return [queue for queue in found if queue["queue"] > (after or "")][:most]

    return pages.turn(["queues"], find, place=lambda queue: queue["queue"])


@router.post(
    "/api/queues/{name:path}/{act}",
    status_code=204,
    responses={200: {"model": out(QueueNote), "description": "Paused, but no item has this queue yet."}},
)
def act_on_queue(name: Name, act: Literal["pause", "resume"], desk: At, principal: Admin, once: Once) -> Response:
    """Pause a queue, so that nothing more of it starts, or resume it."""

    def carry_out(connection: Any) -> QueueNote | None:
        queues = desk.app.verbs.queues
        note = (queues.pause if act == "pause" else queues.resume)(principal, name, connection)
        return QueueNote(note) if note else None

    return once(principal, None, carry_out, status=lambda note: 200 if note else 204)


@router.get("/api/limits", response_model=page_of(LimitUse))
def list_limits(desk: At, principal: Admin, pages: Pages) -> Any:
    """Limits by name: what they counted lately, and the values that were set in place of those in code."""
    read = desk.app.read
    return pages.turn(["limits"], lambda after, most: read.limits(after or "", most), place=lambda row: row.name)


@router.put("/api/limits/{name:path}", status_code=204)
def set_limit(name: Name, body: LimitIn, desk: At, principal: Admin) -> None:
    """Set a limit for all workers, in place of the value in code."""
    desk.app.verbs.limits.set(principal, name, body.limit)


@router.delete("/api/limits/{name:path}", status_code=204)
def clear_limit(name: Name, desk: At, principal: Admin) -> None:
    """Remove a limit that was set; the value in code applies again."""
    desk.app.verbs.limits.set(principal, name, None)


@router.get("/api/workers", response_model=page_of(WorkerLife))
def list_workers(desk: At, principal: Admin, pages: Pages) -> Any:
    """Workers that sent a heartbeat within a day and have not shut down, by name."""
    read = desk.app.read
    return pages.turn(["workers"], lambda after, most: read.workers(after or "", most), place=lambda row: row.name)


@router.get("/api/alive", response_model=out(Alive))
def alive(desk: At, principal: Admin) -> Any:
    """When any worker sent its last heartbeat, for a dead-man's switch."""
    read = desk.app.read
    return Alive(read.seen_at(), read.silence())


@router.get("/api/late", response_model=list_of(LateItem))
def list_late(desk: At, principal: Admin, grace: Grace = 300.0, most: Most = 100) -> Any:
    """Done items of all owners that started more than `grace` seconds late, latest first."""
    return desk.app.read.late(grace, most)


@router.get("/api/stuck", response_model=list_of(StuckItem))
def list_stuck(desk: At, principal: Admin, grace: Grace = 3_600.0, most: Most = 100) -> Any:
    """Items of all owners that are still not done `grace` seconds after their time, oldest first."""
    return desk.app.read.stuck(grace, most)


@router.get("/api/alerts", response_model=list_of(Alert))
def list_alerts(desk: At, principal: Admin) -> Any:
    """The alerts that are active now, at most one of each kind."""
    return desk.app.read.alerts()


@router.get("/api/audit", response_model=page_of(ShownAuditLine))
def list_audit(desk: At, principal: Admin, pages: Pages, subject: WordFilter = None) -> Any:
    """The audit log, newest first."""
    audit = desk.app.verbs.audit
    return pages.turn(
        ["audit", subject], lambda before, most: audit.page(subject, before, most), lambda row: line_shown(desk, row)
    )


def line_shown(desk: Desk, line: AuditLine) -> ShownAuditLine:
    """The line with its details decoded, and secrets in them masked."""
    known = audit_line(line)
    return replace(known, details=desk.masked(known.details))
