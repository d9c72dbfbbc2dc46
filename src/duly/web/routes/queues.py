"""Queues, limits, workers, alerts and the audit log."""

from __future__ import annotations

from typing import Any, Literal

from fastapi import APIRouter, Request, Response

from duly.core import codec
from duly.core.shown import AuditLine
from duly.web.auth import Admin
from duly.web.desk import At, Desk, IdempotencyKey
from duly.web.schemas import After, Name, Page, PageSize, WordFilter
from duly.web.schemas.audit import NoteOut
from duly.web.schemas.queues import AlertOut, LimitIn, LimitOut, QueueNote, QueueOut, WorkerOut

router = APIRouter(tags=["queues"])


@router.get("/api/queues", response_model=Page[QueueOut])
def list_queues(desk: At, principal: Admin, page_size: PageSize = 50, after: After = None) -> Any:
    """What waits, is due, runs and is in review, of all owners, by queue."""
    last = desk.cursors.read(after, ["queues"]) or ""
    rows = [queue for queue in desk.app.read.queues(desk.app.telemetry.depths()) if queue["queue"] > last]
    return desk.page(rows, page_size, lambda row: row["queue"], ["queues"], lambda row: row)


@router.post(
    "/api/queues/{name:path}/{act}",
    status_code=204,
    responses={200: {"model": QueueNote, "description": "Paused, but nothing has this name yet."}},
)
def act_on_queue(
    name: Name, act: Literal["pause", "resume"], request: Request, desk: At, principal: Admin,
    idempotency_key: IdempotencyKey = None,
) -> Response:  # fmt: skip
    """Start nothing more of this queue until it is resumed; or open it again."""

    def carry_out(connection: Any) -> tuple[int, Any]:
        queues = desk.app.verbs.queues
        note = (queues.pause if act == "pause" else queues.resume)(principal, name, connection)
        return (200, {"note": note}) if note else (204, None)

    return desk.once(principal, idempotency_key, request, None, carry_out)


@router.get("/api/limits", response_model=Page[LimitOut])
def list_limits(desk: At, principal: Admin, page_size: PageSize = 50, after: After = None) -> Any:
    """What limits have counted, and what a person set in place of the code's values, by name."""
    rows = desk.app.read.limits(desk.cursors.read(after, ["limits"]) or "", page_size + 1)
    return desk.page(rows, page_size, lambda row: row.name, ["limits"], lambda row: row)


@router.put("/api/limits/{name:path}", status_code=204)
def set_limit(name: Name, said: LimitIn, desk: At, principal: Admin) -> None:
    """Allow so much from now on, over the whole fleet."""
    desk.app.verbs.limits.set(principal, name, said.limit)


@router.delete("/api/limits/{name:path}", status_code=204)
def clear_limit(name: Name, desk: At, principal: Admin) -> None:
    """What the code says counts again."""
    desk.app.verbs.limits.set(principal, name, None)


@router.get("/api/workers", response_model=Page[WorkerOut])
def list_workers(desk: At, principal: Admin, page_size: PageSize = 50, after: After = None) -> Any:
    """Workers that gave a sign of life within a day and did not sign off, by name."""
    rows = desk.app.read.workers(desk.cursors.read(after, ["workers"]) or "", page_size + 1)
    return desk.page(rows, page_size, lambda row: row.name, ["workers"], lambda row: row)


@router.get("/api/alerts", response_model=list[AlertOut])
def list_alerts(desk: At, principal: Admin) -> Any:
    """What is wrong now: at most one of each kind."""
    return desk.app.read.alerts()


@router.get("/api/audit", response_model=Page[NoteOut])
def list_audit(
    desk: At,
    principal: Admin,
    subject: WordFilter = None,
    page_size: PageSize = 50,
    after: After = None,
) -> Any:
    """Who did what, newest first."""
    bound = ["audit", subject]
    before = desk.cursors.read(after, bound)
    rows = desk.app.verbs.audit.page(subject, before, page_size + 1)
    return desk.page(rows, page_size, lambda row: row.id, bound, lambda row: note_out(desk, row))


def note_out(desk: Desk, note: AuditLine) -> dict[str, Any]:
    values = {name: getattr(note, name) for name in note.__struct_fields__}
    return {**values, "details": desk.masked(codec.shown(note.details))}
