"""Reads untrusted XML as a stream, with limits.

The parser is Python's expat, fed in portions. Against documents that are made to hurt: a document type (and with it
every entity, external or exploding) is refused; nesting is bounded; a tag or comment that does not end, which expat
would keep in memory as a whole, is refused once it is longer than a limit; so are documents that keep inventing names,
each of which expat remembers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import IO, Any
from xml.parsers import expat

from duly.bulk.read.archive import BROKEN
from duly.core.errors import InputError

PORTION = 64 * 1024
LONGEST_TAG = 1024 * 1024
DEEPEST = 64
MOST_NAMES = 10_000

Attributes = list[str]  # name, value, name, value, …: the way that expat gives them fastest
# What is called for every tag that begins, with its name (without its prefix) and its attributes; and for every name of
# a tag that ends, or every text.
Started = Callable[[str, Attributes], None]
OnText = Callable[[str], None]


def tags(part: str, stream: IO[bytes]) -> Iterator[tuple[str, dict[str, str]]]:
    """Every tag of this part, with its attributes."""
    ready: list[tuple[str, dict[str, str]]] = []

    def started(name: str, attributes: Attributes) -> None:
        ready.append((name, dict(zip(attributes[::2], attributes[1::2], strict=True))))

    for _ in walk(part, stream, started):
        yield from ready
        ready.clear()


def walk(
    part: str, stream: IO[bytes], started: Started, ended: OnText | None = None, text: OnText | None = None
) -> Iterator[None]:
    """Call these for every tag, end of a tag and text of this part, pausing after each portion."""
    parser = _parser(part, started, ended)
    parser.CharacterDataHandler = text
    fed = 0
    while True:
        try:
            portion = stream.read(PORTION)
            parser.Parse(portion, not portion)
        except expat.ExpatError as error:
            raise InputError("file", f"{part} is not well-formed: {error}") from None
        except InputError:
            raise
        except BROKEN as error:
            raise InputError("file", f"{part} is damaged: {error}") from None
        yield
        if not portion:
            return
        fed += len(portion)
        if fed - max(parser.CurrentByteIndex, 0) > LONGEST_TAG:
            raise InputError("file", f"{part} has a tag of more than {LONGEST_TAG:,} bytes")
        if len(parser.intern) > MOST_NAMES:
            raise InputError("file", f"{part} uses more than {MOST_NAMES:,} different names")


def _parser(part: str, started: Started, ended: OnText | None) -> Any:
    depth = 0

    def start(name: str, attributes: Attributes) -> None:
        nonlocal depth
        depth += 1
        if depth > DEEPEST:
            raise InputError("file", f"{part} is nested more than {DEEPEST} levels deep")
        started(name.rpartition(":")[2] if ":" in name else name, attributes)

    def end(name: str) -> None:
        nonlocal depth
        depth -= 1
        if ended is not None:
            ended(name.rpartition(":")[2] if ":" in name else name)

    def refuse(*_: object) -> None:
        raise InputError("file", f"{part} declares a document type, which no spreadsheet program writes")

    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.ordered_attributes = True
    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.StartDoctypeDeclHandler = refuse
    return parser
