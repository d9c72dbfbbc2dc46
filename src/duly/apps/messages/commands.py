"""`duly retry-service`: the process that retries messages; `duly messages`: list and manage its messages."""

from __future__ import annotations

import logging
from base64 import b64encode
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click
from msgspec import convert

from duly import Duly
from duly.apps.messages import message_retry_on
from duly.apps.messages.shown import MessageStory, ShownMessage
from duly.cli import options, words
from duly.cli.run import ending, lifetime, loaded, probing, serving
from duly.cli.session import Session, acting, printing_times
from duly.config import imposed, sources
from duly.core import codec
from duly.core.errors import ConfigError, InputError
from duly.core.model import STATES
from duly.core.shown import Drift
from duly.core.wire import written

if TYPE_CHECKING:
    from duly.apps.messages.review import Other
    from duly.client import Client


log = logging.getLogger("duly.cli")

APP = "duly.apps.messages:app"
# The drift of a retry is seconds at most, also of one whose service was killed: leases are short.
PROMPT = {"lease_seconds": 2.5, "beat_seconds": 0.5, "sweep_seconds": 1.0}


def _impose_poll(ctx: click.Context, _: click.Parameter, value: int) -> None:
    if "poll_seconds" not in sources():
        ctx.with_resource(imposed(poll_seconds=value / 1000))


@click.command("retry-service", short_help="Retry messages between RabbitMQ queues.")
@lifetime
@options.setting(
    "--database-url", "The database; or DATABASE_URL.", metavar="URL", envvar=["DULY_DATABASE_URL", "DATABASE_URL"]
)
@options.setting("--rabbitmq-url", "The broker; or RABBITMQ_URL.", metavar="URL")
@options.http_host
@options.setting(
    "--http-port", "The port of the service; or HTTP_PORT; 0: none.", type=int, metavar="N",
    envvar=["DULY_HTTP_PORT", "HTTP_PORT"],
)  # fmt: skip
@click.option(
    "--poll-interval-ms", type=click.IntRange(min=10), default=10_000, envvar="RETRY_POLL_INTERVAL_MS", metavar="N",
    expose_value=False, callback=_impose_poll, help="The longest sleep when nothing is known to be due.",
)  # fmt: skip
@options.concurrency
@options.log_level
@options.log_format
def retry_service(seconds: float | None) -> None:
    """Consume the retry queue, keep what comes, publish it again when it is due; serve the API and /metrics.

    All of it by environment: RABBITMQ_URL, RETRY_QUEUE, MANUAL_REVIEW_QUEUE, DEFAULT_MAX_RETRIES, BASE_DELAY_MS,
    MAX_DELAY_MS, RETRY_POLL_INTERVAL_MS, DATABASE_URL, HTTP_PORT, SERVICE_NAME. The database is migrated on the way.
    """
    with ExitStack() as stack:
        known = sources()
        stack.enter_context(imposed(**{name: value for name, value in PROMPT.items() if name not in known}))
        app = stack.enter_context(loaded(APP))
        app.migrate(lambda name: log.info("applied migration %s", name))
        worker = app.worker()
        try:
            stack.enter_context(serving(app, worker.ailing))
        except ConfigError as error:
            # Probes must be reachable even if there is no API key yet.
            log.warning("no API, only /metrics, /healthz and /readyz: %s", error)
            stack.enter_context(probing(app, worker))
        with ending(worker, seconds):
            worker.run()


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
@options.most()
@printing_times
def list_messages(session: Session, most: int, **filters: Any) -> None:
    """List messages, newest first."""

    def local(app: Duly) -> list[ShownMessage]:
        queries = message_retry_on(app).queries
        rows = queries.page(None, most=most, **filters)
        return [convert(queries.shown(row, is_brief=True), ShownMessage) for row in rows]

    found = session.either(
        local, lambda client: list(client.http.pages(ShownMessage, "/api/messages", most, **filters))
    )
    is_roomy = words.console().width >= words.ROOMY
    titles = [">id", "queue", "state", "retry", "due", "", "message", "~"]

    def row(each: ShownMessage) -> list[Any]:
        line = [
            each.id, _plain(each.queue), words.state(each.state),
            f"{each.retry_count}/{each.max_retries}", session.short(each.due_at), session.relative(each.due_at),
        ]  # fmt: skip
        return [*line, each.message_id, words.cut(_plain(each.error or each.reason), 200)] if is_roomy else line

    session.print_table(found, "no messages match", titles if is_roomy else titles[:-2], row)


@messages.command("show")
@item
@printing_times
def show_message(session: Session, item_id: int) -> None:
    """Show one message: why it failed, when it is due, and its payload."""
    found = _find(session, item_id)
    session.print_one(found, lambda: _print_story(session, found))


def _find(session: Session, item_id: int) -> MessageStory:
    def local(app: Duly) -> MessageStory:
        service = message_retry_on(app)
        return convert(service.queries.shown(service.review.find(options.who(), item_id)), MessageStory)

    return session.either(local, lambda client: client.http.get(MessageStory, f"/api/messages/{item_id}"))


