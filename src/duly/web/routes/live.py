"""The current state, measurements of the last minutes, the stream of server-sent events, and the probes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import Header, Query, Request, Response
from fastapi.responses import PlainTextResponse, StreamingResponse
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from duly.core.results import Picture
from duly.core.shown import Chart
from duly.verbs import Principal
from duly.web.auth import Reader, owner_for
from duly.web.desk import App, Verbs
from duly.web.feed import Depths, Listener, Queues, event, feed_of, tick_of, until_next
from duly.web.probe import unready
from duly.web.problems import Problem, problem
from duly.web.routing import Router
from duly.web.schemas import BIG, WordFilter

router = Router(tags=["live"])
now_router = Router(tags=["now"])

EVERY = 1.0
QUIET = 15.0  # seconds without events after which a line shows that the stream is alive
CHECKED = 15.0  # seconds between two checks that the listener may still listen
STREAMS = 200


@now_router.get("/api/history")
def history(
    verbs: Verbs,
    principal: Reader,
    minutes: Annotated[int, Query(ge=1, le=20_160)] = 60,
    task: WordFilter = None,
    measure: WordFilter = None,
    job: Annotated[int | None, Query(ge=1, le=BIG, description="Of this job; its owner may ask too.")] = None,
) -> Chart:
    """Measurements of the last minutes in steps: of all tasks and paces, of one task, or of one job."""
    return verbs.history.look(principal, minutes=minutes, task=task, measure=measure, job_id=job)


@now_router.get("/api/now")
def now(verbs: Verbs, principal: Reader) -> Picture:
    """The current state: health with its reasons, and totals. Admins see everything, others their own rows."""
    return verbs.now.look(principal)


@router.get("/api/events", response_class=StreamingResponse, responses={200: {"content": {"text/event-stream": {}}}})
async def events(
    request: Request,
    principal: Reader,
    last_event_id: Annotated[str | None, Header(alias="Last-Event-ID", max_length=40, pattern=r"^[0-9]{1,18}$")] = None,
) -> StreamingResponse:
    """A stream of server-sent events: queue depths when they change, and audit lines. Resume with Last-Event-ID."""
    state = request.app.state
    if state.streams >= STREAMS:
        raise Problem(429, "too many event streams are open", headers={"Retry-After": "10"})
    after = int(last_event_id) if last_event_id else None
    listener = Listener(feed_of(state), owner_for(principal, None), after)
    await listener.begin(tick_of(EVERY))
    return StreamingResponse(
        _stream(request, principal, listener),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


async def _stream(request: Request, principal: Principal, listener: Listener) -> AsyncIterator[str]:
    state = request.app.state
    state.streams += 1
    silent = 0.0
    seen: Queues | None = None
    checked: int | None = None
    try:
        with listener.feed.listening():
            yield f"retry: 2000\nid: {listener.place}\n\n"
            while not state.closing.is_set():
                tick = tick_of(EVERY)
                # All streams check at the same time, so that those of one user share the answer.
                check = int(tick * EVERY / CHECKED)
                if checked not in (None, check) and await state.shared.who(request) != principal:
                    return  # the user was disabled, or may see something else by now
                checked = check
                for text in await listener.look(tick):
                    yield text
                depths = await listener.feed.depths(tick) if principal.is_admin else Depths([], [])
                if depths.ageless != seen:
                    seen, silent = depths.ageless, 0.0
                    yield event("queues", depths.queues, listener.place)
                elif silent >= QUIET:
                    silent = 0.0
                    yield ": alive\n\n"
                silent += EVERY
                try:
                    await asyncio.wait_for(state.closing.wait(), until_next(EVERY))
                except TimeoutError:
                    continue
    finally:
        state.streams -= 1


@router.get("/metrics", response_class=PlainTextResponse)
def metrics(app: App, principal: Reader) -> PlainTextResponse:
    """Metrics for Prometheus, about the queues of all owners. Except on a loopback address, it needs an admin's key."""
    if principal.role != "admin":
        raise Problem(403, "metrics: only for admins")
    return PlainTextResponse(generate_latest(app.registry), media_type=CONTENT_TYPE_LATEST)


@router.get("/healthz", response_class=PlainTextResponse)
def healthz(request: Request) -> Response:
    """Whether this process works. If not, restart it. The database is not checked."""
    reason = request.app.state.ailing()
    return problem(503, reason, "Not well") if reason else PlainTextResponse("ok")


@router.get("/readyz", response_class=PlainTextResponse)
def readyz(request: Request, app: App) -> Response:
    """Whether the database answers and is migrated, and a worker in this process and its companions can work."""
    reason = unready(app.check) or request.app.state.ailing() or app.internals.hindrance()
    return problem(503, reason, "Not ready") if reason else PlainTextResponse("ready")
