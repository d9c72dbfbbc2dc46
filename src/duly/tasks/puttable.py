"""What items are put with: a task, or a task with options. Options and arguments never mix.

`put` has exactly the handler's signature. Options are given first: `remind.options(key="dentist").put(phone="+385")`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypedDict, TypeVar, Unpack
from zoneinfo import ZoneInfo

from msgspec import Struct

from duly.core.clock import Clock
from duly.core.errors import InputError
from duly.core.filters import ItemOptions, check_names
from duly.core.model import CatchUp, NewItem, NewSchedule, Overlap, Placed
from duly.core.policy.recur import Rule, Slots

if TYPE_CHECKING:
    from duly.tasks.task import Task

P = ParamSpec("P")
R = TypeVar("R")

ItemRow = Mapping[str, Any] | NewItem


class Options(ItemOptions, total=False):
    """The options of an item, and the caller's own connection to put it with."""

    connection: Any


class ScheduleOptions(TypedDict, total=False):
    """The options of a schedule; `Task.every` explains each. None counts as not given."""

    zone: str | ZoneInfo | None
    catch_up: CatchUp | None
    max_lateness: float | timedelta | None
    overlap: Overlap | None
    rank: int | None


NO_OPTIONS: Options = {}


class Declaration(Struct, frozen=True):
    """A schedule that the code declares. It is written when the app starts."""

    new: NewSchedule


@dataclass(frozen=True, kw_only=True)
class TaskBackend:
    """What a task needs of its app to put items and declare schedules, and not the app itself."""

    # Gives the clock. A function, because the clock is made when it is first used.
    open_clock: Callable[[], Clock]
    # Put one item, on the caller's own connection if one is given.
    place: Callable[[NewItem, Any], Placed[Any]]
    # The same for async callers.
    aplace: Callable[[NewItem, Any], Awaitable[Placed[Any]]]
    # Put any number of items, all or none; it returns how many are new.
    load: Callable[[Iterable[NewItem], Any], int]
    aload: Callable[[Iterable[NewItem], Any], Awaitable[int]]
    # Remember a schedule of a task that `every` began, until it is put.
    begin: Callable[[Recurring[...]], None]
    # Declare a schedule with its arguments, to be written when the app starts.
    declare: Callable[[Recurring[...], dict[str, Any]], Declaration]
    # The caller's trace, in which the item will run; None without one.
    traceparent: Callable[[], str | None]
    # The largest arguments that one item may have, in bytes of JSON text.
    max_args_bytes: int


