"""What all listeners of the event stream in this process hear: read once per tick, however many listen.

Lines of the audit log are read for all users together, and each listener gets those that it may hear. One that begins
further back, or has not kept up, reads for itself until it is where the others are.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, NamedTuple, TypeVar

from starlette.concurrency import run_in_threadpool

from duly.core import codec
from duly.core.errors import StoreUnavailable
from duly.core.shown import AuditLine
from duly.verbs.tail import Tail
from duly.web.desk import Desk
from duly.web.routes.queues import line_shown

KEPT = 1_000  # how many lines are remembered for listeners that are slower than others

T = TypeVar("T")


class Told(NamedTuple):
    """A line of the audit log as it was told."""

    number: int  # in the order in which lines were told
    id: int
    actor: str
    text: str


class Depths(NamedTuple):
    """The depths of queues, and what is the same as long as nothing but the age of the oldest item changes."""

    queues: list[dict[str, Any]]
    digest: str


class Heard(NamedTuple):
    """The last lines that were told, and the place to go on from after them."""

    lines: tuple[Told, ...]
    place: int
    forgotten: int  # the highest id among the lines that are not remembered any more


class OncePerTick(Generic[T]):
    """Asks once in each tick, whoever wants to know, and tells everybody the same, also that it failed."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._tick = -1
        self._answers: list[T] = []  # one; none if it failed

    async def __call__(self, tick: int, ask: Callable[[], T]) -> T:
        async with self._lock:
            if self._tick < tick:
                self._tick, self._answers = tick, []
                self._answers = [await run_in_threadpool(ask)]
            if not self._answers:
                raise StoreUnavailable("the database did not answer when others asked the same just now")
            return self._answers[0]


class Feed:
    """Lines and depths for all listeners. When the last of them has left, the next one begins another feed."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self._listeners = 0
        self.is_left = False
        self._tail: Tail | None = None
        self._number = 0
        self._forgotten = 0
        self._lines: deque[Told] = deque()
        self._heard: OncePerTick[Heard] = OncePerTick()
        self._depths: OncePerTick[Depths] = OncePerTick()

    @contextmanager
    def listening(self) -> Iterator[None]:
        self._listeners += 1
        try:
            yield
        finally:
            self._listeners -= 1
            self.is_left = not self._listeners

    async def lines(self, tick: int) -> Heard:
        return await self._heard(tick, self._follow)

    async def depths(self, tick: int) -> Depths:
        return await self._depths(tick, self._measure)

    def _follow(self) -> Heard:
        if self._tail is None:
            self._tail = Tail(self.desk.app.store, None, None)
        for place, line in self._tail.look():
            self._number += 1
            self._lines.append(Told(self._number, line.id, line.actor, said(self.desk, place, line)))
        while len(self._lines) > KEPT:
            self._forgotten = max(self._forgotten, self._lines.popleft().id)
        return Heard(tuple(self._lines), self._tail.place, self._forgotten)

    def _measure(self) -> Depths:
        return depths_of(self.desk.app.read.queues(self.desk.app.telemetry.depths()))


class Listener:
    """One who listens to the lines of this owner, or of all if it is None."""

    def __init__(self, feed: Feed, owner: str | None, after: int | None) -> None:
        self.feed = feed
        self.place = after or 0
        self._owner = owner
        self._heard = 0  # the number of the last line of the feed that it heard
        self._top = 0  # everything up to this id was heard before it listened to the feed
        self._is_behind = after is not None
        self._tail: Tail | None = None  # its own, while it is behind

    async def begin(self, tick: int) -> None:
        """Listen from here on, unless a place to go on from was given."""
        if not self._is_behind:
            heard = await self.feed.lines(tick)
            self.place = heard.place
            self._heard = heard.lines[-1].number if heard.lines else 0

    async def look(self, tick: int) -> list[str]:
        """The events since the last look."""
        heard = await self.feed.lines(tick)
        if self._is_behind or (heard.lines and heard.lines[0].number > self._heard + 1):
            return await self._catch_up(heard)
        new = [line for line in heard.lines if line.number > self._heard]
        self._heard = new[-1].number if new else self._heard
        self.place = max(self.place, heard.place)
        return [line.text for line in new if line.id > self._top and self._owner in (None, line.actor)]

    async def _catch_up(self, heard: Heard) -> list[str]:
        """What was missed, read for this listener alone. When that is all there is, it listens to the feed again."""
        self._is_behind = True
        tail = self._tail = self._tail or Tail(self.feed.desk.app.store, self._owner, self.place)
        lines = await run_in_threadpool(tail.look)
        self.place = tail.place
        if not tail.is_cut and not tail.is_waiting and heard.forgotten <= tail.place:
            self._is_behind, self._tail, self._top = False, None, tail.place
            # What the feed told that is newer than this comes with the next look.
            self._heard = heard.lines[0].number - 1 if heard.lines else 0
        return [said(self.feed.desk, place, line) for place, line in lines]


class Feeds:
    """The feed of an API, while somebody listens: who comes first has it made."""

    def __init__(self) -> None:
        self._feed: Feed | None = None

    def of(self, desk: Desk) -> Feed:
        if self._feed is None or self._feed.is_left:
            self._feed = Feed(desk)
        return self._feed


def depths_of(queues: list[dict[str, Any]]) -> Depths:
    # The age of the oldest item always grows, which is not an event.
    still = [{**queue, "oldest_due_seconds": None} for queue in queues]
    text = json.dumps(still, default=str, sort_keys=True)
    return Depths(queues, hashlib.sha256(text.encode()).hexdigest())


NO_DEPTHS = depths_of([])


def tick_of(every: float) -> int:
    """The number of this tick: the same for all who look at the same time."""
    return int(time.monotonic() / every)


def until_next(every: float) -> float:
    """Seconds until the next tick."""
    return every - time.monotonic() % every


def said(desk: Desk, place: int, line: AuditLine) -> str:
    return event("audit", line_shown(desk, line), place)


def event(name: str, value: Any, place: int) -> str:
    return f"event: {name}\nid: {place}\ndata: {codec.encode(value).decode()}\n\n"
