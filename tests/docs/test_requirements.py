"""The table of requirements: whatever it names is there, both the places and the tests."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from duly.config import sections
from duly.plugin import plugins
from tests.docs.pages import ROOT
from tests.web.test_matrix import DOCUMENT

PAGE = ROOT / "docs" / "requirements.md"
ROWS = [
    [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
    for line in PAGE.read_text(encoding="utf8").splitlines()
    if line.startswith("| ") and not line.startswith(("| ---", "| the document requires"))
]
KNOWN = {
    name
    for kind in sections()
    for setting_name, setting in kind.known().items()
    for name in (setting_name, setting.metadata["alias"])
    if name
} | {variable for plugin in plugins().values() for variable in plugin.aliases}
VIEWS = "".join(path.read_text(encoding="utf8") for path in (ROOT / "src/duly/apps").rglob("*.sql"))


def named(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


@cache
def functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_every_document_has_its_rows() -> None:
    titles = re.findall(r"(?m)^## ", PAGE.read_text(encoding="utf8"))
    assert len(titles) == 5
    assert len(ROWS) > 90
    assert all(len(row) == 3 for row in ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:60])
def test_the_places_and_tests_of_a_requirement_are_there(row: list[str]) -> None:
    _, where, shown = row
    assert named(where), "say where it is"
    for place in named(where):
        assert is_there(place), f"there is no {place}"
    tests = [each for each in named(shown) if each.startswith("tests/")]
    assert tests, "say which test shows it"
    for each in tests:
        file, _, name = each.partition("::")
        assert name in functions(ROOT / file), f"there is no {each}"


def is_there(place: str) -> bool:
    """Whether a file, and what is named of it, an operation, a view or a setting exists."""
    if place.startswith(("src/", "docs/")):
        file, _, name = place.partition(": ")
        path = ROOT / file
        return path.is_file() and name in path.read_text(encoding="utf8")
    if place.startswith("/") or " /" in place:
        method, _, path_of = place.partition(" ")
        return method.lower() in DOCUMENT["paths"].get(path_of, {})
    if place.startswith("duly_"):
        return f"view {place} " in VIEWS
    return place in KNOWN


@pytest.mark.parametrize("place", ["src/duly/none.py", "src/duly/core/decide.py: no_such", "GET /api/none", "NO_NAME"])
def test_what_is_not_there_is_noticed(place: str) -> None:
    assert not is_there(place)
