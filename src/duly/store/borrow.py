"""Puts and other acts on a connection that the caller owns: they exist if and only if the caller's transaction commits.

`lenders` knows the kinds of connections, and `home` whether one leads to the app's database. What is put as a whole,
many rows or a job with its rows, is written behind a savepoint: if it fails, the caller's transaction is as before.
Errors of the driver are passed on as they are, except that of a missing schema. Only the caller's connection writes,
because it may hold SQLite's write lock.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import datetime
from functools import cache, partial
from typing import Any, NamedTuple, TypeVar

from msgspec.structs import asdict

from duly.core import codec
from duly.core.errors import DulyError, KeyConflict, NotMigrated
from duly.core.model import Job, NewItem, NewJob, NewRow, Placed
from duly.store.contract import Store
from duly.store.dialects import Colour, Dialect, Parameters, at_once
from duly.store.home import check
from duly.store.lenders import Lender, driver_connection, lender
from duly.store.migrate import LEDGER, VERSION, migrations, statements_of
from duly.store.puts import conflict, key_parameters
from duly.store.records import JOB, NEW_ITEM, NEW_ROW
from duly.store.settling import sequel

N = TypeVar("N", bound=NewItem)

# Rows, and bytes of their arguments, that one statement writes.
PORTION = 1_000
PORTION_BYTES = 4_000_000
# With more different announcements than this, workers are asked to look for themselves.
MOST_NEWS = 20
# Times that a put is repeated whose key was taken, but is free again. Keys stay reserved while very many items are put.
TRIES = 10


class NewWork(NamedTuple):
    """A job with its rows, to be put as a whole."""

    job: NewJob
    note: Mapping[str, Any]  # the line of the audit log about a new job, without its subject
    tidy: NewItem  # what removes jobs some day
    now: datetime
    rows: Callable[[Job], Iterator[NewRow]]


def put_borrowed(connection: Any, new: NewItem, store: Store | None = None) -> Placed[Any]:
    """Put inside the caller's transaction. With a store, the connection has to lead to its database."""
    return at_once(_put(connection, "sync", store, new))


async def aput_borrowed(connection: Any, new: NewItem, store: Store | None = None) -> Placed[Any]:
    """The same on an async connection."""
    return await _put(connection, "async", store, new)


def load_borrowed(connection: Any, new: Iterable[NewItem], store: Store) -> int:
    """Put any number of items inside the caller's transaction, all or none; returns how many are new."""
    return at_once(_load(connection, "sync", store, _portions(new)))


async def aload_borrowed(connection: Any, new: Iterable[NewItem], store: Store) -> int:
    """The same on an async connection. Rows are taken in a thread, because they may come slowly."""
    return await _load(connection, "async", store, _portions(new))


def fan_out(connection: Any, new: NewWork, store: Store) -> Job:
    """Put a job with its rows inside the caller's transaction, all or none; returns the job."""
    return at_once(_fan_out(connection, "sync", store, new))


async def afan_out(connection: Any, new: NewWork, store: Store) -> Job:
    """The same on an async connection."""
    return await _fan_out(connection, "async", store, new)


@contextmanager
def lent(store: Store, connection: Any) -> Iterator[Any]:
    """The caller's connection as verbs on this store use it: what they do there is done as a whole or not at all."""
    if store.is_virtual:  # its error says what to do
        at_once(_check(connection, store))
    with store.lent(driver_connection(connection)) as own:
        at_once(_check(connection, store))
        yield own


async def _check(connection: Any, store: Store) -> None:
    await check(await lender(connection, "sync"), store)


# -- one item


async def _put(connection: Any, colour: Colour, store: Store | None, new: NewItem) -> Placed[Any]:
    owner = await lender(connection, colour)
    if store is not None:
        await check(owner, store)
    try:
        return await _place(owner, new)
    except DulyError:
        raise
    except Exception as error:  # the schema may be old or not there yet
        if not owner.dialect.is_behind(error):
            raise
        if not owner.dialect.is_embedded:
            raise _not_migrated(error) from error
        # Nothing else migrates an embedded database, and only this connection can: it may hold the write lock.
        if not await _migrate(owner):
            raise
    return await _place(owner, new)


