"""The arguments that a task accepts, read from its signature, for forms and for people."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import inspect

from duly.core import codec
from duly.core.policy.retry import Backoff, ByError, Retry, Windows
from duly.core.policy.rule_text import spoken
from duly.core.results import Param, ParamType, Signature
from duly.tasks.task import Task

_TYPES: tuple[tuple[type[inspect.Type], ParamType], ...] = (
    (inspect.StrType, "string"),
    (inspect.BoolType, "boolean"),
    (inspect.IntType, "integer"),
    (inspect.FloatType, "number"),
    (inspect.DecimalType, "number"),
    (inspect.DateTimeType, "datetime"),
)


def signature(task: Task[..., Any]) -> Signature:
    """How this task can be put."""
    fields = msgspec.structs.fields(task.shape)
    return Signature(
        task.name, task.queue, task.doc, [_param(field) for field in fields], task.is_open_ended,
        retry_in_words(task.rules.retry), [limit.name for limit in task.limits],
    )  # fmt: skip


def _param(field: msgspec.structs.FieldInfo) -> Param:
    kind = inspect.type_info(field.type)
    kinds = list(kind.types) if isinstance(kind, inspect.UnionType) else [kind]
    plain = [each for each in kinds if not isinstance(each, inspect.NoneType)]
    types = {_type(each) for each in plain}
    default = field.default if field.default is not msgspec.NODEFAULT else None
    if field.default_factory is not msgspec.NODEFAULT:
        default = field.default_factory()
    return Param(
        field.encode_name, types.pop() if len(types) == 1 else "json", field.required, _as_json(default),
        len(plain) < len(kinds) or isinstance(kind, inspect.AnyType),
    )  # fmt: skip


def _type(kind: inspect.Type) -> ParamType:
    return next((name for each, name in _TYPES if isinstance(kind, each)), "json")


def _as_json(value: Any) -> Any:
    try:
        return codec.decode(codec.encode(value))
    except TypeError:  # a default that only the handler understands
        return None


def retry_in_words(retry: Retry) -> str:
    """A retry policy in a few plain words."""
    match retry:
        case Backoff(tries=1):
            return "one try"
        case Backoff():
            waits = f"{retry.tries} tries, {_span(retry.base)} after the first failure"
            grows = f", then {retry.factor:g} times longer each time, at most {_span(retry.cap)}"
            return waits + (grows if retry.factor > 1 and retry.base and retry.tries > 2 else "")
        case Windows():
            return f"in windows: {retry.rule}, at most {retry.cap} in each"
        case ByError():
            return f"{retry_in_words(retry.default)}; otherwise for some errors"
        case _:
            return "by a policy of its own"


def _span(seconds: float) -> str:
    return "at once" if seconds == 0 else spoken(int(seconds)) if seconds == int(seconds) else f"{seconds:g} s"
