"""What a handler looks like: whether it can be a task, and the types of its arguments and of its result."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec

from duly.core.errors import InputError
from duly.core.model import Verdict

# Types of results that are the same in JSON.
AS_JSON: tuple[Any, ...] = (Any, None, NoneType, object, str, int, bool, dict, list)


def check_handler(handler: Any) -> None:
    """Refuse what cannot be a handler."""
    if isinstance(handler, type) or not callable(handler):
        raise InputError("handler", f"must be a function, got {handler!r:.80}; wrap it in one")
    shown = getattr(handler, "__qualname__", None) or repr(handler)[:80]
    if inspect.isgeneratorfunction(handler) or inspect.isasyncgenfunction(handler):
        raise InputError("handler", f"{shown} is a generator, and nobody would iterate over it; return its values")
    first = next(iter(inspect.signature(handler).parameters), None)
    if first in ("self", "cls") and "." in shown.rpartition("<locals>.")[2]:
        raise InputError(
            "handler", f"{shown} is a method, and {first!r} cannot be put; use a function, or the method of an object"
        )


def name_of(handler: Any) -> str:
    """The name of a task that is given none."""
    name = getattr(handler, "__name__", "")
    if not name.isidentifier():
        raise InputError("name", f"{handler!r:.80} has no name that a task could have; give one: app.task(name=…)")
    return str(name)


def hints_of(handler: Callable[..., Any], task: str) -> dict[str, Any]:
    """The annotations of a handler, resolved."""
    try:
        return get_type_hints(handler, include_extras=True)
    except NameError as error:
        raise InputError(
            task, f"an annotation of the handler cannot be resolved: {error}; import it where the module runs too"
        ) from error
    except TypeError:
        raise InputError(
            "handler", f"the annotations of {handler!r:.80} cannot be read; wrap it in a function"
        ) from None


def check_types(task: str, fields: Sequence[tuple[str, Any] | tuple[str, Any, Any]]) -> None:
    """Refuse an argument of a type that JSON text cannot be read as, unless it has a default."""
    for name, hint in (each for each in fields if len(each) == 2 and each[1] is not object):
        try:
            msgspec.json.schema(hint)
        except (TypeError, RuntimeError):  # a type that msgspec does not know
            shown = hint.__qualname__ if isinstance(hint, type) else str(hint)
            raise InputError(
                name,
                f"{task} takes a {shown}, which JSON cannot carry; use str, int, float, bool, list, dict, datetime, "
                "Decimal, UUID, an Enum, a dataclass, a TypedDict or a Struct",
            ) from None


def row_fields(row: Any) -> tuple[list[Any], bool]:
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


def one_of(hint: Any) -> Any:
    """The result of one row of a batch task, from the type of all of them."""
    origin, args = get_origin(hint), get_args(hint)
    return args[0] if isinstance(origin, type) and issubclass(origin, Sequence) and len(set(args) - {...}) == 1 else Any


def result_type(hint: Any) -> Any:
    """The type that results are read as; None where they are as JSON has them, or where JSON cannot carry the type."""
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    kinds = tuple(kind for kind in kinds if not (isinstance(kind, type) and issubclass(kind, Verdict)))
    if not kinds or all(kind in AS_JSON for kind in kinds):
        return None
    wanted: Any = Union.__getitem__(kinds)
    try:
        msgspec.json.schema(wanted)
    except (TypeError, RuntimeError):  # a type that msgspec does not know
        return None
    return wanted
