"""Maps the columns of a file to fields, and rows to the arguments of a task. An app may define the fields.

Names are compared as people mean them: case, accents, punctuation and the joints of `camelCase` do not count. A file
without a header has only its values to go by, and so only fields whose values are unmistakable are found there, and
the title, which is the column with the longest texts.

There is one spelling for values that mean the same, or a reason why a value cannot be taken.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias
from urllib.parse import urlsplit

from msgspec import Struct

from duly.bulk.read.rows import FileRow
from duly.core.errors import InputError
from duly.core.results import PreviewRow

ValueKind = Literal["text", "code", "number", "ean", "url"]
Columns: TypeAlias = dict[str, str]  # the column of each field that has one

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u200b\u2060\ufeff]")
_MONEY = re.compile(r"[$€£¥]|\b(?:eur|usd|gbp|chf)\b", re.IGNORECASE)
_THOUSANDS = re.compile(r"[-+]?[1-9]\d{0,2}(?:,\d{3})+")
_PLAIN = re.compile(r"(?P<whole>[-+]?\d+)(?:[.,](?P<fraction>\d+))?")
_GROUPED = re.compile(
    r"(?P<whole>[-+]?\d{1,3}(?P<by>[., '])\d{3}(?:(?P=by)\d{3})*)(?:(?!(?P=by))[.,](?P<fraction>\d+))?"
)
_JOINT = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_PUNCTUATION = re.compile(r"[\W_]+")
TELLING = ("ean", "url")  # kinds of values that are hardly anything else
ENOUGH = 0.8  # of the values in a column that must be of a kind


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
    identity: tuple[tuple[str, ...], ...] = ()  # the first of these whose fields a row has all identifies the row


class Normal(Struct, frozen=True):
    """A row by fields; `problems` say what is refused, and where there are any the row is not worked on."""

    values: dict[str, str]
    problems: tuple[str, ...] = ()


def checked_columns(columns: Columns, names: Sequence[str], fields: Fields) -> Columns:
    """These columns, if they name columns and fields that there are, and no column twice; else InputError."""
    known = {field.name for field in fields.fields}
    taken: dict[str, str] = {}
    for field, column in columns.items():
        if field not in known:
            raise InputError(f"mapping.{field}", f"is not a field; known fields: {', '.join(sorted(known))}")
        if column not in names:
            raise InputError(f"mapping.{field}", f"there is no column {column!r:.100}")
        if column in taken:
            raise InputError(f"mapping.{field}", f"column {column!r:.100} is already {taken[column]}")
        taken[column] = field
    return columns


def fitted_columns(columns: Columns, names: Sequence[str]) -> Columns:
    """The same for a file of the same fingerprint, whose columns may be written and ordered in another way."""
    by_plain = {plain(name): name for name in reversed(names)}
    return {field: by_plain[at] for field, name in columns.items() if (at := plain(name)) in by_plain}


def plain(name: str) -> str:
    """A name as it is compared: `Artikel-Nr.`, `ARTIKEL NR` and `artikelNr` are the same."""
    words = _PUNCTUATION.sub(" ", _JOINT.sub(" ", name))
    letters = unicodedata.normalize("NFKD", words.casefold())
    return " ".join("".join(letter for letter in letters if not unicodedata.combining(letter)).split())


def fingerprint(names: Iterable[str], has_header: bool = True) -> str:
    """The same for all files with the same columns in any order: 32 hexadecimal digits."""
    parts = sorted(map(plain, names)) if has_header else [f"columns: {len(list(names))}"]
    return hashlib.sha256("\x1f".join(parts).encode()).hexdigest()[:32]


def suggest(
    names: Sequence[str], fields: Fields, rows: Sequence[Mapping[str, Any]] = (), has_header: bool = True
) -> Columns:
    """The most likely mapping. The best match of all is taken first, and each column and each field only once."""
    if not has_header:
        return _by_values(names, fields, rows)
    scores = [
        (-_likeness(plain(name), field), place, order, field.name, name)
        for order, field in enumerate(fields.fields)
        for place, name in enumerate(names)
    ]
    found: dict[str, str] = {}
    for score, _, _, field, name in sorted(scores):
        if score and field not in found and name not in found.values():
            found[field] = name
    return {field.name: found[field.name] for field in fields.fields if field.name in found}


def _likeness(name: str, field: Field) -> float:
    """From 0 to 1: the name itself, a synonym (earlier ones are better), or one of them among other words."""
    if name == field.name:
        return 1.0
    likely = (field.name, *field.synonyms)
    for place, synonym in enumerate(likely):
        if name == synonym or name.replace(" ", "") == synonym.replace(" ", ""):
            return 0.9 - place / 1000
    words = name.split()
    for place, synonym in enumerate(likely):
        part = synonym.split()
        starts = range(len(words) - len(part) + 1)
        if any(words[start : start + len(part)] == part for start in starts):
            return 0.5 * len(part) / len(words) - place / 1000
    return 0.0


def _by_values(names: Sequence[str], fields: Fields, rows: Sequence[Mapping[str, Any]]) -> Columns:
    values = {name: [row[name] for row in rows if row.get(name) not in (None, "")] for name in names}
    found: dict[str, str] = {}
    for field in fields.fields:
        if field.kind not in TELLING or field.kind in (each.kind for each in fields.fields if each.name in found):
            continue
        for name in names:
            some = values[name]
            if some and name not in found.values() and sum(is_kind(v, field.kind) for v in some) >= ENOUGH * len(some):
                found[field.name] = name
                break
    texts = {
        name: sum(len(value) for value in some if isinstance(value, str)) / len(some)
        for name, some in values.items()
        if some and name not in found.values() and not all(is_kind(value, "number") for value in some)
    }
    if texts and any(field.name == "title" for field in fields.fields):
        found["title"] = max(texts, key=texts.__getitem__)
    return found


def normalise(row: Mapping[str, Any], columns: Columns, fields: Fields) -> Normal:
    """The fields of a row, without those that are empty."""
    values: dict[str, str] = {}
    problems: list[str] = []
    for field in fields.fields:
        column = columns.get(field.name)
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


def preview(row: FileRow, columns: Columns, fields: Fields | None) -> PreviewRow:
    """What would become of this row; without `fields`, its columns stay as they are."""
    normal = Normal({}, (row.fault,) if row.fault else ())
    if fields is not None and not row.fault:
        normal = normalise(row.values, columns, fields)
    return PreviewRow(row.number, row.line, row.values, normal.values, normal.problems)


def identity(values: Mapping[str, str], fields: Fields) -> str | None:
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
    """The digits of a barcode with a valid check digit. Zeros that a spreadsheet removed are restored."""
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
