"""Puts on a caller's own connection inside a world in virtual time.

The connection leads to the app's own database, where real workers may be at work, so nothing is put there. Instead, a
row of `duly_virtual_put` is written in the caller's transaction. It commits or rolls back with everything else that the
caller has written, savepoints included, and workers never read it. What was put is kept here until then, as a promise.
The world looks which of these rows have been committed, and puts what was promised into its own database.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import asdict

from duly.core.model import Job, NewItem, Placed
from duly.facade.borrowing import Borrowing
from duly.store import Store, virtual
from duly.store.borrow import (
    NewWork,
    afan_out,
    aload_borrowed,
    aput_borrowed,
    fan_out,
    load_borrowed,
    put_borrowed,
)  # fmt: skip
from duly.store.dialects import Colour, at_once
from duly.store.home import leads_to
from duly.store.lenders import lender
from duly.store.puts import conflict

REMEDY = "inside testing.virtual only puts and jobs join a transaction of yours: do this without `connection`"
# Ids that are reserved before a handler is called: it may hold a transaction open, which keeps others from writing.
SPARE = 1_000

# An item that was promised, behind its id and its execution key; and those with a task and a key.
_Promised = tuple[int, str, NewItem]
_Held = dict[tuple[str, str], _Promised]


@dataclass
class _Promise:
    """What was put in a transaction of a caller's: how it gets into the world, and the keys that it holds."""

    keep: Callable[[], None]
    held: _Held = field(default_factory=dict)
    job: Job | None = None


