"""Settling in a SQLite file: applies changes of items, and what follows from them for schedules and jobs."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from itertools import groupby
from operator import attrgetter

from duly.core.errors import KeyConflict, WrongState
from duly.core.model import Change, Job, NewAuditLine, NewRow
from duly.store.members import members_of, notes_of
from duly.store.sqlite.puts import SqlitePuts
from duly.store.sqlite.values import (
    change_parameters,
    job_of,
    maybe_int,
    member_parameters,
    new_row_values,
    note_parameters,
    to_int,
    to_json,
    tried_parameters,
)
from duly.store.tally import COUNTERS, conclusion, tally

# With more fences than this in one call, another statement, which takes many fences, is faster.
FEW = 20

_fence = attrgetter("fence")


class SqliteSettling(SqlitePuts):
    def settle(
        self, changes: Sequence[Change], closed: Sequence[int] = (), connection: sqlite3.Connection | None = None
    ) -> list[int]:
        with self._joining(connection) as writer:
            return self._settle(writer, changes, closed)

    def _settle(self, writer: sqlite3.Connection, changes: Sequence[Change], closed: Sequence[int]) -> list[int]:
        plain = sorted((change for change in changes if change.is_plain_success), key=_fence)
        settled: set[tuple[int, int]] = set()
        if len({change.fence for change in plain}) > FEW:  # under some limits each call has a fence
            pairs = to_json([(change.id, change.fence) for change in plain])
            parameters = {"pairs": pairs, "finished_at": maybe_int(plain[0].finished_at)}
            settled.update(writer.execute(self._sql["settle_each_done"], parameters).fetchall())
            plain = []
        for fence, group in groupby(plain, key=_fence):
            same = list(group)
            finished_at = maybe_int(same[0].finished_at)
            parameters = {"ids": to_json([change.id for change in same]), "fence": fence, "finished_at": finished_at}
            settled.update((row[0], fence) for row in writer.execute(self._sql["settle_done"], parameters).fetchall())
        settled.update(
            (change.id, change.fence)
            for change in changes
            if not change.is_plain_success and self._settle_one(writer, change)
        )
        if closed:
            writer.execute(self._sql["close"], {"closed": to_json(list(closed))})
        made = [change for change in changes if (change.id, change.fence) in settled]
        self._follow_up(writer, made)
        self._count(writer, made)
        return [change.id for change in changes if (change.id, change.fence) not in settled]

    def _follow_up(self, writer: sqlite3.Connection, changes: list[Change]) -> None:
        """Write what else these changes mean: for schedules, and the items that follow from them."""
        members = members_of(changes)
        for member in members:
            writer.execute(self._sql["settle_member"], member_parameters(member))
        self._note(writer, notes_of(members))
        for change in changes:
            for item in change.then:
                with suppress(KeyConflict):  # a live item has this key already, which will do
                    self._put_one(writer, item)

    def _count(self, writer: sqlite3.Connection, changes: Sequence[Change]) -> None:
        """Have the jobs of these rows count them; whichever is over by that puts what comes then."""
        tallies, now = tally(changes)
        for job_id, counted in tallies.items():
            given = {name: counted[name] for name in COUNTERS.values()}
            row = writer.execute(self._sql["count_rows"], {"id": job_id, **given, "now": maybe_int(now)}).fetchone()
            if row is not None:
                self._conclude(writer, job_of(row), maybe_int(now))

    def _conclude(self, writer: sqlite3.Connection, job: Job, now: int | None) -> None:
        if ended := conclusion(job, now, partial(self._put_one, writer)):
            writer.execute(self._sql["end_job"], ended)

    def load_rows(self, job_id: int, first: int, rows: Sequence[NewRow]) -> bool:
        with self._writing() as writer:
            found = [job_of(row) for row in writer.execute(self._sql["lock_job"], {"id": job_id})]
            if not found or found[0].is_sealed or found[0].total != first - 1:
                return False
            now = to_int(self.now())
            writer.executemany(self._sql["load_rows"], [new_row_values(row, now) for row in rows])
            failed = sum(row.status == "ERROR" for row in rows)
            writer.execute(self._sql["job_grew"], {"id": job_id, "rows": len(rows), "failed": failed, "now": now})
        return True

    def seal_job(self, job_id: int, now: datetime, connection: sqlite3.Connection | None = None) -> Job:
        with self._joining(connection) as writer:
            given = {"id": job_id, "now": to_int(now)}
            job = job_of(writer.execute(self._sql["seal_job"], given).fetchone())
            self._conclude(writer, job, to_int(now))
            return job

    def _note(self, writer: sqlite3.Connection, notes: Sequence[tuple[datetime, NewAuditLine]]) -> None:
        for at, note in notes:
            writer.execute(self._sql["write_note"], {**note_parameters(note), "now": to_int(at)})

    def _settle_one(self, writer: sqlite3.Connection, change: Change) -> bool:
        try:
            if not writer.execute(self._sql["settle"], change_parameters(change)).fetchall():
                return False
        except sqlite3.IntegrityError:
            raise WrongState("another live item has its key now; cancel that item first") from None
        if change.tried:
            of_item = {"item_id": change.id, "fence": change.fence}
            writer.execute(self._sql["tried"], {**tried_parameters(change.tried), **of_item})
        return True

    def report(self, item_id: int, fence: int, progress: bytes) -> None:
        with self._writing() as writer:
            writer.execute(self._sql["progress"], {"id": item_id, "fence": fence, "progress": progress.decode()})
