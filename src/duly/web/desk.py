"""What routes have in common: the app, its verbs, masks, and pages with cursors.

A cursor is a signed text with the place where a page ends. It is valid for one list, owner and filter only.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Awaitable, Callable, Iterable, Sequence
from operator import attrgetter
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Request

from duly import Duly, verbs
from duly.core.errors import UnknownTask
from duly.plugins import Plugin
from duly.tasks.task import Task
from duly.verbs import Principal
from duly.web.auth import owner_for, principal_of
from duly.web.problems import Problem
from duly.web.schemas import After, Page, PageSize

S = TypeVar("S")
T = TypeVar("T")

# Parameters that choose a page of a list, or its owner. The others are its filter.
PAGING = ("after", "pageSize", "page", "userId")


async def _app(request: Request) -> Duly:  # async, so that it does not need a thread
    app: Duly = request.app.state.duly
    return app


async def _verbs(request: Request) -> verbs.Verbs:
    found: verbs.Verbs = request.app.state.duly.internals.verbs
    return found


App = Annotated[Duly, Depends(_app)]
Verbs = Annotated[verbs.Verbs, Depends(_verbs)]


def serving(plugin: Plugin[Any, T]) -> Callable[[Request], Awaitable[T]]:
    """A dependency for the routes of a plug-in: the object that its `install` returned for this app."""

    async def found(request: Request) -> T:
        return plugin.of(request.app.state.duly)

    return found


def open_task(app: Duly, name: str) -> Task[..., Any]:
    """A task of the app by its name. Internal tasks of duly cannot be put through the service."""
    open_to_all = {each: task for each, task in app.tasks.items() if not task.is_internal}
    if name not in open_to_all:
        known = ", ".join(sorted(open_to_all)) or "none"
        raise UnknownTask("task", f"there is no task {name!r} here; known: {known}")
    return open_to_all[name]


def masked(verbs: Verbs, value: Any, is_revealed: bool = False) -> Any:
    """The value with secrets masked."""
    return verbs.context.masks.masked(value, is_revealed)


class Cursors:
    """Makes and reads cursors. `bound` identifies the list that a cursor belongs to."""

    def __init__(self, secret: str) -> None:
        self._secret = secret.encode()

    def make(self, place: Any, bound: Any) -> str:
        """A cursor for the place after which the next page begins."""
        body = json.dumps(place, ensure_ascii=False).encode()
        return urlsafe_b64encode(self._sign(body, bound) + body).decode().rstrip("=")

    def read(self, text: str | None, bound: Any) -> Any:
        """The place in this cursor; None without a cursor."""
        if text is None:
            return None
        try:
            raw = urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
            signature, body = raw[:16], raw[16:]
            if hmac.compare_digest(signature, self._sign(body, bound)):
                return json.loads(body)
        except (ValueError, UnicodeError):
            pass
        raise Problem(422, "after: is not a cursor of this list with these filters", "after")

    def _sign(self, body: bytes, bound: Any) -> bytes:
        about = json.dumps(bound, sort_keys=True, default=str).encode()
        return hmac.digest(self._secret, hashlib.sha256(about).digest() + body, "sha256")[:16]


class AskedPage:
    """The requested page of a list: its size and its cursor."""

    def __init__(self, request: Request, principal: Principal, size: int, after: str | None) -> None:
        self.size = size
        self._after = after
        filters = sorted(each for each in request.query_params.multi_items() if each[0] not in PAGING)
        owner = owner_for(principal, request.query_params.get("userId"))
        self._bound = [request.scope["path"], owner, filters]
        self._state = request.app.state

    def turn(
        self,
        find: Callable[[Any, int], Sequence[T]],
        show: Callable[[T], S] = lambda row: row,  # type: ignore[assignment, return-value]
        place: Callable[[T], Any] = attrgetter("id"),
    ) -> Page[S]:
        """That page of the rows that `find` returns, each converted by `show`.

        `find` is called with the place of the last row of the page before (None for the first page) and the number of
        rows to return: one more than a page has, to know whether there are more. `place` is the place of a row in the
        list.
        """

        def walk(after: Any, most: int) -> tuple[Sequence[T], Any]:
            rows = find(after, most + 1)
            return rows[:most], place(rows[most - 1]) if len(rows) > most else None

        rows, following = self.walk(walk)
        return Page([show(row) for row in rows], following)

    def among(self, rows: Iterable[T], show: Callable[[T], S], name: Callable[[T], str]) -> Page[S]:
        """That page of rows that are all in memory, by their names."""
        by_name = sorted(rows, key=name)
        return self.turn(lambda after, most: [row for row in by_name if name(row) > (after or "")][:most], show, name)

    def walk(self, find: Callable[[Any, int], tuple[T, Any]]) -> tuple[T, str | None]:
        """What was found and the next cursor, for a `find` that also returns the place where the next page begins."""
        if self._state.cursors is None:  # now and not at the start: a service may start before its database
            self._state.cursors = Cursors(self._state.duly.internals.verbs.service.secret("cursors"))
        cursors: Cursors = self._state.cursors
        found, place = find(cursors.read(self._after, self._bound), self.size)
        return found, None if place is None else cursors.make(place, self._bound)


async def _pages(
    request: Request,
    principal: Annotated[Principal, Depends(principal_of)],
    page_size: PageSize = 50,
    after: After = None,
) -> AskedPage:
    return AskedPage(request, principal, page_size, after)


Pages = Annotated[AskedPage, Depends(_pages)]
