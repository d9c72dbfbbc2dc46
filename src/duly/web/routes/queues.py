"""Queues, limits, workers, alerts, what is late or stuck, and the audit log."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import Query
from msgspec import Struct
from msgspec.structs import replace
from pydantic import AfterValidator, Field, StringConstraints

from duly.core.shown import Alert, AuditLine, LateItem, LimitUse, QueueDepth, StuckItem, WorkerLife
from duly.core.wire import Doc
from duly.verbs.read import REPORTED
from duly.web.auth import Admin
from duly.web.desk import App, Pages, Verbs, masked
from duly.web.routing import Router, Transaction
from duly.web.schemas import Model, Name, Page, WordFilter, clean, example, out

router = Router(tags=["queues"])

Grace = Annotated[float, Query(ge=0, le=3.15e9, allow_inf_nan=False, description="Seconds after the planned time.")]
Most = Annotated[int, Query(ge=1, le=REPORTED)]


class QueueNote(Struct, frozen=True):
    note: str


class LimitIn(Model, **example(limit="2/1m")):
    limit: Annotated[str, StringConstraints(min_length=1, max_length=40), AfterValidator(clean)] = Field(
        description="`2/1m`: calls in any minute; `4`: at the same time."
    )


class Alive(Struct, frozen=True):
    """When a worker last showed that it is alive."""

    seen_at: datetime | None
    age_seconds: Annotated[float | None, Doc("How long ago that was, by the clock of the database.")]


@router.get("/api/queues")
def list_queues(app: App, principal: Admin, pages: Pages) -> Page[QueueDepth]:
    """The queues of all owners: how many items wait, are due, run and are in review."""

    def find(after: str | None, most: int) -> Sequence[dict[str, Any]]:
        found = app.read.queues(app.internals.telemetry.depths())
        return [queue for queue in found if queue["queue"] > (after or "")][:most]

    return pages.turn(find, place=lambda queue: queue["queue"])


@router.post(
    "/api/queues/{name:path}/{act}",
    status_code=204,
    responses={200: {"model": out(QueueNote), "description": "Paused, but no item has this queue yet."}},
)
def act_on_queue(
    name: Name, act: Literal["pause", "resume"], verbs: Verbs, principal: Admin, connection: Transaction
) -> QueueNote | None:
    """Pause a queue, so that nothing more of it starts, or resume it."""
    note = (verbs.queues.pause if act == "pause" else verbs.queues.resume)(principal, name, connection)
    return QueueNote(note) if note else None


@router.get("/api/limits")
def list_limits(app: App, principal: Admin, pages: Pages) -> Page[LimitUse]:
    """Limits by name: their recent use, and the values that were set instead of those in code."""
    return pages.turn(lambda after, most: app.read.limits(after or "", most), place=lambda row: row.name)


@router.put("/api/limits/{name:path}", status_code=204)
def set_limit(name: Name, body: LimitIn, verbs: Verbs, principal: Admin) -> None:
    """Set a limit for all workers, in place of the value in code."""
    verbs.queues.set_limit(principal, name, body.limit)


@router.delete("/api/limits/{name:path}", status_code=204)
def clear_limit(name: Name, verbs: Verbs, principal: Admin) -> None:
    """Remove a limit that was set; the value in code applies again."""
    verbs.queues.set_limit(principal, name, None)


@router.get("/api/workers")
def list_workers(app: App, principal: Admin, pages: Pages) -> Page[WorkerLife]:
    """Workers that sent a heartbeat within a day and have not shut down, by name."""
    return pages.turn(lambda after, most: app.read.workers(after or "", most), place=lambda row: row.name)


@router.get("/api/alive")
def alive(app: App, principal: Admin) -> Alive:
    """When any worker sent its last heartbeat, for a dead-man's switch."""
    return Alive(app.read.seen_at(), app.read.silence())


@router.get("/api/late")
def list_late(app: App, principal: Admin, grace: Grace = 300.0, most: Most = 100) -> list[LateItem]:
    """Done items of all owners that started more than `grace` seconds late, latest first."""
    return app.read.late(grace, most)


@router.get("/api/stuck")
def list_stuck(app: App, principal: Admin, grace: Grace = 3_600.0, most: Most = 100) -> list[StuckItem]:
    """Items of all owners that are still not done `grace` seconds after their time, oldest first."""
    return app.read.stuck(grace, most)


@router.get("/api/alerts")
def list_alerts(app: App, principal: Admin) -> list[Alert]:
    """The alerts that are active now, at most one of each kind."""
    return app.read.alerts()


@router.get("/api/audit")
def list_audit(verbs: Verbs, principal: Admin, pages: Pages, subject: WordFilter = None) -> Page[AuditLine]:
    """The audit log, newest first."""
    return pages.turn(lambda before, most: verbs.audit.page(subject, before, most), lambda row: line_shown(verbs, row))


def line_shown(verbs: Verbs, line: AuditLine) -> AuditLine:
    """The line with secrets in its details masked."""
    return replace(line, details=masked(verbs, line.details))
