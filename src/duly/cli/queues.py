"""`duly queues` and `duly limits`: how deep queues are, pausing them, and what limits allow."""

from __future__ import annotations

import click

from duly.cli import options, words
from duly.cli.session import Session, acting, printing

name = click.argument("name")


@options.listing(short_help="Show, pause and resume queues.")
@printing
def queues(session: Session) -> None:
    """Show how many items of each queue wait, are due, run or are in review. Or pause and resume a queue."""
    session.print_table(
        session.api.queues(),
        "no queue has items that wait, run or are in review",
        ("queue", ">waiting", ">retrying", ">due", ">oldest due", ">running", ">in review", ""),
        lambda queue: [queue.queue, queue.waiting, queue.retrying, queue.due,
                       None if queue.oldest_due_seconds is None else words.span(queue.oldest_due_seconds),
                       queue.running, queue.failed, "paused" if queue.paused else None],
    )  # fmt: skip


@queues.command()
@name
@acting
def pause(session: Session, name: str) -> None:
    """Start no more items of this queue until it is resumed. Running items continue."""
    note = session.api.pause(name)
    click.echo(f"{name} is paused: `duly queues resume {name}` resumes it")
    if note:
        click.echo(note)


@queues.command()
@name
@acting
def resume(session: Session, name: str) -> None:
    """Resume a paused queue."""
    session.api.resume(name)
    click.echo(f"{name} is resumed")


@options.listing(short_help="Show and change limits while everything runs.")
@printing
def limits(session: Session) -> None:
    """Show what limits have counted, and what a person set in place of the code's values."""
    session.print_table(
        session.api.limits(),
        "no limit has been used or set yet",
        ("limit", "set to", ">granted", "last"),
        lambda limit: [limit.name, _set_to(limit.most, limit.per_seconds), limit.granted, session.relative(limit.last)],
    )


def _set_to(most: int | None, per_seconds: float | None) -> str:
    if most is None:
        return "as in the code"
    return str(most) if per_seconds is None else f"{most}/{per_seconds:g}s"


@limits.command(name="set")
@name
@click.argument("limit", metavar="N[/PERIOD]")
@acting
def set_limit(session: Session, name: str, limit: str) -> None:
    """Allow 2/1m (calls in any minute) or 4 (at the same time) from now on, over the whole fleet."""
    session.api.set_limit(name, limit)
    click.echo(f"{name}: {limit}")


@limits.command(name="clear")
@name
@acting
def clear_limit(session: Session, name: str) -> None:
    """Use the value in the code again."""
    session.api.set_limit(name, None)
    click.echo(f"{name}: as in the code")
