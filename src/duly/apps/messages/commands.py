"""`duly messages`: what the retry service keeps, looked at and looked after."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

import click

from duly.apps.messages.client import LocalMessages, MessageRow, MessagesClient
from duly.apps.messages.process import retry_service
from duly.apps.messages.review import Act, Other
from duly.cli import options, words
from duly.cli.sides import chosen
from duly.core.errors import InputError
from duly.core.model import STATES
from duly.core.shown import Drift


def side() -> AbstractContextManager[LocalMessages | MessagesClient]:
    return chosen(LocalMessages, MessagesClient)


@click.group()
@options.service
def messages() -> None:
    """List, edit and publish messages of the retry service."""


item = click.argument("item_id", type=int, metavar="ID")
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@messages.command("list")
@click.option("--state", type=click.Choice(STATES), help="failed: in review.")
@click.option("--queue", metavar="NAME", help="The queue they came from.")
@click.option("--message-id", metavar="ID")
@click.option("--limit", type=click.IntRange(1, 1_000), default=20, show_default=True)
@options.told
def list_messages(limit: int, as_json: bool, in_utc: bool, **filters: Any) -> None:
    """List messages, newest first."""
    with side() as api:
        found = list(api.page(most=limit, **filters))
    if words.is_all_told(found, as_json, "no messages match"):
        return
    console, now = words.console(), datetime.now(UTC)
    is_roomy = console.width >= words.ROOMY
    rows = []
    for each in found:
        row: list[Any] = [
            str(each.id), words.cut(_plain(each.queue), 24), words.state(each.state),
            f"{each.retry_count}/{each.max_retries}", words.short(each.due_at, now, in_utc),
            words.relative(each.due_at, now),
        ]  # fmt: skip
        rows.append([*row, each.message_id or "", words.cut(_why(each), 80)] if is_roomy else row)
    columns: list[Any] = [("id", "right"), "queue", "state", "retry", "due", ""]
    if is_roomy:
        columns += ["message", ""]
    console.print(words.table(*columns, rows=rows, last=is_roomy))


@messages.command("show")
@item
@options.told
def show_message(item_id: int, as_json: bool, in_utc: bool) -> None:
    """Show one message: why it failed, when it is due, and its payload."""
    from duly.core import codec

    with side() as api:
        found, now = api.get(item_id), datetime.now(UTC)
    if as_json:
        words.print_json(found)
        return
    for name in ("id", "message_id", "queue", "state", "reason", "error"):
        if value := getattr(found, name):
            click.echo(f"{name.replace('_', ' '):<12} {_plain(str(value))}")
    click.echo(f"{'due':<12} {words.full(found.due_at, now, in_utc)}")
    click.echo(f"{'retries':<12} {found.retry_count} of {found.max_retries}")
    for each in found.story:
        click.echo(f"{'failed':<12} {words.full(each.at, now, in_utc)} retry {each.retry} {_plain(each.reason)}")
    click.echo(f"{'properties':<12} {codec.encode(found.properties).decode()}")
    payload = found.payload
    if payload.decoded is not None:
        click.echo(f"{'decoded':<12} {codec.encode(payload.decoded).decode()}")
    click.echo(f"{'payload':<12} {payload.bytes} bytes")
    click.echo(payload.text if payload.text is not None else payload.hex)


def _change_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options that change a message."""
    for option in (
        click.option("--header", "pairs", multiple=True, metavar="NAME=VALUE", help="A header to set; repeatable."),
        click.option("--payload", "path", type=FILE, metavar="FILE", help="Another payload: the bytes of this file."),
        click.option("--queue", metavar="NAME", help="Another queue to publish it to."),
    ):
        command = option(command)
    return command


@messages.command("send")
@item
@_change_options
@click.option("--again", "is_again", is_flag=True, help="Also if it was published or cancelled: as another message.")
@options.side
def send(item_id: int, queue: str | None, path: Path | None, pairs: tuple[str, ...], is_again: bool) -> None:
    """Publish a message now, whatever its retry count, to its queue or another one, unchanged or changed."""
    with side() as api:
        sent = api.send(item_id, replay=is_again, **_changes(queue, path, pairs))
    click.echo(f"message {item_id} is on its way{'' if sent == item_id else f' again, as message {sent}'}")


@messages.command("edit")
@item
@_change_options
@options.side
def edit(item_id: int, queue: str | None, path: Path | None, pairs: tuple[str, ...]) -> None:
    """Change a message that waits or is in review."""
    with side() as api:
        api.edit(item_id, **_changes(queue, path, pairs))
    click.echo(f"message {item_id} is changed")


@messages.command("payload")
@item
@click.option("--out", type=click.File("wb"), default="-", metavar="FILE", help="Where to; without it, to the output.")
@options.side
def download_payload(item_id: int, out: BinaryIO) -> None:
    """Write all bytes of a message to a file."""
    with side() as api:
        api.payload(item_id, out)


@messages.command("drift")
@click.option("--minutes", type=click.IntRange(1, 1_440), default=60, show_default=True, metavar="N")
@options.told
def show_drift(minutes: int, as_json: bool, in_utc: bool) -> None:
    """How late messages were published again in the last minutes."""
    with side() as api:
        found = api.drift(minutes)
    now = datetime.now(UTC)

    def line(each: Drift) -> str:
        when = words.short(datetime.fromtimestamp(each.at, UTC), now, in_utc)
        return f"{when} {each.items:g} messages, {each.mean_seconds:.2f} s late, {each.most_seconds:.2f} s at most"

    words.print_lines(found, as_json, "nothing was published", line)


def _acting(name: Act, doc: str, done: str) -> None:
    """A command for one act on a message."""

    @messages.command(name, help=doc)
    @item
    @options.side
    def act(item_id: int) -> None:
        with side() as api:
            api.act(name, item_id)
        click.echo(f"message {item_id} {done}")


_acting("cancel", "Never publish a message that waits.", "is cancelled")
_acting("expedite", "Publish a message that waits now; one in review, again.", "is due now")
_acting("discard", "Take a message out of review for good.", "is discarded")


def _changes(queue: str | None, path: Path | None, pairs: tuple[str, ...]) -> Other:
    headers = {}
    for pair in pairs:
        name, is_there, value = pair.partition("=")
        if not is_there:
            raise InputError("header", f"must be NAME=VALUE, got {pair!r}")
        headers[name] = value
    return {"queue": queue, "payload": None if path is None else path.read_bytes(), "headers": headers or None}


def _why(message: MessageRow) -> str:
    return _plain((message.error or message.reason).partition("\n")[0])


def _plain(text: str) -> str:
    """Text from outside, without control characters of a terminal."""
    return "".join(each if each.isprintable() or each in "\n\t" else "\ufffd" for each in text)


COMMANDS = (retry_service, messages)
