"""`duly retry-service`, and `duly messages`: what it keeps, looked at and looked after."""

from __future__ import annotations

import logging
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import click

from duly.app import load_app
from duly.apps.messages import message_retry_on
from duly.cli import options
from duly.cli.run import ending, lifetime, probing
from duly.cli.serve import serving, set_up_logs
from duly.config import imposed, sources
from duly.errors import ConfigError, InputError
from duly.model import STATES

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
        app = load_app(APP)
        set_up_logs(app)
        stack.callback(app.close)
        app.migrate(lambda name: log.info("applied migration %s", name))
        worker = app.worker()
        try:
            stack.enter_context(serving(app, worker.ailing))
        except ConfigError as error:
            # Probes must be reachable also where nobody has made a key yet.
            log.warning("no API, only /metrics, /healthz and /readyz: %s", error)
            stack.enter_context(probing(app, worker))
        with ending(worker, seconds):
            worker.run()


class Side(Protocol):
    """Where messages are looked after: here, or through a service."""

    def pages(self, most: int, filters: dict[str, Any]) -> list[dict[str, Any]]: ...

    def show(self, item_id: int) -> dict[str, Any]: ...

    def change(self, item_id: int, is_sent: bool, changes: dict[str, Any]) -> None: ...

    def act(self, act: str, item_id: int) -> None: ...


class _Here:
    def __init__(self, app: Any) -> None:
        self._app = app
        self._messages = message_retry_on(app)

    def pages(self, most: int, filters: dict[str, Any]) -> list[dict[str, Any]]:
        return [
            self._messages.queries.shown(row, is_brief=True)
            for row in self._messages.queries.page(None, most=most, **filters)
        ]

    def show(self, item_id: int) -> dict[str, Any]:
        from duly.errors import ItemNotFound

        row = self._app.read.owned_item(item_id, None)
        if row is None or row.task != self._messages.task.name:
            raise ItemNotFound(f"there is no message {item_id}")
        return dict(self._messages.queries.shown(row))

    def change(self, item_id: int, is_sent: bool, changes: dict[str, Any]) -> None:
        act = self._messages.review.resend if is_sent else self._messages.review.edit
        act(item_id, **changes, actor=options.actor())

    def act(self, act: str, item_id: int) -> None:
        self.show(item_id)
        {"cancel": self._app.cancel, "expedite": self._app.retry, "discard": self._app.discard}[act](item_id)
        self._app.note(options.actor(), f"message.{act}", f"item:{item_id}", {})


class _There:
    def __init__(self, client: Any) -> None:
        self._client = client

    def pages(self, most: int, filters: dict[str, Any]) -> list[dict[str, Any]]:
        from itertools import islice

        from duly.cli.sides import snake

        said = {"pageSize": min(most, 500), "messageId": filters.pop("message_id"), **filters}
        return [snake(each) for each in islice(self._client.pages("/api/messages", said), most)]

    def show(self, item_id: int) -> dict[str, Any]:
        from duly.cli.sides import snake

        return snake(self._client.request("GET", f"/api/messages/{item_id}"))

    def change(self, item_id: int, is_sent: bool, changes: dict[str, Any]) -> None:
        payload = changes.pop("payload")
        text = None if payload is None else b64encode(payload).decode()
        body = {name: value for name, value in {**changes, "payloadBase64": text}.items() if value is not None}
        if is_sent:
            self._client.request("POST", f"/api/messages/{item_id}/send", body)
        else:
            self._client.request("PATCH", f"/api/messages/{item_id}", body)

    def act(self, act: str, item_id: int) -> None:
        self.show(item_id)
        self._client.request("POST", f"/api/items/{item_id}/{'retry' if act == 'expedite' else act}")


@contextmanager
def _side() -> Iterator[Side]:
    client = options.remote()
    if client is None:
        with options.opened() as app:
            yield _Here(app)
        return
    from duly.cli.sides import translating

    with client, translating():
        yield _There(client)


@click.group()
@options.service
def messages() -> None:
    """See, search and look after the messages of the retry service."""


item = click.argument("item_id", type=int, metavar="ID")
to_queue = click.option("--queue", metavar="NAME", help="Another queue to publish it to.")
from_file = click.option(
    "--payload", "path", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE",
    help="Another payload: the bytes of this file.",
)  # fmt: skip
with_headers = click.option(
    "--header", "pairs", multiple=True, metavar="NAME=VALUE", help="A header to set; repeatable."
)


