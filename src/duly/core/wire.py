"""Names between the HTTP API and the core: camelCase in JSON, snake_case in structs.

A service shows the core's structs, and the client reads them back, so both sides have the same types. Only the names
of fields change. Keys inside `Any` and `dict` fields, such as the arguments of an item, are data and stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date, datetime, timedelta
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from msgspec import Struct, convert
from msgspec.structs import fields

T = TypeVar("T")


class Doc(Struct, frozen=True):
    """What a field means, in one sentence, for the API's documentation: `Annotated[int | None, Doc("Its job.")]`."""

    text: str


def camel(name: str) -> str:
    return re.sub(r"_([a-z0-9])", lambda match: match[1].upper(), name)


def read(kind: type[T], value: Any) -> T:
    """The value of this type that decoded JSON of the API stands for; unknown fields are ignored."""
    return convert(_renamed(kind, value), kind)


def written(values: Mapping[str, Any]) -> dict[str, Any]:
    """These values as JSON or a query of the API has them; None means not given, and is left out."""
    return {camel(name): plain(value) for name, value in values.items() if value is not None}


def plain(value: Any) -> Any:
    """A time as text and a length of time in seconds; everything else as it is."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    return value.isoformat() if isinstance(value, (date, datetime)) else value


@cache
def _fields(kind: type[Struct]) -> dict[str, tuple[str, Any]]:
    """For each name in the API, the name that `convert` expects, and the type of the field.

    A name that was set with `field(name=…)` is the name in the API.
    """
    return {
        camel(each.name) if each.name == each.encode_name else each.encode_name: (each.encode_name, each.type)
        for each in fields(kind)
    }


def _renamed(kind: Any, value: Any) -> Any:
    """The same value with the names that `convert` expects, wherever the type has structs."""
    if value is None:
        return None
    struct = get_origin(kind) or kind  # a generic struct, such as Placed[int], has its origin
    if isinstance(struct, type) and issubclass(struct, Struct):
        known = _fields(struct)
        return {known[name][0]: _renamed(known[name][1], inner) for name, inner in value.items() if name in known}
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _renamed(inner[0], value)
    if origin in (Union, UnionType):
        arms = [arm for arm in inner if arm is not NoneType]
        return _renamed(arms[0], value) if len(arms) == 1 else value
    if origin in (list, tuple) and inner and isinstance(value, list):
        return [_renamed(inner[0], each) for each in value]
    return value