def _not_migrated(error: Exception) -> NotMigrated:
    return NotMigrated(f"the database is not migrated: run `duly migrate` ({error})")


async def _place(owner: Lender, new: NewItem) -> Placed[Any]:
    dialect, ask = owner.dialect, owner.ask
    section, parameters = dialect.put(new)
    for _ in range(TRIES):
        rows = await ask(section, parameters)
        if rows:
            return Placed(id=rows[0][0], execution_key=_str(rows[0][1]), fresh=True)
        for item_id, execution_key, args, planned_at in await ask("live", key_parameters(new)):
            if refusal := conflict(new, item_id, _str(args).encode(), dialect.time(planned_at)):
                raise refusal
            return Placed(id=item_id, execution_key=_str(execution_key), fresh=False)
    raise KeyConflict(f"{new.key!r} of {new.task} is in a put of many items that has not ended yet; try again", 0)


async def _migrate(owner: Lender) -> bool:
    """Migrate the caller's own database; False when there is nothing to do.

    Under a savepoint it is part of the caller's transaction; if the caller has none open, it is a transaction itself.
    """
    ask = owner.ask
    await ask("savepoint duly_migration", {})
    try:
        await ask(LEDGER, {})
        have = (await ask(VERSION, {}))[0][0]
        missing = [migration for migration in migrations(owner.dialect.name) if migration.version > have]
        for migration in missing:
            for statement in statements_of(migration):
                await ask(statement, {})
    except Exception:
        await ask("rollback to duly_migration", {})
        await ask("release duly_migration", {})
        raise
    await ask("release duly_migration", {})
    return bool(missing)


# -- many items, as a whole


@asynccontextmanager
async def _whole(owner: Lender) -> AsyncIterator[None]:
    """What is written in the block is kept as a whole; after an error the caller's transaction is as it was before."""
    await brought_up_to_date(owner)
    whole = await owner.dialect.whole(owner.ask, owner.driver)
    try:
        yield
        for statement in whole.keep:
            await owner.ask(statement, {})
    except BaseException as error:
        with suppress(Exception):  # the first error says more
            for statement in whole.undo:
                await owner.ask(statement, {})
        if isinstance(error, Exception) and owner.dialect.is_behind(error) and not owner.dialect.is_embedded:
            raise _not_migrated(error) from error
        raise


async def brought_up_to_date(owner: Lender) -> None:
    """Migrate an embedded database, if it is not."""
    if owner.dialect.is_embedded and await _version(owner) < _latest(owner.dialect.name):
        await _migrate(owner)


async def _version(owner: Lender) -> int:
    try:
        return int((await owner.ask(VERSION, {}))[0][0])
    except Exception as error:
        if not owner.dialect.is_behind(error):
            raise
        return 0


@cache
def _latest(dialect: str) -> int:
    return migrations(dialect)[-1].version


async def _load(connection: Any, colour: Colour, store: Store, portions: Iterator[Sequence[NewItem]]) -> int:
    owner = await lender(connection, colour)
    await check(owner, store)
    fresh, news = 0, set[str]()
    portion = await _next(portions, colour)  # before anything is locked
    async with _whole(owner):
        while portion is not None:
            fresh += await _write(owner, portion)
            news |= owner.dialect.news(portion)
            portion = await _next(portions, colour)
        await _announce(owner, news)
    return fresh


async def _write(owner: Lender, portion: Sequence[NewItem]) -> int:
    """Insert these; returns how many of them are new. Keys that live items have must belong to the same content."""
    rows = await owner.ask("put_each", {"rows": owner.dialect.rows(NEW_ITEM, portion)})
    fresh = len(rows)
    if fresh < len(portion):
        inserted = {_str(key) for (key,) in rows if key is not None}
        for item in portion:
            if item.key is None or item.key in inserted:
                inserted.discard(item.key or "")
            else:
                fresh += (await _place(owner, item)).fresh
    return fresh


