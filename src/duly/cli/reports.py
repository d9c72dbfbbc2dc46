"""`duly late`, `duly stuck`, `duly alerts` and `duly alive`: what was not on time, and whether anybody is at work."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from duly.cli import options, words
from duly.cli.sides import side, time_of

if TYPE_CHECKING:
    from rich.console import RenderableType

    from duly.core.shown import Alert, ShownAuditLine

F = TypeVar("F", bound=Callable[..., Any])


def report(command: F) -> F:
    """The options of a list about the times of items."""
    most = options.most(10_000, default=100)
    return most(options.told(command))


@click.command(short_help="What was started late.")
@click.option("--grace", default="5m", show_default=True, metavar="TIME", help="What is late at all.")
@report
def late(grace: str, most: int, as_json: bool, in_utc: bool) -> None:
    """Done items that were started later than the grace period after their time, latest first."""
    with side() as api:
        found, now = api.late(_seconds(grace, "grace"), most), time_of(api)
    if words.is_all_told(found, as_json, "nothing was late"):
        return
    table = [
        [str(each.id), each.task, words.cut(each.subject or each.key, 30), words.short(each.planned_at, now, in_utc),
         words.short(each.started_at, now, in_utc), words.span(each.lateness_seconds)]
        for each in found
    ]  # fmt: skip
    words.console().print(
        words.table(("id", "right"), "task", "what", "planned", "started", ("late", "right"), rows=table)
    )


@click.command(short_help="What should be done and is not.")
@click.option("--grace", default="1h", show_default=True, metavar="TIME", help="How long after its time.")
@report
def stuck(grace: str, most: int, as_json: bool, in_utc: bool) -> None:
    """Items that are not done long after their time: due, running, waiting for a retry, or given up; oldest first."""
    with side() as api:
        found, now = api.stuck(_seconds(grace, "grace"), most), time_of(api)
    if words.is_all_told(found, as_json, "nothing is stuck"):
        return
    table: list[list[RenderableType]] = [
        [str(each.id), each.task, words.cut(each.subject or each.key, 30), words.state(each.state),
         words.short(each.planned_at, now, in_utc),
         words.span(each.age_seconds), str(each.attempts), words.cut(each.last_error, 40)]
        for each in found
    ]  # fmt: skip
    titles = (("id", "right"), "task", "what", "state", "planned", ("age", "right"), ("tries", "right"), "error")
    words.console().print(words.table(*titles, rows=table))


@click.command(short_help="What is wrong now.")
@options.side
@options.as_json
def alerts(as_json: bool) -> None:
    """Alerts that stand: raised by any worker, and gone when what they tell of is over."""
    with side() as api:
        found, now = api.alerts(), time_of(api)

    def line(each: Alert) -> str:
        return f"{each.name}: {each.message}, since {words.full(each.since, now)}"

    words.print_lines(found, as_json, "nothing is wrong", line)


@click.command(short_help="Who did what.")
@click.option("--subject", metavar="KIND:ID", help="Only what was done to this, such as item:7 or queue:mail.")
@options.most(500)
@options.told
def audit(subject: str | None, most: int, as_json: bool, in_utc: bool) -> None:
    """The audit log: who did what to what, newest first."""
    from duly.core import codec

    with side() as api:
        found, now = list(api.audit(subject, most=most)), time_of(api)

    def line(each: ShownAuditLine) -> str:
        details = words.cut(codec.encode(each.details).decode(), 200)
        return f"{words.short(each.at, now, in_utc)} {each.actor} {each.action} {each.subject} {details}"

    words.print_lines(found, as_json, "the audit log is empty", line)


@click.command(short_help="Whether any worker is alive: a dead-man's switch.")
@click.option(
    "--max-age", default="5m", show_default=True, metavar="TIME", help="The oldest sign of life that will do."
)
@click.option("--webhook", metavar="URL", help="Tell this address when nobody is alive.")
@click.option("--every", metavar="TIME", help="Keep watching, at this pace, instead of looking once.")
@options.side
@options.as_json
def alive(max_age: str, webhook: str | None, every: str | None, as_json: bool) -> None:
    """Look for a worker's sign of life in the database: for probes and timers of a host that outlives the workers.

    Exit code 0: someone is at work. 1: nobody has been for longer than --max-age, or it cannot be told.
    """
    import time

    from duly.client import ServiceError
    from duly.core.errors import StoreUnavailable

    with side() as api:
        was_told, heard_at = False, time.monotonic()
        while True:
            problem = None
            try:
                age = api.silence()
                heard_at = time.monotonic()
                text = "no worker has ever run" if age is None else f"the last sign of life is {words.span(age)} old"
            except (ServiceError, StoreUnavailable) as error:
                if every is None:
                    raise
                # Whom to ask is away too, and the switch must outlive that: a sign of life that nobody hears of ages.
                age, problem = time.monotonic() - heard_at, str(error)
                text = f"nobody could be asked for {words.span(age)}: {problem}"
            is_alive = age is not None and age <= _seconds(max_age, "max_age")
            if as_json:
                words.print_json({"alive": is_alive, "age_seconds": age, "problem": problem})
            else:
                click.echo(text)
            # Until it takes it: a webhook that is away for a moment must not make this switch silent.
            was_told = not is_alive and (was_told or (webhook is not None and _tell(webhook, text, age)))
            if every is None:
                raise SystemExit(0 if is_alive else 1)
            time.sleep(_seconds(every, "every"))


def _tell(url: str, text: str, age: float | None) -> bool:
    """Tell the webhook; returns whether it took it."""
    from duly.outbound.http import OutboundError, post_json

    try:
        post_json(url, {"alert": "no_tick", "message": f"Scheduler appears to be down: {text}", "ageSeconds": age})
    except OutboundError as error:
        click.echo(f"the webhook did not take it: {error}", err=True)
        return False
    return True


def _seconds(text: str, field: str) -> float:
    span = options.span(text, field)
    return span.total_seconds() if hasattr(span, "total_seconds") else float(span or 0)  # type: ignore[union-attr]
