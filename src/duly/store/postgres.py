"""The store on PostgreSQL: any number of machines, any number of workers.

Nearly every method is one statement from postgres.sql on a pooled connection in autocommit, so it works behind a
transaction pooler too. Nothing depends on session state: no session locks, no temporary tables, no SET.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Any

import psycopg
from msgspec.json import encode
from msgspec.structs import replace
from psycopg import errors
from psycopg.types.string import ByteaBinaryLoader
from psycopg_pool import ConnectionPool, PoolTimeout

from duly.clock import EPOCH
from duly.errors import KeyConflict, NotMigrated, StoreUnavailable, WrongState
from duly.model import (
    Armed,
    Change,
    Head,
    Item,
    Meter,
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
    Arming,
    Merge,
    News,
    Plan,
    Seats,
    as_set,
    calls_for,
    chunks,
    claimed_items,
    conflict,
    expired_items,
    hits_after,
    item_parameters,
    key_parameters,
    live_by_schedule,
    members_of,
    not_ours,
    notes_of,
    only_moves_on,
    quota,
    rounds_of,
    schedule_parameters,
)
from duly.store.herald import Herald, head_of, news_of
from duly.store.sql import psycopg_sections

Connection = psycopg.Connection[Any]

MIGRATION_LOCK = 7_105_849_920  # any constant of our own; held for the transaction only

_KEEPALIVE = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3, "tcp_user_timeout": 25_000}
# The server's side of it, or the locks of a machine that lost its power would stay for two hours.
_SERVER_KEEPALIVE = {"tcp_keepalives_idle": "10", "tcp_keepalives_interval": "5", "tcp_keepalives_count": "3"}
# A process that was stopped inside one of our own transactions holds its locks for no longer than this.
IDLE_SECONDS = 60

# Lost races inside the database, a server that is a standby for the moment, and a transaction that stood still.
_PASSING = (
    errors.IdleInTransactionSessionTimeout,
    errors.DeadlockDetected,
    errors.SerializationFailure,
    errors.LockNotAvailable,
    errors.ReadOnlySqlTransaction,
)
_UNPREPARED = (errors.InvalidSqlStatementName, errors.DuplicatePreparedStatement, errors.ProtocolViolation)


class PostgresStore:
    def __init__(self, url: str, pool_size: int = 10, timeout: float = 30.0, listen: bool = True) -> None:
        self.url = url
        self._pool_size = pool_size
        self._timeout = timeout
        self._listen = listen
        self._sql = psycopg_sections()
        idle = {"idle_in_transaction_session_timeout": f"{IDLE_SECONDS}s"}
        self._pool = self._make_pool(idle)
        # Whoever holds a transaction may put, read or wait meanwhile: each kind has connections of its own.
        self._short = self._make_pool(idle)
        self._handlers = self._make_pool({})
        # Behind a transaction pooler, where there is no LISTEN, prepared statements belong to someone else's session.
        self._prepare: bool | None = None if listen else False
        self._herald = Herald(self._tell)

    def twin(self) -> PostgresStore:
        return PostgresStore(self.url, pool_size=2, timeout=self._timeout, listen=self._listen)

    def close(self) -> None:
        self._herald.close()
        self._pool.close()
        self._short.close()
        self._handlers.close()

    def _make_pool(self, settings: Mapping[str, str]) -> ConnectionPool[Connection]:
        settings = {**_SERVER_KEEPALIVE, **settings}

        def configure(connection: Connection) -> None:
            self._configure(connection)
            if self._listen:  # behind a pooler the session is not ours to set
                connection.execute(
                    "select set_config(name, value, false) from unnest(%s::text[], %s::text[]) as s(name, value)",
                    (list(settings), list(settings.values())),
                    prepare=False,
                )

        return ConnectionPool(
            self.url,
            connection_class=Connection,
            min_size=0,
            max_size=self._pool_size,
            timeout=self._timeout,
            num_workers=1,
            open=False,
            configure=configure,
            kwargs={"autocommit": True, "connect_timeout": 10, "application_name": "duly", **_KEEPALIVE},
            name="duly",
        )

    def _configure(self, connection: Connection) -> None:
        connection.adapters.register_loader("json", ByteaBinaryLoader)
        connection.prepare_threshold = 3

    @contextmanager
    def _connection(self, pool: ConnectionPool[Connection] | None = None) -> Iterator[Connection]:
        """A pooled connection; the driver's errors leave as ours."""
        pool = pool or self._pool
        try:
            if pool.closed:
                pool.open()
            with pool.connection() as connection:
                yield connection
        except (errors.UndefinedTable, errors.UndefinedColumn) as error:
            raise NotMigrated(f"the database is not migrated: run `duly migrate` ({error})") from error
        except _UNPREPARED as error:
            # A pooler that hands each transaction to another server connection: go on without prepared statements.
            self._prepare = False
            raise StoreUnavailable(f"prepared statements do not survive this pooler: {error}") from error
        except _PASSING as error:
            raise StoreUnavailable(f"not now, but it may be tried again: {error}") from error
        except PoolTimeout as error:
            raise StoreUnavailable(f"cannot reach the database: {self._why_not()}") from error
        except psycopg.OperationalError as error:
            raise StoreUnavailable(f"cannot reach the database: {error}") from error

    def _why_not(self) -> str:
        """The reason that a pool keeps to itself."""
        try:
            psycopg.connect(self.url, connect_timeout=3).close()
        except psycopg.Error as error:
            return str(error)
        return f"all {self._pool_size} connections of this process are busy (pool_size)"

    def _run(self, name: str, parameters: Mapping[str, Any], connection: Connection | None = None) -> list[Any]:
        """The rows of one named statement."""
        if connection is not None:
            return self._rows(connection, name, parameters)
        try:
            with self._connection() as own:
                return self._rows(own, name, parameters)
        except StoreUnavailable as error:
            if not isinstance(error.__cause__, _UNPREPARED):
                raise
        # The statement never ran, so running it again is safe.
        with self._connection() as own:
            return self._rows(own, name, parameters)

    def _rows(self, connection: Connection, name: str, parameters: Mapping[str, Any]) -> list[Any]:
        cursor = connection.execute(self._sql[name], parameters, prepare=self._prepare, binary=True)
        return cursor.fetchall() if cursor.description else []

    def now(self) -> datetime:
        now: datetime = self._run("now", {})[0][0]
        return now

    # -- in

    def put(self, new: Sequence[NewItem]) -> list[Placed]:
        if len(new) == 1:
            return [self._put_one(new[0])]
        with self._connection() as connection, connection.transaction():
            placed = self._put_many(connection, new)
        self._herald.trail(news for item in new if (news := news_of(item)))
        return placed

    def _put_one(self, item: NewItem) -> Placed:
        news = news_of(item)
        parameters = item_parameters(item)
        while True:
            if news is not None and self._herald.lead():
                rows = self._run("put_one_and_tell", {**parameters, "news": news})
            else:
                rows = self._run("put_one", parameters)
                if news is not None:
                    self._herald.trail((news,))
            if rows:
                return Placed(id=rows[0][0], execution_key=rows[0][1], fresh=True)
            if found := self._holder(item, None):
                return found

    def _put_many(self, connection: Connection, new: Sequence[NewItem]) -> list[Placed]:
        rows = self._run(
            "put",
            {
                "tasks": [item.task for item in new],
                "queues": [item.queue for item in new],
                "args": [item.args.decode() for item in new],
                "due_ats": [item.due_at for item in new],
                "keys": [item.key for item in new],
                "ranks": _ints([item.rank for item in new]),
                "max_attempts": [item.max_attempts for item in new],
                "traces": [item.trace for item in new],
                "expires_ats": [item.expires_at for item in new],
                "owners": [item.owner for item in new],
            },
            connection,
        )
        if len(rows) == len(new):
            return [Placed(id=row[0], execution_key=row[1], fresh=True) for row in rows]
        unkeyed = iter([row for row in rows if row[3] is None])
        keyed = {(row[2], row[3]): row for row in rows if row[3] is not None}
        placed = []
        for item in new:
            row = next(unkeyed) if item.key is None else keyed.pop((item.task, item.key), None)
            placed.append(
                Placed(id=row[0], execution_key=row[1], fresh=True)
                if row
                else self._holder(item, connection) or self._put_many(connection, [item])[0]
            )
        return placed

    def _holder(self, item: NewItem, connection: Connection | None) -> Placed | None:
        """The live item that has this key; None when it ended meanwhile. Other content is an error."""
        for item_id, execution_key, args, planned_at in self._run("live", key_parameters(item), connection):
            if refusal := conflict(item, item_id, args.encode(), planned_at):
                raise refusal
            return Placed(id=item_id, execution_key=execution_key, fresh=False)
        return None

    def load(self, new: Iterable[NewItem]) -> int:
        fresh = 0
        news: set[str] = set()
        with self._connection() as connection, connection.transaction():
            connection.execute("set local idle_in_transaction_session_timeout = 0")  # the rows may come slowly
            now = self._run("now", {}, connection)[0][0]
            rows = chunks(new, 1_000)
            for has_keys, group in groupby(rows, key=lambda chunk: any(item.key is not None for item in chunk)):
                if has_keys:
                    for chunk in group:
                        news.update(each for item in chunk if (each := news_of(item)))
                        fresh += sum(placed.fresh for placed in self._put_many(connection, chunk))
                    continue
                # One COPY for all chunks in a row: the server reads while the next rows are made.
                with connection.cursor().copy(self._sql["load"]) as copy:
                    for chunk in group:
                        news.update(each for item in chunk if (each := news_of(item)))
                        copy.write(_copy_text(chunk, now))
                        fresh += len(chunk)
        self._herald.trail(news)
        return fresh

    def arm(self, new: Sequence[NewItem], merge: Merge) -> list[Armed]:
        if not new:
            return []
        with self._connection() as connection, connection.transaction():
            armed = self._arm(connection, new, merge)
        made = (item for item, answer in zip(new, armed, strict=True) if answer.how != "known")
        self._herald.trail(news for item in made if (news := news_of(item)))
        return armed

    def _arm(self, connection: Connection, new: Sequence[NewItem], merge: Merge) -> list[Armed]:
        task, arming = new[0].task, Arming(new, merge)
        for _ in range(3):  # once, unless someone else has the same keys at the same time
            found = self._run("arm_find", {"task": task, "keys": arming.keys}, connection) if arming.keys else []
            if again := arming.again(found):
                ids = _ints([item_id for item_id, _ in again])
                self._run("arm_leave", {"ids": ids}, connection)
                self._run("arm_again", {"ids": ids, **_columns([item for _, item in again])}, connection)
            if fresh := arming.fresh():
                keys = [item.key for item in fresh]
                arming.inserted(self._run("arm_new", {"task": task, "keys": keys, **_columns(fresh)}, connection))
            if not arming.keys:
                return arming.answers()
        raise not_ours(task, arming.keys)

    def _tell(self, news: list[str]) -> None:
        self._run("tell", {"news": news})

    # -- the engine

    def survey(self) -> list[Head]:
        return [Head(*row) for row in self._run("survey", {"most": 10_000})]

    def claim(
        self,
        shares: Sequence[Share],
        tasks: Sequence[str],
        worker: str,
        now: datetime,
        lease_until: datetime,
        connection: Connection | None = None,
    ) -> list[Item]:
        places = [(place, rank) for place, share in enumerate(shares) for rank in share.ranks]
        floors = [floor for share in shares for floor in share.floors or [EPOCH] * len(share.ranks)]
        rows = self._run(
            "claim",
            {
                "queues": [share.queue for share in shares],
                "lanes": [share.lane for share in shares],
                "limits": _ints([share.limit for share in shares]),
                "places": _ints(range(len(shares))),
                "rank_places": _ints([place for place, _ in places]),
                "ranks": _ints([rank for _, rank in places]),
                "floors": floors,
                "tasks": list(tasks),
                "worker": worker,
                "now": now,
                "lease_until": lease_until,
            },
            connection,
        )
        return claimed_items(rows, worker, now)

    def claim_metered(
        self,
        share: Share,
        tasks: Sequence[str],
        worker: str,
        now: datetime,
        lease_until: datetime,
        meters: Sequence[Meter],
        calls: int,
        batch: int,
    ) -> tuple[list[Item], int, datetime | None]:
        with self._connection() as connection, connection.transaction():
            meters, hits, running = self._lock_meters(meters, connection)
            calls, most, until = quota(meters, hits, running, now, calls, batch)
            if not most:
                return [], 0, until
            share = replace(share, limit=min(most, share.limit))
            items = self.claim([share], tasks, worker, now, lease_until, connection)
            if not items:
                return [], 0, None
            calls = min(calls, calls_for(items, batch))
            for name, kept in hits_after(meters, hits, now, calls, len(items)).items():
                self._run("hit", {"name": name, "hits": encode(kept).decode()}, connection)
            if held := [meter.name for meter in meters if meter.per is None and meter.since is None]:
                self._run("hold", {"names": held, "fence": items[0].fence}, connection)
        return items, calls, None

    def _lock_meters(
        self, meters: Sequence[Meter], connection: Connection
    ) -> tuple[list[Meter], dict[str, list[datetime]], dict[str, int]]:
        """The meters as a person may have set them, what was granted under them, and what runs."""
        names = sorted({meter.name for meter in meters})
        rows = self._run("meters", {"names": names}, connection)
        if len(rows) < len(names):
            self._run("new_meters", {"names": names}, connection)
            rows = self._run("meters", {"names": names}, connection)
        found = {row[0]: row for row in rows}
        hits = {name: list(row[3]) for name, row in found.items()}
        running = dict(self._run("under_way", {"names": names}, connection))
        return [as_set(meter, found[meter.name][1], found[meter.name][2]) for meter in meters], hits, running

    def extend(self, held: Mapping[int, Sequence[int]], now: datetime, lease_until: datetime) -> list[int]:
        pairs = [(item_id, fence) for fence, ids in held.items() for item_id in ids]
        rows = self._run(
            "extend",
            {
                "fences": _ints(held),
                "ids": _ints([item_id for item_id, _ in pairs]),
                "item_fences": _ints([fence for _, fence in pairs]),
                "now": now,
                "lease_until": lease_until,
            },
        )
        return [row[0] for row in rows]

    def running(self, ids: Sequence[int]) -> list[tuple[int, int]]:
        return self._run("held", {"ids": _ints(ids)})

    def settle(
        self, changes: Sequence[Change], closed: Sequence[int] = (), connection: Connection | None = None
    ) -> list[int]:
        if connection is None and any(change.member or change.then for change in changes):
            with self._connection() as own, own.transaction():
                return self.settle(changes, closed, own)
        if connection is not None and (members := members_of(changes)):
            # Schedules before their items, as `revise` does, and by id: so that nobody waits for each other.
            self._run("lock_schedules", {"ids": _ints({member.schedule_id for member in members})}, connection)
        plain = sorted((change for change in changes if change.is_plain_success), key=_fence)
        other = [change for change in changes if not change.is_plain_success]
        # A lease goes with the last of its items, never before: each statement here is a transaction of its own.
        to_close = set(closed)
        settled: set[tuple[int, int]] = set()
        if other:
            alone = to_close.difference(map(_fence, plain))
            settled.update(self._settle_any(other, alone, connection))
            to_close -= alone
        for fence, group in groupby(plain, key=_fence):
            same = list(group)
            parameters = {
                "ids": _ints([change.id for change in same]),
                "fence": fence,
                "finished_at": same[0].finished_at,
                "closed": _ints({fence} & to_close),
            }
            settled.update((row[0], fence) for row in self._run("settle_done", parameters, connection))
            to_close.discard(fence)
        if to_close:
            self._run("close", {"closed": _ints(to_close)}, connection)
        if any(change.was == "running" and change.state == "cancelled" for change in other):
            self._tell_of_cancels(connection)
        if connection is not None:
            self._follow_up([change for change in other if (change.id, change.fence) in settled], connection)
        return [change.id for change in changes if (change.id, change.fence) not in settled]

    def _tell_of_cancels(self, connection: Connection | None) -> None:
        """Have whoever runs what was cancelled look: in the caller's transaction when it commits, else at once."""
        if connection is not None:
            self._run("tell", {"news": [""]}, connection)
        else:
            self._herald.trail(("",))

    def _follow_up(self, changes: list[Change], connection: Connection) -> None:
        """What else these ends mean: for their schedules, and what is put in consequence."""
        members = members_of(changes)
        if broken := [member.schedule_id for member in members if member.is_broken]:
            self._run("lock_rings", {"ids": _ints(broken)}, connection)
        for some in rounds_of(members):
            self._run(
                "settle_members",
                {
                    "ids": _ints([m.schedule_id for m in some]),
                    "failures": _ints([m.failures for m in some]),
                    "ats": [m.at for m in some],
                    "errors": [m.error for m in some],
                    "successes": [m.is_success for m in some],
                    "breaks": [m.is_broken for m in some],
                    "unchanged": [m.is_unchanged for m in some],
                    "fingerprints": [m.fingerprint for m in some],
                    "keeps": [None if m.keep is None else m.keep.decode() for m in some],
                },
                connection,
            )
        self._note(notes_of(members), connection)
        if then := [item for change in changes for item in change.then]:
            for item in then:
                with suppress(KeyConflict):  # one under this key is to come already
                    self._put_many(connection, [item])
            if news := {each for item in then if (each := news_of(item))}:
                self._run("tell", {"news": sorted(news)}, connection)

    def _note(self, notes: Sequence[tuple[datetime, Note]], connection: Connection) -> None:
        if notes:
            self._run(
                "note",
                {
                    "ats": [at for at, _ in notes],
                    "actors": [note.actor for _, note in notes],
                    "actions": [note.action for _, note in notes],
                    "subjects": [note.subject for _, note in notes],
                    "details": [note.details.decode() for _, note in notes],
                },
                connection,
            )

    def _settle_any(
        self, changes: list[Change], closed: Iterable[int], connection: Connection | None
    ) -> list[tuple[int, int]]:
        tried = [(change.id, change.fence, change.tried) for change in changes if change.tried]
        try:
            return self._run(
                "settle",
                {
                    "ids": _ints([c.id for c in changes]),
                    "was": [c.was for c in changes],
                    "fences": _ints([c.fence for c in changes]),
                    "states": [c.state for c in changes],
                    "outcomes": [c.outcome for c in changes],
                    "lanes": [c.lane for c in changes],
                    "due_ats": [c.due_at for c in changes],
                    "attempts": _ints([c.attempt for c in changes]),
                    "failures": _ints([c.failures for c in changes]),
                    "crashes": _ints([c.crashes for c in changes]),
                    "losses": _ints([c.losses for c in changes]),
                    "finished_ats": [c.finished_at for c in changes],
                    "results": [c.result.decode() if c.result is not None else None for c in changes],
                    "errors": [c.error for c in changes],
                    "error_classes": [c.error_class for c in changes],
                    "expired_ats": [c.expired_at for c in changes],
                    "ranks": _maybe_ints([c.rank for c in changes]),
                    "error_groups": [c.error_group for c in changes],
                    "tried_ids": _ints([item_id for item_id, _, _ in tried]),
                    "tried_fences": _ints([fence for _, fence, _ in tried]),
                    "numbers": _ints([t.number for _, _, t in tried]),
                    "attempt_keys": [t.attempt_key for _, _, t in tried],
                    "workers": [t.worker for _, _, t in tried],
                    "started_ats": [t.started_at for _, _, t in tried],
                    "ended_ats": [t.ended_at for _, _, t in tried],
                    "tried_outcomes": [t.outcome for _, _, t in tried],
                    "tried_errors": [t.error for _, _, t in tried],
                    "tried_classes": [t.error_class for _, _, t in tried],
                    "closed": _ints(closed),
                },
                connection,
            )
        except errors.UniqueViolation as error:
            raise WrongState("its key belongs to another live item by now; cancel that one first") from error

    # -- schedules

    @contextmanager
    def _joining(self, connection: Connection | None) -> Iterator[Connection]:
        """The caller's transaction, or one of our own, on a connection that no handler holds."""
        if connection is not None:
            yield connection
        else:
            with self._connection() as own, own.transaction():
                yield own

    def enroll(
        self,
        new: Sequence[NewSchedule],
        seat: Callable[[NewSchedule, int], tuple[str, datetime]],
        connection: Connection | None = None,
    ) -> list[tuple[int, bool]]:
        with self._joining(connection) as connection:
            keys = {"tasks": [each.task for each in new], "keys": [each.key for each in new]}
            known = {(task, key): id for id, task, key in self._run("taken", keys, connection)}
            fresh = {(each.task, each.key): each for each in reversed(new) if (each.task, each.key) not in known}
            # In one order for everybody: whoever inserts the same key waits for the other's end.
            seated = self._seat([fresh[name] for name in sorted(fresh)], seat, connection)
            rows = self._run(
                "enroll",
                {
                    "tasks": [each.task for each, _ in seated],
                    "keys": [each.key for each, _ in seated],
                    "queues": [each.queue for each, _ in seated],
                    "args": [each.args.decode() for each, _ in seated],
                    "rules": [each.rule for each, _ in seated],
                    "zones": [each.zone for each, _ in seated],
                    "next_ats": [each.next_at for each, _ in seated],
                    "ranks": _ints([each.rank for each, _ in seated]),
                    "catch_ups": [each.catch_up for each, _ in seated],
                    "max_latenesses": [each.max_lateness for each, _ in seated],
                    "overlaps": [each.overlap for each, _ in seated],
                    "rings": [each.ring for each, _ in seated],
                    "slots": _maybe_ints([slot for _, slot in seated]),
                    "declared": [each.is_declared for each, _ in seated],
                    "owners": [each.owner for each, _ in seated],
                },
                connection,
            )
            made = {(task, key): id for id, task, key in rows}
            known.update(made)
            if len(made) < len(fresh):  # whoever took a key between our look and our insert has it
                known.update({(task, key): id for id, task, key in self._run("taken", keys, connection)})
        answers = []
        for each in new:
            name = (each.task, each.key)
            answers.append((known[name], made.pop(name, None) is not None))
        return answers

    def _seat(
        self,
        new: list[NewSchedule],
        seat: Callable[[NewSchedule, int], tuple[str, datetime]],
        connection: Connection,
    ) -> list[tuple[NewSchedule, int | None]]:
        """Each with its slot, if it has a ring: rings one at a time, in the order of their names."""
        seated: list[tuple[NewSchedule, int | None]] = [(each, None) for each in new if each.ring is None]
        rings = sorted((each for each in new if each.ring is not None), key=_ring)
        for ring, group in groupby(rings, key=_ring):
            if not self._run("lock_ring", {"ring": ring}, connection):
                self._run("open_ring", {"ring": ring}, connection)
                self._run("lock_ring", {"ring": ring}, connection)
            members = list(group)
            seats = Seats(members[0].slots or 1, dict(self._run("seats", {"ring": ring}, connection)))
            for each in members:
                slot = seats.take()
                rule, next_at = seat(each, slot)
                seated.append((replace(each, rule=rule, next_at=next_at), slot))
        return seated

    def revise(
        self,
        which: Sequence[int] | None,
        now: datetime,
        most: int,
        plan: Plan,
        connection: Connection | None = None,
    ) -> int:
        with self._joining(connection) as connection:
            if which is None:
                schedules = self._due_schedules(now, most, connection)
                items = self._last_items(schedules, connection)
            else:
                schedules = [Schedule(*row) for row in self._run("some_schedules", {"ids": _ints(which)}, connection)]
                items = [Item(*row) for row in self._run("waiting_of", {"ids": _ints(which)}, connection)]
            if not schedules:
                return 0
            revisions = plan(schedules, live_by_schedule(items))
            self._apply_revisions({each.id: each for each in schedules}, revisions, now, connection)
            if any(revision.occurrences for revision in revisions):
                self._run("tell", {"news": [""]}, connection)
        return len(schedules)

    def _last_items(self, schedules: Sequence[Schedule], connection: Connection) -> list[Item]:
        last = [each for each in schedules if each.last_item is not None]
        # Nobody may claim what may be superseded.
        replaced = _ints([each.last_item or 0 for each in last if each.overlap == "supersede"])
        self._run("lock_waiting", {"ids": replaced}, connection)
        return [Item(*row) for row in self._run("fetch", {"ids": _ints([e.last_item or 0 for e in last])}, connection)]

    def _due_schedules(self, now: datetime, most: int, connection: Connection) -> list[Schedule]:
        """The oldest, but first some of those that have just become due: a backlog must not make them late."""
        rows: list[Any] = []
        for since, part in ((now - FRESH, most // 2), (EPOCH, most)):
            seen = _ints([row[0] for row in rows])
            parameters = {"since": since, "now": now, "seen": seen, "most": part - len(rows)}
            rows += self._run("due_schedules", parameters, connection)
        return [Schedule(*row) for row in rows]

    def _apply_revisions(
        self, before: dict[int, Schedule], revisions: Sequence[Revision], now: datetime, connection: Connection
    ) -> None:
        removed = [revision.schedule.id for revision in revisions if revision.is_removed]
        kept = [revision for revision in revisions if not revision.is_removed]
        changed = [each.schedule for each in kept if not only_moves_on(before[each.schedule.id], each.schedule)]
        if leaving := [*removed, *(schedule.id for schedule in changed)]:
            self._run("lock_rings", {"ids": _ints(leaving)}, connection)
        for schedule in changed:
            self._run("revise", schedule_parameters(schedule), connection)
        made = [(revision.schedule.id, at) for revision in kept for at in revision.occurrences]
        made.sort(key=itemgetter(1))
        last: dict[int, int] = {}
        if made:
            parameters = {"made_ids": _ints([each for each, _ in made]), "ats": [at for _, at in made]}
            last = dict(self._run("occur", parameters, connection))
        if kept:
            self._run(
                "move_on",
                {
                    "ids": _ints([revision.schedule.id for revision in kept]),
                    "next_ats": [revision.schedule.next_at for revision in kept],
                    "last_ats": [revision.schedule.last_at for revision in kept],
                    "skipped": _ints([revision.schedule.skipped for revision in kept]),
                    "last_items": _maybe_ints([last.get(revision.schedule.id) for revision in kept]),
                },
                connection,
            )
        if removed:
            self._run("remove_schedules", {"ids": _ints(removed)}, connection)
        if changes := [change for revision in revisions for change in revision.changes]:
            self.settle(changes, (), connection)
        self._note([(now, note) for revision in revisions for note in revision.notes], connection)

    def report(self, item_id: int, fence: int, progress: bytes) -> None:
        self._run("progress", {"id": item_id, "fence": fence, "progress": progress.decode()})

    def expired(self, now: datetime, most: int) -> tuple[list[Item], list[int]]:
        return expired_items(self._run("expired", {"now": now, "most": most}))

    def fetch(self, ids: Sequence[int]) -> list[Item]:
        return [Item(*row) for row in self._run("fetch", {"ids": _ints(ids)})]

    def prune(self, before: datetime, after: int, most: int) -> tuple[int, int | None]:
        ((gone, go_on),) = self._run("prune", {"before": before, "after": after, "most": most})
        return gone, go_on

    def pause(self, queue: str, now: datetime, connection: Connection | None = None) -> None:
        self._run("pause", {"queue": queue, "now": now}, connection)

    def resume(self, queue: str, connection: Connection | None = None) -> None:
        self._run("resume", {"queue": queue}, connection)

    def read(
        self, name: str, parameters: Mapping[str, Any], connection: Connection | None = None
    ) -> list[tuple[Any, ...]]:
        return self._run(name, parameters, connection)

    def write(self, name: str, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        return self._run(name, parameters)

    def run(self, connection: Any, name: str, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        return self._run(name, parameters, connection)

    @contextmanager
    def transaction(self, is_handlers: bool = False) -> Iterator[Connection]:
        pool = self._handlers if is_handlers else self._short
        with self._connection(pool) as connection, connection.transaction():
            yield connection

    @contextmanager
    def migrations(self) -> Iterator[Connection]:
        """One migrator at a time, and none that waits long for a lock while live work queues up behind it."""
        with self._connection() as connection, connection.transaction():
            connection.execute("select pg_advisory_xact_lock(%s)", (MIGRATION_LOCK,), prepare=False)
            connection.execute("set local lock_timeout = '2s'", prepare=False)
            yield connection

    def watch(self, tell: Callable[[News], None], stop: threading.Event) -> None:
        while not stop.is_set():
            if not self._listen:
                stop.wait()
                return
            try:
                with psycopg.connect(self.url, autocommit=True, application_name="duly-watch", **_KEEPALIVE) as ear:  # type: ignore[arg-type]
                    ear.execute("listen duly")
                    tell(None)
                    while not stop.is_set():
                        for note in ear.notifies(timeout=2.5):
                            tell(head_of(note.payload))
                            if stop.is_set():
                                break
            except psycopg.OperationalError:
                stop.wait(1.0)


_fence = attrgetter("fence")
_ring = attrgetter("ring")


def _columns(items: Sequence[NewItem]) -> dict[str, Any]:
    return {
        "queues": [item.queue for item in items],
        "args": _texts(item.args.decode() for item in items),
        "due_ats": [item.due_at for item in items],
        "ranks": _ints([item.rank for item in items]),
        "max_attempts": _maybe_ints(item.max_attempts for item in items),
        "traces": [item.trace for item in items],
        "versions": _maybe_ints(item.version for item in items),
    }


def _ints(values: Iterable[int]) -> str:
    """An integer array as a literal: one parameter type whatever the values, so one prepared statement."""
    return "{" + ",".join(map(str, values)) + "}"


def _maybe_ints(values: Iterable[int | None]) -> str:
    return "{" + ",".join("null" if value is None else str(value) for value in values) + "}"


def _texts(values: Iterable[str]) -> str:
    """A text array as a literal: psycopg escapes each quote of a JSON text in Python, a method of str all at once."""
    return "{" + ",".join('"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"' for text in values) + "}"


_SPECIAL = re.compile(r"[\\\t\n\r]")
_ESCAPES = str.maketrans({"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r"})


def _copy_text(chunk: list[NewItem], now: datetime) -> bytes:
    """Rows in COPY's text format."""
    stamp = now.isoformat()
    lines = []
    for item in chunk:
        due_at = stamp if item.due_at is None else item.due_at.isoformat()
        most = "\\N" if item.max_attempts is None else item.max_attempts
        trace = "\\N" if item.trace is None else _escaped(item.trace)
        expires_at = "\\N" if item.expires_at is None else item.expires_at.isoformat()
        owner = "\\N" if item.owner is None else _escaped(item.owner)
        task, queue, args = _escaped(item.task), _escaped(item.queue), _escaped(item.args.decode())
        lines.append(
            f"{task}\t{queue}\t{args}\t{due_at}\t{due_at}\t\\N\t{item.rank}\t{most}\t{trace}\t{expires_at}\t{owner}\n"
        )
    return "".join(lines).encode()


def _escaped(text: str) -> str:
    return text.translate(_ESCAPES) if _SPECIAL.search(text) else text
