"""What tests arrange with: builders with sensible defaults, and looks at what a store keeps."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import psycopg
from psycopg import sql

from duly.core.clock import EPOCH
from duly.core.decide import Rules, decide
from duly.core.model import Change, Head, Item, Lane, Line, NewItem, Outcome, Share, Tried
from duly.core.shown import Row
from duly.plugin import plugins
from duly.policy import Backoff
from duly.store import Store, open_store
from duly.store.migrate import dialect_of

NOW = datetime(2026, 1, 1, 9, 0, tzinfo=UTC)
LEASE = timedelta(seconds=20)
# What a worker of this version writes beside its name and tasks.
KNOWN = {"migration": 14, "hindrance": None, "runaways": 0, "ailing": None}
RULES = Rules(retry=Backoff(base=60, tries=3))

CHAOS = bool(os.environ.get("DULY_TEST_CHAOS"))  # `make chaos`: long forms


def scaled(short: int, long: int) -> int:
    """A size: `long` in `make chaos`, and `short` in `make test`, where a larger one would prove the same more slowly.

    A file that uses it is in SCALED of tools/test.
    """
    return long if CHAOS else short


def app_migrations() -> dict[str, Path]:
    """The folders with the migrations of all apps that come with duly."""
    return {name: plugin.migrations for name, plugin in plugins().items() if plugin.migrations is not None}


def after(seconds: float) -> datetime:
    """This many seconds after NOW."""
    return NOW + timedelta(seconds=seconds)


def new(
    task: str = "ring",
    *,
    args: Any = None,
    due_at: datetime | None = NOW,
    key: str | None = None,
    queue: str | None = None,
    **more: Any,
) -> NewItem:
    """A new item, due at NOW, of a task whose queue has the task's name. Bytes as `args` are taken as they are."""
    text = args if isinstance(args, bytes) else msgspec.json.encode(args or {})
    return NewItem(task=task, queue=queue or task, args=text, due_at=due_at, key=key, **more)


def put(store: Store, count: int = 1, task: str = "ring", **more: Any) -> list[int]:
    """Put `count` items; returns their ids."""
    return [placed.id for placed in store.put([new(task, **more) for _ in range(count)])]


def share(
    queue: str = "ring",
    lane: Lane = "main",
    ranks: Sequence[int] = (0,),
    limit: int = 100,
    task: str | None = None,
    owner: str = "",
    **more: Any,
) -> Share:
    """A share of the line of a task whose queue has the task's name."""
    return Share(Line(queue, task or queue, owner), lane, tuple(ranks), limit, **more)


def head(queue: str, lane: Lane = "main", rank: int = 0, due_at: datetime = NOW, task: str | None = None) -> Head:
    return Head(Line(queue, task or queue), lane, rank, due_at)


def heads(store: Store) -> list[Head]:
    """All of them, however many there are."""
    found, place = store.survey()
    while place is not None:
        more, place = store.survey(place)
        found += more
    return found


def claim(
    store: Store,
    *shares: Share,
    tasks: Sequence[str] = ("ring",),
    worker: str = "w1",
    now: datetime = NOW,
    lease: timedelta = LEASE,
) -> list[Item]:
    """Claim what is due; without shares, up to a hundred from both lanes of each task's queue."""
    every = [share(task, lane) for task in tasks for lane in ("main", "retry")]
    return store.claim(shares or every, worker, now, lease)


def claim_one(store: Store, **more: Any) -> Item:
    (item,) = claim(store, **more)
    return item


def claim_alone(store: Store, **more: Any) -> Item:
    """Claim the next item of `ring`, and only that."""
    (item,) = claim(store, share(limit=1), **more)
    return item


def put_and_claim(store: Store, count: int = 1, **more: Any) -> list[Item]:
    put(store, count, **more)
    return claim(store)


def together(*jobs: Callable[[], object]) -> None:
    """Run these at the same time, each in a thread of its own; the first error of any is raised."""
    with ThreadPoolExecutor(len(jobs)) as pool:
        for running in [pool.submit(job) for job in jobs]:
            running.result()


def settle(store: Store, items: Item | Sequence[Item], outcome: Outcome, now: datetime = NOW, **more: Any) -> list[int]:
    """Decide the same outcome for each of these items and settle them together; returns the refused ids."""
    some = [items] if isinstance(items, Item) else items
    return store.settle([decided(item, outcome, now) for item in some], **more)


def decided(item: Item, outcome: Outcome, now: datetime = NOW, rules: Rules = RULES) -> Change:
    return decide(item, outcome, now, rules)


def fetch(store: Store, item_id: int) -> Item:
    (item,) = store.fetch([item_id])
    return item


def show(store: Store, item_id: int) -> dict[str, Any]:
    """The whole row by column name; fails when it is gone."""
    (row,) = store.read("show", {"id": item_id})
    return dict(zip((*Row.__struct_fields__, "lease_until"), row, strict=True))


def prune(store: Store, before: datetime, portion: int = 100) -> int:
    """Forget everything that finished before then, portion by portion; returns how many items are gone."""
    gone, after = 0, 0
    while True:
        some, go_on = store.prune(before, after, portion)
        gone += some
        if go_on is None:
            return gone
        assert go_on > after
        after = go_on


def exists(store: Store, item_id: int) -> bool:
    return bool(store.fetch([item_id]))


def tries(store: Store, item_id: int) -> list[dict[str, Any]]:
    """The records of the tries that did not succeed, oldest first."""
    return [dict(zip(Tried.__struct_fields__, row, strict=True)) for row in store.read("attempts", {"id": item_id})]


def leases(store: Store) -> dict[int, tuple[str, datetime, list[int]]]:
    """Every lease by its fence: the worker, until when, and its items."""
    with store.transaction() as connection:
        return leases_on(connection)


def leases_on(connection: Any) -> dict[int, tuple[str, datetime, list[int]]]:
    rows = connection.execute("select fence, worker, lease_until, items from duly_lease order by fence")
    return {
        fence: (
            worker,
            EPOCH + timedelta(microseconds=until) if isinstance(until, int) else until,
            sorted(msgspec.json.decode(items) if isinstance(items, str) else items),
        )
        for fence, worker, until, items in rows.fetchall()
    }


def counts(store: Store) -> dict[str, int]:
    """How many items there are in each state that has any."""
    return dict(query(store, "select state, count(*) from duly_item group by state"))


def query(store: Store, text: str) -> list[tuple[Any, ...]]:
    """The rows of a statement without parameters, which both databases understand."""
    with store.transaction() as connection:
        rows: list[tuple[Any, ...]] = connection.execute(text).fetchall()
        return rows


def is_sqlite(store: Store) -> bool:
    return dialect_of(store) == "sqlite"


@contextmanager
def opened(url: str, **options: Any) -> Iterator[Store]:
    """A store that is closed at the end of the block."""
    store = open_store(url, **options)
    try:
        yield store
    finally:
        store.close()


@contextmanager
def fresh_database(server: str) -> Iterator[str]:
    """A new database on this server, dropped at the end of the block with whatever is still connected to it."""
    name = f"duly_{os.environ.get('PYTEST_XDIST_WORKER', 'main')}_{secrets.token_hex(4)}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(sql.SQL("create database {} template template0").format(sql.Identifier(name)))
    head, mark, query = server.partition("?")
    try:
        yield f"{head.rpartition('/')[0]}/{name}{mark}{query}"
    finally:
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name)))
