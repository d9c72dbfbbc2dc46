"""The store in one SQLite file: embedded, for any number of threads and processes of one host.

One writer connection per store, explicit BEGIN IMMEDIATE, WAL, synchronous=FULL. Writers of all processes take turns by
a lock file beside the database, which is free again when its holder dies; SQLite's own busy handler sleeps for up to a
tenth of a second at a time. Under that lock only is the WAL checkpointed: before 3.51.3, two checkpoints at once can
corrupt it.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from datetime import datetime, timedelta
from functools import partial
from itertools import groupby, zip_longest
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from duly.clock import EPOCH
from duly.errors import KeyConflict, NotMigrated, StoreError, StoreUnavailable, WrongState
from duly.model import (
    Armed,
    Ask,
    Change,
    Grant,
    Head,
    Item,
    NewItem,
    NewSchedule,
    Note,
    Placed,
    Revision,
    Schedule,
    Share,
)
from duly.store.base import (
    FRESH,
    START,
    Arming,
    Merge,
    News,
    Place,
    Plan,
    Seats,
    are_open,
    chunks,
    conflict,
    families,
    family,
    heads_of,
    in_order,
    item_parameters,
    items_under,
    key_parameters,
    live_by_schedule,
    members_of,
    not_ours,
    notes_of,
    one_at_a_time,
    only_moves_on,
    place_of,
    schedule_parameters,
    waiting_item,
)
from duly.store.granting import Rations, leases_for, once, ration, under
from duly.store.sql import sections
from duly.store.turns import leave, line_at, mind_forks, turn

log = logging.getLogger("duly.store")

CHECKPOINT_BYTES = 16 * 1024 * 1024
# How soon another process's put is seen: a read of one counter, no transaction.
GLANCE = 0.02

# What SQLite says of a table or column that a migration would have made.
MISSING = ("no such table", "no such column", "has no column named")
# Reads whose cost grows with what waits.
LONG = frozenset({"depth"})

_MICROSECOND = timedelta(microseconds=1)


class SqliteStore:
    def __init__(self, path: str, timeout: float = 30.0, synchronous: str = "FULL") -> None:
        self.url = f"sqlite:///{path}"
        self.path = path
        self._timeout = timeout
        self._synchronous = synchronous
        self._sql = sections("sqlite")
        self.turn = line_at(path)
        self.writer_lock = threading.Lock()
        self._writer: sqlite3.Connection | None = None
        self._commits = 0
        self._is_wal = False
        self._reader: sqlite3.Connection | None = None
        self.reader_lock = threading.Lock()
        mind_forks(self)

    def twin(self, timeout: float | None = None) -> SqliteStore:
        return SqliteStore(self.path, self._timeout, self._synchronous)

    def hasten(self, is_hasty: bool = True) -> None:
        """A file is never away."""

    def close(self) -> None:
        with self.writer_lock, self.reader_lock:
            self.let_go()

    def let_go(self) -> list[sqlite3.Connection]:
        """Close the connections; where a child of ours must not, it gets them to keep."""
        open_ones = [each for each in (self._reader, self._writer) if each is not None]
        self._reader = self._writer = None
        if self.turn.is_torn:
            return open_ones
        for connection in open_ones:
            connection.close()
        return []

    def connect(self) -> sqlite3.Connection:
        """A connection with our settings."""
        self._check_fork()
        try:
            connection = sqlite3.connect(
                self.path, timeout=self._timeout, isolation_level=None, check_same_thread=False, cached_statements=256
            )
            # The switch lasts, so it is made once, by whoever is first: nobody else has to wait for a turn.
            if not self._is_wal and connection.execute("pragma journal_mode").fetchone() != ("wal",):
                with self._queue():  # the switch does not wait for other connections by itself
                    connection.execute("pragma journal_mode = wal")
            self._is_wal = True
            connection.execute(f"pragma synchronous = {self._synchronous}")
            connection.execute("pragma foreign_keys = on")
            connection.execute("pragma wal_autocheckpoint = 0")
        except (sqlite3.OperationalError, OSError) as error:
            raise StoreUnavailable(f"cannot open {self.path}: {error}") from error
        except sqlite3.DatabaseError as error:
            raise StoreError(f"{self.path} is not a SQLite database: {error}") from error
        return connection

    def _check_fork(self) -> None:
        if self.turn.is_torn:
            raise StoreError(
                f"{self.path}: this process was forked while its parent was inside a transaction, so it must not use "
                "the file; fork outside of transactions, or start processes by spawn"
            )

    def _queue(self) -> AbstractContextManager[None]:
        return turn(self.path, self._timeout)

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """The writer inside a transaction; commits at the end of the block."""
        with self.writer_lock:
            if self._writer is None:
                self._writer = self.connect()
            with self._queue():
                with self._transaction(self._writer) as writer:
                    yield writer
                self._checkpoint(writer)

    @contextmanager
    def _transaction(self, connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
        with self._errors():
            try:  # from here on: an exception from a signal may come at any moment, and must not leave it open
                connection.execute("begin immediate")
                yield connection
                self._check_fork()
                connection.execute("commit")
            except BaseException:
                if not self.turn.is_torn and connection.in_transaction:
                    connection.execute("rollback")
                raise

    def _checkpoint(self, writer: sqlite3.Connection) -> None:
        """Now and then. If it fails, what was written is safe in the WAL all the same, and the next one goes on."""
        self._commits += 1
        if self._commits % 64:
            return
        try:
            if Path(f"{self.path}-wal").stat().st_size > CHECKPOINT_BYTES:
                writer.execute("pragma wal_checkpoint(passive)")
        except (sqlite3.Error, OSError) as error:
            log.warning("%s: a checkpoint failed, and will be tried again: %s", self.path, error)

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self.reader_lock, self._errors():
            if self._reader is None:
                self._reader = self.connect()
            yield self._reader

    @contextmanager
    def _reading_long(self) -> Iterator[sqlite3.Connection]:
        """On a connection of its own, for the engine must not wait until everything that waits is counted."""
        with self._errors(), closing(self.connect()) as reader:
            yield reader

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """The driver's errors leave as ours."""
        try:
            yield
        except sqlite3.OperationalError as error:
            if any(words in str(error) for words in MISSING):
                raise NotMigrated(f"{self.path} is not migrated: run `duly migrate` ({error})") from error
            raise StoreUnavailable(f"{self.path}: {error}") from error
        except sqlite3.DatabaseError as error:
            if type(error) is sqlite3.DatabaseError:  # its subclasses are about a statement, not about the file
                raise StoreError(f"{self.path} is damaged: {error}") from error
            raise

    def _read(self, name: str, parameters: Mapping[str, Any]) -> list[Any]:
        with self._reading() as reader:
            return reader.execute(self._sql[name], parameters).fetchall()

    def now(self) -> datetime:
        return EPOCH + timedelta(microseconds=time.time_ns() // 1000)

    # -- in

    def put(self, new: Sequence[NewItem]) -> list[Placed]:
        with self._writing() as writer:
            return [self._put_one(writer, item) for item in new]

    def _put_one(self, writer: sqlite3.Connection, item: NewItem) -> Placed:
        return put_one(writer, item, self.now())

    def load(self, new: Iterable[NewItem]) -> int:
        fresh = 0
        # Read to the end first: the rows may come slowly, or from code that puts, and everybody waits for a writer.
        ready = list(chunks(new, 5_000))
        with self._writing() as writer:
            now = to_int(self.now())
            for chunk in ready:
                if any(item.key is not None for item in chunk):
                    fresh += sum(self._put_one(writer, item).fresh for item in chunk)
                    continue
                writer.executemany(
                    self._sql["load"],
                    [
                        (
                            item.task,
                            item.queue,
                            item.args.decode(),
                            now if item.due_at is None else to_int(item.due_at),
                            item.rank,
                            item.max_attempts,
                            item.trace,
                            _int(item.expires_at),
                            item.owner,
                        )
                        for item in chunk
                    ],
                )
                fresh += len(chunk)
        return fresh

    def arm(self, new: Sequence[NewItem], merge: Merge) -> list[Armed]:
        if not new:
            return []
        task, arming, now = new[0].task, Arming(new, merge), to_int(self.now())

        def parameters(item: NewItem) -> dict[str, Any]:
            due_at = now if item.due_at is None else to_int(item.due_at)
            return {**item_parameters(item), "due_at": due_at, "version": item.version, "now": now}

        with self._writing() as writer:
            found = writer.execute(self._sql["arm_find"], {"task": task, "keys": _json(arming.keys)}).fetchall()
            again = arming.again(
                (one, key, version, args.encode(), *stands) for one, key, version, args, *stands in found
            )
            writer.execute(self._sql["arm_leave"], {"ids": _json([item_id for item_id, _ in again]), "now": now})
            for item_id, item in again:
                writer.execute(self._sql["arm_again"], {**parameters(item), "id": item_id})
            rows = [row for item in arming.fresh() for row in writer.execute(self._sql["arm_new"], parameters(item))]
            arming.inserted(rows)
            if arming.keys:
                raise not_ours(task, arming.keys)
        return arming.answers()

    # -- the engine

    def survey(self, after: Place = START, most: int = 1_000) -> tuple[list[Head], Place | None]:
        names = ("queue", "lane", "rank", "task", "owner")
        heads = self._heads("survey", {**dict(zip(names, after, strict=True)), "most": most})
        return self._open(heads), place_of(heads, most)

    def glance(self, now: datetime, most: int) -> tuple[list[Head], datetime | None]:
        parameters = {"now": to_int(now), "most": most}
        newest = self._heads("newest", parameters)
        oldest = self._heads("oldest", parameters) if len(newest) == most else []
        return self._open([*newest, *oldest]), _time(self._read("next_due", {"now": to_int(now)})[0][0])

    def _heads(self, name: str, parameters: Mapping[str, Any]) -> list[Head]:
        return heads_of((*row[:5], to_time(row[5])) for row in self._read(name, parameters))

    def _open(self, heads: list[Head]) -> list[Head]:
        queues = self.open_queues(head.line.queue for head in heads)
        return [head for head in heads if head.line.queue in queues]

    def open_queues(self, names: Iterable[str]) -> set[str]:
        queues = set(names)
        wanted = sorted({name for queue in queues for name in family(queue)})
        return are_open(queues, {row[0] for row in self._read("paused", {"names": _json(wanted)})})

    def claim(self, shares: Sequence[Share], worker: str, now: datetime | None, lease: timedelta) -> list[Item]:
        with self._writing() as writer:
            now = now or self.now()
            items = [item for some in once(self._pick(writer, now, shares)) for item in some]
            if not items:
                return []
            (claimed,) = self._start(writer, [(items, None)], [Grant(items)], worker, now, lease)
        return sorted(claimed.items, key=in_order)

    def claim_metered(
        self, asks: Sequence[Ask], worker: str, now: datetime | None, lease: timedelta, calls: int, batch: int
    ) -> list[Grant]:
        with self._writing() as writer:
            now = now or self.now()
            names = {"names": _json(sorted({meter.name for ask in asks for meter in ask.meters}))}
            rows = [
                (name, most, per, [to_time(hit) for hit in msgspec.json.decode(hits)])
                for name, most, per, hits in writer.execute(self._sql["meters"], names)
            ]
            rations = Rations(asks, rows, dict(writer.execute(self._sql["under_way"], names).fetchall()), now)
            grants = ration(asks, rations, calls, batch, partial(self._pick, writer, now))
            if not (leases := leases_for(asks, grants, batch)):
                return grants
            for name, log in rations.hits():
                writer.execute(self._sql["hit"], {"name": name, "hits": _json([*map(to_int, log)])})
            return self._start(writer, leases, grants, worker, now, lease)

    def _pick(self, writer: sqlite3.Connection, now: datetime, shares: Sequence[Share]) -> list[list[Item]]:
        """The due items of each share; none of a paused queue."""
        names = {"names": _json(sorted(families(shares)))}
        closed = {row[0] for row in writer.execute(self._sql["paused"], names)}
        return [
            self._picked(writer, now, share) if not closed or closed.isdisjoint(family(share.line.queue)) else []
            for share in shares
        ]

    def _picked(self, writer: sqlite3.Connection, now: datetime, share: Share) -> list[Item]:
        items: list[Item] = []
        queue, task, owner = share.line
        for rank, floor in zip_longest(share.ranks, share.floors, fillvalue=EPOCH):
            room = share.limit - len(items)
            if room <= 0:
                break
            parameters = {
                "queue": queue, "lane": share.lane, "rank": rank, "task": task, "owner": owner,
                "since": to_int(floor), "now": to_int(now), "started_since": _int(share.started_since), "most": room,
            }  # fmt: skip
            rows = writer.execute(self._sql["pick"], parameters)
            items.extend(waiting_item(_claim_row(row)) for row in rows)
        return items

    def _start(
        self,
        writer: sqlite3.Connection,
        leases: Sequence[tuple[list[Item], list[str] | None]],
        grants: Sequence[Grant],
        worker: str,
        now: datetime,
        lease: timedelta,
    ) -> list[Grant]:
        """Take what was picked, each item under its fence."""
        (last,) = writer.execute(self._sql["last_fence"]).fetchone()
        common = {"worker": worker, "now": to_int(now), "lease_until": to_int(now + lease)}
        rows = [
            {
                **common,
                "fence": fence,
                "items": _json([item.id for item in items]),
                "meters": None if names is None else _json(names),
            }
            for fence, (items, names) in enumerate(leases, last + 1)
        ]
        writer.executemany(self._sql["lease"], rows)
        writer.executemany(self._sql["claim"], rows)
        fences = {item.id: fence for fence, (items, _) in enumerate(leases, last + 1) for item in items}
        return under(fences, grants, claimed_by=worker, started_at=now)

    def extend(self, held: Mapping[int, Sequence[int]], now: datetime, lease_until: datetime) -> list[tuple[int, int]]:
        pairs = [(item_id, fence) for fence, ids in held.items() for item_id in ids]
        with self._writing() as writer:
            kept = {
                row[0]
                for row in writer.execute(
                    self._sql["extend"],
                    {"fences": _json(list(held)), "now": to_int(now), "lease_until": to_int(lease_until)},
                ).fetchall()
            }
            running = set(writer.execute(self._sql["held"], {"ids": _json([item_id for item_id, _ in pairs])}))
        return [pair for pair in pairs if pair[1] not in kept or pair not in running]

    def running(self, ids: Sequence[int]) -> list[tuple[int, int]]:
        return self._read("held", {"ids": _json(list(ids))})

    def settle(
        self, changes: Sequence[Change], closed: Sequence[int] = (), connection: sqlite3.Connection | None = None
    ) -> list[int]:
        with self._joining(connection) as writer:
            return self._settle(writer, changes, closed)

    def _settle(self, writer: sqlite3.Connection, changes: Sequence[Change], closed: Sequence[int]) -> list[int]:
        plain = sorted((change for change in changes if change.is_plain_success), key=_fence)
        settled: set[tuple[int, int]] = set()
        for fence, group in groupby(plain, key=_fence):
            same = list(group)
            parameters = {
                "ids": _json([change.id for change in same]), "fence": fence, "finished_at": _int(same[0].finished_at),
            }  # fmt: skip
            settled.update((row[0], fence) for row in writer.execute(self._sql["settle_done"], parameters).fetchall())
        settled.update(
            (change.id, change.fence)
            for change in changes
            if not change.is_plain_success and self._settle_one(writer, change)
        )
        if closed:
            writer.execute(self._sql["close"], {"closed": _json(list(closed))})
        self._follow_up(writer, [change for change in changes if (change.id, change.fence) in settled])
        return [change.id for change in changes if (change.id, change.fence) not in settled]

    def _follow_up(self, writer: sqlite3.Connection, changes: list[Change]) -> None:
        """What else these ends mean: for their schedules, and what is put in consequence."""
        members = members_of(changes)
        for member in members:
            parameters = {
                "schedule_id": member.schedule_id, "failures": member.failures, "at": to_int(member.at),
                "error": member.error, "is_success": member.is_success, "is_broken": member.is_broken,
                "is_unchanged": member.is_unchanged, "fingerprint": member.fingerprint,
                "keep": None if member.keep is None else member.keep.decode(),
            }  # fmt: skip
            writer.execute(self._sql["settle_member"], parameters)
        self._note(writer, notes_of(members))
        for change in changes:
            for item in change.then:
                with suppress(KeyConflict):  # one under this key is to come already
                    self._put_one(writer, item)

    def _note(self, writer: sqlite3.Connection, notes: Sequence[tuple[datetime, Note]]) -> None:
        for at, note in notes:
            parameters = {
                "now": to_int(at), "actor": note.actor, "action": note.action, "subject": note.subject,
                "details": note.details.decode(),
            }  # fmt: skip
            writer.execute(self._sql["write_note"], parameters)

    def _settle_one(self, writer: sqlite3.Connection, change: Change) -> bool:
        parameters = {
            "id": change.id, "was": change.was, "fence": change.fence, "state": change.state,
            "outcome": change.outcome, "lane": change.lane, "due_at": to_int(change.due_at),
            "attempt": change.attempt, "failures": change.failures, "crashes": change.crashes,
            "losses": change.losses, "finished_at": _int(change.finished_at),
            "result": change.result.decode() if change.result is not None else None, "error": change.error,
            "error_class": change.error_class, "expired_at": _int(change.expired_at), "rank": change.rank,
            "error_group": change.error_group,
        }  # fmt: skip
        try:
            if not writer.execute(self._sql["settle"], parameters).fetchall():
                return False
        except sqlite3.IntegrityError as error:
            raise WrongState("its key belongs to another live item by now; cancel that one first") from error
        if tried := change.tried:
            parameters = {
                "item_id": change.id, "number": tried.number, "fence": change.fence,
                "attempt_key": tried.attempt_key, "worker": tried.worker, "started_at": _int(tried.started_at),
                "ended_at": to_int(tried.ended_at), "outcome": tried.outcome, "error": tried.error,
                "error_class": tried.error_class,
            }  # fmt: skip
            writer.execute(self._sql["tried"], parameters)
        return True

    # -- schedules

    @contextmanager
    def _joining(self, connection: sqlite3.Connection | None) -> Iterator[sqlite3.Connection]:
        """The caller's transaction, or one of our own."""
        if connection is not None:
            yield connection
        else:
            with self._writing() as writer:
                yield writer

    def enroll(
        self,
        new: Sequence[NewSchedule],
        seat: Callable[[NewSchedule, int], tuple[str, datetime]],
        connection: sqlite3.Connection | None = None,
    ) -> list[tuple[int, bool]]:
        rings: dict[str, Seats] = {}
        answers: list[tuple[int, bool]] = []
        with self._joining(connection) as writer:
            for each in new:
                known = writer.execute(self._sql["taken"], {"task": each.task, "key": each.key}).fetchone()
                if known:
                    answers.append((known[0], False))
                    continue
                slot = None
                if each.ring is not None:
                    if each.ring not in rings:
                        taken = writer.execute(self._sql["seats"], {"ring": each.ring}).fetchall()
                        rings[each.ring] = Seats(each.slots or 1, dict(taken))
                    slot = rings[each.ring].take()
                    rule, next_at = seat(each, slot)
                    each = replace(each, rule=rule, next_at=next_at)
                parameters = {
                    "task": each.task, "key": each.key, "queue": each.queue, "args": each.args.decode(),
                    "rule": each.rule, "zone": each.zone, "next_at": _int(each.next_at), "rank": each.rank,
                    "catch_up": each.catch_up, "max_lateness": each.max_lateness, "overlap": each.overlap,
                    "ring": each.ring, "slot": slot, "is_declared": each.is_declared, "owner": each.owner,
                }  # fmt: skip
                answers.append((writer.execute(self._sql["enroll"], parameters).fetchone()[0], True))
        return answers

    def revise(
        self,
        which: Sequence[int] | None,
        now: datetime,
        most: int,
        plan: Plan,
        connection: sqlite3.Connection | None = None,
        without: Sequence[int] = (),
    ) -> int:
        if which is None and not self._is_any_due(now, without):
            return 0
        with self._joining(connection) as writer:
            if which is None:
                schedules = self._due_schedules(writer, now, most, without)
                last = [each.last_item for each in schedules if each.last_item is not None]
                rows = writer.execute(self._sql["fetch"], {"ids": _json(last)}).fetchall()
            else:
                ids = {"ids": _json(list(which))}
                schedules = _schedules(writer.execute(self._sql["some_schedules"], ids))
                rows = writer.execute(self._sql["waiting_of"], ids).fetchall()
                single = {"ids": _json(one_at_a_time(schedules))}
                rows += writer.execute(self._sql["running_of"], single).fetchall()
            if not schedules:
                return 0
            revisions = plan(schedules, live_by_schedule(Item(*_fetch_row(row)) for row in rows))
            self._apply_revisions(writer, {each.id: each for each in schedules}, revisions, now)
        return len(schedules)

    def _is_any_due(self, now: datetime, without: Sequence[int]) -> bool:
        """A look that keeps no writer waiting."""
        next_at = self._read("next_schedule", {"without": _json(list(without))})[0][0]
        return next_at is not None and next_at <= to_int(now)

    def _due_schedules(
        self, writer: sqlite3.Connection, now: datetime, most: int, without: Sequence[int]
    ) -> list[Schedule]:
        """The oldest, but first some of those that have just become due: a backlog must not make them late."""
        found: list[Schedule] = []
        for since, part in ((now - FRESH, most // 2), (EPOCH, most)):
            parameters = {
                "since": to_int(since), "now": to_int(now), "seen": _json([*without, *(each.id for each in found)]),
                "most": part - len(found),
            }  # fmt: skip
            found += _schedules(writer.execute(self._sql["due_schedules"], parameters))
        return found

    def _apply_revisions(
        self, writer: sqlite3.Connection, before: dict[int, Schedule], revisions: Sequence[Revision], now: datetime
    ) -> None:
        for revision in revisions:
            schedule = revision.schedule
            if revision.is_removed:
                writer.execute(self._sql["remove_schedules"], {"ids": _json([schedule.id])})
                continue
            if not only_moves_on(before[schedule.id], schedule):
                parameters = schedule_parameters(schedule)
                for name in ("next_at", "paused_at", "broken_at", "last_at"):
                    parameters[name] = _int(parameters[name])
                writer.execute(self._sql["revise"], parameters)
        made: dict[int, int] = {}
        occurrences = [(at, revision.schedule.id) for revision in revisions for at in revision.occurrences]
        for at, schedule_id in sorted(occurrences):
            for (item_id,) in writer.execute(self._sql["occur"], {"id": schedule_id, "at": to_int(at)}).fetchall():
                made[schedule_id] = item_id
        for revision in revisions:
            schedule = revision.schedule
            parameters = {
                "id": schedule.id, "next_at": _int(schedule.next_at), "last_at": _int(schedule.last_at),
                "skipped": schedule.skipped, "last_item": made.get(schedule.id),
            }  # fmt: skip
            writer.execute(self._sql["move_on"], parameters)
        if changes := [change for revision in revisions for change in revision.changes]:
            self._settle(writer, changes, ())
        self._note(writer, [(now, note) for revision in revisions for note in revision.notes])

    def report(self, item_id: int, fence: int, progress: bytes) -> None:
        with self._writing() as writer:
            writer.execute(self._sql["progress"], {"id": item_id, "fence": fence, "progress": progress.decode()})

    def expired(self, now: datetime, most: int) -> tuple[list[Item], list[int]]:
        return self.under([row[0] for row in self._read("expired", {"now": to_int(now), "most": most})])

    def leases(self) -> list[tuple[int, str, datetime]]:
        if not self._read("leases", {}):  # nobody has to wait for a turn to see that there is nothing
            return []
        # Readers never wait here, heartbeats do: in the same queue we know that they had their turn.
        with self._writing() as writer:
            rows = writer.execute(self._sql["leases"]).fetchall()
        return [(fence, worker, to_time(lease_until)) for fence, worker, lease_until in rows]

    def under(self, fences: Sequence[int]) -> tuple[list[Item], list[int]]:
        rows = self._read("under", {"fences": _json(list(fences))})
        return items_under(_under_row(row) for row in rows)

    def fetch(self, ids: Sequence[int]) -> list[Item]:
        return [Item(*_fetch_row(row)) for row in self._read("fetch", {"ids": _json(list(ids))})]

    def prune(self, before: datetime, after: int, most: int) -> tuple[int, int | None]:
        limit = to_int(before)
        looked = self._read("old", {"after": after, "most": most})
        old = [item_id for item_id, finished_at, _ in looked if finished_at is not None and finished_at < limit]
        if old:
            with self._writing() as writer:
                writer.execute(self._sql["prune"], {"ids": _json(old)})
        goes_on = len(looked) == most and max(created_at for _, _, created_at in looked) < limit
        return len(old), looked[-1][0] if goes_on else None

    def pause(self, queue: str, now: datetime, connection: sqlite3.Connection | None = None) -> None:
        with self._joining(connection) as writer:
            writer.execute(self._sql["pause"], {"queue": queue, "now": to_int(now)})

    def resume(self, queue: str, connection: sqlite3.Connection | None = None) -> None:
        with self._joining(connection) as writer:
            writer.execute(self._sql["resume"], {"queue": queue})

    def read(
        self, name: str, parameters: Mapping[str, Any], connection: sqlite3.Connection | None = None
    ) -> list[tuple[Any, ...]]:
        if connection is not None:
            return self.run(connection, name, parameters)
        given = {key: to_int(value) if isinstance(value, datetime) else value for key, value in parameters.items()}
        with self._reading_long() if name in LONG else self._reading() as reader:
            return _typed(reader.execute(self._sql[name], given))

    def write(self, name: str, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        given = {key: to_int(value) if isinstance(value, datetime) else value for key, value in parameters.items()}
        with self._writing() as writer:
            return _typed(writer.execute(self._sql[name], given))

    def run(
        self, connection: sqlite3.Connection | None, name: str, parameters: Mapping[str, Any]
    ) -> list[tuple[Any, ...]]:
        if connection is None:
            return self.write(name, parameters)
        given = {key: to_int(value) if isinstance(value, datetime) else value for key, value in parameters.items()}
        return _typed(connection.execute(self._sql[name], given))

    @contextmanager
    def transaction(self, is_handlers: bool = False, until: float = float("inf")) -> Iterator[sqlite3.Connection]:
        """On a connection of its own, for a handler may hold it for a while; other writers wait for it all the same."""
        connection = self.connect()
        try:
            with self._queue(), self._transaction(connection):
                yield connection
        finally:
            if self.turn.is_torn:
                leave(connection)
            else:
                connection.close()

    @contextmanager
    def migrations(self) -> Iterator[sqlite3.Connection]:
        with self._writing() as writer:
            yield writer

    def watch(self, tell: Callable[[News], None], stop: threading.Event) -> None:
        """SQLite counts the commits of other connections: a change of that count is the news."""
        seen: tuple[sqlite3.Connection, int] | None = None
        while not stop.is_set():
            with self._reading() as reader:
                version = reader, reader.execute("pragma data_version").fetchone()[0]
            if version != seen:
                seen = version
                tell(None)
            stop.wait(GLANCE)


def put_one(connection: sqlite3.Connection, item: NewItem, now: datetime) -> Placed:
    """Insert one item on this connection; a live key with the same content answers the item that has it."""
    sql = sections("sqlite")
    parameters = item_parameters(item)
    parameters["due_at"] = to_int(item.due_at or now)
    parameters["expires_at"] = _int(item.expires_at)
    rows = connection.execute(sql["put_one"], parameters).fetchall()
    if rows:
        return Placed(id=rows[0][0], execution_key=rows[0][1], fresh=True)
    item_id, execution_key, args, planned_at = connection.execute(sql["live"], key_parameters(item)).fetchone()
    if refusal := conflict(item, item_id, args.encode(), to_time(planned_at)):
        raise refusal
    return Placed(id=item_id, execution_key=execution_key, fresh=False)


def to_int(time: datetime) -> int:
    return (time - EPOCH) // _MICROSECOND


def to_time(value: int) -> datetime:
    return EPOCH + timedelta(microseconds=value)


def _int(time: datetime | None) -> int | None:
    return None if time is None else to_int(time)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


_fence = attrgetter("fence")

# What the columns of a read hold where SQLite has no type for it.
_COLUMNS: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("planned_at", "due_at", "started_at", "finished_at", "ended_at", "created_at"), to_time),
    **dict.fromkeys(("lease_until", "oldest", "next_at", "paused_at", "broken_at", "last_at", "seen_at"), to_time),
    **dict.fromkeys(
        (
            "last_success_at",
            "expires_at",
            "since",
            "told_at",
            "at",
            "disabled_at",
            "last_used_at",
            "revoked_at",
            "first_at",
        ),
        to_time,
    ),
    **dict.fromkeys(
        ("args", "result", "progress", "keep", "details", "tasks", "scopes", "filter", "options"), str.encode
    ),
    **dict.fromkeys(("paused", "is_declared", "fresh", "has_password"), bool),
    "hits": lambda text: [to_time(hit) for hit in msgspec.json.decode(text)],
}


def _typed(cursor: sqlite3.Cursor) -> list[tuple[Any, ...]]:
    """Rows with the types that their columns' names mean."""
    readers = [_COLUMNS.get(column[0]) for column in cursor.description or ()]
    return [
        tuple(value if value is None or read is None else read(value) for value, read in zip(row, readers, strict=True))
        for row in cursor
    ]


def _claim_row(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return (
        *row[:5], to_time(row[5]), to_time(row[6]), row[7], row[8], row[9].encode(), *row[10:16], _time(row[16]),
        *row[17:21], _time(row[21]), *row[22:],
    )  # fmt: skip


def _under_row(row: tuple[Any, ...]) -> tuple[Any, ...]:
    if row[1] is None:
        return row
    return (
        *row[:6], to_time(row[6]), to_time(row[7]), row[8], row[9], row[10].encode(), *row[11:18], _time(row[18]),
        *row[19:22], _time(row[22]), *row[23:],
    )  # fmt: skip


def _fetch_row(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return (
        *row[:6], to_time(row[6]), to_time(row[7]), row[8], row[9], row[10].encode(), *row[11:18], _time(row[18]),
        *row[19:23], _time(row[23]), *row[24:],
    )  # fmt: skip


def _schedules(cursor: sqlite3.Cursor) -> list[Schedule]:
    return [Schedule(*row) for row in _typed(cursor)]


def _time(value: int | None) -> datetime | None:
    return None if value is None else to_time(value)