def _print_story(session: Session, found: MessageStory) -> None:
    for name in ("id", "message_id", "queue", "state", "reason", "error"):
        if value := getattr(found, name):
            click.echo(f"{name.replace('_', ' '):<12} {_plain(str(value))}")
    click.echo(f"{'due':<12} {session.full(found.due_at)}")
    click.echo(f"{'retries':<12} {found.retry_count} of {found.max_retries}")
    for each in found.story:
        click.echo(f"{'failed':<12} {session.full(each.at)} retry {each.retry} {_plain(each.reason)}")
    click.echo(f"{'properties':<12} {codec.encode(found.properties).decode()}")
    payload = found.payload
    if payload.decoded is not None:
        click.echo(f"{'decoded':<12} {codec.encode(payload.decoded).decode()}")
    click.echo(f"{'payload':<12} {payload.bytes} bytes")
    click.echo(payload.text if payload.text is not None else payload.hex)


# What can be changed of a message.
change_options = options.together(
    click.option("--queue", metavar="NAME", help="Another queue to publish it to."),
    click.option("--payload", "path", type=FILE, metavar="FILE", help="Another payload: the bytes of this file."),
    click.option("--header", "pairs", multiple=True, metavar="NAME=VALUE", help="A header to set; repeatable."),
)


def _changes(queue: str | None, path: Path | None, pairs: tuple[str, ...]) -> Other:
    headers = {}
    for pair in pairs:
        name, is_there, value = pair.partition("=")
        if not is_there:
            raise InputError("header", f"must be NAME=VALUE, got {pair!r}")
        headers[name] = value
    return {"queue": queue, "payload": None if path is None else path.read_bytes(), "headers": headers or None}


def _body(change: Other) -> dict[str, Any]:
    """A change as the API takes it, which is JSON and has no bytes."""
    payload = change["payload"]
    text = None if payload is None else b64encode(payload).decode()
    return written({"queue": change["queue"], "headers": change["headers"], "payload_base64": text})


@messages.command("send")
@item
@change_options
@click.option("--again", "is_again", is_flag=True, help="Also if it was published or cancelled: as another message.")
@acting
def send(session: Session, item_id: int, is_again: bool, **given: Any) -> None:
    """Publish a message now, whatever its retry count, to its queue or another one, unchanged or changed."""
    change = _changes(**given)

    def remote(client: Client) -> int:
        body = {**_body(change), "replay": is_again}
        return int(client.http.request("POST", f"/api/messages/{item_id}/send", body)["ids"][0])

    sent = session.either(
        lambda app: message_retry_on(app).review.resend(item_id, replay=is_again, who=options.who(), **change), remote
    )
    click.echo(f"message {item_id} is on its way{'' if sent == item_id else f' again, as message {sent}'}")


@messages.command("edit")
@item
@change_options
@acting
def edit(session: Session, item_id: int, **given: Any) -> None:
    """Change a message that waits or is in review."""
    change = _changes(**given)
    session.either(
        lambda app: message_retry_on(app).review.edit(item_id, who=options.who(), **change),
        lambda client: client.http.request("PATCH", f"/api/messages/{item_id}", _body(change)),
    )
    click.echo(f"message {item_id} is changed")


@messages.command("payload")
@item
@click.option("--out", type=click.File("wb"), default="-", metavar="FILE", help="Default: standard output.")
@acting
def download_payload(session: Session, item_id: int, out: BinaryIO) -> None:
    """Write all bytes of a message to a file."""

    def local(app: Duly) -> None:
        service = message_retry_on(app)
        out.write(service.queries.payload(service.review.find(options.who(), item_id)))

    session.either(local, lambda client: client.http.download(f"/api/messages/{item_id}/payload", {}, out))


@messages.command("drift")
@click.option("--minutes", type=click.IntRange(1, 1_440), default=60, show_default=True, metavar="N")
@printing_times
def show_drift(session: Session, minutes: int) -> None:
    """How late messages were published again in the last minutes."""

    def remote(client: Client) -> list[Drift]:
        points = client.http.request("GET", "/api/messages/drift", query={"minutes": minutes})["points"]
        return [Drift(int(at), mean, most, int(items)) for at, mean, most, items in points]

    def line(each: Drift) -> str:
        when = session.short(datetime.fromtimestamp(each.at, UTC))
        return f"{when} {each.items:g} messages, {each.mean_seconds:.2f} s late, {each.most_seconds:.2f} s at most"

    found = session.either(lambda app: message_retry_on(app).queries.drift(None, minutes), remote)
    session.print_lines(found, "nothing was published", line)


def _acting(name: str, doc: str, done: str, act: Callable[[Client, int], object]) -> None:
    """A command for one act on a message, which is that on its item."""

    @messages.command(name, help=doc)
    @item
    @acting
    def command(session: Session, item_id: int) -> None:
        _find(session, item_id)  # so that an item of another task is not changed
        act(session.api, item_id)
        click.echo(f"message {item_id} {done}")


_acting("cancel", "Never publish a message that waits.", "is cancelled", lambda api, each: api.cancel(each))
_acting(
    "expedite", "Publish a message that waits now; one in review, again.", "is due now",
    lambda api, each: api.retry(each),
)  # fmt: skip
_acting("discard", "Take a message out of review for good.", "is discarded", lambda api, each: api.discard(each))


def _plain(text: str) -> str:
    """Text from outside, without control characters of a terminal."""
    return "".join(each if each.isprintable() or each in "\n\t" else "\ufffd" for each in text)


COMMANDS = (retry_service, messages)
