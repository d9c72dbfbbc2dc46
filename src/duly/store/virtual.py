"""What worlds in virtual time need of stores, for puts on connections of callers: `duly.virtual.promises` explains it.

A note is a row in the app's own database, written in the caller's transaction. What was put gets into the database of
the world, under ids that were reserved there, when its note has been committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec.structs import asdict

from duly.core import codec
from duly.core.errors import NotMigrated, StoreError, StoreUnavailable
from duly.core.model import Job, NewItem, NewJob, NewRow, Placed
from duly.store.borrow import NewWork, brought_up_to_date
from duly.store.contract import Store
from duly.store.dialects import Colour
from duly.store.home import check
from duly.store.lenders import lender
from duly.store.puts import conflict, key_parameters

# Notes of worlds that have ended without taking them are removed when they are this old.
OLD = timedelta(days=1)
PORTION = 5_000  # rows of a job that are written in one transaction


# -- notes, in the app's own database


async def note(
    connection: Any, colour: Colour, store: Store, pending: Iterable[str], decide: Callable[[set[str]], str | None]
) -> None:
    """Note in the caller's transaction, in the database of this store, that something was put inside of it.

    `decide` is given those of the pending notes that the transaction sees, and returns the id of the new one, if any.
    """
    owner = await lender(connection, colour)
    await check(owner, store)
    await brought_up_to_date(owner)
    asked = list(pending)
    rows = await owner.ask("virtual_puts", {"ids": codec.text(asked)}) if asked else []
    seen = {row[0].decode() if isinstance(row[0], bytes) else str(row[0]) for row in rows}
    if (new := decide(seen)) is not None:
        await owner.ask("note_virtual_put", {"id": new})


def committed(store: Store, notes: Sequence[str]) -> set[str]:
    """Those of these notes whose transactions have committed."""
    try:
        return {row[0] for row in store.read("virtual_puts", {"ids": codec.text(notes)})}
    except NotMigrated:  # the transaction that brings the tables is still open
        return set()
    except StoreUnavailable:
        if not store.takes_turns:
            raise
        return set()  # a transaction that is still open has locked the file


def forget(store: Store, notes: Sequence[str]) -> None:
    """Remove these notes, and old ones of other worlds."""
    with suppress(StoreError):  # they are harmless, and the next world removes them
        store.write("forget_virtual_puts", {"ids": codec.text(notes), "before": datetime.now(UTC) - OLD})


# -- the database of the world


def reserved(store: Store, table: str, count: int) -> range:
    """Ids that no row of this table will get by itself."""
    with store.transaction() as connection:
        store.write("begin_ids", {"name": table}, connection)
        ((last,),) = store.write("reserve_ids", {"name": table, "count": count}, connection)
    return range(last - count + 1, last + 1)


def holder(store: Store, new: NewItem) -> Placed[Any] | None:
    """The live item that has the key of this one; None if there is none. Other content is an error."""
    for item_id, execution_key, args, planned_at in store.read("live", key_parameters(new)):
        if refusal := conflict(new, item_id, args.encode(), planned_at):
            raise refusal
        return Placed(id=item_id, execution_key=execution_key, fresh=False)
    return None


def job_under_key(store: Store, new: NewJob) -> Job | None:
    """The job that has this key already."""
    given = {"owner": new.owner, "key": new.key, "tasks": codec.text([new.task])}
    return next((Job(*row) for row in store.read("jobs_under_key", given)), None)


def keep_item(store: Store, new: NewItem, item_id: int, execution_key: str) -> None:
    """Put this item under an id and a key that were reserved for it."""
    (placed,) = store.put([new])
    if placed.fresh:
        store.write("move_item", {"id": item_id, "execution_key": execution_key, "was": placed.id})


def keep_job(store: Store, new: NewWork, job_id: int, rows: Sequence[NewRow]) -> None:
    """Put this job with these rows under an id that was reserved for it."""
    given = {name: value.decode() if isinstance(value, bytes) else value for name, value in asdict(new.job).items()}
    with store.transaction() as connection:
        ((*row,),) = store.write("open_job", {**given, "now": new.now}, connection)
        if (opened := Job(*row)).total or opened.is_sealed:  # another call has put it under this key meanwhile
            return
        store.write("move_job", {"id": job_id, "was": opened.id}, connection)
        store.write("note_each", {**new.note, "subjects": codec.text([f"job:{job_id}"])}, connection)
    store.put([new.tidy])
    for start in range(0, len(rows), PORTION):
        store.load_rows(job_id, start + 1, rows[start : start + PORTION])
    store.seal_job(job_id, new.now)
