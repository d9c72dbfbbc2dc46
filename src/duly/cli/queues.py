"""`duly queues`: how deep they are, and pausing them."""

from __future__ import annotations

import click

from duly.cli import options, words
from duly.cli.sides import side


@options.listing(short_help="Show, pause and resume queues.")
@options.side
@options.as_json
def queues(as_json: bool) -> None:
    """Show how many items of each queue wait, are due, run or are in review. Or pause and resume a queue."""
    with side() as api:
        found = api.queues()
    if words.is_all_told(found, as_json, "no queue has items that wait, run or are in review"):
        return
    rows = [
        [
            queue.queue,
            *map(str, (queue.waiting, queue.retrying, queue.due)),
            "" if queue.oldest_due_seconds is None else words.span(queue.oldest_due_seconds),
            str(queue.running),
            str(queue.failed),
            "paused" if queue.paused else "",
        ]
        for queue in found
    ]
    titles = ("waiting", "retrying", "due", "oldest due", "running", "in review")
    words.console().print(words.table("queue", *((title, "right") for title in titles), "", rows=rows))


@queues.command()
@click.argument("name")
@options.side
def pause(name: str) -> None:
    """Start no more items of this queue until it is resumed. Running items go on."""
    with side() as api:
        note = api.pause(name)
    click.echo(f"{name} is paused: `duly queues resume {name}` resumes it")
    if note:
        click.echo(note)


@queues.command()
@click.argument("name")
@options.side
def resume(name: str) -> None:
    """Resume a paused queue."""
    with side() as api:
        api.resume(name)
    click.echo(f"{name} is resumed")
