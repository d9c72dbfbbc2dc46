"""A task: a handler with its policies. Arguments are checked when they are put, by the handler's own annotations."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from hashlib import sha256
from typing import Any, Literal, ParamSpec, TypeVar, Unpack, get_args, get_origin

import msgspec
from msgspec import Struct

from duly.core import codec
from duly.core.decide import Rules
from duly.core.errors import DulyError, InputError
from duly.core.filters import check_names, option_of
from duly.core.model import NewItem, Placed
from duly.core.policy.limits import Limit
from duly.core.policy.outage import Source
from duly.core.policy.pace import Pace
from duly.core.policy.recur import Rule, Slots
from duly.tasks.attempt import Attempt
from duly.tasks.checks import NAME, checked_key, checked_lateness, checked_name, checked_rank, checked_tries, when
from duly.tasks.handler import check_types, hints_of, one_of, result_type, row_fields
from duly.tasks.puttable import NO_OPTIONS, Options, Puttable, Recurring, ScheduleOptions, TaskBackend

P = ParamSpec("P")
R = TypeVar("R")

HandlerKind = Literal["async", "thread", "cpu"]


@dataclass(eq=False, repr=False)
class Task(Puttable[P, R]):
    backend: TaskBackend
    handler: Callable[..., Any]
    _: KW_ONLY
    name: str
    queue: str
    rules: Rules
    deadline: float
    cpu: bool = False
    batch: int | None = None
    rank: int = 0
    label: str | None = None  # the noun that logs use; by default the name
    limits: tuple[Limit, ...] = ()
    source: Source | None = None
    backlog: Limit | None = None
    pace: Pace | None = None
    check: Callable[[dict[str, Any]], None] | None = None
    is_internal: bool = False

    def __post_init__(self) -> None:
        super().__init__(self, NO_OPTIONS)
        checked_name("name", self.name)
        checked_name("queue", self.queue)
        checked_rank(self.rank)
        self.is_labelled = self.label is not None
        self.label = self.label or self.name
        self.is_async = inspect.iscoroutinefunction(self.handler)
        if self.cpu and self.is_async:
            raise InputError(
                "cpu", f"{self.name} is async def; a cpu task runs in a process of its own and is plain def"
            )
        self.kind: HandlerKind = "async" if self.is_async else "cpu" if self.cpu else "thread"
        self._read_signature()
        by = {limit.by for limit in self.limits if limit.by}
        if len(by) > 1:
            raise InputError("limits", "limits per value must all use the same argument")
        self._by = next(iter(by), None)  # the argument whose values have a queue each
        if len({limit.name for limit in self.limits}) < len(self.limits):
            raise InputError("limits", "two of them have the same name")
        for limit in self.limits:
            if limit.by is not None and not self.is_open_ended and limit.by not in self.shape.__struct_fields__:
                raise InputError("limits", f"{limit.name}: {self.name} has no argument {limit.by!r}")

    def __repr__(self) -> str:
        return f"<Task {self.name}>"

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Call the handler directly; nothing is put."""
        return self.handler(*args, **kwargs)

    # -- in

    def named(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """All arguments by name."""
        if not args:
            return kwargs
        names = self._positional
        if len(args) > len(names):
            raise InputError("args", f"{self.name} takes at most {len(names)} arguments by position, got {len(args)}")
        given = dict(zip(names, args, strict=False))
        if twice := sorted(given.keys() & kwargs.keys()):
            raise InputError(twice[0], "is given twice, by position and by name")
        return {**given, **kwargs}

    def make_item(
        self, args: dict[str, Any], options: Options, trace: str | None = None, owner: str | None = None
    ) -> NewItem:
        """A new item of this task from arguments and options, checked."""
        clock = self.backend.open_clock()
        if not options:
            return NewItem(
                task=self.name,
                queue=self.queue if self._by is None else self.queue_for(args),
                args=self.checked_args(args),
                due_at=clock.stamp(),
                rank=self.rank,
                trace=trace,
                owner=owner,
                is_relative=True,
            )
        get = options.get
        at, delay, key, rank, tries = get("at"), get("delay"), get("key"), get("rank"), get("tries")
        lateness = get("max_lateness")
        due_at = when(at, delay, clock.now) if at is not None or delay is not None else clock.stamp()
        return NewItem(
            task=self.name,
            queue=self.queue if self._by is None else self.queue_for(args),
            args=self.checked_args(args),
            due_at=due_at,
            key=None if key is None else checked_key(key),
            rank=self.rank if rank is None else checked_rank(rank),
            max_attempts=None if tries is None else checked_tries(tries),
            trace=trace,
            owner=owner,
            expires_at=None if lateness is None else (due_at or clock.now()) + checked_lateness(lateness),
            is_relative=at is None,
        )

    def with_result(self, placed: Placed[Any]) -> Placed[R]:
        """The same, whose result is read by the handler's return annotation."""
        return placed if self._returns is None else placed.read_by(self._returns)

    def read_result(self, result: Any) -> R:
        """A result as JSON has it, read by the handler's return annotation; a row without a result has None."""
        try:
            is_read = self._returns is None or result is None
            read: R = result if is_read else msgspec.convert(result, self._returns, str_keys=True)
        except msgspec.ValidationError as error:
            raise DulyError(f"a result of {self.name} is not what its handler returns: {error}") from None
        return read

    def checked_args(self, args: dict[str, Any]) -> bytes:
        """The arguments, checked, as JSON text."""
        try:
            text = codec.check(args, self.shape, self.backend.max_args_bytes, self.is_open_ended)
        except InputError as error:
            option = option_of(error.field, Options) if error.field in args and not self.takes(error.field) else None
            if option is None:
                raise
            hint = f"{error.problem}; options are given apart from arguments: options({option}=…).put(…)"
            raise InputError(error.field, hint) from None
        if self.check is not None:
            self.check(self._read(text))
        return text

    @property
    def doc(self) -> str:
        """The docstring of its handler."""
        return inspect.getdoc(self.handler) or ""

    def takes(self, name: str) -> bool:
        """Whether its handler has an argument of this name."""
        return self.is_open_ended or name in self.shape.__struct_fields__

    def has(self, name: str) -> bool:
        """Whether its handler lists an argument of this name."""
        return name in self.shape.__struct_fields__

    def queue_for(self, args: Mapping[str, Any]) -> str:
        """Its queue. Under a limit `by` an argument, each value has a queue of its own, and so waits for no other."""
        by = self._by
        if by is None:
            return self.queue
        value = str(args[by] if by in args else self._defaults.get(by))
        if not NAME.fullmatch(value) or len(value) > 80:
            value = sha256(value.encode()).hexdigest()[:32]
        return f"{self.queue}/{value}"

    # -- schedules

    def every(
        self, rule: Rule | Slots | str, *, key: str | None = None, **options: Unpack[ScheduleOptions]
    ) -> Recurring[P]:
        """Make this happen again and again, by a rule such as `Daily("09:00")`, `"*/5 * * * *"` or `Slots(24)`.

        The arguments follow in `put`: `remind.every(Daily("09:00"), zone="Europe/Zagreb").put(phone="+385")`. Without a
        key it is part of the code: written when a worker starts, changed and removed as the code changes. With one it
        is a row like any other, which stays until someone removes it. Options: zone (UTC), catch_up (latest, all,
        skip), max_lateness, overlap (allow, skip, supersede) and rank.
        """
        check_names(options, ScheduleOptions, "every")
        begun = Recurring(self, rule, key, options)
        self.backend.begin(begun)
        return begun

    # -- out

    def arguments(self, text: bytes, attempt: Attempt | None) -> dict[str, Any]:
        """What to call the handler with."""
        args = self._read(text)
        if self._attempt_name is not None:
            args[self._attempt_name] = attempt
        return args

    def _read(self, text: bytes) -> dict[str, Any]:
        row = codec.read(text, self._decoder)
        return {**row, **codec.fields(codec.convert(row, self.shape))} if self.is_open_ended else codec.fields(row)

    def batch_arguments(self, texts: list[bytes], attempts: list[Attempt]) -> dict[str, Any]:
        """What to call a batch handler with: a list with one row per item."""
        args: dict[str, Any] = {self._rows_name: [self._row(codec.read(text, self._decoder)) for text in texts]}
        if self._attempt_name is not None:
            args[self._attempt_name] = attempts
        return args

    def _row(self, row: Any) -> Any:
        return row if self.is_open_ended else msgspec.convert(row, self._row_type, from_attributes=True)

    @property
    def tries(self) -> int:
        return self.rules.retry.tries_for(())

    def _read_signature(self) -> None:
        hints = hints_of(self.handler, self.name)
        fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
        self._defaults: dict[str, Any] = {}
        self._positional: list[str] = []  # the arguments that put takes by position, in their order
        returned = hints.get("return", Any)
        self._returns = result_type(one_of(returned) if self.batch else returned)
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
            else:
                if parameter.kind is parameter.POSITIONAL_OR_KEYWORD:
                    self._positional.append(name)
                if parameter.default is parameter.empty:
                    fields.append((name, hint))
                else:
                    fields.append((name, hint, parameter.default))
                    self._defaults[name] = parameter.default
        if self.batch:
            if not self._rows_name:
                raise InputError(self.name, "a batch task takes a list of rows")
            fields, open_ended = row_fields(self._row_type)
        if private := [each[0] for each in fields if each[0].startswith("__")]:
            raise InputError(private[0], f"rename this argument of {self.name}: it must not begin with two underscores")
        try:
            shape: Any = msgspec.defstruct(
                self.name.replace(".", "_"), fields, kw_only=True, forbid_unknown_fields=not open_ended
            )
            self.shape: type[Struct] = shape  # its arguments with their types and defaults
            self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(dict[str, Any] if open_ended else shape)
            self.is_open_ended = open_ended  # it also takes arguments of names that its handler does not list
            self.wants_attempt = self._attempt_name is not None
        except TypeError as error:
            raise InputError(self.name, f"its arguments cannot be carried as JSON: {error}") from error
        check_types(self.name, fields)
