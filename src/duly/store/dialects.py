"""The databases that a store can be on: which URLs belong to which, and what each of them does in its own way.

`docs/stores.md` says what a further one has to bring. Nothing here imports a driver: a store is loaded when the first
URL of it is opened.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from importlib.resources.abc import Traversable
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, TypeVar
from urllib.parse import urlsplit

from msgspec import Struct

from duly.core.errors import InputError
from duly.core.model import NewItem
from duly.store.contract import Store
from duly.store.records import ColumnType, Record
from duly.store.statements import Home

T = TypeVar("T")

Parameters: TypeAlias = dict[str, Any]
# A function that runs one statement with named parameters on a caller's connection and returns its rows. It waits only
# if the calls of the connection are awaited.
Run: TypeAlias = Callable[[str, Parameters], Awaitable[Iterable[Any]]]
# Runs a section by its name, or a statement, on the caller's connection.
Ask: TypeAlias = Callable[[str, Parameters], Awaitable[list[Any]]]
# How statements run on a caller's connection, by the name of the driver's class that it is an instance of.
Drivers: TypeAlias = Mapping[str, Callable[[Any], Run]]
# Whether the calls of a connection block or are awaited.
Colour: TypeAlias = Literal["sync", "async"]


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """The answer of a coroutine that never waits, because what it asks is not async."""
    try:
        work.send(None)
    except StopIteration as end:
        answer: T = end.value
        return answer
    raise AssertionError("it waited")


async def answered(value: Any) -> Any:
    """The return value of a driver call, awaited if necessary."""
    return await value if isinstance(value, Awaitable) else value


def not_lent(connection: Any, driver: str) -> InputError:
    """The error about a thing on which verbs cannot act inside the caller's transaction."""
    name = f"{type(connection).__module__}.{type(connection).__qualname__}"
    return InputError(
        "connection",
        f"must be an open connection of {driver}, or a connection or session of SQLAlchemy or Django that uses "
        f"{driver}, got a {name}",
    )


class Whole(Struct, frozen=True):
    """The statements that keep, or undo, what was done on a caller's connection since a certain moment."""

    keep: Sequence[str]
    undo: Sequence[str]


class Dialect:
    """A database that duly can use: its URLs, its SQL files, and its differences."""

    name: str
    schemes: tuple[str, ...]  # of URLs
    aliases: tuple[str, ...] = ()  # how SQLAlchemy and Django call it
    sql: Traversable  # the folder of its own statements
    fragments: Traversable  # the file of its own fragments of common statements
    migrations: Traversable  # the folder of its numbered migrations
    # The names of its types for what fields hold; empty if its parameters need no type.
    types: Mapping[ColumnType, str] = MappingProxyType({})
    # What follows the name of a column that is read as another type than it is kept as.
    read_as: Mapping[str, str] = MappingProxyType({})

    def open(self, url: str, *, timeout: float, pool_size: int, listen: bool) -> Store:
        """The store behind one of its URLs."""
        raise NotImplementedError

    # -- puts on a connection of the caller's own

    # The drivers whose connections a caller may pass in. SQLAlchemy and Django work with every database anyway.
    drivers: Mapping[Colour, Drivers] = MappingProxyType({"sync": {}, "async": {}})

    def put(self, new: NewItem) -> tuple[str, dict[str, Any]]:
        """The name of the section that puts an item, and its parameters."""
        raise NotImplementedError

    def rows(self, record: Record[Any], values: Sequence[Any]) -> str:
        """These records as the JSON text that the fragment `{json …}` reads."""
        raise NotImplementedError

    def given(self, parameters: Mapping[str, Any]) -> Parameters:
        """Parameters as its drivers take them."""
        return {name: value.decode() if isinstance(value, bytes) else value for name, value in parameters.items()}

    def news(self, new: Iterable[NewItem]) -> set[str]:
        """What its workers are notified of these; nothing if they see every commit."""
        return set()

    def time(self, value: Any) -> datetime:
        """A time as a driver gives it."""
        time: datetime = value
        return time

    def driver_of(self, connection: Any) -> Any:
        """The connection that a driver keeps, of one that it may have wrapped."""
        return connection

    async def locate(self, ask: Ask) -> Home:
        """Which database a connection leads to. It must not fail on any database, nor abort a transaction."""
        raise NotImplementedError

    async def whole(self, ask: Ask, driver: Any) -> Whole:
        """Begin something that is to be done as a whole or not at all, in the transaction that the caller has open.

        If there is none on a connection in autocommit, it is a transaction of its own.
        """
        raise NotImplementedError

    def is_behind(self, error: BaseException) -> bool:
        """Whether this error of a driver is about a table or column that a migration would have created."""
        raise NotImplementedError

    # Whether a put may migrate on the caller's connection: nothing else migrates an embedded database.
    is_embedded = False

    # -- migrations under alembic

    def take_turn(self, connection: Any) -> None:
        """On a SQLAlchemy connection, begin a transaction, and wait until no other migrator has one."""
        raise NotImplementedError

    def step_back(self, connection: Any) -> None:
        """Let a migration give up if it cannot get a lock soon, because all others would wait behind it."""

    def engine_of(self, url: str) -> tuple[str, Callable[[], Any]]:
        """SQLAlchemy's URL for the driver that duly uses, and a function that connects as duly does."""
        raise NotImplementedError


_DIALECTS: dict[str, Dialect] = {}


def register(dialect: Dialect) -> None:
    """Make a database known, by its name and the schemes of its URLs."""
    _DIALECTS[dialect.name] = dialect


def every() -> Iterator[Dialect]:
    yield from _DIALECTS.values()


def named(name: str) -> Dialect:
    return _DIALECTS[name]


def of_url(url: str) -> Dialect | None:
    """The database that this URL belongs to; None when no registered one has its scheme."""
    scheme = urlsplit(url).scheme
    return next((each for each in every() if scheme in each.schemes), None)


def address(url: str) -> str:
    """A URL to be shown: without users, passwords and options."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def called(alias: str) -> Dialect | None:
    """The database that SQLAlchemy or Django has this name for."""
    return next((each for each in every() if alias in each.aliases), None)
