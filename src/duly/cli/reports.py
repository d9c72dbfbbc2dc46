"""`duly now`, `history`, `late`, `stuck`, `alerts`, `alive` and `audit`: the state, and what happened."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

from duly.cli import options, words
from duly.cli.session import Session, printing, printing_times
from duly.core import codec
from duly.core.errors import StoreUnavailable
from duly.core.results import Picture
from duly.core.shown import Alert, AuditLine, LateItem, Series, StuckItem

if TYPE_CHECKING:
    from rich.table import Table

SHOWN = 10  # how many queues, workers and limits are shown of each; --json has more


@click.command(short_help="Show health, queues, workers and limits.")
@printing_times
def now(session: Session) -> None:
    """Show health and problems: waiting, running and late items, the worst queues, workers and limits."""
    picture = session.api.now()
    session.print_one(picture, lambda: _print_picture(session, picture))


def _print_picture(session: Session, picture: Picture) -> None:
    from rich.text import Text

    console = words.console()
    health = {"ok": "all is well", "warn": "there are warnings", "bad": "there are problems"}[picture.health]
    console.print(Text(health, style=words.STYLES[picture.health]))
    for reason in picture.reasons:
        console.print(Text(f"  {reason.text}", style=words.STYLES[reason.level]))
    totals = picture.totals
    more = ", of the newest items" if totals.capped else ""
    click.echo(
        f"{totals.waiting:,} waiting ({totals.due:,} due, {totals.retrying:,} for a retry, {totals.late:,} late), "
        f"{totals.running:,} running, {totals.failed:,} in review{more}"
    )
    if (recovery := picture.recovery) is not None:
        ends = "no items are being done" if recovery.seconds is None else f"done in {words.span(recovery.seconds)}"
        click.echo(f"{recovery.late:,} late since {session.full(recovery.since)}: {ends}")
    schedules = picture.schedules
    following = "" if schedules.next_at is None else f", the next one {session.full(schedules.next_at)}"
    click.echo(f"{schedules.active:,} schedules{following}")
    for table in _tables(session, picture):
        console.print()
        console.print(table)


def _tables(session: Session, picture: Picture) -> Iterator[Table]:
    if picture.queues:
        rows: list[list[Any]] = [
            [each.queue, f"{each.waiting:,}", f"{each.due:,}",
             words.span(each.oldest_due_seconds) if each.oldest_due_seconds else None, f"{each.running:,}",
             f"{each.failed:,}", None if each.per_minute is None else f"{each.per_minute:,.1f}",
             "paused" if each.paused else None]
            for each in picture.queues[:SHOWN]
        ]  # fmt: skip
        titles = ("queue", ">waiting", ">due", ">oldest due", ">running", ">review", ">per min", "")
        yield words.table(*titles, rows=rows)
    if picture.workers:
        rows = [
            [each.name, session.relative(each.seen_at), f"{each.running:,}",
             ", ".join(run.task for run in each.runs)]
            for each in picture.workers[:SHOWN]
        ]  # fmt: skip
        yield words.table("worker", "seen", ">running", "~", rows=rows)
    if picture.limits:
        rows = [
            [each.name, None if each.most is None else f"{each.used:,} of {each.most:,}",
             None if each.per_seconds is None else f"in {words.span(each.per_seconds)}", f"{each.fill:.0%}"]
            for each in picture.limits[:SHOWN]
        ]  # fmt: skip
        yield words.table("limit", ">used", "", ">full", rows=rows)


@click.command(short_help="Show the history of the last minutes.")
@click.option("--minutes", type=click.IntRange(1, 20_160), default=60, show_default=True, help="How far back.")
@click.option("--task", metavar="NAME", help="Only of this task.")
@click.option("--job", type=click.IntRange(1), metavar="ID", help="Of this job.")
@click.option("--measure", metavar="NAME", help="Only this: done, failed, retried, lateness, run, width, …")
@printing
def history(session: Session, minutes: int, **filter: Any) -> None:
    """What happened to tasks, paces or a job: how often, and how long it took. With --json, step by step."""
    chart = session.api.history(minutes=minutes, **filter)
    if session.as_json:
        words.print_json(chart)
        return

    def row(each: Series) -> list[Any]:
        n = sum(point[1] for point in each.points)
        summed = sum(point[1] * point[2] for point in each.points if point[2] is not None)
        most = max((point[3] for point in each.points if point[3] is not None), default=None)
        valued = [None, None] if most is None else [f"{summed / n:.3g}", f"{most:.3g}"]
        return [each.kind, each.subject, each.measure, f"{n:,}", *valued]

    titles = ("kind", "name", "measure", ">n", ">mean", ">most")
    session.print_table(chart.series, f"nothing was recorded in the last {minutes} min", titles, row)


def _grace(default: str, doc: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The options of a list about the times of items."""
    grace = options.span_option("--grace", default=default, show_default=True, help=doc)
    return options.together(grace, options.most(10_000, default=100), printing_times)


