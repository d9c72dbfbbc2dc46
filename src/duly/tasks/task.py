"""A task: a handler with its policies. Arguments are checked when they are put, by the handler's own annotations."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from duly.core import codec
from duly.core.decide import Rules
from duly.core.errors import InputError
from duly.core.model import NewItem, Placed
from duly.core.policy.limits import Limit
from duly.core.policy.recur import Rule, Slots
from duly.tasks.attempt import Attempt

if TYPE_CHECKING:
    from duly.facade.app import Duly
    from duly.facade.schedules import Declaration

P = ParamSpec("P")
R = TypeVar("R")

Kind = Literal["async", "thread", "cpu"]

OPTIONS = ("at", "delay", "key", "rank", "tries", "max_lateness", "connection")
NAME = re.compile(r"[\w.:@/+-]+( [\w.:@/+-]+)*")
KEY_LIMIT = 500
RANKS = range(-100, 101)


class Task(Generic[P, R]):
    def __init__(
        self,
        app: Duly,
        handler: Callable[P, R],
        *,
        name: str,
        queue: str,
        rules: Rules,
        deadline: float,
        cpu: bool,
        batch: int | None,
        rank: int,
        label: str | None,
        limits: Sequence[Limit] = (),
        backlog: Limit | None = None,
        check: Callable[[dict[str, Any]], None] | None = None,
        internal: bool = False,
    ) -> None:
        self.app = app
        self.handler = handler
        self.name = checked_name("name", name)
        self.queue = checked_name("queue", queue)
        self.rules = rules
        self.deadline = deadline
        self.batch = batch
        self.rank = checked_rank(rank)
        self.label = label or name
        self.is_labelled = label is not None
        self.is_async = inspect.iscoroutinefunction(handler)
        if cpu and self.is_async:
            raise InputError("cpu", f"{name} is async def; a cpu task runs in a process of its own and is plain def")
        self.kind: Kind = "async" if self.is_async else "cpu" if cpu else "thread"
        self.limits = tuple(limits)
        self.backlog = backlog
        self._check = check
        self.is_internal = internal
        self._read_signature()
        if len({limit.by for limit in self.limits if limit.by}) > 1:
            raise InputError("limits", "all that are kept per value of an argument must be so by the same argument")
        if len({limit.name for limit in self.limits}) < len(self.limits):
            raise InputError("limits", "two of them have the same name")
        for limit in self.limits:
            if limit.by is not None and not self._open_ended and limit.by not in self._shape.__struct_fields__:
                raise InputError("limits", f"{limit.name}: {self.name} has no argument {limit.by!r}")

    def __repr__(self) -> str:
        return f"<Task {self.name}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """The handler itself, here and now; nothing is put."""
        return self.handler(*args, **kwargs)

    # -- in

    def put(self, **args: Any) -> Placed:
        """Make this happen: now, or `at` a time, or after a `delay`; once per `key`. Returns when it is durable.

        Options beside the handler's own arguments: at, delay, key, rank (lower runs first), tries, max_lateness (not
        worth starting later), and connection, the caller's own, to put inside the caller's transaction.
        """
        connection = args.pop("connection", None)
        return self.app.place(self.new(args, self.app.telemetry.traceparent()), connection)

    async def aput(self, **args: Any) -> Placed:
        """`put` for async callers; `connection` may be an async one (asyncpg, psycopg, SQLAlchemy)."""
        connection = args.pop("connection", None)
        return await self.app.aplace(self.new(args, self.app.telemetry.traceparent()), connection)

    def put_many(self, rows: Iterable[Mapping[str, Any]], **common: Any) -> int:
        """Put any number of argument mappings, streamed, all or none; returns how many are new.

        A mapping may hold options (at, key, …) beside arguments; `common` holds for all that do not say otherwise.
        """
        return self.app.store.load(self._stream(rows, common))

    async def aput_many(self, rows: Iterable[Mapping[str, Any]], **common: Any) -> int:
        return await asyncio.to_thread(self.put_many, rows, **common)

    def _stream(self, rows: Iterable[Mapping[str, Any]], common: dict[str, Any]) -> Iterator[NewItem]:
        trace = self.app.telemetry.traceparent()
        for place, row in enumerate(rows):
            try:
                yield self.new({**common, **row}, trace)
            except InputError as error:
                raise type(error)(f"rows[{place}].{error.field}", error.problem) from None

    def new(self, args: dict[str, Any], trace: str | None = None, owner: str | None = None) -> NewItem:
        """A new item of this task from arguments and options, checked."""
        at, delay = args.pop("at", None), args.pop("delay", None)
        due_at = when(at, delay, self.app.clock.now) if at is not None or delay is not None else self.app.clock.stamp()
        key, rank, tries = args.pop("key", None), args.pop("rank", None), args.pop("tries", None)
        lateness = args.pop("max_lateness", None)
        return NewItem(
            task=self.name,
            queue=self.queue_for(args),
            args=self.checked_args(args),
            due_at=due_at,
            key=None if key is None else checked_key(key),
            rank=self.rank if rank is None else checked_rank(rank),
            max_attempts=None if tries is None else checked_tries(tries),
            trace=trace,
            owner=owner,
            expires_at=None if lateness is None else (due_at or self.app.clock.now()) + checked_lateness(lateness),
            is_relative=at is None,
        )

    def checked_args(self, args: dict[str, Any]) -> bytes:
        """Arguments as the JSON text that a row keeps."""
        text = codec.check(args, self._shape, self.app.settings.max_args_bytes, self._open_ended)
        if self._check is not None:
            self._check(self._read(text))
        return text

    def queue_for(self, args: Mapping[str, Any]) -> str:
        """Its queue; with a limit per value of an argument, each value has its own, so that none waits for others."""
        by = next((limit.by for limit in self.limits if limit.by), None)
        if by is None:
            return self.queue
        value = str(args[by] if by in args else self._defaults.get(by))
        if not NAME.fullmatch(value) or len(value) > 80:
            value = sha256(value.encode()).hexdigest()[:32]
        return f"{self.queue}/{value}"

    # -- schedules

    def every(self, rule: Rule | Slots | str, *, key: str | None = None, **options: Any) -> Declaration:
        """Make this happen again and again, by a rule such as `Daily("09:00")`, `"*/5 * * * *"` or `Slots(24)`.

        Without a key it is part of the code: written when a worker starts, changed and removed as the code changes.
        With one it is a row like any other, which stays until someone removes it. Options: zone (UTC), catch_up
        (latest, all, skip), max_lateness, overlap (allow, skip, supersede), rank; the rest are the handler's arguments.
        """
        return self.app.schedules.declare(self, rule, key, options)

    # -- out

    def arguments(self, text: bytes, attempt: Attempt | None) -> dict[str, Any]:
        """What to call the handler with."""
        args = self._read(text)
        if self._attempt_name is not None:
            args[self._attempt_name] = attempt
        return args

    def _read(self, text: bytes) -> dict[str, Any]:
        row = codec.read(text, self._decoder)
        return {**row, **codec.fields(codec.convert(row, self._shape))} if self._open_ended else codec.fields(row)

    @property
    def wants_attempt(self) -> bool:
        return self._attempt_name is not None

    def batch_arguments(self, texts: list[bytes], attempts: list[Attempt]) -> dict[str, Any]:
        """What to call a batch handler with: one row per item."""
        args: dict[str, Any] = {self._rows_name: [self._row(codec.read(text, self._decoder)) for text in texts]}
        if self._attempt_name is not None:
            args[self._attempt_name] = attempts
        return args

    def _row(self, row: Any) -> Any:
        return row if self._open_ended else msgspec.convert(row, self._row_type, from_attributes=True)

    @property
    def tries(self) -> int:
        return self.rules.retry.tries_for(())

    def _read_signature(self) -> None:
        try:
            hints = get_type_hints(self.handler, include_extras=True)
        except NameError as error:
            raise InputError(self.name, f"an annotation of the handler cannot be resolved: {error}") from error
        fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
        self._defaults: dict[str, Any] = {}
        self._attempt_name: str | None = None
        self._rows_name = ""
        self._row_type: Any = None
        open_ended = False
        for name, parameter in inspect.signature(self.handler).parameters.items():
            hint = hints.get(name, Any)
            if hint is Attempt or (self.batch and get_origin(hint) is list and get_args(hint) == (Attempt,)):
                self._attempt_name = name
            elif parameter.kind is parameter.VAR_KEYWORD:
                open_ended = True
            elif parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
                raise InputError(name, f"{self.name} takes it by position; handlers are called by name")
            elif self.batch and not self._rows_name:
                self._rows_name = name
                self._row_type = get_args(hint)[0] if get_origin(hint) is list and get_args(hint) else None
            elif self.batch:
                raise InputError(name, f"{self.name} is a batch task: it takes one list (and list[Attempt])")
            elif name in OPTIONS:
                raise InputError(name, f"is an option of put; rename this argument of {self.name}")
            elif parameter.default is parameter.empty:
                fields.append((name, hint))
            else:
                fields.append((name, hint, parameter.default))
                self._defaults[name] = parameter.default
        if self.batch:
            if not self._rows_name:
                raise InputError(self.name, "a batch task takes a list of rows")
            fields, open_ended = _row_fields(self._row_type)
        try:
            shape: Any = msgspec.defstruct(
                self.name.replace(".", "_"), fields, kw_only=True, forbid_unknown_fields=not open_ended
            )
            self._shape = shape
            self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(dict[str, Any] if open_ended else shape)
            self._open_ended = open_ended
        except TypeError as error:
            raise InputError(self.name, f"its arguments cannot be carried as JSON: {error}") from error


def when(at: Any, delay: Any, now: Callable[[], datetime]) -> datetime:
    """The due time that a caller means."""
    if at is not None and delay is not None:
        raise InputError("delay", "give either at or delay, not both")
    if at is not None:
        return _moment(at)
    seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < 3.2e9:
        raise InputError("delay", f"must be a number of seconds or a timedelta, not negative, got {delay!r}")
    return now() + timedelta(seconds=seconds)


def _moment(at: Any) -> datetime:
    if isinstance(at, str):
        try:
            at = datetime.fromisoformat(at)
        except ValueError:
            raise InputError("at", f"must be ISO 8601, such as 2026-12-01T09:00+01:00, got {at!r}") from None
    if not isinstance(at, datetime):
        raise InputError("at", f"must be a datetime or ISO 8601 text, got {type(at).__name__}")
    if at.tzinfo is None or at.utcoffset() is None:
        raise InputError("at", f"has no time zone: say which, such as {at.isoformat()}+01:00 or {at.isoformat()}Z")
    if not 1970 <= at.year <= 9998:
        raise InputError("at", f"must lie between the years 1970 and 9998, got {at.isoformat()}")
    return at.astimezone(UTC)


def checked_name(field: str, name: Any) -> str:
    if not isinstance(name, str) or len(name) > 200 or not NAME.fullmatch(name):
        raise InputError(field, f"must be 1 to 200 letters, digits or . _ : @ / + -, got {name!r:.80}")
    return name


def checked_lateness(given: Any) -> timedelta:
    lateness = given if isinstance(given, timedelta) else timedelta(seconds=given) if _is_number(given) else None
    if lateness is None or not timedelta(0) <= lateness <= timedelta(days=36_500):
        raise InputError("max_lateness", f"must be a number of seconds or a timedelta, got {given!r:.80}")
    return lateness


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 3.2e9


def checked_key(key: Any) -> str:
    if not isinstance(key, str) or not key.strip():
        raise InputError("key", f"must be text that is not empty, got {key!r:.80}")
    if len(key) > KEY_LIMIT:
        raise InputError("key", f"must have at most {KEY_LIMIT} characters, has {len(key)}")
    if "\x00" in key:
        raise InputError("key", "must not contain NUL characters")
    try:
        key.encode()
    except UnicodeEncodeError:
        raise InputError("key", "must be valid Unicode") from None
    return key


def checked_rank(rank: Any) -> int:
    if isinstance(rank, bool) or not isinstance(rank, int) or rank not in RANKS:
        raise InputError("rank", f"must be a whole number from {RANKS[0]} (first) to {RANKS[-1]} (last), got {rank!r}")
    return rank


def checked_tries(tries: Any) -> int:
    if isinstance(tries, bool) or not isinstance(tries, int) or not 1 <= tries <= 1_000_000:
        raise InputError("tries", f"must be a whole number from 1 to 1,000,000, got {tries!r}")
    return tries


def _row_fields(row: Any) -> tuple[list[Any], bool]:
    """The put arguments of a batch task, from the type of its rows."""
    if row is None or row is Any or row is dict or get_origin(row) is dict:
        return [], True
    try:
        info = msgspec.inspect.type_info(row)
        fields = info.fields  # type: ignore[attr-defined]
    except (AttributeError, TypeError):
        raise InputError("batch", f"rows must be dict, a dataclass, a TypedDict or a Struct, not {row!r}") from None
    hints = get_type_hints(row, include_extras=True)
    known: list[Any] = []
    for field in fields:
        if field.required:
            known.append((field.name, hints[field.name]))
        elif field.default is not msgspec.NODEFAULT:
            known.append((field.name, hints[field.name], field.default))
        else:
            known.append((field.name, hints[field.name], msgspec.field(default_factory=field.default_factory)))
    return known, False
