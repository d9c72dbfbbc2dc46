"""The Python of the documentation: its blocks, and what each needs of those before it."""

from __future__ import annotations

import ast
import builtins
import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
DEFINES = re.compile(r"\bDuly\(|^@\w+\.task", re.MULTILINE)


class Example(NamedTuple):
    page: Path
    number: int
    text: str
    before: str  # the blocks of the page that it builds on, and no others

    @property
    def name(self) -> str:
        return f"{self.page.stem}-{self.number}"


def blocks(page: Path) -> list[str]:
    return BLOCK.findall(page.read_text(encoding="utf8"))


def definitions(page: Path) -> str:
    """What a reader of this page would save as his app: the blocks with an app or its tasks, and what they need."""
    known = blocks(page)
    wanted = {place for place, block in enumerate(known) if DEFINES.search(block)}
    needed = {place for number in wanted for place in _foundation(known, number)}
    return "\n\n".join(known[place] for place in sorted(wanted | needed))


def examples() -> list[Example]:
    found = []
    for page in PAGES:
        known = blocks(page)
        for number, block in enumerate(known):
            needed = sorted(_foundation(known, number))
            found.append(Example(page, number + 1, block, "\n\n".join(known[place] for place in needed)))
    return found


def _foundation(known: list[str], number: int) -> set[int]:
    """The places of the earlier blocks that have the names which this one uses, and of those that they need."""
    needed: set[int] = set()
    for name in _used(known[number]) - _bound(known[number]):
        place = next((place for place in reversed(range(number)) if name in _bound(known[place])), None)
        if place is not None and place not in needed:
            needed |= {place} | _foundation(known, place)
    return needed


def _used(text: str) -> set[str]:
    names = {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
    return names - set(vars(builtins))


def _bound(text: str) -> set[str]:
    bound: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                bound.add(name)
            case ast.ClassDef(name=name):
                bound.add(name)
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                bound |= {(alias.asname or alias.name).partition(".")[0] for alias in names}
            case _:
                pass
    return bound
