"""`duly history`: what happened lately."""

from __future__ import annotations

import click

from duly.cli import options, words
from duly.cli.sides import side


@click.command(short_help="What happened in the last minutes.")
@click.option("--minutes", type=click.IntRange(1, 20_160), default=60, show_default=True, help="How far back.")
@click.option("--task", metavar="NAME", help="Only of this task.")
@click.option("--job", type=click.IntRange(1), metavar="ID", help="Of this job.")
@click.option("--measure", metavar="NAME", help="Only this: done, failed, retried, lateness, run, width, …")
@options.side
@options.as_json
def history(minutes: int, task: str | None, job: int | None, measure: str | None, as_json: bool) -> None:
    """What happened to tasks, paces or a job: how often, and how long it took. With --json, step by step."""
    with side() as there:
        chart = there.history(minutes=minutes, task=task, measure=measure, job_id=job)
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
