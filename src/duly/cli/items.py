"""`duly put`, `items`, `show`, `again`, `retry`, `cancel`, `discard`, `edit`: put items, look at them and after them.

An app is needed only to check arguments, with the same checks as in code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, Unpack

import click
import msgspec

from duly.cli import options, words
from duly.cli.session import Session, printing, printing_times, session
from duly.core import codec
from duly.core.errors import InputError, NotAllowed
from duly.core.filters import ItemEdit, ItemFilter
from duly.core.model import Placed
from duly.core.shown import Row, Story

T = TypeVar("T")

item_id = click.argument("item_id", type=int, metavar="ID")
ids = click.argument("ids", nargs=-1, required=True, type=int, metavar="ID...")
key = click.option("--key", help="Put once while an item with this key is live.")


@click.command(short_help="Put an item: now or later.")
@click.argument("task")
@options.arguments("The arguments as one JSON object")
@options.at
@options.delay
@key
@options.rank
@click.option("--tries", type=int, metavar="N", help="Tries in all, in place of the task's own.")
@session(options.as_json, options.in_utc, with_tasks=True)
def put(session: Session, task: str, pairs: tuple[str, ...], text: str | None, **given: Any) -> None:
    """Put an item: now, or --at a time, or after a --delay.

    A VALUE is read as JSON where that fits the task's argument, else as text: n=3, ok=true, 'rows=[1,2]', name=Ann.
    """
    args = json_object(text)
    placed = fitting(lambda **read: session.api.put(task, {**args, **read}, **given), named_pairs(pairs))
    print_placed(session, placed, task)


@options.listing(short_help="List items, newest first; give them another task.")
@options.item_filter
@click.option("--owner", "user_id", metavar="USER", help="Items of this user.")
@options.most()
@click.option("--before", "below", type=options.ID, metavar="ID", help="Only items older than this one: the next page.")
@printing_times
def items(session: Session, most: int, **filter: Unpack[ItemFilter]) -> None:
    """List items, newest first."""
    found = session.api.find_items(most, **filter)
    is_roomy = words.console().width >= words.ROOMY
    titles = [">id", "task", "state", ">try", "due", "", "~"]

    def row(each: Row) -> list[Any]:
        tries = each.attempt if each.max_attempts is None else f"{each.attempt}/{each.max_attempts}"
        line = [
            each.id,
            each.task,
            words.state(each.state),
            tries,
            session.short(each.due_at),
            session.relative(each.due_at),
        ]
        return [*line, words.cut(_note(each), 200)] if is_roomy else line

    session.print_table(found.rows, "no items match", titles if is_roomy else titles[:-1], row)
    if not session.as_json and len(found.rows) == most:
        click.echo(f"\nolder items: --before {found.rows[-1].id}")
    if not session.as_json and not found.is_indexed:
        click.echo(f"no index for this filter: {found.scanned:,} items were scanned", err=True)


@items.command(short_help="Give items of a renamed task its new name.")
@click.argument("old")
@click.argument("new")
@click.option("--skip", is_flag=True, help="Leave what cannot be moved, and move the rest.")
@session(options.as_json, with_tasks=True)
def retask(session: Session, old: str, new: str, skip: bool) -> None:
    """Give what waits, failed or recurs of the task OLD to the task NEW, which runs it from now on.

    All or nothing: if NEW does not accept something, it is reported row by row, and nothing is moved. Running items
    keep their task. On a database, --app must name the app that has NEW.
    """
    done = session.api.retask(old, new, skip=skip)
    counts = ((done.items, "item"), (done.schedules, "schedule"), (done.jobs, "job"))
    moved = ", ".join(f"{count:,} {word}{'' if count == 1 else 's'}" for count, word in counts if count)
    text = [f"moved to {new}: {moved}" if moved else f"nothing of {old} waits, is in review or recurs"]
    if done.running:
        text.append(f"{done.running:,} running: repeat this if they have to be tried again")
    text += [f"not moved: {each.kind} {each.id}: {each.reason}" for each in done.refused]
    if more := done.refused_count - len(done.refused):
        text.append(f"not moved: {more:,} more")
    session.print_one(done, text)


def _note(row: Row) -> str:
    """The last column of an item: why it was given back, its error, an unusual outcome, or its key."""
    if row.state == "waiting" and row.cause:
        return row.cause
    if row.state in ("failed", "waiting") and row.failures + row.crashes + row.losses:
        return row.last_error or ""
    if row.state in ("done", "cancelled") and row.outcome not in ("done", "cancelled"):
        return f"{row.outcome}: {row.last_error}" if row.last_error else str(row.outcome)
    return f"key {row.key}" if row.key else ""


@click.command(short_help="Put an item that has ended again, as a new one.")
@item_id
@key
@options.at
@options.delay
@printing_times
def again(session: Session, item_id: int, **given: Any) -> None:
    """Put an item that has ended again, as a new one: same task, arguments, queue, rank and tries."""
    print_placed(session, session.api.again(item_id, **given))


def print_placed(session: Session, placed: Placed[Any], task: str = "") -> None:
    if session.as_json:
        words.print_json(placed)
    elif (row := _visible(session, placed.id)) is None:
        name = f"item {placed.id} of {task}" if task else f"item {placed.id}"
        click.echo(name + (" is put" if placed.fresh else " has this key already"))
    elif placed.fresh:
        click.echo(f"item {row.id} of {row.task}: due {session.full(row.due_at)}")
    else:
        click.echo(f"item {row.id} of {row.task} has this key already: {row.state}")


def _visible(session: Session, item_id: int) -> Row | None:
    """The item; None if the key may write but not read."""
    try:
        return session.api.item(item_id)
    except NotAllowed:
        return None


@click.command(short_help="Show one item and its history.")
@item_id
@printing_times
def show(session: Session, item_id: int) -> None:
    """Show one item: its fields, its tries and its state."""
    story = session.api.story(item_id)
    session.print_one(story, lambda: _print_story(session, story))


def _print_story(session: Session, story: Story) -> None:
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    def json(value: Any) -> str | None:
        return None if value is None else codec.encode(value).decode()

    console, item = words.console(), story.item
    console.print(Text.assemble((f"item {item.id} ", "bold"), (item.task, "bold"), "  ", words.state(item.state)))
    facts = Table.grid(padding=(0, 2, 0, 0))
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column(overflow="fold")
    tries = f"{item.attempt} of {item.max_attempts}" if item.max_attempts else str(item.attempt)
    queue = f"{item.queue}, {item.lane} lane" + (f", rank {item.rank}" if item.rank else "")
    for name, value in (
        ("outcome", item.outcome),
        ("due", session.full(item.due_at)),
        ("planned", session.full(item.planned_at) if item.planned_at != item.due_at else None),
        ("queue", queue),
        ("tries", tries),
        ("given back", item.cause if item.state == "waiting" else None),
        ("key", item.key),
        ("execution key", item.execution_key),
        ("arguments", json(item.args)),
        ("progress", json(item.progress)),
        ("result", json(item.result)),
        ("schedule", story.schedule_key),
        ("trace", story.trace_id),
        ("lease until", session.full(story.lease_until)),
    ):
        if value:
            facts.add_row(name, Text(value))
    console.print(facts)
    console.print()
    for event in story.timeline:
        what = f"{event.text}: {event.error}" if event.error else event.text
        console.print(Text(session.full(event.at), style="dim"))
        console.print(Padding(Text(words.cut(what, 500), overflow="fold"), (0, 0, 0, 4), expand=False))
    if item.last_error and "\n" in item.last_error:
        console.print(Text(f"\nlast error\n{item.last_error}"), overflow="fold", soft_wrap=False)


@click.command(short_help="Retry items, or start them sooner.")
@ids
@options.at
@options.delay
@printing_times
def retry(session: Session, ids: tuple[int, ...], **given: Any) -> None:
    """Retry failed or cancelled items with all their tries, and start waiting ones sooner. All of them or none."""
    session.api.retry(*ids, **given)
    _print_each(session, ids, lambda row: f"due {session.full(row.due_at)}", " will be retried")


@click.command(short_help="Cancel waiting and running items.")
@ids
@click.option("--reason", default="", help="Kept with the item.")
@printing
def cancel(session: Session, ids: tuple[int, ...], reason: str) -> None:
    """Cancel waiting and running items: all of them or none. A running handler is stopped within a second."""
    session.api.cancel(*ids, reason=reason)
    _print_each(session, ids, lambda row: row.state, ": cancelled")


@click.command(short_help="Take failed items out of review for good.")
@ids
@click.option("--reason", default="", help="Kept in the audit log.")
@printing
def discard(session: Session, ids: tuple[int, ...], reason: str) -> None:
    """Take failed items out of review for good: all of them or none."""
    session.api.discard(*ids, reason=reason)
    _print_each(session, ids, lambda row: row.state, ": discarded")


def _print_each(session: Session, ids: tuple[int, ...], text: Callable[[Row], str], unseen: str) -> None:
    """Print the new state of each of these items; `unseen` where the key may write but not read."""
    rows = {item_id: _visible(session, item_id) for item_id in ids}
    if session.as_json:
        words.print_json([row or {"id": item_id} for item_id, row in rows.items()])
        return
    for item_id, row in rows.items():
        click.echo(f"item {item_id}" + (f" of {row.task}: {text(row)}" if row else unseen))


@click.command(short_help="Change an item that waits or is in review.")
@item_id
@options.arguments("All arguments as one JSON object")
@options.at
@click.option("--queue", help="Another queue to wait in.")
@options.rank
@click.option("--tries", type=int, metavar="N", help="Tries in all.")
@session(options.as_json, options.in_utc, with_tasks=True)
def edit(session: Session, item_id: int, pairs: tuple[str, ...], text: str | None, **fields: Unpack[ItemEdit]) -> None:
    """Change an item that waits or is in review: arguments, time, queue, rank or tries.

    Arguments that are not named stay as they are. To change arguments on a database, --app must name the app that has
    the task.
    """
    is_args = bool(pairs) or text is not None
    if not is_args and all(value is None for value in fields.values()):
        raise InputError("edit", "nothing to change; give NAME=VALUE, --args, --at, --queue, --rank or --tries")
    session.with_tasks = is_args

    def change(**read: Any) -> Row:
        if is_args:
            fields["args"] = {**known, **read}
        return session.api.edit(item_id, **fields)

    known = json_object(text) if text is not None or not is_args else session.api.item(item_id).args
    row = fitting(change, named_pairs(pairs))
    session.print_one(row, f"item {row.id} of {row.task}: due {session.full(row.due_at)}, queue {row.queue}")


def fitting(act: Callable[..., T], pairs: dict[str, str]) -> T:
    """Call `act` with values from a shell: each as JSON if it can be read so and fits the argument, else as text."""
    read = {name: _value(text) for name, text in pairs.items()}
    refused: dict[str, InputError] = {}
    while True:
        try:
            return act(**read)
        except InputError as error:
            name = error.field  # an error inside a value has a longer name
            if name in refused:  # neither as JSON nor as text: the first error is more precise
                raise refused[name] from None
            if name not in read or read[name] == pairs[name]:
                raise
            refused[name] = error
            read[name] = pairs[name]


def named_pairs(pairs: tuple[str, ...]) -> dict[str, str]:
    texts: dict[str, str] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise InputError(pair, "must be NAME=VALUE")
        texts[name] = text
    return texts


def json_object(text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    value = _value(text)
    if not isinstance(value, dict):
        raise InputError("args", f"must be one JSON object, such as '{{\"n\": 3}}', got {text!r:.80}")
    return value


def _value(text: str) -> Any:
    try:
        return codec.decode(text)
    except msgspec.DecodeError:
        return text
