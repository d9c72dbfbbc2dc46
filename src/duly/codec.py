"""The one seam to msgspec: arguments in, JSON text out, and errors that name the field.

What a worker will read is what is checked at put time: types by the handler's own annotations, and nothing that a
database cannot hold (NUL), JSON cannot say (NaN) or a row should not carry (megabytes).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct

from duly.errors import InputError

fields = msgspec.structs.asdict

_encoder = msgspec.json.Encoder(order="deterministic")
_PATH = re.compile(r"^(?P<problem>.*?)(?: - at `(?:\$|key in \$)\.?(?P<path>.*)`)?$", re.DOTALL)
_FIELD = re.compile(r"^Object (?:missing required|contains unknown) field `(?P<name>[^`]*)`")


def encode(value: Any) -> bytes:
    return _encoder.encode(value)


def decode(text: bytes | str) -> Any:
    return msgspec.json.decode(text)


def check(args: dict[str, Any], shape: type[Struct], limit: int, open_ended: bool = False) -> bytes:
    """The JSON text of these arguments; InputError when the handler could not read them back."""
    try:
        row = msgspec.convert(args, shape, from_attributes=True)
        text = _encoder.encode({**args, **fields(row)} if open_ended else row)
    except msgspec.ValidationError as error:
        raise named(error) from None
    except (TypeError, UnicodeEncodeError, RecursionError, OverflowError) as error:
        raise InputError(_culprit(args), f"cannot be written as JSON: {error}") from None
    if len(text) > limit:
        raise InputError(_largest(args), f"too large: the arguments are {len(text):,} bytes, the limit is {limit:,}")
    # Both checks are substring searches; the walk that names the field runs only when one of them hits.
    if b"\\u0000" in text or b"null" in text:
        for path, value in _leaves(args):
            if isinstance(value, float) and not math.isfinite(value):
                raise InputError(path, f"must be a finite number, got {value}")
            if isinstance(value, str) and "\x00" in value:
                raise InputError(path, "must not contain NUL characters")
    return text


def read(text: bytes, decoder: msgspec.json.Decoder[Any]) -> Any:
    """Arguments back from their text; InputError when they do not fit the handler any more."""
    try:
        return decoder.decode(text)
    except msgspec.ValidationError as error:
        raise named(error) from None


def convert(value: Any, shape: type[Struct]) -> Any:
    try:
        return msgspec.convert(value, shape, from_attributes=True)
    except msgspec.ValidationError as error:
        raise named(error) from None


def named(error: msgspec.ValidationError) -> InputError:
    """The same complaint with the field in front."""
    match = _PATH.match(str(error))
    problem, path = (match["problem"], match["path"] or "") if match else (str(error), "")
    if field := _FIELD.match(problem):
        name = f"{path}.{field['name']}" if path else field["name"]
        return InputError(name, "is required" if "missing" in problem else "is not an argument of this task")
    return InputError(path or "args", problem[:1].lower() + problem[1:])


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    match value:
        case dict():
            for key, inner in value.items():
                yield f"{path}.{key}".lstrip("."), key
                yield from _leaves(inner, f"{path}.{key}".lstrip("."))
        case list() | tuple() | set() | frozenset():
            for place, inner in enumerate(value):
                yield from _leaves(inner, f"{path}[{place}]")
        case str() | float():
            yield path, value
        case _:
            built = msgspec.to_builtins(value)
            if not isinstance(built, type(value)):
                yield from _leaves(built, path)


def _culprit(args: dict[str, Any]) -> str:
    for name, value in args.items():
        try:
            _encoder.encode(value)
        except (TypeError, UnicodeEncodeError, RecursionError, OverflowError):
            return name
    return "args"


def _largest(args: dict[str, Any]) -> str:
    return max(args, key=lambda name: len(_encoder.encode(args[name])), default="args")
