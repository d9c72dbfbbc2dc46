"""Puts of an app: on its own database, or on a connection of the caller's own, inside the caller's transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from duly.core.model import Job, NewItem, Placed
from duly.store import Store
from duly.store.borrow import NewWork, afan_out, aload_borrowed, aput_borrowed, fan_out, load_borrowed, put_borrowed


class Borrowing:
    """Puts on connections of callers.

    `store` gives the store that such a connection has to lead to. It may not be migrated: the caller may hold SQLite's
    write lock.
    """

    def __init__(self, store: Callable[[], Store]) -> None:
        self._store = store

    def put(self, connection: Any, new: NewItem) -> Placed[Any]:
        return put_borrowed(connection, new, self._store())

    async def aput(self, connection: Any, new: NewItem) -> Placed[Any]:
        return await aput_borrowed(connection, new, self._store())

    def load(self, connection: Any, new: Iterable[NewItem]) -> int:
        return load_borrowed(connection, new, self._store())

    async def aload(self, connection: Any, new: Iterable[NewItem]) -> int:
        return await aload_borrowed(connection, new, self._store())

    def fan_out(self, connection: Any, new: NewWork) -> Job:
        return fan_out(connection, new, self._store())

    async def afan_out(self, connection: Any, new: NewWork) -> Job:
        return await afan_out(connection, new, self._store())
