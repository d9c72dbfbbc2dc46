"""Output for people: times, tables and JSON. A table fits into its terminal, down to 80 columns; a pipe gets all."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click
import msgspec

from duly.core import codec

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

STYLES = {
    "waiting": "blue",
    "running": "yellow",
    "done": "green",
    "failed": "red",
    "cancelled": "dim",
    "ok": "green",
    "warn": "yellow",
    "bad": "red",
}

ROOMY = 100  # in a terminal of this width, tables show more columns
UNBOUND = 10_000  # the width for what is no terminal
GAP = 2  # between columns
LEAST = 8  # the width that a column keeps


def console() -> Console:
    from rich.console import Console

    is_bound = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console(width=None if is_bound else UNBOUND, highlight=False, markup=False, emoji=False)


def print_json(value: Any) -> None:
    click.echo(msgspec.json.format(codec.encode(value), indent=2).decode())


def table(*titles: str, rows: Iterable[Sequence[Any]], last: bool = False) -> Table:
    """A table without lines. None is an empty cell.

    A column whose title begins with > is aligned to the right, and never cut. One that begins with ~ is cut where the
    terminal is too narrow. Other columns, which have ids and names, are folded then. `last`: the table is as wide as
    what it stands in, and its last column is cut.
    """
    from rich.table import Table
    from rich.text import Text

    cells = [
        [each if isinstance(each, Text) else Text("" if each is None else str(each)) for each in row] for row in rows
    ]
    made = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="dim", expand=last)
    widths = [None] * len(titles) if last else _widths(titles, cells, console().width)
    for title, width in zip(titles, widths, strict=True):
        is_cut = last or title[:1] in (">", "~")
        made.add_column(
            title.lstrip(">~"), justify="right" if title.startswith(">") else "left", no_wrap=is_cut,
            overflow="ellipsis" if is_cut else "fold", width=width, ratio=1 if last and title is titles[-1] else None,
        )  # fmt: skip
    for row in cells:
        made.add_row(*row)
    return made


def _widths(titles: Sequence[str], rows: Sequence[Sequence[Text]], room: int) -> list[int | None]:
    """The widths of the columns: as their cells need, or less where there is no room for that."""
    widths = [
        max([len(title.lstrip(">~")), *(row[place].cell_len for row in rows)]) for place, title in enumerate(titles)
    ]
    excess = sum(widths) + GAP * (len(widths) - 1) - room
    for place in reversed([place for place, title in enumerate(titles) if title.startswith("~")]):
        less = max(min(excess, widths[place] - LEAST), 0)
        widths[place], excess = widths[place] - less, excess - less
    folded = [place for place, title in enumerate(titles) if title[:1] not in (">", "~")]
    while excess > 0 and (widest := max(folded, key=widths.__getitem__, default=None)) is not None:
        if widths[widest] <= LEAST:
            break
        widths[widest], excess = widths[widest] - 1, excess - 1
    return list(widths)


def state(name: str) -> Text:
    from rich.text import Text

    return Text(name, style=STYLES[name])


def cut(text: str | None, most: int) -> str:
    """The first line, at most this long."""
    line = (text or "").partition("\n")[0]
    return line if len(line) <= most else f"{line[: most - 1]}…"


def short(time: datetime, now: datetime, in_utc: bool = False) -> str:
    """A time for tables: without the year if it is this one."""
    zoned = _zoned(time, in_utc)
    form = "%b %d %H:%M:%S" if zoned.year == _zoned(now, in_utc).year else "%Y %b %d %H:%M"
    return f"{zoned:{form}} {_offset(zoned)}"


def full(time: datetime | None, now: datetime, in_utc: bool = False) -> str:
    if time is None:
        return ""
    zoned = _zoned(time, in_utc)
    return f"{zoned:%Y-%m-%d %H:%M:%S} {_offset(zoned)} ({relative(time, now)})"


def relative(time: datetime, now: datetime) -> str:
    """in 5 min, 3 h ago, now"""
    seconds = (time - now).total_seconds()
    size = span(abs(seconds))
    if abs(seconds) < 0.5:
        return "now"
    return f"in {size}" if seconds > 0 else f"{size} ago"


def span(seconds: float) -> str:
    for unit, length, most in (("s", 1, 120), ("min", 60, 120), ("h", 3_600, 48)):
        if round(seconds / length) < most:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds / 86_400:.0f} d"


def _zoned(time: datetime, in_utc: bool) -> datetime:
    return time.astimezone(UTC if in_utc else None)


def _offset(zoned: datetime) -> str:
    text = f"{zoned:%z}"
    return f"{text[:3]}:{text[3:5]}"
