"""The store on PostgreSQL: any number of machines, any number of workers.

Nearly every method is one statement from postgres.sql on a pooled connection in autocommit, so it works behind a
transaction pooler too. Nothing depends on session state: no session locks, no temporary tables. Settings are made on
sessions of our own only: what a pooler shares with others stays as it is.

Every statement has a deadline on our side. What surely was not done is done again by itself; of what may have been
done, the error says so.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from functools import partial
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Any, TypeVar

import psycopg
from msgspec.json import encode
from msgspec.structs import replace
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict
from psycopg.types.string import ByteaBinaryLoader

from duly.clock import EPOCH
from duly.errors import ConfigError, KeyConflict, NotMigrated, StoreUnavailable, WrongState
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
    claimed_items,
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
    rounds_of,
    schedule_parameters,
    waiting_item,
)
from duly.store.connections import Connection, Overdue, Pool
from duly.store.granting import Rations, leases_for, ration, under
from duly.store.herald import Herald, head_of, news_of
from duly.store.pooler import is_shared
from duly.store.sql import psycopg_sections

log = logging.getLogger("duly.store")

T = TypeVar("T")

MIGRATION_LOCK = 7_105_849_920  # any constant of our own; held for the transaction only

# What the URL may say otherwise. A server that is away must be noticed, and found again, within seconds.
_KEEPALIVE = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3, "tcp_user_timeout": 25_000}
_DIALLING = {"connect_timeout": 3, "application_name": "duly", **_KEEPALIVE}
# The server's side of it, or the locks of a machine that lost its power would stay for two hours.
_SERVER_KEEPALIVE = {"tcp_keepalives_idle": "10", "tcp_keepalives_interval": "5", "tcp_keepalives_count": "3"}
# A process that was stopped inside one of our own transactions holds its locks for no longer than this.
IDLE_SECONDS = 60
# More asks, or fences, than this in one call are worth a statement of their own.
FEW = 20
# The server gives up first, where it can be told to: then it is known that nothing was done.
GRACE = 1.0
# Statements that join rows with an array, by the parameter that is as long as it. A plan that is kept for any length is
# made for ten elements: at a thousand it compares each with each. So a long array is planned for, every time.
JOINED = {
    **dict.fromkeys(("start", "extend", "settle", "settle_each_done", "settle_members", "move_on", "arm_again"), "ids"),
    "occur": "made_ids",
    "under_way": "names",
}
LONG_ARRAY = 500  # characters
# Rows may come slowly into a load; each wait for the server is bounded all the same.
LOAD_SECONDS = 600.0
# How often a listener makes sure that it is still heard, and how long it waits for that.
PULSE, PULSE_PATIENCE = 10.0, 5.0

# Settings of a session, if it is our own: behind a pooler its process is not the one that we were told of.
_CONFIGURE = """
select set_config(name, value, false) from unnest(%s::text[], %s::text[]) as s(name, value)
 where pg_backend_pid() = %s
