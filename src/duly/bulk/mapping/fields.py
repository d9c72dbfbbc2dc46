"""The fields that a task needs, as values. An app may define its own."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

ValueKind = Literal["text", "code", "number", "ean", "url"]


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
