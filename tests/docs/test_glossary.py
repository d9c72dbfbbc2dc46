"""The glossary in docs/concepts.md: the classes, fields, tables and columns that it names exist."""

from __future__ import annotations

import re
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from duly import Duly
from tests.docs.pages import ROOT

PAGE = ROOT / "docs" / "concepts.md"
LINE = re.compile(r"^\| (?P<word>[^|]+) \| (?P<meaning>[^|]+) \| (?P<places>[^|]*)\|$", re.MULTILINE)


class Entry(NamedTuple):
    word: str
    meaning: str
    places: tuple[str, ...]


def entries() -> list[Entry]:
    text = PAGE.read_text(encoding="utf8").partition("\n## Glossary\n")[2]
    lines = [match.groupdict() for match in LINE.finditer(text)][2:]  # without the head of the table
    return [Entry(each["word"], each["meaning"], tuple(re.findall("`([^`]+)`", each["places"]))) for each in lines]


ENTRIES = entries()
PLACES = sorted({place for entry in ENTRIES for place in entry.places})


def test_the_glossary_has_each_word_once_in_order_and_a_sentence_about_it() -> None:
    words = [entry.word for entry in ENTRIES]
    assert len(words) > 50
    assert words == sorted(set(words))
    assert [entry.word for entry in ENTRIES if not re.fullmatch(r"[A-Z].*\.", entry.meaning)] == []


@pytest.mark.parametrize("place", [place for place in PLACES if not place.startswith("duly_")])
def test_what_the_glossary_names_in_the_code_is_there(place: str) -> None:
    assert _is_there(place)


def test_what_the_glossary_names_in_the_database_is_there(tmp_path: Path) -> None:
    app = Duly(f"sqlite:///{tmp_path}/duly.db")
    with app.internals.store.transaction() as connection:
        rows = connection.execute("select m.name, c.name from sqlite_master m, pragma_table_xinfo(m.name) c").fetchall()
    app.close()
    known = {table for table, _ in rows} | {f"{table}.{column}" for table, column in rows}
    assert [place for place in PLACES if place.startswith("duly_") and place not in known] == []


def _is_there(path: str) -> bool:
    """Whether this path leads from the package through modules to a name, and perhaps to a field of it."""
    modules = [part for part in path.split(".") if part.islower()]
    for count in range(len(modules), 0, -1):
        with suppress(ModuleNotFoundError):
            found: Any = import_module(f"duly.{'.'.join(modules[:count])}")
            break
    *owners, last = path.split(".")[count:]
    for name in owners:
        found = getattr(found, name)
    return hasattr(found, last) or last in found.__annotations__
