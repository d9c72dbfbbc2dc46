"""The events for all streams of this process: read once per tick, however many streams are open.

Lines of the audit log are read for all users together, and each listener gets those that it may see. A listener that
starts further back, or has fallen behind, reads on its own until it has caught up.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, NamedTuple, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import State

from duly import Duly
from duly.core import codec
from duly.core.errors import StoreUnavailable
from duly.core.shown import AuditLine
from duly.verbs.audit import Tail
from duly.web.routes.queues import line_shown

KEPT = 1_000  # lines that are kept for listeners that are slower than others

T = TypeVar("T")

Queues = list[dict[str, Any]]


class FeedLine(NamedTuple):
    """A line of the audit log, as an event."""

    number: int  # in the order of the feed
    id: int
    actor: str
    text: str


class Depths(NamedTuple):
    """The depths of queues."""

    queues: Queues
    ageless: Queues  # without the age of the oldest item, which always grows and is not an event


class RecentLines(NamedTuple):
    """The latest lines of the feed, and the place to continue from after them."""

    lines: tuple[FeedLine, ...]
    place: int
    forgotten: int  # the highest id among lines that are no longer kept


class OncePerTick(Generic[T]):
    """Runs a query once per tick and gives all callers the same answer, or the same failure."""

    def __init__(self, ask: Callable[[], T]) -> None:
        self._ask = ask
        self._lock = asyncio.Lock()
        self._tick = -1
        self._answers: list[T] = []  # one; none if it failed

    async def __call__(self, tick: int) -> T:
        async with self._lock:
            if self._tick < tick:
                self._tick, self._answers = tick, []
                self._answers = [await run_in_threadpool(self._ask)]
            if not self._answers:
                raise StoreUnavailable("the database did not answer this query just now")
            return self._answers[0]


class Feed:
    """Lines and depths for all listeners. When the last listener has left, the next one starts a new feed."""

    def __init__(self, app: Duly) -> None:
        self.app = app
        self._listeners = 0
        self.is_left = False
        self._tail: Tail | None = None
        self._number = 0
        self._forgotten = 0
        self._kept: deque[FeedLine] = deque()
        self.lines = OncePerTick(self._follow)
        self.depths = OncePerTick(self._measure)

    @contextmanager
    def listening(self) -> Iterator[None]:
        self._listeners += 1
        try:
            yield
        finally:
            self._listeners -= 1
            self.is_left = not self._listeners

    def _follow(self) -> RecentLines:
        if self._tail is None:
            self._tail = Tail(self.app.internals.store, None, None)
        for place, line in self._tail.look():
            self._number += 1
            self._kept.append(FeedLine(self._number, line.id, line.actor, _audit_event(self.app, place, line)))
        while len(self._kept) > KEPT:
            self._forgotten = max(self._forgotten, self._kept.popleft().id)
        return RecentLines(tuple(self._kept), self._tail.place, self._forgotten)

    def _measure(self) -> Depths:
        queues = self.app.read.queues(self.app.internals.telemetry.depths())
        return Depths(queues, [{**queue, "oldest_due_seconds": None} for queue in queues])


class Listener:
    """A stream that gets the lines of this owner, or of all owners if it is None."""

    def __init__(self, feed: Feed, owner: str | None, after: int | None) -> None:
        self.feed = feed
        self.place = after or 0
        self._owner = owner
        self._last = 0  # the number of the last line of the feed that it got
        self._top = 0  # it got everything up to this id before it joined the feed
        self._is_behind = after is not None
        self._tail: Tail | None = None  # its own, while it is behind

    async def begin(self, tick: int) -> None:
        """Start from now, unless a place to continue from was given."""
        if not self._is_behind:
            recent = await self.feed.lines(tick)
            self.place = recent.place
            self._last = recent.lines[-1].number if recent.lines else 0

    async def look(self, tick: int) -> list[str]:
        """The events since the last look."""
        recent = await self.feed.lines(tick)
        if self._is_behind or (recent.lines and recent.lines[0].number > self._last + 1):
            return await self._catch_up(recent)
        new = [line for line in recent.lines if line.number > self._last]
        self._last = new[-1].number if new else self._last
        self.place = max(self.place, recent.place)
        return [line.text for line in new if line.id > self._top and self._owner in (None, line.actor)]

    async def _catch_up(self, recent: RecentLines) -> list[str]:
        """The missed lines, read for this listener alone. Once it has caught up, it joins the feed again."""
        self._is_behind = True
        tail = self._tail = self._tail or Tail(self.feed.app.internals.store, self._owner, self.place)
        lines = await run_in_threadpool(tail.look)
        self.place = tail.place
        if not tail.is_cut and not tail.is_waiting and recent.forgotten <= tail.place:
            self._is_behind, self._tail, self._top = False, None, tail.place
            # Newer lines of the feed come with the next look.
            self._last = recent.lines[0].number - 1 if recent.lines else 0
        return [_audit_event(self.feed.app, place, line) for place, line in lines]


def feed_of(state: State) -> Feed:
    """The feed of an API, created for the first listener."""
    if state.feed is None or state.feed.is_left:
        state.feed = Feed(state.duly)
    found: Feed = state.feed
    return found


def tick_of(every: float) -> int:
    """The number of the current tick, the same for all streams."""
    return int(time.monotonic() / every)


def until_next(every: float) -> float:
    """Seconds until the next tick."""
    return every - time.monotonic() % every


def _audit_event(app: Duly, place: int, line: AuditLine) -> str:
    return event("audit", line_shown(app.internals.verbs, line), place)


def event(name: str, value: Any, place: int) -> str:
    return f"event: {name}\nid: {place}\ndata: {codec.encode(value).decode()}\n\n"