async def _announce(owner: Lender, news: set[str]) -> None:
    if news:
        some = sorted(news) if len(news) <= MOST_NEWS else [""]
        await owner.ask("tell", {"news": codec.text(some)})


def _portions(new: Iterable[N]) -> Iterator[Sequence[N]]:
    """Rows as they come, in portions that a statement can take."""
    portion: list[N] = []
    size = 0
    for item in new:
        portion.append(item)
        size += len(item.args)
        if len(portion) == PORTION or size >= PORTION_BYTES:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion


async def _next(portions: Iterator[Sequence[N]], colour: Colour) -> Sequence[N] | None:
    return next(portions, None) if colour == "sync" else await asyncio.to_thread(next, portions, None)


# -- a job


async def _fan_out(connection: Any, colour: Colour, store: Store, new: NewWork) -> Job:
    owner = await lender(connection, colour)
    await check(owner, store)
    async with _whole(owner):
        job = await _ask_job(owner, "open_job", {**asdict(new.job), "now": new.now})
        if job.is_sealed:  # an earlier call has put it under this key
            return job
        await _place(owner, new.tidy)
        if not job.total:
            await owner.ask("note_each", owner.dialect.given({**new.note, "subjects": codec.text([f"job:{job.id}"])}))
        total = await _fill(owner, job, _portions(new.rows(job)), colour)
        grown = {"id": job.id, "rows": total - job.total, "failed": 0, "now": new.now}
        await owner.ask("job_grew", owner.dialect.given(grown))
        job = await _ask_job(owner, "seal_job", {"id": job.id, "now": new.now})
        if job.is_over:
            await _conclude(owner, job, new.now)
    return job


async def _fill(owner: Lender, job: Job, portions: Iterator[Sequence[NewRow]], colour: Colour) -> int:
    """Add rows to a job; returns the number of the last one."""
    number, news = job.total, set[str]()
    while (portion := await _next(portions, colour)) is not None:
        rows = await owner.ask("load_each", {"rows": owner.dialect.rows(NEW_ROW, portion)})
        if len(rows) < len(portion):
            inserted = {row_no for (row_no,) in rows}
            row = next(row for row in portion if row.row_no not in inserted)
            raise KeyConflict(
                f"row {row.row_no:,}: another row or a live item of {row.task} has the key {row.key!r}", 0
            )
        number += len(portion)
        news |= owner.dialect.news(portion)
    await _announce(owner, news)
    return number


async def _conclude(owner: Lender, job: Job, now: datetime) -> None:
    """Write that a job without rows is over, and put its sequel."""
    then_id = None
    if (then := sequel(job)) is not None:
        try:
            then_id = (await _place(owner, then)).id
        except KeyConflict as error:  # a live item has this key already, which will do
            then_id = error.item_id
    await owner.ask("end_job", owner.dialect.given({"id": job.id, "finished_at": now, "then_id": then_id}))


async def _ask_job(owner: Lender, section: str, parameters: Parameters) -> Job:
    ((*row,),) = await owner.ask(section, owner.dialect.given(parameters))
    return Job(*map(partial(_value, owner.dialect), JOB.fields.values(), row))


def _value(dialect: Dialect, kind: type, value: Any) -> Any:
    """A value of a row as its field holds it, whatever types the caller has set on the connection."""
    if value is None:
        return None
    if kind is datetime:
        return dialect.time(value)
    if kind is bytes:
        return value.encode() if isinstance(value, str) else value if isinstance(value, bytes) else codec.encode(value)
    return _str(value) if kind is str else kind(value)


def _str(text: Any) -> str:
    """Text, also from a SQLite connection whose text_factory is bytes."""
    return text.decode() if isinstance(text, bytes) else str(text)