"""

# Lost races inside the database, and a server that is a standby for the moment: nothing was done.
_UNDONE = (
    errors.DeadlockDetected,
    errors.SerializationFailure,
    errors.LockNotAvailable,
    errors.ReadOnlySqlTransaction,
)
_PASSING = (*_UNDONE, errors.IdleInTransactionSessionTimeout, errors.QueryCanceled)
_UNPREPARED = (errors.InvalidSqlStatementName, errors.DuplicatePreparedStatement, errors.ProtocolViolation)
_WRITES = re.compile(r"\b(insert|update|delete)\b|notify")


class PostgresStore:
    def __init__(self, url: str, pool_size: int = 10, timeout: float = 30.0, listen: bool = True) -> None:
        self.url = url
        self._pool_size = pool_size
        self._timeout = timeout
        self._patience = timeout + GRACE
        self._listen = listen
        self._is_shared: bool | None = None if listen else True
        self._sql = psycopg_sections()
        self._reads = {name for name, text in self._sql.items() if not _WRITES.search(str(text))}
        bounded = {
            "idle_in_transaction_session_timeout": f"{IDLE_SECONDS}s",
            "statement_timeout": f"{timeout * 1000:.0f}",
        }
        self._pool = self._make_pool(bounded)
        # Whoever holds a transaction may put, read or wait meanwhile: each kind has connections of its own.
        self._short = self._make_pool(bounded)
        self._handlers = self._make_pool({})
        self._pools = (self._pool, self._short, self._handlers)
        # Behind a transaction pooler, where there is no LISTEN, prepared statements belong to someone else's session.
        self._prepare: bool | None = None if listen else False
        self._herald = Herald(self._tell)

    def twin(self, timeout: float | None = None) -> PostgresStore:
        return PostgresStore(self.url, pool_size=2, timeout=timeout or self._timeout, listen=self._listen)

    def hasten(self, is_hasty: bool = True) -> None:
        for pool in self._pools:
            pool.hasten(is_hasty)

    def close(self) -> None:
        self._herald.close()
        for pool in self._pools:
            pool.close()

    def _make_pool(self, settings: Mapping[str, str]) -> Pool:
        settings = {**_SERVER_KEEPALIVE, **settings}
        return Pool(lambda: self._configured(self._dial(), settings), self._pool_size, self._timeout, self._patience)

    def _dial(self, **more: Any) -> Connection:
        """A new connection, as the URL says; where it says nothing, as we think best."""
        try:
            said = conninfo_to_dict(self.url)
        except psycopg.ProgrammingError:  # its text may quote the URL, and so a password
            raise ConfigError("database_url: PostgreSQL does not understand this URL") from None
        given = {name: value for name, value in {**_DIALLING, **more}.items() if name not in said}
        connection: Connection = Connection.connect(self.url, autocommit=True, **given)
        connection.patience = max(float(said.get("connect_timeout") or 0), PULSE_PATIENCE)
        self._configure(connection)
        return connection

    def _configure(self, connection: Connection) -> None:
        connection.adapters.register_loader("json", ByteaBinaryLoader)
        connection.prepare_threshold = 3

    def _configured(self, connection: Connection, settings: Mapping[str, str]) -> Connection:
        if not self._listen:  # behind a pooler the session is not ours to set
            return connection
        try:
            told = (list(settings), list(settings.values()), connection.info.backend_pid)
            if not connection.execute(_CONFIGURE, told, prepare=False).fetchall() and self.is_pooled():
                self._prepare = False
        except BaseException:
            connection.close()
            raise
        return connection

    def is_pooled(self, look: bool = False) -> bool:
        """Whether a pooler gives our transactions to sessions that others have too; found out once."""
        if self._is_shared is None or look:
            self._is_shared = is_shared(self._dial)
        return self._is_shared

    @contextmanager
    def _connection(self, pool: Pool | None = None, until: float = float("inf")) -> Iterator[Connection]:
        """A pooled connection; the driver's errors leave as ours."""
        pool = pool or self._pool
        connection = pool.take(until)
        try:
            yield connection
        except psycopg.Error as error:
            if (ours := self._as_ours(error, connection)) is None:
                raise
            raise ours from error
        finally:
            pool.give(connection)

    def _as_ours(self, error: psycopg.Error, connection: Connection) -> Exception | None:
        """What this error of the driver means to whoever called; None when it is a fault of our own."""
        match error:
            case errors.UndefinedTable() | errors.UndefinedColumn():
                return NotMigrated(f"the database is not migrated: run `duly migrate` ({error})")
            case errors.InvalidSqlStatementName() | errors.DuplicatePreparedStatement() | errors.ProtocolViolation():
                # A pooler that hands each transaction to another server connection: go on without prepared statements.
                self._prepare = False
                return StoreUnavailable(f"prepared statements do not survive this pooler: {error}")
            case errors.ReadOnlySqlTransaction():
                connection.close()  # the next one may lead to the server that takes writes
        if isinstance(error, _PASSING):
            return StoreUnavailable(f"not now, but it may be tried again: {error}")
        if isinstance(error, Overdue):
            return StoreUnavailable(f"the database is silent, so it is not known whether this was done: {error}")
        if not isinstance(error, psycopg.OperationalError):
            return None
        if connection.closed:
            return StoreUnavailable(
                f"the connection to the database broke, so it is not known whether this was done: {error}"
            )
        return StoreUnavailable(f"the database cannot do this now: {error}")

    def _run(self, name: str, parameters: Mapping[str, Any], connection: Connection | None = None) -> list[Any]:
        """The rows of one named statement."""
        if connection is not None:
            return self._rows(connection, name, parameters)
        try:
            with self._connection() as own:
                return self._rows(own, name, parameters)
        except StoreUnavailable as error:
            if not self._may_be_repeated(name, parameters, error.__cause__):
                raise
        with self._connection() as own:
            return self._rows(own, name, parameters)

    def _may_be_repeated(self, name: str, parameters: Mapping[str, Any], why: BaseException | None) -> bool:
        """Whether a statement that failed may run a second time: if it surely was not done, or does no harm twice."""
        if isinstance(why, (*_UNPREPARED, *_UNDONE)):
            return True
        is_lost = isinstance(why, psycopg.OperationalError) and not isinstance(why, (Overdue, *_PASSING))
        is_harmless = name in self._reads or (name.startswith("put_one") and parameters["key"] is not None)
        return is_lost and is_harmless

    def _rows(self, connection: Connection, name: str, parameters: Mapping[str, Any]) -> list[Any]:
        if getattr(connection, "patience", 0) is not None:
            is_long = name in JOINED and len(parameters[JOINED[name]]) > LONG_ARRAY
            prepare = False if is_long else self._prepare
            cursor = connection.execute(self._sql[name], parameters, prepare=prepare, binary=True)
            return cursor.fetchall() if cursor.description else []
        # A handler's own statements may take as long as they like; ours on its connection may not.
        connection.patience = self._patience
        try:
            return self._rows(connection, name, parameters)
        finally:
            connection.patience = None

    def _whole(self, act: Callable[[Connection], T]) -> T:
        """Do this in a transaction; a second time if the connection broke before the commit, so surely undid it."""
        is_asked = False
        try:
            with self._connection() as connection, connection.transaction():
                answer = act(connection)
                is_asked = True
            return answer
        except StoreUnavailable as error:
            why = error.__cause__
            if is_asked or why is None or isinstance(why, (Overdue, errors.QueryCanceled)):
                raise
        with self._connection() as connection, connection.transaction():
            return act(connection)

    def now(self) -> datetime:
        now: datetime = self._run("now", {})[0][0]
        return now

    # -- in

    def put(self, new: Sequence[NewItem]) -> list[Placed]:
        if len(new) == 1:
            return [self._put_one(new[0])]
        placed = self._whole(lambda connection: self._put_many(connection, new))
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
            connection.patience = LOAD_SECONDS
            connection.execute("set local idle_in_transaction_session_timeout = 0")  # the rows may come slowly
            connection.execute("set local statement_timeout = 0")
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
        armed = self._whole(lambda connection: self._arm(connection, new, merge))
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
        # Only a hint, and of no use to a server that is away: nobody waits for it.
        if self._pool.trouble is None:
            with self._connection(until=time.monotonic() + 1) as connection:
                self._rows(connection, "tell", {"news": news})

    # -- the engine

    def survey(self, after: Place = START, most: int = 1_000) -> tuple[list[Head], Place | None]:
        names = ("queue", "lane", "rank", "task", "owner")
        heads = heads_of(self._run("survey", {**dict(zip(names, after, strict=True)), "most": most}))
        return self._open(heads), place_of(heads, most)

    def glance(self, now: datetime, most: int) -> tuple[list[Head], datetime | None]:
        parameters = {"now": now, "most": most}
        newest = heads_of(self._run("newest", parameters))
        oldest = heads_of(self._run("oldest", parameters)) if len(newest) == most else []
        return self._open([*newest, *oldest]), self._run("next_due", {"now": now})[0][0]

    def _open(self, heads: list[Head]) -> list[Head]:
        queues = self.open_queues(head.line.queue for head in heads)
        return [head for head in heads if head.line.queue in queues]

    def open_queues(self, names: Iterable[str]) -> set[str]:
        queues = set(names)
        if not queues:
            return queues
        wanted = _texts({name for queue in queues for name in family(queue)})
        return are_open(queues, {row[0] for row in self._run("paused", {"names": wanted})})

    def claim(self, shares: Sequence[Share], worker: str, now: datetime | None, lease: timedelta) -> list[Item]:
        rows = self._run("claim", {**_shares(shares), "worker": worker, "now": now, "lease": lease})
        return claimed_items(rows, worker)

    def claim_metered(
        self, asks: Sequence[Ask], worker: str, now: datetime | None, lease: timedelta, calls: int, batch: int
    ) -> list[Grant]:
        with self._connection() as connection, connection.transaction():
            answers = self._refusals(asks, now, connection) if len(asks) > 2 * calls + FEW else [None] * len(asks)
            # No more meters are locked than these calls could need.
            served = [ask for ask, answer in zip(asks, answers, strict=True) if answer is None][: calls + FEW]
            grants = iter(self._grants(served, worker, now, lease, calls, batch, connection) if served else ())
        return [answer or next(grants, Grant(is_asked=False)) for answer in answers]

    def _refusals(self, asks: Sequence[Ask], now: datetime | None, connection: Connection) -> list[Grant | None]:
        """What can be told without a lock: of very many asks, most may be for keys that are exhausted."""
        rows = self._run("meters", {"names": _texts(_meter_names(asks))}, connection)
        now = now or self._run("now", {}, connection)[0][0]
        rations = Rations(asks, rows, self._under_way(asks, connection), now)
        return [rations.refusal(ask) for ask in asks]

    def _grants(
        self,
        asks: Sequence[Ask],
        worker: str,
        now: datetime | None,
        lease: timedelta,
        calls: int,
        batch: int,
        connection: Connection,
    ) -> list[Grant]:
        names = _meter_names(asks)
        given = {"names": _texts(names), "now": now}
        rows = self._run("lock_meters", given, connection)
        if len(rows) < len(names):
            self._run("new_meters", {"names": names}, connection)
            rows = self._run("lock_meters", given, connection)
        # The time after the last lock, when nobody else can be granted anything: grants are in the order of their time.
        at: datetime = max((row[4] for row in rows), default=now) or self._run("now", {}, connection)[0][0]
        rations = Rations(asks, [row[:4] for row in rows], self._under_way(asks, connection), at)
        grants = ration(asks, rations, calls, batch, partial(self._pick, at, connection))
        if leases := leases_for(asks, grants, batch):
            fences = self._start(leases, dict(rations.hits()), worker, at, at + lease, connection)
            grants = under(fences, grants, claimed_by=worker, started_at=at)
        return grants

    def _under_way(self, asks: Sequence[Ask], connection: Connection) -> dict[str, int]:
        names = sorted({meter.name for ask in asks for meter in ask.meters if meter.is_concurrency})
        return dict(self._run("under_way", {"names": _texts(names)}, connection)) if names else {}

    def _pick(self, now: datetime, connection: Connection, shares: Sequence[Share]) -> list[list[Item]]:
        picked: list[list[Item]] = [[] for _ in shares]
        given = {**_shares(shares), "started_sinces": _times(share.started_since for share in shares), "now": now}
        for place, *row in self._run("pick", given, connection):
            picked[place].append(waiting_item(row))
        return [sorted(items, key=in_order) for items in picked]

    def _start(
        self,
        leases: Sequence[tuple[list[Item], list[str] | None]],
        hits: Mapping[str, Sequence[datetime]],
        worker: str,
        now: datetime,
        lease_until: datetime,
        connection: Connection,
    ) -> dict[int, int]:
        """Take these items; the fence of each."""
        rows = self._run(
            "start",
            {
                "worker": worker,
                "now": now,
                "lease_until": lease_until,
                "ids": _ints(item.id for items, _ in leases for item in items),
                "items": _texts(_ints(item.id for item in items) for items, _ in leases),
                "meters": [None if names is None else encode(names).decode() for _, names in leases],
                "names": _texts(hits),
                "hits": _texts(_times(log) for log in hits.values()),
            },
            connection,
        )
        return {item_id: fence for fence, ids in rows for item_id in ids}

    def extend(self, held: Mapping[int, Sequence[int]], now: datetime, lease_until: datetime) -> list[tuple[int, int]]:
        pairs = [(item_id, fence) for fence, ids in held.items() for item_id in ids]
        return self._run(
            "extend",
            {
                "fences": _ints(held),
                "ids": _ints([item_id for item_id, _ in pairs]),
                "item_fences": _ints([fence for _, fence in pairs]),
                "now": now,
                "lease_until": lease_until,
            },
        )

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
        if len({change.fence for change in plain}) > FEW:  # claims of one call each, as under limits at the same time
            settled.update(self._settle_each(plain, to_close, connection))
            to_close.difference_update(map(_fence, plain))
            plain = []
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

    def _settle_each(
        self, changes: list[Change], closed: set[int], connection: Connection | None
    ) -> Iterator[tuple[int, int]]:
        # An item that came back under another fence may be here twice, and a statement changes a row once.
        for same in rounds_of(changes, key=_id):
            parameters = {
                "ids": _ints([change.id for change in same]),
                "fences": _ints([change.fence for change in same]),
                "finished_at": same[0].finished_at,
                "closed": _ints({change.fence for change in same} & closed),
            }
            yield from self._run("settle_each_done", parameters, connection)

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
        for some in rounds_of(members, key=_schedule_id):
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
        without: Sequence[int] = (),
    ) -> int:
        with self._joining(connection) as connection:
            if which is None:
                schedules = self._due_schedules(now, most, connection, without)
                items = self._last_items(schedules, connection)
            else:
                schedules = [Schedule(*row) for row in self._run("some_schedules", {"ids": _ints(which)}, connection)]
                items = [Item(*row) for row in self._run("waiting_of", {"ids": _ints(which)}, connection)]
                single = {"ids": _ints(one_at_a_time(schedules))}
                items += [Item(*row) for row in self._run("running_of", single, connection)]
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

    def _due_schedules(
        self, now: datetime, most: int, connection: Connection, without: Sequence[int]
    ) -> list[Schedule]:
        """The oldest, but first some of those that have just become due: a backlog must not make them late."""
        rows: list[Any] = []
        for since, part in ((now - FRESH, most // 2), (EPOCH, most)):
            seen = _ints([*without, *(row[0] for row in rows)])
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
        return self.under([row[0] for row in self._run("expired", {"now": now, "most": most})])

    def leases(self) -> list[tuple[int, str, datetime]]:
        return self._run("leases", {})

    def under(self, fences: Sequence[int]) -> tuple[list[Item], list[int]]:
        return items_under(self._run("under", {"fences": _ints(fences)}))

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
    def transaction(self, is_handlers: bool = False, until: float = float("inf")) -> Iterator[Connection]:
        pool = self._handlers if is_handlers else self._short
        with self._connection(pool, until) as connection, connection.transaction():
            if is_handlers:  # what it does there may take as long as it likes
                connection.patience = None
            try:
                yield connection
            finally:
                connection.patience = self._patience

    @contextmanager
    def migrations(self) -> Iterator[Connection]:
        """One migrator at a time, and none that waits long for a lock while live work queues up behind it."""
        with self._connection() as connection, connection.transaction():
            connection.patience = None
            connection.execute("set local statement_timeout = 0", prepare=False)
            connection.execute("select pg_advisory_xact_lock(%s)", (MIGRATION_LOCK,), prepare=False)
            connection.execute("set local lock_timeout = '2s'", prepare=False)
            yield connection

    def watch(self, tell: Callable[[News], None], stop: threading.Event) -> None:
        while self._listen and not stop.is_set():
            try:
                if self.is_pooled():
                    log.warning(
                        "LISTEN does not work behind this transaction pooler: going on without, new work is found by "
                        "sweeps; set DULY_LISTEN=false, or give workers the server's own address"
                    )
                    break
                with self._dial(application_name="duly-watch") as ear:
                    ear.execute("listen duly")
                    tell(None)
                    self._listen_on(ear, tell, stop)
            except psycopg.OperationalError:
                stop.wait(1.0)
        stop.wait()

    def _listen_on(self, ear: Connection, tell: Callable[[News], None], stop: threading.Event) -> None:
        """Tell until `stop`, or until this connection gives no sign of life any more."""
        ear.patience = PULSE_PATIENCE
        pulse = time.monotonic() + PULSE
        while not stop.is_set():
            for note in ear.notifies(timeout=2.5):
                tell(head_of(note.payload))
                if stop.is_set():
                    break
            if time.monotonic() > pulse:
                ear.execute("select 1", prepare=False)
                pulse = time.monotonic() + PULSE


_id = attrgetter("id")
_schedule_id = attrgetter("schedule_id")
_fence = attrgetter("fence")
_ring = attrgetter("ring")


def _shares(shares: Sequence[Share]) -> dict[str, Any]:
    ranks = [(place, rank) for place, share in enumerate(shares) for rank in share.ranks]
    return {
        "queues": _texts(share.line.queue for share in shares),
        "tasks": _texts(share.line.task for share in shares),
        "owners": _texts(share.line.owner for share in shares),
        "lanes": _texts(share.lane for share in shares),
        "limits": _ints([share.limit for share in shares]),
        "places": _ints(range(len(shares))),
        "rank_places": _ints([place for place, _ in ranks]),
        "ranks": _ints([rank for _, rank in ranks]),
        "floors": _times(floor for share in shares for floor in share.floors or [EPOCH] * len(share.ranks)),
        "families": _texts(sorted(families(shares))),
    }


def _meter_names(asks: Iterable[Ask]) -> list[str]:
    return sorted({meter.name for ask in asks for meter in ask.meters})


def _times(values: Iterable[datetime | None]) -> str:
    return "{" + ",".join("null" if value is None else value.isoformat() for value in values) + "}"


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
