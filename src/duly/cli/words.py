"""Output for a terminal: times, tables and JSON. Everything fits into 80 columns."""

from __future__ import annotations

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


def console() -> Console:
    from rich.console import Console

    return Console(highlight=False, markup=False, emoji=False)


def print_json(value: Any) -> None:
    click.echo(msgspec.json.format(codec.encode(value), indent=2).decode())


def table(*titles: str, rows: Iterable[Sequence[Any]], last: bool = False) -> Table:
    """A table without lines. A column whose title begins with > is aligned to the right; None is an empty cell.

    `last`: the last column takes the space that is left.
    """
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim", expand=last)
    for place, title in enumerate(titles, 1):
        made.add_column(
            title.removeprefix(">"),
            justify="right" if title.startswith(">") else "left",
            no_wrap=True,
            overflow="ellipsis",
            ratio=1 if last and place == len(titles) else None,
        )
    for row in rows:
        made.add_row(*(cell if isinstance(cell, Text) else "" if cell is None else str(cell) for cell in row))
    return made


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
