"""`duly queues`: how deep they are, and pausing them."""

from __future__ import annotations

import click

from duly.cli import options, words
from duly.cli.sides import side


@options.listing(short_help="Show, pause and resume queues.")
@options.side
@options.as_json
def queues(as_json: bool) -> None:
    """Show each queue: what waits, what is due, what runs, what is in review. Or pause and resume one."""
    with side() as there:
        found = there.queues()
    if words.is_all_told(found, as_json, "no queue has anything waiting, running or in review"):
        return
    rows = [
        [
            queue["queue"],
            *(str(queue[name]) for name in ("waiting", "retrying", "due")),
            words.span(queue["oldest_due_seconds"]) if queue["due"] else "",
            str(queue["running"]),
            str(queue["failed"]),
            "paused" if queue["paused"] else "",
        ]
        for queue in found
    ]
    titles = ("waiting", "retrying", "due", "oldest due", "running", "in review")
    words.console().print(words.table("queue", *((title, "right") for title in titles), "", rows=rows))


@queues.command()
@click.argument("name")
@options.side
def pause(name: str) -> None:
    """Start nothing more of this queue until it is resumed; what runs goes on."""
    with side() as there:
        note = there.act_on_queue("pause", name)
    click.echo(f"{name} is paused: `duly queues resume {name}` opens it again")
    if note:
        click.echo(note)


@queues.command()
@click.argument("name")
@options.side
def resume(name: str) -> None:
    """Open a paused queue again."""
    with side() as there:
        there.act_on_queue("resume", name)
    click.echo(f"{name} is open")
