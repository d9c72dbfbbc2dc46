"""Between Python values and the JSON text that rows keep, with errors that name the field. Only this module encodes.

Arguments are checked when they are put, as the worker will read them: by the types of the handler's annotations, and
for what a database cannot hold (NUL), JSON cannot say (NaN) or a row should not carry (megabytes, hundreds of levels).
Results and everything else that rows keep are checked by `keepable`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct

from duly.core.errors import InputError

fields = msgspec.structs.asdict

# How deeply JSON in a row may be nested. Beyond some 250 levels, tools that show it fail.
DEPTH = 100
_NUL = re.compile(rb"(?<!\\)((?:\\\\)*)\\u0000")  # not a backslash that is followed by these letters
TOO_DEEP = "… nested too deeply to be shown"

_encoder = msgspec.json.Encoder(order="deterministic")
# What the encoder raises for unknown objects, numbers of thousands of digits, lone surrogates and circular values.
_UNWRITABLE = (TypeError, ValueError, RecursionError, OverflowError)
_PATH = re.compile(r"^(?P<problem>.*?)(?: - at `(?:\$|key in \$)\.?(?P<path>.*)`)?$", re.DOTALL)
_BRACKET = re.compile(rb'"(?:[^"\\]|\\.)*"|([\[{])|[\]}]')
_FIELD = re.compile(r"^Object (?:missing required|contains unknown) field `(?P<name>[^`]*)`")


def encode(value: Any) -> bytes:
    return _encoder.encode(value)


def text(value: Any) -> str:
    """The value as JSON text, as a parameter of a statement."""
    return _encoder.encode(value).decode()


def decode(text: bytes | str) -> Any:
    return msgspec.json.decode(text)


def shown(text: bytes) -> Any:
    """The value of a row's JSON text, to be shown. Rows that were written before there were bounds are shown too."""
    try:
        return msgspec.json.decode(text)
    except RecursionError:
        return TOO_DEEP


def check(args: dict[str, Any], shape: type[Struct], limit: int, open_ended: bool = False) -> bytes:
    """The JSON text of these arguments; InputError when the handler could not read them back."""
    try:
        row = msgspec.convert(args, shape, from_attributes=True)
        text = _encoder.encode({**args, **fields(row)} if open_ended else row)
    except msgspec.ValidationError as error:
        raise named(error, shape) from None
    except _UNWRITABLE as error:
        raise InputError(_culprit(args), f"cannot be written as JSON: {error}") from None
    if len(text) > limit:
        raise InputError(_largest(args), f"too large: the arguments are {len(text):,} bytes, the limit is {limit:,}")
    if is_deep(text):
        raise InputError(_deepest(args), f"must not be nested more than {DEPTH} levels deep")
    for path, problem in _unsayable(text, args):
        raise InputError(path, problem)
    return text


def keepable(value: Any, limit: int) -> bytes:
    """The JSON text of a value that a row can store; raises ValueError with the reason if it cannot."""
    try:
        text = _encoder.encode(value)
    except _UNWRITABLE as error:
        raise ValueError(f"cannot be kept as JSON: {error}") from None
    if len(text) > limit:
        raise ValueError(f"has {len(text):,} bytes; {limit:,} is the limit")
    if is_deep(text):
        raise ValueError(f"is nested more than {DEPTH} levels deep")
    for path, problem in _unsayable(text, value):
        raise ValueError(f"cannot be kept as JSON: {path or 'the value'} {problem}")
    return text


def request(body: dict[str, Any]) -> bytes:
    """The JSON text of a request to the service; InputError for what JSON cannot say, as on a database."""
    try:
        text = _encoder.encode(body)
    except _UNWRITABLE as error:
        raise InputError(_culprit(body), f"cannot be written as JSON: {error}") from None
    for path, problem in _unsayable(text, body):
        raise InputError(path, problem)
    return text


def _unsayable(text: bytes, value: Any) -> Iterator[tuple[str, str]]:
    """The leaves of a value that its JSON text says as something else, or that a database cannot hold."""
    # Both checks are quick substring searches; the slow walk that finds the field follows only if one of them hits.
    if b"\\u0000" in text or b"null" in text:
        for path, leaf in _leaves(value):
            if isinstance(leaf, float) and not math.isfinite(leaf):
                yield path, f"must be a finite number, got {leaf}"
            if isinstance(leaf, str) and "\x00" in leaf:
                yield path, "must not contain NUL characters"


def without_nul(text: bytes) -> bytes:
    """JSON text of others, with the replacement character in place of NUL, which a database cannot hold."""
    return _NUL.sub(rb"\1\\ufffd", text) if b"\\u0000" in text else text


def is_deep(text: bytes) -> bool:
    """Whether JSON text is nested more deeply than rows should be."""
    if len(text) <= DEPTH or text.count(b"[") + text.count(b"{") <= DEPTH:
        return False  # the usual case, decided by a quick count
    depth = 0
    for match in _BRACKET.finditer(text):
        if match[1]:
            depth += 1
            if depth > DEPTH:
                return True
        elif match[0] in b"]}":
            depth -= 1
    return False


def read(text: bytes, decoder: msgspec.json.Decoder[Any]) -> Any:
    """The arguments from this JSON text; InputError when they no longer match the handler."""
    try:
        return decoder.decode(text)
    except msgspec.ValidationError as error:
        raise named(error) from None


def convert(value: Any, shape: type[Struct]) -> Any:
    try:
        return msgspec.convert(value, shape, from_attributes=True)
    except msgspec.ValidationError as error:
        raise named(error) from None


def named(error: msgspec.ValidationError, shape: type[Struct] | None = None) -> InputError:
    """msgspec's error as an InputError that names the field, and the fields of `shape` for one that is unknown."""
    match = _PATH.match(str(error))
    problem, path = (match["problem"], match["path"] or "") if match else (str(error), "")
    if field := _FIELD.match(problem):
        name = f"{path}.{field['name']}" if path else field["name"]
        if "missing" in problem:
            return InputError(name, "is required")
        accepted = f"; accepted: {', '.join(shape.__struct_fields__) or 'none'}" if shape and not path else ""
        return InputError(name, f"is not an argument of this task{accepted}")
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


def _culprit(value: Any, path: str = "") -> str:
    """The path of the first value within this one that cannot be encoded."""
    match value:
        case dict():
            inside = [(f"{path}.{name}".lstrip("."), inner) for name, inner in value.items()]
        case list() | tuple():
            inside = [(f"{path}[{place}]", inner) for place, inner in enumerate(value)]
        case _:
            inside = []
    for place, inner in inside:
        try:
            _encoder.encode(inner)
        except RecursionError:  # it may contain itself
            return place
        except _UNWRITABLE:
            return _culprit(inner, place)
    return path or "args"


def _deepest(args: dict[str, Any]) -> str:
    return next((name for name in args if is_deep(_encoder.encode([args[name]]))), "args")


def _largest(args: dict[str, Any]) -> str:
    return max(args, key=lambda name: len(_encoder.encode(args[name])), default="args")
