"""Settling in PostgreSQL: applies changes of items, and what follows from them for schedules and jobs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any

from duly.core.errors import ConstraintViolated, KeyConflict, WrongState
from duly.core.model import Change, Job, NewAuditLine, NewItem, NewRow, Placed
from duly.store.members import members_of, notes_of, rounds_of
from duly.store.postgres.arrays import arrays, copied_rows, ints, times
from duly.store.postgres.connections import Connection
from duly.store.postgres.herald import news_of
from duly.store.postgres.puts import PostgresPuts
from duly.store.tally import COUNTERS, conclusion, tally

# With more fences than this in one call, another statement, which takes many fences, is faster.
FEW = 20

_id = attrgetter("id")
_schedule_id = attrgetter("schedule_id")
_fence = attrgetter("fence")
_changes, _tried, _members, _notes = arrays("change"), arrays("tried"), arrays("member"), arrays("note")


class PostgresSettling(PostgresPuts):
    def settle(
        self, changes: Sequence[Change], closed: Sequence[int] = (), connection: Connection | None = None
    ) -> list[int]:
        if connection is None and any(change.member or change.then or change.job_id for change in changes):
            with self._connection() as own, own.transaction():
                return self.settle(changes, closed, own)
        if connection is not None and (members := members_of(changes)):
            # Lock schedules before their items, as `revise` does, and in the order of their ids, against deadlocks.
            self._run("lock_schedules", {"ids": ints({member.schedule_id for member in members})}, connection)
        plain = sorted((change for change in changes if change.is_plain_success), key=_fence)
        other = [change for change in changes if not change.is_plain_success]
        # A lease is deleted with the last of its items, never before: each statement here is a transaction by itself.
        to_close = set(closed)
        settled: set[tuple[int, int]] = set()
        if other:
            alone = to_close.difference(map(_fence, plain))
            settled.update(self._settle_any(other, alone, connection))
            to_close -= alone
        if len({change.fence for change in plain}) > FEW:  # under some limits each call has a fence
            settled.update(self._settle_each(plain, to_close, connection))
            to_close.difference_update(map(_fence, plain))
            plain = []
        for fence, group in groupby(plain, key=_fence):
            same = list(group)
            parameters = {
                "ids": ints([change.id for change in same]),
                "fence": fence,
                "finished_at": same[0].finished_at,
                "closed": ints({fence} & to_close),
            }
            settled.update((row[0], fence) for row in self._run("settle_done", parameters, connection))
            to_close.discard(fence)
        if to_close:
            self._run("close", {"closed": ints(to_close)}, connection)
        if any(change.was == "running" and change.state == "cancelled" for change in other):
            self._tell_of_cancels(connection)
        if connection is not None:
            self._follow_up([change for change in other if (change.id, change.fence) in settled], connection)
            self._count([change for change in changes if (change.id, change.fence) in settled], connection)
        return [change.id for change in changes if (change.id, change.fence) not in settled]

    def _settle_each(
        self, changes: list[Change], closed: set[int], connection: Connection | None
    ) -> Iterator[tuple[int, int]]:
        # An item that was claimed again under another fence may be here twice, and a statement changes a row once.
        for same in rounds_of(changes, key=_id):
            parameters = {
                "ids": ints([change.id for change in same]),
                "fences": ints([change.fence for change in same]),
                "finished_at": same[0].finished_at,
                "closed": ints({change.fence for change in same} & closed),
            }
            yield from self._run("settle_each_done", parameters, connection)

    def _tell_of_cancels(self, connection: Connection | None) -> None:
        """Tell the workers that run cancelled items: when the caller's transaction commits, or at once without one."""
        if connection is not None:
            self._run("tell", {"news": [""]}, connection)
        else:
            self._herald.trail(("",))

    def _follow_up(self, changes: list[Change], connection: Connection) -> None:
        """Write what else these changes mean: for schedules, and the items that follow from them."""
        members = members_of(changes)
        if broken := [member.schedule_id for member in members if member.is_broken]:
            self._run("lock_rings", {"ids": ints(broken)}, connection)
        for some in rounds_of(members, key=_schedule_id):
            self._run("settle_members", _members(some), connection)
        self._note(notes_of(members), connection)
        if then := [item for change in changes for item in change.then]:
            for item in then:
                with suppress(KeyConflict):  # a live item has this key already, which will do
                    self._put_many(connection, [item])
            self._announce({news for item in then if (news := news_of(item))}, connection)

    def _count(self, changes: Iterable[Change], connection: Connection) -> None:
        """Have the jobs of these rows count them; whichever is over by that puts what comes then."""
        tallies, now = tally(changes)
        if not tallies:
            return
        ids = ints(tallies)
        if len(tallies) > 1:  # in one order for all, so that none wait in a ring
            self._run("lock_jobs", {"ids": ids}, connection)
        given = {name: ints(counted[name] for counted in tallies.values()) for name in COUNTERS.values()}
        for row in self._run("count_rows", {"ids": ids, **given, "now": now}, connection):
            self._conclude(Job(*row), now, connection)

    def _conclude(self, job: Job, now: datetime | None, connection: Connection) -> None:
        if ended := conclusion(job, now, partial(self._put_sequel, connection)):
            self._run("end_job", ended, connection)

    def _put_sequel(self, connection: Connection, item: NewItem) -> Placed[Any]:
        (placed,) = self._put_many(connection, [item])
        self._announce({news} if (news := news_of(item)) else set(), connection)
        return placed

    def _announce(self, news: set[str], connection: Connection) -> None:
        if news:
            self._run("tell", {"news": sorted(news)}, connection)

    def load_rows(self, job_id: int, first: int, rows: Sequence[NewRow]) -> bool:
        with self._connection() as connection, connection.transaction():
            found = [Job(*row) for row in self._run("lock_job", {"id": job_id}, connection)]
            if not found or found[0].is_sealed or found[0].total != first - 1:
                return False
            now = self._run("now", {}, connection)[0][0]
            with connection.cursor().copy(self._sql["load_rows"]) as copy:
                copy.write(copied_rows(rows, now))
            failed = sum(row.status == "ERROR" for row in rows)
            self._run("job_grew", {"id": job_id, "rows": len(rows), "failed": failed, "now": now}, connection)
        self._herald.trail({news for row in rows if (news := news_of(row))})
        return True

    def seal_job(self, job_id: int, now: datetime, connection: Connection | None = None) -> Job:
        with self._joining(connection) as own:
            job = Job(*self._run("seal_job", {"id": job_id, "now": now}, own)[0])
            self._conclude(job, now, own)
            return job

    def _note(self, notes: Sequence[tuple[datetime, NewAuditLine]], connection: Connection) -> None:
        if notes:
            ats = times(at for at, _ in notes)
            self._run("note", {**_notes([note for _, note in notes]), "note_at": ats}, connection)

    def _settle_any(
        self, changes: list[Change], closed: Iterable[int], connection: Connection | None
    ) -> list[tuple[int, int]]:
        tried = [(change, change.tried) for change in changes if change.tried]
        parameters = {
            **_changes(changes),
            **_tried([each for _, each in tried]),
            "tried_item_id": ints(change.id for change, _ in tried),
            "tried_fence": ints(change.fence for change, _ in tried),
            "closed": ints(closed),
        }
        try:
            return self._run("settle", parameters, connection)
        except ConstraintViolated:
            raise WrongState("another live item has its key now; cancel that item first") from None

    def report(self, item_id: int, fence: int, progress: bytes) -> None:
        self._run("progress", {"id": item_id, "fence": fence, "progress": progress.decode()})
