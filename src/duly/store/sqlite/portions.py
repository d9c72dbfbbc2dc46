"""Puts. Very many items would keep other writers waiting for long, so they are put in portions, and still all or none.

    set aside   Rows are written to `duly_load_part`, where nothing looks for them. Keys are checked, and reserved.
    decided     One small statement says that all of them are put.
    spread      Each portion becomes items, in the transaction that removes it from where it was set aside.

A failure, or the death of the process, before the decision means that nothing was put; after it, that everything was.
Other writers have their turn between any two portions.

A process that loads holds a lock on a file beside the database, which the kernel frees when it dies. Whoever finds a
load without that lock finishes it, if it was decided, or else removes what was set aside. Both may happen twice, or be
cut off: each portion is removed in the transaction that uses it. If somebody takes a live process for a dead one all
the same, because its file was removed, nothing is lost in silence: a load of which a portion is gone is not decided.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import IO, Any, TypeVar
from uuid import uuid4

import msgspec

from duly.core.clock import EPOCH
from duly.core.errors import KeyConflict, StoreUnavailable
from duly.core.forks import renew_in_children
from duly.core.model import NewItem, Placed
from duly.store.contract import Store
from duly.store.puts import chunks, conflict, key_parameters
from duly.store.records import NEW_ITEM
from duly.store.sqlite.file import SqliteFile
from duly.store.sqlite.values import new_item_row, to_int, written

# With up to this many rows, a put is a single transaction.
DIRECT = 5_000
# Rows of one portion: a transaction of some tens of milliseconds.
PORTION = 2_000
# Seconds between two portions, for another process to take its turn.
BREATH = 0.002
# Seconds between two looks at a key that another load has reserved.
LOOK_AGAIN = 0.05
# Portions of dead processes that are finished or removed at a time.
SWEPT = 4

T = TypeVar("T")

_new_item = written(NEW_ITEM)
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[NewItem]).decode


class KeyReserved(KeyConflict):
    """Another process is putting very many items just now, one of them with this key."""

    def __init__(self, item: NewItem) -> None:
        super().__init__(f"{item.key!r} of {item.task} is in a put_many that has not ended yet; try again", 0)


class Portions(SqliteFile, Store):
    """Puts, of one item or very many."""

    def _put_many(self, connection: sqlite3.Connection, new: Sequence[NewItem]) -> list[Placed[Any]]:
        return [self._put_one(connection, item) for item in new]

    def _put_one(self, connection: sqlite3.Connection, item: NewItem) -> Placed[Any]:
        rows = self._rows(connection, "put_one", _new_item(item, to_int(self.now())))
        if rows:
            return Placed(id=rows[0][0], execution_key=rows[0][1], fresh=True)
        holder = self.holder(item, connection)
        if holder is None:  # there is no other writer in the meantime
            raise KeyReserved(item)
        return holder

    def _whole(self, act: Callable[[sqlite3.Connection], T]) -> T:
        return self._patiently(lambda: super(Portions, self)._whole(act))

    def _patiently(self, act: Callable[[], T]) -> T:
        """Do this once no other process is putting an item with a key that it needs."""
        give_up = time.monotonic() + self._timeout
        while True:
            try:
                return act()
            except KeyReserved as error:
                if time.monotonic() > give_up:
                    raise StoreUnavailable(f"{self.path}: {error}") from error
            if not self.finish_loads():
                time.sleep(LOOK_AGAIN)

    def load(self, new: Iterable[NewItem]) -> int:
        portions = chunks(new, PORTION)
        first: list[list[NewItem]] = []
        for portion in portions:
            first.append(portion)
            if sum(map(len, first)) > DIRECT:
                return self._load_aside(chain(first, portions))
        return self._patiently(lambda: self._load_at_once(first))

    def _load_at_once(self, portions: Sequence[Sequence[NewItem]]) -> int:
        with self._writing() as writer:
            now = to_int(self.now())
            return sum(self._insert(writer, portion, now) for portion in portions)

    def _load_aside(self, portions: Iterator[list[NewItem]]) -> int:
        mark = LoadMark(self.path, uuid4().hex)
        with closing(mark):
            mark.take()
            given = {"token": mark.token, "now": self.now()}
            ((load_id,),) = self._run("begin_load", given)
            try:
                fresh = [self._set_aside(load_id, number, portion) for number, portion in enumerate(portions)]
                self._decide(load_id, len(fresh))
            finally:
                while self._advance(load_id):
                    time.sleep(BREATH)
            return sum(fresh)

    def _insert(
        self, connection: sqlite3.Connection, items: Sequence[NewItem], now: int, is_decided: bool = False
    ) -> int:
        """Put a portion of a load; returns how many items are new.

        Where the put is decided already, an item whose key another one has taken after all goes to review.
        """
        if all(item.key is None for item in items):
            connection.executemany(self._sql["load"], [new_item_row(item, now) for item in items])
            return len(items)
        fresh = 0
        for item in items:
            try:
                fresh += self._put_one(connection, item).fresh
            except KeyConflict as error:
                if not is_decided:
                    raise
                self._rows(connection, "put_refused", {**_new_item(item, now), "now": now, "error": str(error)})
        return fresh

    def _set_aside(self, load_id: int, number: int, portion: list[NewItem]) -> int:
        def act() -> int:
            with self._writing() as writer:
                fresh = [item for item in portion if item.key is None or self._reserve(writer, load_id, number, item)]
                given = {"id": load_id, "number": number, "rows": _encode(fresh).decode()}
                if not self._run("set_aside", given, writer):
                    raise self._removed()
            return len(fresh)

        count = self._patiently(act)
        time.sleep(BREATH)
        return count

    def _reserve(self, writer: sqlite3.Connection, load_id: int, number: int, item: NewItem) -> bool:
        """Whether this key is new. It stays reserved until its item is put."""
        if self.holder(item, writer) is not None:
            return False
        at = to_int(item.due_at or EPOCH)
        given = {**key_parameters(item), "id": load_id, "number": number, "digest": _digest(item), "at": at}
        if self._run("reserve", given, writer):
            return True
        ((other, digest, planned_at),) = self._run("reserved", key_parameters(item), writer)
        if other != load_id:
            raise KeyReserved(item)
        if refusal := conflict(item, 0, item.args if digest == _digest(item) else b"", planned_at):
            raise KeyConflict(f"{item.key!r} of {item.task} is here twice, with other contents", 0) from refusal
        return False

    def _decide(self, load_id: int, parts: int) -> None:
        if not self._run("decide_load", {"id": load_id, "parts": parts, "now": self.now()}):
            raise self._removed()

    def _removed(self) -> StoreUnavailable:
        return StoreUnavailable(f"{self.path}: what was set aside for this put was removed meanwhile")

    def _advance(self, load_id: int) -> bool:
        """Make items of the next portion, or remove it if the load is not decided; False when there is none left."""
        with self._writing() as writer:
            if not (found := self._run("next_part", {"id": load_id}, writer)):
                self._run("end_load", {"id": load_id}, writer)
                return False
            ((number, rows, decided_at),) = found
            given = {"id": load_id, "number": number}
            self._run("free_keys", given, writer)
            if decided_at is not None:
                self._insert(writer, _decode(rows), decided_at, is_decided=True)
            self._run("remove_part", given, writer)
        return True

    def finish_loads(self) -> bool:
        for load_id, token in self._run("loads", {}):
            mark = LoadMark(self.path, token)
            with closing(mark):
                if mark.take():  # otherwise its process lives
                    return all(self._advance(load_id) for _ in range(SWEPT)) or bool(self._run("loads", {}))
        return False


class LoadMark:
    """A lock on a file beside the database, which says that the process of a load is alive.

    All paths that lead to the database lead to the same lock.
    """

    def __init__(self, path: str, token: str) -> None:
        self.token = token
        self._path = Path(f"{os.path.realpath(path)}-load-{token}")
        self._file: IO[bytes] | None = None
        self._process = os.getpid()
        renew_in_children(self)

    def take(self) -> bool:
        """Whether it could be locked; if not, another one holds it."""
        try:
            self._file = self._path.open("ab", buffering=0)
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.renew()
            return False
        except OSError as error:
            raise StoreUnavailable(f"cannot lock {self._path}: {error}") from error
        return True

    def close(self) -> None:
        if self._file is not None and os.getpid() == self._process:
            with suppress(OSError):
                self._path.unlink()
        self.renew()

    def renew(self) -> None:
        """Let go of the file. In a child, the lock stays with the parent."""
        file, self._file = self._file, None
        if file is not None:
            file.close()


def _digest(item: NewItem) -> str:
    return sha256(item.args).hexdigest()
