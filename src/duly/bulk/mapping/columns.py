"""Which column of a file is which field.

Names are compared as people mean them: case, accents, punctuation and the joints of `camelCase` do not count. A file
without a header has only its values to go by, and so only fields whose values are unmistakable are found there, and
the title, which is the column with the longest texts.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Sequence
from collections.abc import Mapping as Values
from typing import Any

from msgspec import Struct

from duly.bulk.mapping.values import Field, Fields, is_kind
from duly.core.errors import InputError

_JOINT = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_PUNCTUATION = re.compile(r"[\W_]+")
TELLING = ("ean", "url")  # kinds of values that are hardly anything else
ENOUGH = 0.8  # of the values in a column that must be of a kind


class Mapping(Struct, frozen=True):
    """The column of each field that has one."""

    columns: dict[str, str]

    def checked(self, names: Sequence[str], fields: Fields) -> Mapping:
        """This mapping, if it names columns and fields that there are, and no column twice; else InputError."""
        known = {field.name for field in fields.fields}
        taken: dict[str, str] = {}
        for field, column in self.columns.items():
            if field not in known:
                raise InputError(f"mapping.{field}", f"is not a field; known fields: {', '.join(sorted(known))}")
            if column not in names:
                raise InputError(f"mapping.{field}", f"there is no column {column!r:.100}")
            if column in taken:
                raise InputError(f"mapping.{field}", f"column {column!r:.100} is already {taken[column]}")
            taken[column] = field
        return self

    def fitted(self, names: Sequence[str]) -> Mapping:
        """The same for a file of the same fingerprint, whose columns may be written and ordered in another way."""
        by_plain = {plain(name): name for name in reversed(names)}
        return Mapping({field: by_plain[at] for field, name in self.columns.items() if (at := plain(name)) in by_plain})


def plain(name: str) -> str:
    """A name as it is compared: `Artikel-Nr.`, `ARTIKEL NR` and `artikelNr` are the same."""
    words = _PUNCTUATION.sub(" ", _JOINT.sub(" ", name))
    letters = unicodedata.normalize("NFKD", words.casefold())
    return " ".join("".join(letter for letter in letters if not unicodedata.combining(letter)).split())


def fingerprint(names: Iterable[str], has_header: bool = True) -> str:
    """What files of the same shape have in common, whatever the order of their columns: 32 hexadecimal digits."""
    parts = sorted(map(plain, names)) if has_header else [f"columns: {len(list(names))}"]
    return hashlib.sha256("\x1f".join(parts).encode()).hexdigest()[:32]


def suggest(
    names: Sequence[str], fields: Fields, rows: Sequence[Values[str, Any]] = (), has_header: bool = True
) -> Mapping:
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
    return Mapping({field.name: found[field.name] for field in fields.fields if field.name in found})


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


def _by_values(names: Sequence[str], fields: Fields, rows: Sequence[Values[str, Any]]) -> Mapping:
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
    return Mapping(found)
