"""`duly now` and `duly history`: how it is, and what happened lately."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

import click

from duly.cli import options, words
from duly.cli.sides import side, time_of

if TYPE_CHECKING:
    from rich.table import Table

    from duly.core.picture import Picture


SHOWN = 10  # how many queues, workers and limits are shown of each; --json has more


@click.command(short_help="Whether all is well, and what waits and runs.")
@options.told
def now(as_json: bool, in_utc: bool) -> None:
    """Show whether all is well and why not: what waits, runs or is late, the worst queues, the workers and limits."""
    with side() as api:
        picture, at = api.now(), time_of(api)
    if as_json:
        words.print_json(picture)
        return
    from rich.text import Text

    console = words.console()
    console.print(Text({"ok": "all is well", "warn": "look at this", "bad": "not well"}[picture.health],
                       style=words.STYLES[picture.health]))  # fmt: skip
    for reason in picture.reasons:
        console.print(Text(f"  {reason.text}", style=words.STYLES[reason.level]))
    totals = picture.totals
    more = ", of the newest items" if totals.capped else ""
    click.echo(
        f"{totals.waiting:,} waiting ({totals.due:,} due, {totals.retrying:,} for a retry, {totals.late:,} late), "
        f"{totals.running:,} running, {totals.failed:,} in review{more}"
    )
    if (recovery := picture.recovery) is not None:
        ends = "nothing is being done" if recovery.seconds is None else f"made up in {words.span(recovery.seconds)}"
        click.echo(f"{recovery.late:,} late since {words.full(recovery.since, at, in_utc)}: {ends}")
    schedules = picture.schedules
    following = "" if schedules.next_at is None else f", the next one {words.full(schedules.next_at, at, in_utc)}"
    click.echo(f"{schedules.active:,} schedules{following}")
    for table in _tables(picture, at):
        console.print()
        console.print(table)


def _tables(picture: Picture, at: datetime) -> Iterator[Table]:
    right = "right"
    if picture.queues:
        rows = [
            [words.cut(each.queue, 30), f"{each.waiting:,}", f"{each.due:,}",
             words.span(each.oldest_due_seconds) if each.oldest_due_seconds else "", f"{each.running:,}",
             f"{each.failed:,}", "" if each.per_minute is None else f"{each.per_minute:,.1f}",
             "paused" if each.paused else ""]
            for each in picture.queues[:SHOWN]
        ]  # fmt: skip
        titles = [(title, right) for title in ("waiting", "due", "oldest due", "running", "review", "per min")]
        yield words.table("queue", *titles, "", rows=rows)
    if picture.workers:
        rows = [
            [words.cut(each.name, 40), words.relative(each.seen_at, at), f"{each.running:,}",
             words.cut(", ".join(run.task for run in each.runs), 25)]
            for each in picture.workers[:SHOWN]
        ]  # fmt: skip
        yield words.table("worker", "seen", ("running", right), "", rows=rows)
    if picture.limits:
        rows = [
            [words.cut(each.name, 40), "" if each.most is None else f"{each.used:,} of {each.most:,}",
             "" if each.per_seconds is None else f"in {words.span(each.per_seconds)}", f"{each.fill:.0%}"]
            for each in picture.limits[:SHOWN]
        ]  # fmt: skip
        yield words.table("limit", ("used", right), "", ("full", right), rows=rows)


@click.command(short_help="What happened in the last minutes.")
@click.option("--minutes", type=click.IntRange(1, 20_160), default=60, show_default=True, help="How far back.")
@click.option("--task", metavar="NAME", help="Only of this task.")
@click.option("--job", type=click.IntRange(1), metavar="ID", help="Of this job.")
@click.option("--measure", metavar="NAME", help="Only this: done, failed, retried, lateness, run, width, …")
@options.side
@options.as_json
def history(minutes: int, task: str | None, job: int | None, measure: str | None, as_json: bool) -> None:
    """What happened to tasks, paces or a job: how often, and how long it took. With --json, step by step."""
    with side() as api:
        chart = api.history(minutes=minutes, task=task, measure=measure, job=job)
    if as_json:
        words.print_json(chart)
        return
    if words.is_all_told(chart.series, False, f"nothing was written down in the last {minutes} min"):
        return
    rows = []
    for each in chart.series:
        n = sum(point[1] for point in each.points)
        summed = sum(point[1] * point[2] for point in each.points if point[2] is not None)
        most = max((point[3] for point in each.points if point[3] is not None), default=None)
        valued = ["", ""] if most is None else [f"{summed / n:.3g}", f"{most:.3g}"]
        rows.append([each.kind, words.cut(each.subject, 30), each.measure, f"{n:,}", *valued])
    titles = ("kind", "name", "measure", ("n", "right"), ("mean", "right"), ("most", "right"))
    words.console().print(words.table(*titles, rows=rows))
