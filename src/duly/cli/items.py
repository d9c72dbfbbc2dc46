"""`duly items`, `show`, `again`, `retry`, `cancel`, `discard`, `edit`: look at items and look after them.

An app is needed only to check changed arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, Unpack

import click

from duly.cli import options, words
from duly.cli.sides import side, time_of
from duly.core.errors import InputError, NotAllowed

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from duly.cli.sides import Side
    from duly.core.filters import ItemEdit, ItemFilter
    from duly.core.shown import Row, Story

ids = click.argument("ids", nargs=-1, required=True, type=int, metavar="ID...")


@click.command()
@options.item_filter
@click.option("--owner", "user_id", metavar="USER", help="Items of this user.")
@click.option("--limit", type=click.IntRange(1, 1_000), default=20, show_default=True)
@click.option("--before", "below", type=options.ID, metavar="ID", help="Only items older than this one: the next page.")
@options.told
def items(limit: int, as_json: bool, in_utc: bool, **filter: Unpack[ItemFilter]) -> None:
    """List items, newest first."""
    with side() as api:
        found, now = api.find_items(limit, **filter), time_of(api)
    if not words.is_all_told(found.rows, as_json, "no items match"):
        _print_rows(found.rows, now, in_utc)
        if len(found.rows) == limit:
            click.echo(f"\nolder items: --before {found.rows[-1].id}")
    if not found.is_indexed and not as_json:
        click.echo(f"no index for this filter: {found.scanned:,} items were scanned", err=True)


@click.command(short_help="Put an item that has ended once more.")
@click.argument("item_id", type=int, metavar="ID")
@click.option("--key", help="Put once while an item with this key is live.")
@options.at
@options.delay
@options.told
def again(item_id: int, key: str | None, at: str | None, delay: str | None, as_json: bool, in_utc: bool) -> None:
    """Put an item that has ended once more, as a new one: same task, arguments, queue, rank and tries."""
    with side() as api:
        placed = api.again(item_id, key=key, at=at, delay=options.span(delay))
        row, now = visible(api, placed.id), time_of(api)
    if as_json:
        words.print_json(placed)
    elif row is None or not placed.fresh:
        click.echo(f"item {placed.id}" + (" is put" if placed.fresh else " has this key already"))
    else:
        click.echo(f"item {row.id} of {row.task}: due {words.full(row.due_at, now, in_utc)}")


def visible(api: Side, item_id: int) -> Row | None:
    """The item; None if the key may write but not read."""
    try:
        return api.item(item_id)
    except NotAllowed:
        return None


def _print_rows(rows: Sequence[Row], now: datetime, in_utc: bool) -> None:
    console = words.console()
    is_roomy = console.width >= words.ROOMY
    columns: list[str | tuple[str, str]] = [("id", "right"), "task", "state", ("try", "right"), "due", ""]
    lines: list[list[RenderableType]] = []
    for row in rows:
        line: list[RenderableType] = [
            str(row.id),
            words.cut(row.task, 24 if is_roomy else 16),
            words.state(row.state),
            str(row.attempt) if row.max_attempts is None else f"{row.attempt}/{row.max_attempts}",
            words.short(row.due_at, now, in_utc),
            words.relative(row.due_at, now),
        ]
        lines.append([*line, words.cut(_note(row), 200)] if is_roomy else line)
    if is_roomy:
        columns.append("")
    console.print(words.table(*columns, rows=lines, last=is_roomy))


def _note(row: Row) -> str:
    """The last column of an item: its error, an unusual outcome, or its key."""
    if row.state in ("failed", "waiting") and row.failures + row.crashes + row.losses:
        return row.last_error or ""
    if row.state in ("done", "cancelled") and row.outcome not in ("done", "cancelled"):
        return f"{row.outcome}: {row.last_error}" if row.last_error else str(row.outcome)
    return f"key {row.key}" if row.key else ""


@click.command(short_help="Show one item and its history.")
@click.argument("item_id", type=int, metavar="ID")
@options.told
def show(item_id: int, as_json: bool, in_utc: bool) -> None:
    """Show one item: its fields, its tries and its state."""
    with side() as api:
        story, now = api.story(item_id), time_of(api)
    if as_json:
        words.print_json(story)
    else:
        _print_story(words.console(), story, now, in_utc)


def _print_story(console: Console, story: Story, now: datetime, in_utc: bool) -> None:
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    from duly.core import codec

    item = story.item
    console.print(Text.assemble((f"item {item.id} ", "bold"), (item.task, "bold"), "  ", words.state(item.state)))
    facts = Table.grid(padding=(0, 2, 0, 0))
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column(overflow="fold")
    tries = f"{item.attempt} of {item.max_attempts}" if item.max_attempts else str(item.attempt)
    queue = f"{item.queue}, {item.lane} lane" + (f", rank {item.rank}" if item.rank else "")
    for name, value in (
        ("outcome", item.outcome),
        ("due", words.full(item.due_at, now, in_utc)),
        ("planned", words.full(item.planned_at, now, in_utc) if item.planned_at != item.due_at else None),
        ("queue", queue),
        ("tries", tries),
        ("key", item.key),
        ("execution key", item.execution_key),
        ("arguments", codec.encode(item.args).decode()),
        ("progress", None if item.progress is None else codec.encode(item.progress).decode()),
        ("result", None if item.result is None else codec.encode(item.result).decode()),
        ("schedule", story.schedule_key),
        ("trace", story.trace_id),
        ("lease until", words.full(story.lease_until, now, in_utc)),
    ):
        if value:
            facts.add_row(name, Text(value))
    console.print(facts)
    console.print()
    for event in story.timeline:
        what = f"{event.text}: {event.error}" if event.error else event.text
        console.print(Text(words.full(event.at, now, in_utc), style="dim"))
        console.print(Padding(Text(words.cut(what, 500), overflow="fold"), (0, 0, 0, 4)))
    if item.last_error and "\n" in item.last_error:
        console.print(Text(f"\nlast error\n{item.last_error}"), overflow="fold", soft_wrap=False)


@click.command(short_help="Retry items, or start them sooner.")
@ids
@options.at
@options.delay
@options.told
def retry(ids: tuple[int, ...], at: str | None, delay: str | None, as_json: bool, in_utc: bool) -> None:
    """Retry failed or cancelled items with all their tries, and start waiting ones sooner. All of them or none."""
    with side() as api:
        api.retry(*ids, at=at, delay=options.span(delay))
        rows, now = {item_id: visible(api, item_id) for item_id in ids}, time_of(api)

    def due(row: Row | None) -> str:
        return f" of {row.task}: due {words.full(row.due_at, now, in_utc)}" if row else " will be retried"

    _print_rows_of(rows, as_json, due)


def _ending(act: Literal["cancel", "discard"], done: str, short_help: str, doc: str, kept: str) -> click.Command:
    """A command that ends items, for a reason."""

    @click.command(name=act, short_help=short_help, help=doc)
    @ids
    @click.option("--reason", default="", help=kept)
    @options.side
    @options.as_json
    def end(ids: tuple[int, ...], reason: str, as_json: bool) -> None:
        with side() as api:
            (api.cancel if act == "cancel" else api.discard)(*ids, reason=reason)
            rows = {item_id: visible(api, item_id) for item_id in ids}
        _print_rows_of(rows, as_json, lambda row: f" of {row.task}: {row.state}" if row else f": {done}")

    return end


cancel = _ending(
    "cancel",
    "cancelled",
    "Cancel waiting and running items.",
    "Cancel waiting and running items: all of them or none. A running handler is stopped within a second.",
    "Kept with the item.",
)
discard = _ending(
    "discard",
    "discarded",
    "Take failed items out of review for good.",
    "Take failed items out of review for good: all of them or none.",
    "Kept in the audit log.",
)


def _print_rows_of(rows: dict[int, Row | None], as_json: bool, line: Callable[[Row | None], str]) -> None:
    """Print the new state of each of these items; None where the key may write but not read."""
    if as_json:
        words.print_json([row or {"id": item_id} for item_id, row in rows.items()])
        return
    for item_id, row in rows.items():
        click.echo(f"item {item_id}{line(row)}")


@click.command(short_help="Change an item that waits or is in review.")
@click.argument("item_id", type=int, metavar="ID")
@options.arguments("All arguments as one JSON object")
@options.at
@click.option("--queue", help="Another queue to wait in.")
@options.rank
@click.option("--tries", type=int, metavar="N", help="Tries in all.")
@options.app
@options.told
def edit(
    item_id: int,
    pairs: tuple[str, ...],
    text: str | None,
    spec: str | None,
    as_json: bool,
    in_utc: bool,
    **fields: Unpack[ItemEdit],
) -> None:
    """Change an item that waits or is in review: arguments, time, queue, rank or tries.

    Arguments that are not named stay as they are. To change arguments on a database, --app must name the app that has
    the task.
    """
    from duly.cli.put import fitting, json_object, named_pairs

    is_args = bool(pairs) or text is not None
    if not is_args and all(value is None for value in fields.values()):
        raise InputError("edit", "nothing to change; give NAME=VALUE, --args, --at, --queue, --rank or --tries")
    with side(spec, with_tasks=is_args) as api:

        def change(**read: Any) -> Row:
            if is_args:
                fields["args"] = {**known, **read}
            return api.edit(item_id, **fields)

        known = json_object(text) if text is not None or not is_args else api.item(item_id).args
        row, now = fitting(change, named_pairs(pairs)), time_of(api)
    due = words.full(row.due_at, now, in_utc)
    words.print_one(row, as_json, f"item {row.id} of {row.task}: due {due}, queue {row.queue}")