class Promises(Borrowing):
    """Puts of callers for the world on `world`, promised by rows in the app's own database, `real`."""

    def __init__(self, world: Store, real: Callable[[], Store]) -> None:
        super().__init__(lambda: world)
        self._world = world
        self._open_real = real
        self._real: Store | None = None
        self._promises: dict[str, _Promise] = {}
        self._kept: list[str] = []
        self._spare: dict[str, deque[int]] = {"duly_item": deque(), "duly_job": deque()}

    # -- puts

    def put(self, connection: Any, new: NewItem) -> Placed[Any]:
        if at_once(self._is_own(connection, "sync")):
            return put_borrowed(connection, new, self._world)
        return at_once(self._put(connection, "sync", new))

    async def aput(self, connection: Any, new: NewItem) -> Placed[Any]:
        if await self._is_own(connection, "async"):
            return await aput_borrowed(connection, new, self._world)
        return await self._put(connection, "async", new)

    def load(self, connection: Any, new: Iterable[NewItem]) -> int:
        if at_once(self._is_own(connection, "sync")):
            return load_borrowed(connection, new, self._world)
        return at_once(self._load(connection, "sync", new))

    async def aload(self, connection: Any, new: Iterable[NewItem]) -> int:
        if await self._is_own(connection, "async"):
            return await aload_borrowed(connection, new, self._world)
        return await self._load(connection, "async", new)

    def fan_out(self, connection: Any, new: NewWork) -> Job:
        if at_once(self._is_own(connection, "sync")):
            return fan_out(connection, new, self._world)
        return at_once(self._fan_out(connection, "sync", new))

    async def afan_out(self, connection: Any, new: NewWork) -> Job:
        if await self._is_own(connection, "async"):
            return await afan_out(connection, new, self._world)
        return await self._fan_out(connection, "async", new)

    async def _is_own(self, connection: Any, colour: Colour) -> bool:
        """Whether it leads to the world itself, as that of a handler's attempt does."""
        return await leads_to(await lender(connection, colour), self._world)

    async def _put(self, connection: Any, colour: Colour, new: NewItem) -> Placed[Any]:
        answers: list[Placed[Any]] = []

        def decide(seen: set[str]) -> str | None:
            if (holder := self._holder(new, self._held_by(seen))) is not None:
                answers.append(holder)
                return None
            promised = self._promised(new)
            answers.append(Placed(id=promised[0], execution_key=promised[1], fresh=True))
            held = {} if new.key is None else {(new.task, new.key): promised}
            return self._promise(_Promise(lambda: self._keep(*promised), held))

        await self._note(connection, colour, decide)
        return answers[0]

    async def _load(self, connection: Any, colour: Colour, new: Iterable[NewItem]) -> int:
        items = list(new)
        fresh: list[NewItem] = []

        def decide(seen: set[str]) -> str | None:
            held, own = self._held_by(seen), _Held()
            for item in items:
                if item.key is None:
                    fresh.append(item)
                elif self._holder(item, held) is None:
                    fresh.append(item)
                    held[item.task, item.key] = own[item.task, item.key] = self._promised(item)
            return self._promise(_Promise(lambda: self._keep_all(fresh, own), own)) if fresh else None

        await self._note(connection, colour, decide)
        return len(fresh)

    async def _fan_out(self, connection: Any, colour: Colour, new: NewWork) -> Job:
        job = _job(new, self._reserve("duly_job"))
        rows = list(new.rows(job))
        answers: list[Job] = []

        def decide(seen: set[str]) -> str | None:
            if (known := self._known_job(new, seen)) is not None:
                answers.append(known)
                return None
            answers.append(job)
            return self._promise(_Promise(lambda: virtual.keep_job(self._world, new, job.id, rows), job=job))

        await self._note(connection, colour, decide)
        return answers[0]

    async def _note(self, connection: Any, colour: Colour, decide: Callable[[set[str]], str | None]) -> None:
        await virtual.note(connection, colour, self._real_one(), self._promises, decide)

    def _real_one(self) -> Store:
        if self._real is None:
            self._real = self._open_real()
        return self._real

    def _promised(self, new: NewItem) -> _Promised:
        return self._reserve("duly_item"), str(uuid.uuid4()), new

    def _promise(self, promise: _Promise) -> str:
        note = str(uuid.uuid4())
        self._promises[note] = promise
        return note

    # -- what has a key already

    def _held_by(self, seen: set[str]) -> _Held:
        """The items with keys that this transaction has put before, or that have been committed meanwhile."""
        held = _Held()
        for note in seen:
            held |= self._promises[note].held
        return held

    def _holder(self, new: NewItem, held: _Held) -> Placed[Any] | None:
        """The live item that has this key; None if there is none. Other content is an error."""
        if new.key is None:
            return None
        if (known := held.get((new.task, new.key))) is None:
            return virtual.holder(self._world, new)
        item_id, execution_key, item = known
        assert item.due_at is not None, "times of a world are its own"
        if refusal := conflict(new, item_id, item.args, item.due_at):
            raise refusal
        return Placed(id=item_id, execution_key=execution_key, fresh=False)

    def _known_job(self, new: NewWork, seen: set[str]) -> Job | None:
        """The job that has this key already."""
        asked = new.job
        if asked.key is None:
            return None
        for note in seen:
            job = self._promises[note].job
            if job is not None and (job.task, job.owner, job.key) == (asked.task, asked.owner, asked.key):
                return job
        return virtual.job_under_key(self._world, asked)

    # -- what was promised comes true

    def take(self) -> None:
        """Put what callers have committed into the world."""
        if not self._promises:
            return
        found = virtual.committed(self._real_one(), list(self._promises))
        for note in [each for each in self._promises if each in found]:
            self._kept.append(note)
            self._promises.pop(note).keep()

    def _keep(self, item_id: int, execution_key: str, new: NewItem) -> None:
        virtual.keep_item(self._world, new, item_id, execution_key)

    def _keep_all(self, items: list[NewItem], held: _Held) -> None:
        self._world.load(item for item in items if item.key is None)
        for promised in held.values():
            self._keep(*promised)

    def prepare(self) -> None:
        """Have ids at hand for what a handler puts."""
        for table, spare in self._spare.items():
            if len(spare) < SPARE // 2:
                spare.extend(virtual.reserved(self._world, table, SPARE))

    def _reserve(self, table: str) -> int:
        spare = self._spare[table]
        return spare.popleft() if spare else virtual.reserved(self._world, table, 1)[0]

    def close(self) -> None:
        """Remove the rows that were written for this world."""
        if self._real is None:
            return
        virtual.forget(self._real, [*self._kept, *self._promises])
        self._real.close()


def _job(new: NewWork, job_id: int) -> Job:
    """The job as it will be when it is opened."""
    nothing = dict.fromkeys(("total", "done", "not_found", "failed", "skipped", "duplicates", "attempts"), 0)
    times = {"created_at": new.now, "changed_at": new.now, "finished_at": None}
    ends = {"then_id": None, "last_error": None, "is_sealed": False, "is_removed": False}
    return Job(**{**asdict(new.job), **nothing, **times, **ends, "id": job_id})