@click.command(short_help="List items that were started late.")
@_grace("5m", "Delays up to this are not late.")
def late(session: Session, grace: float, most: int) -> None:
    """Done items that were started later than the grace period after their time, latest first."""

    def row(each: LateItem) -> list[Any]:
        planned, started = session.short(each.planned_at), session.short(each.started_at)
        return [each.id, each.task, each.subject or each.key, planned, started, words.span(each.lateness_seconds)]

    titles = (">id", "task", "what", "planned", "started", ">late")
    session.print_table(session.api.late(grace, most), "nothing was late", titles, row)


@click.command(short_help="List items that should have ended and have not.")
@_grace("1h", "How long after its time.")
def stuck(session: Session, grace: float, most: int) -> None:
    """Items that are not done long after their time: due, running, waiting for a retry, or given up; oldest first."""

    def row(each: StuckItem) -> list[Any]:
        what, error = each.subject or each.key, words.cut(each.last_error, 200)
        planned, age = session.short(each.planned_at), words.span(each.age_seconds)
        return [each.id, each.task, what, words.state(each.state), planned, age, each.attempts, error]

    titles = (">id", "task", "what", "state", "planned", ">age", ">tries", "~error")
    session.print_table(session.api.stuck(grace, most), "nothing is stuck", titles, row)


@click.command(short_help="What is wrong now.")
@printing
def alerts(session: Session) -> None:
    """List active alerts. Any worker raises them, and clears them when the cause is gone."""

    def line(each: Alert) -> str:
        return f"{each.name}: {each.message}, since {session.full(each.since)}"

    session.print_lines(session.api.alerts(), "nothing is wrong", line)


@click.command(short_help="Who did what.")
@click.option("--subject", metavar="KIND:ID", help="Only actions on this subject, such as item:7 or queue:mail.")
@options.most(500)
@printing_times
def audit(session: Session, subject: str | None, most: int) -> None:
    """The audit log: who did what to what, newest first."""

    def line(each: AuditLine) -> str:
        details = words.cut(codec.encode(each.details).decode(), 200)
        return f"{session.short(each.at)} {each.actor} {each.action} {each.subject} {details}"

    session.print_lines(list(session.api.audit(subject, most=most)), "the audit log is empty", line)


@click.command(short_help="Check whether any worker is alive: a dead-man's switch.")
@options.span_option("--max-age", default="5m", show_default=True, help="The oldest worker report that is accepted.")
@click.option("--webhook", metavar="URL", help="Notify this address when no worker is alive.")
@options.span_option("--every", help="Keep checking, at this interval, instead of checking once.")
@printing
def alive(session: Session, max_age: float, webhook: str | None, every: float | None) -> None:
    """Check the last report of a worker in the database: for probes and timers of a host that outlives the workers.

    Exit code 0: a worker is alive. 1: none has been for longer than --max-age, or this could not be found out.
    """
    from duly.client import ServiceError

    was_notified, heard_at = False, time.monotonic()
    while True:
        problem = None
        try:
            age = session.api.silence()
            heard_at = time.monotonic()
            text = "no worker has ever run" if age is None else f"the last report of a worker is {words.span(age)} old"
        except (ServiceError, StoreUnavailable) as error:
            if every is None:
                raise
            # The switch has to survive an outage of the database or service: the last report grows older.
            age, problem = time.monotonic() - heard_at, str(error)
            text = f"no answer for {words.span(age)}: {problem}"
        is_alive = age is not None and age <= max_age
        session.print_one({"alive": is_alive, "age_seconds": age, "problem": problem}, text)
        # Repeated until the webhook accepts it, because a short outage of the webhook must not silence this switch.
        was_notified = not is_alive and (was_notified or (webhook is not None and _notify(webhook, text, age)))
        if every is None:
            raise SystemExit(0 if is_alive else 1)
        time.sleep(every)


def _notify(url: str, text: str, age: float | None) -> bool:
    """Call the webhook; returns whether it accepted the notification."""
    from duly.outbound.http import OutboundError, post_json

    try:
        post_json(url, {"alert": "no_tick", "message": f"Scheduler appears to be down: {text}", "ageSeconds": age})
    except OutboundError as error:
        click.echo(f"the webhook did not accept the notification: {error}", err=True)
        return False
    return True
