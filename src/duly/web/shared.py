"""A cache of answers that many dashboards request at the same time.

A GET with `Cache-Control: max-age=N` accepts an answer that is up to N seconds old. Such requests of the same user with
the same rights, for the same path and query, share one answer: requests that arrive while it is made wait for it, and
later ones get it again, with its `Age`. The principal of a request is cached for at most a second.
Only JSON answers with status 200 are shared; no errors, revealed secrets, streams or large answers.
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Generic, NamedTuple, TypeVar

from fastapi import Request
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, QueryParams
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from duly.core.errors import DulyError
from duly.verbs import Principal
from duly.web.auth import PRINCIPAL, Authenticator, credentials
from duly.web.problems import Problem

LONGEST = 30.0  # seconds for which an answer may be repeated, whatever the request accepts
KNOWN_FOR = 1.0  # seconds for which the principal of a key or session is cached
MOST, BYTES = 1_000, 32 * 1024 * 1024  # answers in the cache, and their size together
LARGEST = 4 * 1024 * 1024  # the size of each of them
NEVER = re.compile(r"/api/events|/api/jobs/\d+/(?:export|rejects)")  # streamed answers
PEOPLE = 10_000  # principals in the cache


V = TypeVar("V")


class Answer(NamedTuple):
    """An answer that can be repeated."""

    headers: list[tuple[bytes, bytes]]
    body: bytes

    async def give(self, send: Send, age: float) -> None:
        headers = [*self.headers, (b"age", str(int(age)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": self.body})


class Cache(Generic[V]):
    """Values that are made once for all requests at the same time, and kept for requests that accept an older one.

    It keeps at most `most` values, and only as many as are `room` together, by `size_of`. One event loop uses it.
    """

    def __init__(
        self, ticks: Callable[[], float], most: int, room: int = sys.maxsize, size_of: Callable[[V], int] = lambda _: 1
    ) -> None:
        self._ticks = ticks
        self._most = most
        self._room = room
        self._size_of = size_of
        # Values that are being made, with the time at which that began.
        self._under_way: dict[Hashable, tuple[asyncio.Future[tuple[V, float] | None], float]] = {}
        self._kept: OrderedDict[Hashable, tuple[V, float]] = OrderedDict()  # with the time at which it was requested
        self.size = 0

    def __len__(self) -> int:
        return len(self._kept)

    async def get(
        self, key: Hashable, seconds: float, make: Callable[[], Awaitable[V | None]]
    ) -> tuple[V, float] | None:
        """The value of this key and its age, at most `seconds` unless it was just made; None if it cannot be shared."""
        found = self._kept.get(key)
        if found is None or self._ticks() - found[1] > seconds:
            under_way, begun = self._under_way.get(key, (None, 0.0))
            # One that began earlier may miss the latest changes.
            if under_way is None or self._ticks() - begun > seconds:
                found = await self._made(key, make)
            else:  # shielded: a waiting request may be cancelled while others continue to wait
                found = await asyncio.shield(under_way)
        return None if found is None else (found[0], self._ticks() - found[1])

    async def _made(self, key: Hashable, make: Callable[[], Awaitable[V | None]]) -> tuple[V, float] | None:
        under_way: asyncio.Future[tuple[V, float] | None] = asyncio.get_running_loop().create_future()
        begun, found = self._ticks(), None
        self._under_way[key] = (under_way, begun)
        try:
            if (value := await make()) is not None:
                found = (value, begun)
                self._keep(key, found)
            return found
        finally:
            if self._under_way.get(key, (None,))[0] is under_way:
                del self._under_way[key]
            under_way.set_result(found)

    def _keep(self, key: Hashable, found: tuple[V, float]) -> None:
        if (before := self._kept.get(key)) is not None:
            if before[1] > found[1]:  # one that began later was faster
                return
            del self._kept[key]
            self.size -= self._size_of(before[0])
        self._kept[key] = found
        self.size += self._size_of(found[0])
        oldest = self._ticks() - LONGEST
        while self._kept and (
            len(self._kept) > self._most or self.size > self._room or next(iter(self._kept.values()))[1] < oldest
        ):
            _, (value, _) = self._kept.popitem(last=False)
            self.size -= self._size_of(value)


class SharedReads:
    """The caches of one API: principals and answers."""

    def __init__(self, authenticator: Authenticator, ticks: Callable[[], float] = time.monotonic) -> None:
        self._authenticator = authenticator
        self._people: Cache[Principal] = Cache(ticks, PEOPLE)
        self.answers: Cache[Answer] = Cache(ticks, MOST, BYTES, lambda answer: len(answer.body))

    async def who(self, request: Request) -> Principal | None:
        """The principal of this request, cached for at most a second; None if it is rejected."""

        async def ask() -> Principal | None:
            try:
                return await run_in_threadpool(self._authenticator.who, request)
            except (Problem, DulyError):  # the route finds the same, and answers with it
                return None

        found = await self._people.get(credentials(request), KNOWN_FOR, ask)
        return None if found is None else found[0]


class ShareReads:
    """Middleware that shares answers between requests that accept that; all others pass."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        seconds = _age_taken(scope) if scope["type"] == "http" else 0.0
        shared: SharedReads | None = scope["app"].state.shared if seconds else None
        principal = None if shared is None else await shared.who(Request(scope))
        if shared is None or principal is None:  # the route rejects it
            await self._app(scope, receive, send)
            return
        recorder = _Recorder(send)

        async def make() -> Answer | None:
            await self._app({**scope, PRINCIPAL: principal}, receive, recorder)
            return recorder.answer

        found = await shared.answers.get((principal, scope["path"], scope["query_string"]), seconds, make)
        if found is not None:
            await found[0].give(send, found[1])
        elif not recorder.has_passed:  # the first request got an answer that cannot be shared
            await self._app(scope, receive, send)


def _age_taken(scope: Scope) -> float:
    """How many seconds old an answer to this request may be; 0: it must be new."""
    path = scope["path"].removeprefix(scope.get("root_path", ""))
    if scope["method"] != "GET" or not path.startswith("/api/") or NEVER.fullmatch(path):
        return 0.0
    if "reveal" in QueryParams(scope["query_string"]):  # audited each time
        return 0.0
    directives = Headers(scope=scope).get("cache-control", "").lower().replace(" ", "").split(",")
    ages = [each.removeprefix("max-age=") for each in directives if each.startswith("max-age=")]
    if len(ages) != 1 or not ages[0].isdecimal() or "no-cache" in directives or "no-store" in directives:
        return 0.0
    return min(float(ages[0][:10]), LONGEST)


class _Recorder:
    """Records an answer that may be shared, and passes on any other as it comes."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._held: list[Message] = []
        self._size = 0
        self.has_passed = False
        self.answer: Answer | None = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start" and not _may_be_shared(message):
            self.has_passed = True
        self._size += len(message.get("body", b""))
        if self.has_passed:
            await self._send(message)
            return
        self._held.append(message)
        if self._size > LARGEST:
            self.has_passed = True
            for held in self._held:
                await self._send(held)
        elif message["type"] == "http.response.body" and not message.get("more_body", False):
            start, *bodies = self._held
            self.answer = Answer(list(start["headers"]), b"".join(body.get("body", b"") for body in bodies))


def _may_be_shared(start: Any) -> bool:
    headers = Headers(raw=start["headers"])
    is_json = headers.get("content-type", "").partition(";")[0] == "application/json"
    return start["status"] == 200 and is_json and "set-cookie" not in headers and "content-disposition" not in headers
