"""What routes have in common: the app, pages with cursors, masks, and idempotent requests."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Sequence
from functools import cached_property
from operator import attrgetter
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Header, Request, Response
from fastapi.responses import JSONResponse
from msgspec import Struct
from pydantic import BaseModel

from duly import Duly
from duly.core.errors import UnknownTask
from duly.core.model import Placed
from duly.plugins import Plugin
from duly.tasks.task import Task
from duly.verbs import Principal
from duly.verbs.service import StoredReply
from duly.web.cursors import Cursors
from duly.web.problems import Problem, problem
from duly.web.schemas import After, PageSize, out

T = TypeVar("T")

IdempotencyKey = Annotated[
    str | None,
    Header(alias="Idempotency-Key", min_length=1, max_length=200, pattern=r"^[\x21-\x7e]+$",
           description="A POST with the same key and body returns the first answer and has no second effect."),
]  # fmt: skip


class Desk:
    """Everything that the routes need, made once per API."""

    def __init__(self, app: Duly) -> None:
        self.app = app

    @cached_property
    def cursors(self) -> Cursors:
        """The cursors, made when first needed: a service may start before its database."""
        return Cursors(self.app.verbs.service.secret("cursors"))

    # -- what comes in

    def task(self, name: str) -> Task[..., Any]:
        """A task of the app by its name. Internal tasks of duly cannot be put through the service."""
        open_to_all = {each: task for each, task in self.app.tasks.items() if not task.is_internal}
        if name not in open_to_all:
            known = ", ".join(sorted(open_to_all)) or "none"
            raise UnknownTask("task", f"there is no task {name!r} here; known: {known}")
        return open_to_all[name]

    # -- masks

    def masked(self, value: Any, is_revealed: bool = False) -> Any:
        """The value with secrets masked."""
        return self.app.verbs.context.masks.masked(value, is_revealed)

    def unmasked(self, value: Any, known: Any) -> Any:
        """A value that was shown masked and is sent back, with the known values in place of the masks."""
        return self.app.verbs.context.masks.unmasked(value, known)


def _repeated(known: StoredReply | None, digest: str) -> Response | None:
    if known is None:
        return None
    if known.request != digest:
        raise Problem(422, "Idempotency-Key: was already used for another request", "Idempotency-Key")
    answer = json.loads(known.answer)
    reply = problem(known.status, answer) if known.status >= 400 else _reply(known.status, answer)
    reply.headers["Idempotency-Replayed"] = "true"
    return reply


def _reply(status: int, answer: Any) -> Response:
    return Response(status_code=status) if status == 204 else JSONResponse(answer, status)


def _digest(request: Request, body: BaseModel | None) -> str:
    # Without the password, because this hash is stored, and a fast hash is easy to guess against.
    content = None if body is None else body.model_dump(exclude={"password"})
    text = json.dumps([request.method, request.url.path, request.url.query, content], default=str, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _jsonable(answer: Any) -> Any:
    if not isinstance(answer, Struct):
        return answer
    return out(type(answer)).model_validate(answer).model_dump(mode="json", by_alias=True)


def _desk(request: Request) -> Desk:
    desk: Desk = request.app.state.desk
    return desk


At = Annotated[Desk, Depends(_desk)]


def placed_status(placed: Placed[Any]) -> int:
    """201 for a new item; 200 for the live one that has its key already."""
    return 201 if placed.fresh else 200


class _Once:
    """Carries out an act once per Idempotency-Key, if the request has one."""

    def __init__(self, desk: Desk, request: Request, key: str | None) -> None:
        self._desk = desk
        self._request = request
        self._key = key

    def __call__(
        self, principal: Principal, body: BaseModel | None, act: Callable[[Any], Any], *,
        status: Callable[[Any], int] | None = None, kept: Callable[[Any], tuple[int, Any]] | None = None,
    ) -> Response:  # fmt: skip
        """Carry out `act` once: a repeated request gets the same answer and has no effect.

        `act` returns the answer. It writes on the connection that it is given, so that the effect, the audit line and
        the stored answer commit together. `status` gives the status of an answer, where it is not always that of the
        route. `kept` gives the status and answer to store in place of an answer that holds a secret.
        """
        store, service = self._desk.app.store, self._desk.app.verbs.service
        if self._key is None:
            with store.transaction() as connection:
                answer = act(connection)
            return _reply(self._status(answer, status), _jsonable(answer))
        named = (principal.user_id, self._key)
        digest = _digest(self._request, body)
        if (known := _repeated(service.reply(*named), digest)) is not None:
            return known
        with store.transaction() as connection:
            if service.begin_reply(*named, digest, connection):
                answer = act(connection)
                code, plain = self._status(answer, status), _jsonable(answer)
                stored_code, stored = kept(plain) if kept is not None else (code, plain)
                service.end_reply(*named, stored_code, json.dumps(stored), connection)
                return _reply(code, plain)
        if (known := _repeated(service.reply(*named), digest)) is None:
            raise Problem(409, "a request with this Idempotency-Key is in progress", headers={"Retry-After": "1"})
        return known

    def _status(self, answer: Any, status: Callable[[Any], int] | None) -> int:
        return self._request.scope["route"].status_code or 200 if status is None else status(answer)


async def _once(request: Request, idempotency_key: IdempotencyKey = None) -> _Once:
    return _Once(_desk(request), request, idempotency_key)


Once = Annotated[_Once, Depends(_once)]


class AskedPage:
    """The page of a list that a request asks for: its size, and its cursor."""

    def __init__(self, desk: Desk, size: int, after: str | None) -> None:
        self._desk = desk
        self.size = size
        self._after = after

    def turn(
        self, bound: Any, find: Callable[[Any, int], Sequence[T]], show: Callable[[T], Any] = lambda row: row,
        place: Callable[[T], Any] = attrgetter("id"),
    ) -> dict[str, Any]:  # fmt: skip
        """That page of the rows that `find` returns, each converted by `show`.

        `find` is called with the place of the last row of the page before (None for the first page) and the number of
        rows to return: one more than a page has, to know whether there are more. `place` is the place of a row in the
        list. `bound` identifies the list, its owner and its filter: a cursor is valid for these only.
        """
        cursors = self._desk.cursors
        rows = find(cursors.read(self._after, bound), self.size + 1)
        following = cursors.make(place(rows[self.size - 1]), bound) if len(rows) > self.size else None
        return {"items": [show(row) for row in rows[: self.size]], "next": following}

    def walk(self, bound: Any, find: Callable[[Any, int], tuple[Sequence[T], Any]]) -> tuple[Sequence[T], str | None]:
        """The rows of that page and the next cursor, for a `find` that also returns where the next page begins."""
        cursors = self._desk.cursors
        rows, place = find(cursors.read(self._after, bound), self.size)
        return rows, None if place is None else cursors.make(place, bound)


async def _pages(request: Request, page_size: PageSize = 50, after: After = None) -> AskedPage:
    return AskedPage(_desk(request), page_size, after)


Pages = Annotated[AskedPage, Depends(_pages)]


def serving(plugin: Plugin[Any, T]) -> Callable[[Request], Awaitable[T]]:
    """A dependency for the routes of a plug-in: the object that its `install` returned for this app."""

    async def found(request: Request) -> T:  # async, so that it does not need a thread
        return plugin.of(_desk(request).app)

    return found


def values(struct: Any) -> dict[str, Any]:
    """The fields of a struct by their names."""
    return {name: getattr(struct, name) for name in struct.__struct_fields__}