class Puttable(Generic[P, R]):
    """A task with the options that its items get. A `Task` is one without options."""

    __slots__ = ("_options", "_task")

    def __init__(self, task: Task[P, R], options: Options) -> None:
        self._task = task
        self._options = options

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self._options.items())
        return f"<Task {self._task.name} with {given}>"

    def options(self, **options: Unpack[Options]) -> Puttable[P, R]:
        """The same task with these options. The arguments follow in `put`.

        at: when it is due, a datetime or ISO 8601 text with a time zone. delay: seconds from now, or a timedelta. key:
        a live item with the same key is not put twice. rank: lower runs first. tries: how many in all. max_lateness:
        seconds after its due time from which on it is not worth starting. connection: the caller's own, to put inside
        the caller's transaction.
        """
        check_names(options, Options, "options")
        return Puttable(self._task, {**self._options, **options} if self._options else options)

    def at(self, when: datetime | str) -> Puttable[P, R]:
        """The same task, due at this time: `remind.at("2026-12-01T09:00+01:00").put(phone="+385")`."""
        if when is None:
            raise InputError("at", "must be a datetime or ISO 8601 text, got None")
        return Puttable(self._task, {**self._options, "at": when})

    def after(self, delay: float | timedelta) -> Puttable[P, R]:
        """The same task, due after this many seconds or this timedelta: `remind.after(60).put(phone="+385")`."""
        if delay is None:
            raise InputError("delay", "must be a number of seconds or a timedelta, not negative, got None")
        return Puttable(self._task, {**self._options, "delay": delay})

    def put(self, /, *args: P.args, **kwargs: P.kwargs) -> Placed[R]:
        """Put one item with these arguments of the handler. Returns when it is durable."""
        task, backend = self._task, self._task.backend
        new = task.make_item(task.named(args, kwargs) if args else kwargs, self._options, backend.traceparent())
        return task.with_result(backend.place(new, self.connection))

    async def aput(self, /, *args: P.args, **kwargs: P.kwargs) -> Placed[R]:
        """`put` for async callers; the option `connection` may be an async one (asyncpg, psycopg, SQLAlchemy)."""
        task, backend = self._task, self._task.backend
        new = task.make_item(task.named(args, kwargs) if args else kwargs, self._options, backend.traceparent())
        return task.with_result(await backend.aplace(new, self.connection))

    def put_many(self, rows: Iterable[ItemRow]) -> int:
        """Put any number of items, streamed, all or none; returns how many are new.

        A row is a mapping of arguments. A row with options of its own is an item: `task.options(key="a").new(n=1)`.
        With the option `connection` they are put inside the caller's transaction. If a row is rejected, none of them
        is, and the transaction can go on.
        """
        backend = self._task.backend
        check_rows(rows)
        return backend.load(self.items(rows, backend.traceparent()), self.connection)

    async def aput_many(self, rows: Iterable[ItemRow]) -> int:
        """`put_many` for async callers; the option `connection` may be an async one."""
        backend = self._task.backend
        check_rows(rows)
        return await backend.aload(self.items(rows, backend.traceparent()), self.connection)

    @property
    def connection(self) -> Any:
        """The caller's own connection to put with; None without one."""
        return self._options.get("connection")

    def new(self, /, *args: P.args, **kwargs: P.kwargs) -> NewItem:
        """The item that `put` would put, checked: a row of `put_many` or `app.job`, or the `then` of a job."""
        if self.connection is not None:
            raise InputError("connection", "what puts the item later gives the connection; use put")
        return self._task.make_item(self._task.named(args, kwargs), self._options)

    def items(
        self, rows: Iterable[ItemRow], trace: str | None = None, owner: str | None = None, first: int = 0
    ) -> Iterator[NewItem]:
        """The items of these rows. An error names the row; `first` is the number of the first one."""
        make, name, options = self._task.make_item, self._task.name, self._options
        for place, row in enumerate(rows, first):
            try:
                if type(row) is dict or isinstance(row, Mapping):
                    yield make(dict(row), options, trace, owner)
                elif not isinstance(row, NewItem):
                    raise InputError("", f"must be a mapping of arguments or an item of {name}, got {row!r:.80}")
                elif row.task == name:
                    yield row
                else:
                    raise InputError("task", f"is an item of {row.task}, not of {name}")
            except InputError as error:
                raise type(error)(f"rows[{place}].{error.field}".removesuffix("."), error.problem) from None

    @property
    def task(self) -> Task[P, R]:
        return self._task


def check_rows(rows: Any) -> None:
    """Refuse what is not any number of rows, before anything is written."""
    if isinstance(rows, str | bytes | Mapping) or not isinstance(rows, Iterable):
        raise InputError("rows", f"must be a list, or another iterable, of mappings of arguments, got {rows!r:.80}")


class Recurring(Generic[P]):
    """A schedule without its arguments: `put` declares it."""

    def __init__(self, task: Task[P, Any], rule: Rule | Slots | str, key: str | None, options: ScheduleOptions) -> None:
        self.task = task
        self.rule = rule
        self.key = key
        self.options = options
        self.is_put = False

    def put(self, /, *args: P.args, **kwargs: P.kwargs) -> Declaration:
        """Declare the schedule with these arguments of the handler."""
        self.is_put = True
        return self.task.backend.declare(self, self.task.named(args, kwargs))
