"""Answers that many dashboards ask for at the same time are made once.

A GET with `Cache-Control: max-age=N` says that an answer may be up to N seconds old. Such requests of the same user
with the same rights, for the same path and query, get one answer: those that come while it is made wait for it, and
those that come soon after it get it again, with its `Age`. Who asks is found out as always, at most a second before.
Only answers in JSON with status 200 are shared; nothing that fails, is revealed, is streamed or is large.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from fastapi import Request
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, QueryParams
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from duly.core.errors import DulyError
from duly.verbs import Principal
from duly.web.auth import PRINCIPAL, Gate, credentials
from duly.web.problems import Problem

LONGEST = 30.0  # seconds for which an answer may be given again, whatever is asked for
KNOWN_FOR = 1.0  # seconds for which it is taken as known who has a key or a session
MOST, BYTES = 1_000, 32 * 1024 * 1024  # how many answers are kept, and how large they may be together
LARGEST = 4 * 1024 * 1024  # how large each of them may be
NEVER = re.compile(r"/api/events|/api/jobs/\d+/(?:export|rejects)")  # what is sent as it is made
PEOPLE = 10_000  # how many keys and sessions are remembered


class Sized(Protocol):
    @property
    def size(self) -> int: ...


V = TypeVar("V", bound=Sized)


class Known(NamedTuple):
    """Who has a key or a session."""

    principal: Principal
    size: int = 1


class Answer(NamedTuple):
    """An answer that can be given again."""

    headers: list[tuple[bytes, bytes]]
    body: bytes

    @property
    def size(self) -> int:
        return len(self.body)

    async def give(self, send: Send, age: float) -> None:
        headers = [*self.headers, (b"age", str(int(age)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": self.body})


class Kept(Generic[V]):
    """Values that are made once for all who ask at the same time, and kept for who takes one that is not new.

    It is used by one event loop.
    """

    def __init__(self, most: int, size: int, ticks: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._size = size
        self._ticks = ticks
        # What is being made, and since when.
        self._under_way: dict[Hashable, tuple[asyncio.Future[tuple[V, float] | None], float]] = {}
        self._kept: OrderedDict[Hashable, tuple[V, float]] = OrderedDict()  # with the time at which it was asked for
        self.size = 0

    def __len__(self) -> int:
        return len(self._kept)

    async def get(
        self, key: Hashable, seconds: float, make: Callable[[], Awaitable[V | None]]
    ) -> tuple[V, float] | None:
        """The value of this key, and how many seconds ago it was asked for; at most so many, if it was not just made.

        None when whoever made it found nothing that can be shared.
        """
        found = self._kept.get(key)
        if found is None or self._ticks() - found[1] > seconds:
            under_way, begun = self._under_way.get(key, (None, 0.0))
            if under_way is None or self._ticks() - begun > seconds:  # one that began earlier may not know all
                found = await self._made(key, make)
            else:  # shielded, because who waits may be cancelled, and the others go on waiting
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
            if before[1] > found[1]:  # one that began later was quicker
                return
            del self._kept[key]
            self.size -= before[0].size
        self._kept[key] = found
        self.size += found[0].size
        oldest = self._ticks() - LONGEST
        while self._kept and (
            len(self._kept) > self._most or self.size > self._size or next(iter(self._kept.values()))[1] < oldest
        ):
            _, (value, _) = self._kept.popitem(last=False)
            self.size -= value.size


class SharedReads:
    """What is shared between the requests to one API."""

    def __init__(self, gate: Gate, ticks: Callable[[], float] = time.monotonic) -> None:
        self._gate = gate
        self._people: Kept[Known] = Kept(PEOPLE, PEOPLE, ticks)
        self.answers: Kept[Answer] = Kept(MOST, BYTES, ticks)

    async def who(self, request: Request) -> Principal | None:
        """Who makes this request, as known for at most a second; None for who is refused."""

        async def ask() -> Known | None:
            try:
                return Known(await run_in_threadpool(self._gate.who, request))
            except (Problem, DulyError):  # the route finds the same, and says so
                return None

        found = await self._people.get(credentials(request), KNOWN_FOR, ask)
        return None if found is None else found[0].principal


class ShareReads:
    """Answers requests that may share an answer; all others pass."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        seconds = _age_taken(scope) if scope["type"] == "http" else 0.0
        shared: SharedReads | None = scope["app"].state.shared if seconds else None
        principal = None if shared is None else await shared.who(Request(scope))
        if shared is None or principal is None:  # who is refused is told so by the route
            await self._app(scope, receive, send)
            return
        recorder = _Recorder(send)

        async def make() -> Answer | None:
            await self._app({**scope, PRINCIPAL: principal}, receive, recorder)
            return recorder.answer

        found = await shared.answers.get((principal, scope["path"], scope["query_string"]), seconds, make)
        if found is not None:
            await found[0].give(send, found[1])
        elif not recorder.has_passed:  # the one who was asked first got nothing to share
            await self._app(scope, receive, send)


def _age_taken(scope: Scope) -> float:
    """How many seconds old an answer to this request may be; 0 for one that must be made anew."""
    path = scope["path"].removeprefix(scope.get("root_path", ""))
    if scope["method"] != "GET" or not path.startswith("/api/") or NEVER.fullmatch(path):
        return 0.0
    if "reveal" in QueryParams(scope["query_string"]):  # which is audited each time
        return 0.0
    said = Headers(scope=scope).get("cache-control", "").lower().replace(" ", "").split(",")
    ages = [each.removeprefix("max-age=") for each in said if each.startswith("max-age=")]
    if len(ages) != 1 or not ages[0].isdecimal() or "no-cache" in said or "no-store" in said:
        return 0.0
    return min(float(ages[0][:10]), LONGEST)


class _Recorder:
    """Takes an answer down if it may be shared, and else passes it on as it comes."""

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