@messages.command("list")
@click.option("--state", type=click.Choice(STATES), help="failed: in review.")
@click.option("--queue", metavar="NAME", help="The queue they came from.")
@click.option("--message-id", metavar="UUID")
@click.option("--limit", type=click.IntRange(1, 1_000), default=20, show_default=True)
@options.database_url
@options.service
@options.as_json
@options.in_utc
def list_messages(limit: int, as_json: bool, in_utc: bool, **filters: Any) -> None:
    """List messages, newest first."""
    from duly.cli import words

    with _side() as side:
        found = side.pages(limit, filters)
    if as_json:
        words.print_json(found)
        return
    if not found:
        click.echo("no messages fit")
        return
    console, now = words.console(), datetime.now(UTC)
    is_roomy = console.width >= words.ROOMY
    rows = []
    for each in found:
        due_at = _moment(each["due_at"])
        row: list[Any] = [
            str(each["id"]), words.cut(_plain(each["queue"]), 24), words.state(each["state"]),
            f"{each['retry_count']}/{each['max_retries']}", words.short(due_at, now, in_utc),
            words.relative(due_at, now),
        ]  # fmt: skip
        rows.append([*row, each["message_id"] or "", words.cut(_why(each), 80)] if is_roomy else row)
    columns: list[Any] = [("id", "right"), "queue", "state", "retry", "due", ""]
    if is_roomy:
        columns += ["message", ""]
    console.print(words.table(*columns, rows=rows, last=is_roomy))


@messages.command("show")
@item
@options.database_url
@options.service
@options.as_json
@options.in_utc
def show_message(item_id: int, as_json: bool, in_utc: bool) -> None:
    """Tell the story of a message: why it failed, when it is due, what it holds."""
    from duly import codec
    from duly.cli import words

    with _side() as side:
        told = side.show(item_id)
    if as_json:
        words.print_json(told)
        return
    for name in ("id", "message_id", "queue", "state", "reason", "error"):
        if told[name]:
            click.echo(f"{name.replace('_', ' '):<12} {_plain(str(told[name]))}")
    click.echo(f"{'due':<12} {_time(told['due_at'], in_utc)}")
    click.echo(f"{'retries':<12} {told['retry_count']} of {told['max_retries']}")
    for each in told["story"]:
        click.echo(f"{'failed':<12} {_time(each['at'], in_utc)} retry {each['retry']} {_plain(each.get('reason', ''))}")
    click.echo(f"{'properties':<12} {codec.encode(told['properties']).decode()}")
    payload = told["payload"]
    if payload["decoded"] is not None:
        click.echo(f"{'decoded':<12} {codec.encode(payload['decoded']).decode()}")
    click.echo(f"{'payload':<12} {payload['bytes']} bytes")
    click.echo(payload["text"] if payload["text"] is not None else payload["hex"])


@messages.command()
@item
@to_queue
@from_file
@with_headers
@options.database_url
@options.service
def send(item_id: int, queue: str | None, path: Path | None, pairs: tuple[str, ...]) -> None:
    """Publish a message now, whatever its count: to its queue or another, as it is or changed."""
    with _side() as side:
        side.change(item_id, True, _changes(queue, path, pairs))
    click.echo(f"message {item_id} is on its way")


@messages.command()
@item
@to_queue
@from_file
@with_headers
@options.database_url
@options.service
def edit(item_id: int, queue: str | None, path: Path | None, pairs: tuple[str, ...]) -> None:
    """Change a message that waits or is in review."""
    with _side() as side:
        side.change(item_id, False, _changes(queue, path, pairs))
    click.echo(f"message {item_id} is changed")


def _acts(name: str, doc: str, done: str) -> Callable[..., Any]:
    @messages.command(name, help=doc)
    @item
    @options.database_url
    @options.service
    def act(item_id: int) -> None:
        with _side() as side:
            side.act(name, item_id)
        click.echo(f"message {item_id} {done}")

    return act


_acts("cancel", "Never publish a message that waits.", "is cancelled")
_acts("expedite", "Publish a message that waits now; one in review, again.", "is due now")
_acts("discard", "Take a message out of review for good.", "is discarded")


def _changes(queue: str | None, path: Path | None, pairs: tuple[str, ...]) -> dict[str, Any]:
    headers = {}
    for pair in pairs:
        name, is_there, value = pair.partition("=")
        if not is_there:
            raise InputError("header", f"must be NAME=VALUE, got {pair!r}")
        headers[name] = value
    return {"queue": queue, "payload": None if path is None else path.read_bytes(), "headers": headers or None}


def _why(told: dict[str, Any]) -> str:
    return _plain((told["error"] or told["reason"] or "").partition("\n")[0])


def _plain(text: str) -> str:
    """Text of strangers, without what a terminal would take for an order."""
    return "".join(each if each.isprintable() or each in "\n\t" else "\ufffd" for each in text)


def _time(at: Any, in_utc: bool) -> str:
    from duly.cli import words

    return words.full(_moment(at), datetime.now(UTC), in_utc)


def _moment(at: Any) -> datetime:
    return datetime.fromisoformat(at) if isinstance(at, str) else at
