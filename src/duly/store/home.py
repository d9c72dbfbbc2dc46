"""Which database a connection leads to: puts on a caller's own connection must end up where the app's workers look.

Two databases are the same if they are in the same place and have the same id. On SQLite the place is the file. On
PostgreSQL it is the database and the table in it that a connection finds, so two schemas are two databases; the id, in
`duly_database`, tells servers apart. A connection is asked once, and its answer is kept for as long as it is open.
"""

from __future__ import annotations

import weakref
from typing import Any, Generic, TypeVar

from duly.core.errors import InputError, NotMigrated
from duly.store.contract import Store
from duly.store.dialects import address, of_url
from duly.store.lenders import Lender
from duly.store.statements import Home

T = TypeVar("T")


class _Anchor:
    """Lives as long as a connection that takes no weak references: it holds this one as a function."""

    def __call__(self) -> None: ...


class Remembered(Generic[T]):
    """What is known of connections of drivers, until these are closed or gone."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[Any], T]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def get(self, connection: Any) -> T | None:
        found = self._known.get(id(connection))
        return found[1] if found is not None and self._is_of(connection, found[0]) else None

    def set(self, connection: Any, value: T) -> None:
        found = self._known.get(id(connection))
        if found is not None and self._is_of(connection, found[0]):
            self._known[id(connection)] = found[0], value
        elif (anchor := _anchor(connection)) is not None:
            key = id(connection)
            self._known[key] = weakref.ref(anchor, lambda gone: self._forget(key, gone)), value

    @staticmethod
    def _is_of(connection: Any, reference: weakref.ref[Any]) -> bool:
        anchor = reference()
        return anchor is connection or isinstance(anchor, _Anchor)

    def _forget(self, key: int, gone: weakref.ref[Any]) -> None:
        if (found := self._known.get(key)) is not None and found[0] is gone:
            del self._known[key]


def _anchor(connection: Any) -> Any:
    """Something that lives exactly as long as this connection; None if nothing is known to."""
    if type(connection).__weakrefoffset__:
        return connection
    if not hasattr(connection, "create_function"):
        return None
    anchor = _Anchor()
    connection.create_function("duly_anchor", 0, anchor)
    return anchor


HOMES: Remembered[Home] = Remembered()


async def check(lender: Lender, store: Store) -> None:
    """InputError unless this connection leads to the database of this store."""
    known = HOMES.get(lender.driver)
    if known is not None and known.is_same(store.home()):
        return
    # What was known of either may be out of date: a database was created again, or another schema is searched.
    theirs = await lender.dialect.locate(lender.ask)
    if not isinstance(of_url(store.url), type(lender.dialect)):
        raise _refusal(theirs, address(store.url), store)
    own = store.home(anew=True)
    if not own.place and not theirs.place and not lender.dialect.is_embedded:
        raise NotMigrated(f"the {own.title} is not migrated: run `duly migrate`")
    if not theirs.is_same(own):
        raise _refusal(theirs, f"the {own.title}", store)
    HOMES.set(lender.driver, theirs)


async def leads_to(lender: Lender, store: Store) -> bool:
    """Whether a connection leads to the database of this store."""
    return (HOMES.get(lender.driver) or await lender.dialect.locate(lender.ask)).is_same(store.home())


def _refusal(theirs: Home, own: str, store: Store) -> InputError:
    return InputError("connection", f"is to the {theirs.title}, but this app works on {own}; {store.remedy}")
