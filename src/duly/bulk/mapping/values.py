"""The fields that a task needs, which an app may define, and a row as the task gets it.

There is one spelling for what means the same, or a reason why a value cannot be taken.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping as Values
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from msgspec import Struct

from duly.bulk.read.rows import FileRow
from duly.core.results import PreviewRow

if TYPE_CHECKING:
    from duly.bulk.mapping.columns import Mapping

ValueKind = Literal["text", "code", "number", "ean", "url"]

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u200b\u2060\ufeff]")
_MONEY = re.compile(r"[$€£¥]|\b(?:eur|usd|gbp|chf)\b", re.IGNORECASE)
_THOUSANDS = re.compile(r"[-+]?[1-9]\d{0,2}(?:,\d{3})+")
_PLAIN = re.compile(r"(?P<whole>[-+]?\d+)(?:[.,](?P<fraction>\d+))?")
_GROUPED = re.compile(
    r"(?P<whole>[-+]?\d{1,3}(?P<by>[., '])\d{3}(?:(?P=by)\d{3})*)(?:(?!(?P=by))[.,](?P<fraction>\d+))?"
)


class Field(Struct, frozen=True, kw_only=True):
    """One field: its name, other names of columns that mean it, and what its values are."""

    name: str
    synonyms: tuple[str, ...] = ()
    kind: ValueKind = "text"
    longest: int = 1_000  # characters


class Fields(Struct, frozen=True, kw_only=True):
    """All fields of a row, what a row must have at least, and what makes two rows the same."""

    fields: tuple[Field, ...]
    any_of: tuple[str, ...] = ()  # a row without any of these is refused
    identity: tuple[tuple[str, ...], ...] = ()  # the first of these of which a row has every field says which row it is


class Normal(Struct, frozen=True):
    """A row by fields; `problems` say what is refused, and where there are any the row is not worked on."""

    values: dict[str, str]
    problems: tuple[str, ...] = ()


def normalise(row: Values[str, Any], mapping: Mapping, fields: Fields) -> Normal:
    """The fields of a row, without those that are empty."""
    values: dict[str, str] = {}
    problems: list[str] = []
    for field in fields.fields:
        column = mapping.columns.get(field.name)
        if column is None:
            continue
        try:
            value = _value(row.get(column), field)
        except ValueError as error:
            problems.append(f"{field.name} (column {column!r:.60}): {error}")
            continue
        if value:
            values[field.name] = value
    if not problems and fields.any_of and not any(name in values for name in fields.any_of):
        problems.append(f"none of these has a value: {', '.join(fields.any_of)}")
    return Normal(values, tuple(problems))


def preview(row: FileRow, mapping: Mapping, fields: Fields | None) -> PreviewRow:
    """What would become of this row; without `fields`, its columns stay as they are."""
    normal = Normal({}, (row.fault,) if row.fault else ())
    if fields is not None and not row.fault:
        normal = normalise(row.values, mapping, fields)
    return PreviewRow(row.number, row.line, row.values, normal.values, normal.problems)


def identity(values: Values[str, str], fields: Fields) -> str | None:
    """What makes this row the same as another one; None when it has nothing to be known by."""
    for names in fields.identity:
        if all(name in values for name in names):
            return "\x1f".join(f"{name}={values[name].casefold()}" for name in names)
    return None


def is_kind(value: Any, kind: ValueKind) -> bool:
    """Whether this could be a value of that kind."""
    try:
        return bool(_value(value, Field(name="", kind=kind)))
    except ValueError:
        return False


def _value(value: Any, field: Field) -> str:
    text = text_of(value)
    if not text:
        return ""
    if len(text) > field.longest:
        raise ValueError(f"has {len(text):,} characters; {field.longest:,} is the limit")
    match field.kind:
        case "text" | "code":
            return text
        case "number":
            return _number(text)
        case "ean":
            return _ean(text)
        case "url":
            return _url(text)


def text_of(value: Any) -> str:
    """A cell as text: composed characters, single spaces, no control characters; whole numbers without a fraction."""
    if value is None:
        return ""
    if isinstance(value, str) and value.isascii() and value.isprintable():  # nearly always, and nothing to compose
        return " ".join(value.split())
    if isinstance(value, dict | list):
        raise ValueError("is a list or an object, where a single value is wanted")
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        value = int(value)
    text = _CONTROL.sub("", unicodedata.normalize("NFC", str(value)))
    return " ".join(text.split())


def _number(text: str) -> str:
    """A number with a point, however it is grouped. `1,234` is a thousand, `1,5` and `1.234` are fractions."""
    bare = _MONEY.sub("", text).strip().removesuffix(",-").removesuffix(".-").strip()
    if _THOUSANDS.fullmatch(bare):
        return bare.replace(",", "").removeprefix("+")
    found = _PLAIN.fullmatch(bare) or _GROUPED.fullmatch(bare)
    if not found:
        raise ValueError(f"{text!r:.60} is not a number")
    whole = re.sub(r"[., '+]", "", found["whole"])
    return f"{whole}.{found['fraction']}" if found["fraction"] else whole


def _ean(text: str) -> str:
    """The digits of a barcode, whose last one proves the others. Zeros that a spreadsheet took away come back."""
    digits = re.sub(r"[\s-]", "", text)
    if not digits.isdecimal() or not 8 <= len(digits) <= 14:
        raise ValueError(f"{text!r:.60} is not a barcode of 8 to 14 digits")
    full = digits if len(digits) in (8, 12, 13, 14) else digits.zfill(13)
    total = sum(int(digit) * (3 if place % 2 else 1) for place, digit in enumerate(reversed(full)))
    if total % 10:
        raise ValueError(f"{text!r:.60} is not a barcode: its last digit is wrong")
    return full


def _url(text: str) -> str:
    try:
        parts = urlsplit(text)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{text!r:.60} is not a web address")
    return text
