"""Settling on every database: applies changes of items, and the resulting changes of schedules and jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import groupby
from operator import attrgetter
from typing import Any

from msgspec.json import decode, encode
from msgspec.structs import replace

from duly.core.errors import KeyConflict
from duly.core.model import Change, Job, Member, NewAuditLine, NewItem, NewRow, Status
from duly.store.puts import Puts
from duly.store.records import JOB, MEMBER, NOTE
from duly.store.statements import C, T

# The counter of a job for each way in which a row can have ended.
COUNTERS: dict[Status | None, str] = {"DONE": "done", "NOT_FOUND": "not_found", "ERROR": "failed", "SKIPPED": "skipped"}
# With more fences than this in one call, another statement, which takes many fences, is faster.
FEW = 20

_id = attrgetter("id")
_schedule_id = attrgetter("schedule_id")
_fence = attrgetter("fence")


class Settling(Puts[C]):
    def settle(self, changes: Sequence[Change], closed: Sequence[int] = (), connection: C | None = None) -> list[int]:
        """Apply changes and drop closed leases; returns the ids whose change was rejected as stale."""
        if connection is None and (
            self.takes_turns or any(change.member or change.then or change.job_id for change in changes)
        ):
            with self._writing() as own:
                return self.settle(changes, closed, own)
        plain: list[Change] = []
        other: list[Change] = []
        for change in changes:
            (plain if change.is_plain_success else other).append(change)
        plain.sort(key=_fence)
        if connection is not None and (members := members_of(other)):
            # Lock schedules before their items, as `revise` does, and in the order of their ids, against deadlocks.
            self._lock("lock_schedules", {"ids": list({member.schedule_id for member in members})}, connection)
        # Without a connection each statement is a transaction by itself. So a lease is deleted by the statement that
        # settles the last of its items, never before. Where all is in one transaction, leases are deleted at its end.
        to_close = set(closed)
        close_along = set() if self.takes_turns else to_close
        settled: set[tuple[int, int]] = set()
        if other:
            alone = close_along.difference(map(_fence, plain))
            settled.update(self._settle_any(other, alone, connection))
            to_close -= alone
        for same in _groups(plain):
            fences = {change.fence for change in same}
            along = fences & close_along
            given: dict[str, Any] = {
                "ids": [change.id for change in same],
                "finished_at": same[0].finished_at,
                "closed": list(along),
            }
            if len(fences) == 1:
                rows = self._run("settle_done", {**given, "fence": same[0].fence}, connection)
                settled.update((row[0], same[0].fence) for row in rows)
            else:
                # As each database can join them with its items: as two columns, or as pairs.
                given["fences"] = [change.fence for change in same]
                given["pairs"] = [(change.id, change.fence) for change in same]
                settled.update(self._run("settle_each_done", given, connection))
            to_close -= along
        if to_close:
            self._run("close", {"closed": list(to_close)}, connection)
        if any(change.was == "running" and change.state == "cancelled" for change in other):
            self._announce(None, connection)
        if connection is not None:
            made = [change for change in changes if (change.id, change.fence) in settled]
            if other:  # a plain success means nothing else
                self._follow_up(made, connection)
            self._count(made, connection)
        return [change.id for change in changes if (change.id, change.fence) not in settled]

    def _settle_any(self, changes: list[Change], closed: set[int], connection: C | None) -> Iterable[tuple[int, int]]:
        """Apply changes of any kind and delete these leases; returns the id and fence of each item that was changed."""
        raise NotImplementedError

    def _follow_up(self, changes: Sequence[Change], connection: C) -> None:
        """Write what else these changes mean: for schedules, and the items that follow from them."""
        members = members_of(changes)
        if broken := [member for member in members if member.is_broken]:
            self._lock("lock_rings", {"ids": [member.schedule_id for member in broken]}, connection)
        for some in rounds_of(members, key=_schedule_id):
            self._run_many("settle_members", connection, MEMBER, some)
        self._note([(member.at, _deactivated(member)) for member in broken], connection)
        if then := [item for change in changes for item in change.then]:
            for item in then:
                with suppress(KeyConflict):  # a live item has this key already, which will do
                    self._put_many(connection, [item])
            self._announce(then, connection)

    def _count(self, changes: Iterable[Change], connection: C) -> None:
        """Count these rows in their jobs; a job that ends by this puts its `then` item."""
        tallies, now = tally(changes)
        if not tallies:
            return
        ids = list(tallies)
        if len(ids) > 1:  # in one order for all, so that none wait in a ring
            self._lock("lock_jobs", {"ids": ids}, connection)
        counted: dict[str, Any] = {name: [tallies[each][name] for each in ids] for name in COUNTERS.values()}
        for row in self._run_many("count_rows", connection, id=ids, now=[now] * len(ids), **counted):
            self._conclude(Job(*row), now, connection)

    def _conclude(self, job: Job, now: datetime | None, connection: C) -> None:
        """Write that a job is over now, or no longer, and put its sequel; nothing when nothing changed."""
        if job.is_over == (job.finished_at is not None):
            return
        then_id = None
        if job.is_over and not job.is_given_up and (then := sequel(job)) is not None:
            try:
                then_id = self._put_many(connection, [then])[0].id
                self._announce([then], connection)
            except KeyConflict as error:  # a live item has this key already, which will do
                then_id = error.item_id
        given = {"id": job.id, "finished_at": now if job.is_over else None, "then_id": then_id}
        self._run("end_job", given, connection)
        if job.is_cancelled and not job.is_over:
            self._run("job_goes_on", {"id": job.id}, connection)

    def load_rows(self, job_id: int, first: int, rows: Sequence[NewRow]) -> bool:
        """Add rows to a job, all or none, the first of them with this number.

        False when the job has that row already, or waits for one before it, takes no more or is gone: nothing was done
        then.
        """
        with self._writing() as connection:
            found = self._all(JOB, "lock_job", {"id": job_id}, connection)
            if not found or found[0].is_sealed or found[0].total != first - 1:
                return False
            now = self.now(connection)
            self._load_rows(rows, now, connection)
            failed = sum(row.status == "ERROR" for row in rows)
            self._run("job_grew", {"id": job_id, "rows": len(rows), "failed": failed, "now": now}, connection)
        self._announce(rows)
        return True

    def _load_rows(self, rows: Sequence[NewRow], now: datetime, connection: C) -> None:
        """Insert rows of a job, in the fastest way that there is."""
        raise NotImplementedError

    def seal_job(self, job_id: int, now: datetime, connection: C | None = None) -> Job:
        """Accept no more rows. A job whose rows have all ended ends by this."""
        with self._joining(connection) as own:
            (job,) = self._all(JOB, "seal_job", {"id": job_id, "now": now}, own)
            self._conclude(job, now, own)
            return job

    def give_up_job(self, job_id: int, reason: str, now: datetime) -> None:
        """The file of this job cannot be read any further. It ends when the rows that it has have ended."""
        with self._writing() as connection:
            for job in self._all(JOB, "give_up_job", {"id": job_id, "reason": reason, "now": now}, connection):
                self._conclude(job, now, connection)

    def recount_job(self, job_id: int, now: datetime) -> Job | None:
        """Make the counters of a job those of its rows; None when there is no such job.

        Whoever ends a row counts it in the same transaction, and has to wait for the job that is locked here.
        """
        with self._writing() as own:
            if not self._run("lock_job", {"id": job_id}, own):
                return None
            ((*_, rows, done, not_found, failed, skipped, _),) = self._run("count_job_rows", {"id": job_id}, own)
            given = {"rows": rows, "done": done, "not_found": not_found, "failed": failed, "skipped": skipped}
            (job,) = self._all(JOB, "set_job_counts", {**given, "id": job_id, "now": now}, own)
            self._conclude(job, now, own)
            return job

    def _note(self, notes: Sequence[tuple[datetime, NewAuditLine]], connection: C) -> None:
        if notes:
            self._run_many("note", connection, NOTE, [note for _, note in notes], at=[at for at, _ in notes])

    def report(self, item_id: int, fence: int, progress: bytes) -> None:
        """Show how far a running item is."""
        self._run("progress", {"id": item_id, "fence": fence, "progress": progress.decode()})


def _groups(plain: list[Change]) -> Iterable[list[Change]]:
    """Plain successes, by the statement that settles them: those of one fence, or many if there are many fences."""
    if len({change.fence for change in plain}) > FEW:  # under some limits each call has a fence
        # An item that was claimed again under another fence may be here twice, and a statement changes a row once.
        return rounds_of(plain, key=_id)
    return [list(group) for _, group in groupby(plain, key=_fence)]


def members_of(changes: Iterable[Change]) -> list[Member]:
    """What these changes of items mean for their schedules, in the same order."""
    return [change.member for change in changes if change.member]


def rounds_of(values: Iterable[T], key: Callable[[T], int]) -> list[list[T]]:
    """These values in groups that have each key at most once, because one statement can change a row only once."""
    rounds: list[list[T]] = []
    seen: Counter[int] = Counter()
    for value in values:
        row = key(value)
        place = seen[row]
        seen[row] += 1
        if place == len(rounds):
            rounds.append([])
        rounds[place].append(value)
    return rounds


def _deactivated(member: Member) -> NewAuditLine:
    about = {"failures": member.failures, "error": (member.error or "").partition("\n")[0]}
    return NewAuditLine("duly", "schedule.deactivated", f"schedule:{member.schedule_id}", encode(about))


def tally(changes: Iterable[Change]) -> tuple[dict[int, Counter[str]], datetime | None]:
    """By how much these changes move the counters of each job, by their ids, and when the last was made."""
    tallies: dict[int, Counter[str]] = {}
    last: datetime | None = None
    for change in changes:
        if change.job_id is None:
            continue
        counters = tallies.setdefault(change.job_id, Counter())
        if change.was_status in COUNTERS:
            counters[COUNTERS[change.was_status]] -= 1
        if change.status in COUNTERS:
            counters[COUNTERS[change.status]] += 1
        last = change.changed_at if last is None or (change.changed_at or last) > last else last
    return dict(sorted(tallies.items())), last


def sequel(job: Job) -> NewItem | None:
    """What is put now that the last row of this job has ended; None when there is nothing, or it was put before.

    An argument called `job` receives how many rows ended in which way. One called `cancelled` receives whether the job
    was cancelled; after that, an item without it is not put.
    """
    if job.then_item is None or job.then_id is not None:
        return None
    item = decode(job.then_item, type=NewItem)
    args = decode(item.args)
    if job.is_cancelled and "cancelled" not in args:
        return None
    counts = {name: getattr(job, name) for name in ("id", "total", *COUNTERS.values())}
    facts = {"job": counts, "cancelled": job.is_cancelled}
    known = {name: fact for name, fact in facts.items() if name in args}
    return replace(item, args=encode({**args, **known})) if known else item
