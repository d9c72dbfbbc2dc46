"""The policies that a task is registered with: they are checked, and the settings provide the defaults."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import timedelta
from math import inf
from typing import Any, Concatenate, ParamSpec, Required, TypedDict, TypeVar, Unpack, overload

from duly.core.decide import Rules
from duly.core.errors import InputError
from duly.core.filters import check_names
from duly.core.policy.limits import Limit, parse_limit
from duly.core.policy.outage import Source
from duly.core.policy.pace import Pace
from duly.core.policy.retry import Backoff, Retry
from duly.core.settings import Settings
from duly.tasks.attempt import Attempt
from duly.tasks.checks import checked_name, is_number
from duly.tasks.handler import check_handler, name_of
from duly.tasks.puttable import TaskBackend
from duly.tasks.task import Task

P = ParamSpec("P")
R = TypeVar("R")


class Policies(TypedDict, total=False):
    """The policies that a task may be registered with; `Register` explains each."""

    name: str | None
    queue: str | None
    retry: Retry | None
    deadline: float | timedelta | None
    cpu: bool
    rank: int
    crash_limit: int | None
    breaker: int | None
    limits: Sequence[Limit] | Limit
    backlog: str | None
    source: Source | str | None
    pace: Pace | None
    label: str | None
    check: Callable[[dict[str, Any]], None] | None
    trusted: bool
    internal: bool


class BatchPolicies(Policies):
    """The policies of a task whose handler is called with up to `batch` rows at once."""

    batch: Required[int]


class Anything:
    """A type that no handler names: a parameter that takes it takes anything."""


class Register:
    """The decorator `app.task`, bare or with policies. It types the task by its handler.

    The engine gives a handler its first parameter if that is an `Attempt`, so `put` does not take it. If the first
    parameter takes anything (`Any`), a type checker cannot tell whether it is one, and `put` takes any arguments.

    name: default the function's. queue: default the name. retry: when to try again. deadline: seconds after which a try
    is stopped. cpu: run in a separate process that can be killed. batch: the maximum number of rows in one call. rank:
    lower runs first. crash_limit: crashes before review. breaker: consecutive failures that deactivate a schedule.
    limits: the maximum number of calls, over the whole fleet. backlog: the maximum rate for overdue items, such as
    "100/s". source: the service that it depends on; while that is down, it is probed and failures do not count. pace:
    `Pace("provider")`, to adapt the number of calls to a provider. label: the noun in log lines. check: called with the
    arguments when they are put; raises InputError. trusted: it never crashes its process, so a try whose worker
    vanished is released and does not count. internal: it cannot be put through the service.
    """

    def __init__(
        self, register: Callable[[Callable[..., Any], Mapping[str, Any]], Task[..., Any]], **policies: Any
    ) -> None:
        self._register = register
        self._policies = policies

    @overload
    def __call__(self, handler: Callable[Concatenate[Anything, ...], Any], /) -> Task[..., Any]: ...

    @overload
    def __call__(self, handler: Callable[Concatenate[Attempt, P], Coroutine[Any, Any, R]], /) -> Task[P, R]: ...

    @overload
    def __call__(self, handler: Callable[Concatenate[Attempt, P], R], /) -> Task[P, R]: ...

    @overload
    def __call__(self, handler: Callable[P, Coroutine[Any, Any, R]], /) -> Task[P, R]: ...

    @overload
    def __call__(self, handler: Callable[P, R], /) -> Task[P, R]: ...

    @overload
    def __call__(self, /, **policies: Unpack[BatchPolicies]) -> Callable[[Callable[..., Any]], Task[..., Any]]: ...

    @overload
    def __call__(self, /, **policies: Unpack[Policies]) -> Register: ...

    def __call__(self, handler: Callable[..., Any] | None = None, /, **policies: Any) -> Any:
        check_names(policies, BatchPolicies, "task")
        if handler is None:
            return Register(self._register, **policies)
        return self._register(handler, {**self._policies, **policies})


def make_task(
    backend: TaskBackend, settings: Settings, handler: Callable[..., Any], policies: Mapping[str, Any]
) -> Task[..., Any]:
    """A task with this handler and these policies."""
    check_handler(handler)
    name = checked_name("name", policies.get("name") or name_of(handler))
    retry, backlog = policies.get("retry"), policies.get("backlog")
    if retry is not None and not isinstance(retry, Retry):
        raise InputError("retry", f"must be a policy such as Backoff(), got {retry!r}")
    return Task(
        backend,
        handler,
        name=name,
        queue=policies.get("queue") or name,
        rules=Rules(
            retry=retry or Backoff(base=settings.retry_base_seconds, tries=settings.retry_tries),
            crash_limit=policies.get("crash_limit") or settings.crash_limit,
            breaker=_checked_whole("breaker", policies.get("breaker"), inf, "of failures, at least 1"),
            is_trusted=policies.get("trusted", False),
        ),
        deadline=_checked_deadline(policies.get("deadline")) or settings.deadline_seconds,
        cpu=policies.get("cpu", False),
        batch=_checked_whole("batch", policies.get("batch"), 10_000, "from 1 to 10,000"),
        rank=policies.get("rank", 0),
        label=policies.get("label"),
        limits=_checked_limits(policies.get("limits", ())),
        backlog=None if backlog is None else _rate(backlog),
        source=_checked_source(policies.get("source")),
        pace=_checked_pace(policies.get("pace")),
        check=policies.get("check"),
        is_internal=policies.get("internal", False),
    )


def _checked_whole(field: str, value: Any, most: float, words: str) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most):
        raise InputError(field, f"must be a whole number {words}, got {value!r}")
    return value


def _checked_deadline(deadline: Any) -> float | None:
    seconds: float | None = deadline.total_seconds() if isinstance(deadline, timedelta) else deadline
    if seconds is not None and not (is_number(seconds) and seconds > 0):
        raise InputError("deadline", f"must be a positive number of seconds or a timedelta, got {deadline!r:.80}")
    return seconds


def _checked_limits(limits: Any) -> tuple[Limit, ...]:
    given = [limits] if isinstance(limits, Limit) else list(limits) if isinstance(limits, Iterable) else [limits]
    if not all(isinstance(each, Limit) for each in given):
        raise InputError(
            "limits", f"must be like Limit('provider', 2, per='1m'), or a list of them, got {limits!r:.80}"
        )
    return tuple(given)


def _checked_pace(pace: Any) -> Pace | None:
    if pace is not None and not isinstance(pace, Pace):
        raise InputError("pace", f"must be like Pace('provider'), got {pace!r}")
    return pace


def _checked_source(source: Any) -> Source | None:
    try:
        made = Source(source) if isinstance(source, str) else source
    except ValueError as error:
        raise InputError("source", str(error)) from None
    if made is not None and not isinstance(made, Source):
        raise InputError("source", f"must be like Source('supplier'), got {source!r:.80}")
    return made


def check_shared(new: Task[..., Any], tasks: Iterable[Task[..., Any]]) -> None:
    """Refuse a source or a limit whose name is that of another one: tasks share it, so they must mean the same."""
    for task in tasks:
        for field, own, theirs in (("source", _sources(new), _sources(task)), ("limits", _limits(new), _limits(task))):
            for name in own.keys() & theirs.keys():
                if own[name] != theirs[name]:
                    raise InputError(
                        field, f"{own[name]} differs from {theirs[name]} of {task.name}; use one for both, or two names"
                    )


def _sources(task: Task[..., Any]) -> dict[str, str]:
    source = task.source
    return (
        {}
        if source is None
        else {source.name: f"Source({source.name!r}, tries={source.tries}, probe={source.probe:g})"}
    )


def _limits(task: Task[..., Any]) -> dict[str, str]:
    def term(limit: Limit) -> str:
        per = "" if limit.seconds is None else f", per={limit.seconds:g}"
        return f"Limit({limit.name!r}, {limit.most}{per})"

    return {limit.name: term(limit) for limit in task.limits}


def _rate(text: str) -> Limit:
    try:
        most, per = parse_limit(text)
    except ValueError as error:
        raise InputError("backlog", str(error)) from None
    if per is None:
        raise InputError("backlog", f"must be like 100/s, got {text!r}")
    return Limit("backlog", most, per=per)
