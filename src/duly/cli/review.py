"""`duly review` and `duly acts`: failures that look alike, and acts on many items at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Unpack

import click
from msgspec.structs import asdict

from duly.cli import options, words
from duly.cli.sides import side, time_of

if TYPE_CHECKING:
    from duly.core.filters import ActOptions
    from duly.core.shown import Action, ShownAct

group_id = click.argument("group_id", metavar="GROUP")
rate = click.option("--rate", type=click.FloatRange(0, 10_000, min_open=True), metavar="N", help="At most N a second.")
into = click.option("--into", metavar="QUEUE", help="Another queue for the retried items.")
reason = click.option("--reason", default="", help="Kept with the items.")
most = options.most(500)


@options.listing(short_help="Groups of similar failures: show, note, retry, discard.")
@most
@options.told
def review(most: int, as_json: bool, in_utc: bool) -> None:
    """List groups of similar failures in review, the largest first."""
    with side() as api:
        found, now = list(api.groups(most=most)), time_of(api)
    if words.is_all_told(found, as_json, "nothing is in review"):
        return
    rows = [
        [
            each.id, words.cut(each.task, 24), words.cut(each.error_class or "", 30), str(each.items),
            words.short(each.last_at, now, in_utc) if each.last_at else "", str(each.sample),
        ]
        for each in found
    ]  # fmt: skip
    titles = ("group", "task", "error", ("items", "right"), "last", ("such as", "right"))
    words.console().print(words.table(*titles, rows=rows))


@review.command(name="show")
@group_id
@options.told
def show_group(group_id: str, as_json: bool, in_utc: bool) -> None:
    """Show one group: how many items, the error of a sample, and the notes about it."""
    with side() as api:
        group, now = api.group(group_id), time_of(api)
    if as_json:
        words.print_json(group)
        return
    click.echo(f"{group.items} items of {group.task}, such as {group.sample}")
    if group.error:
        click.echo(group.error)
    for note in group.notes:
        click.echo(f"{words.short(note.at, now, in_utc)} {note.author}: {note.text}")


@review.command(name="note")
@group_id
@click.argument("text")
@options.side
def write_note(group_id: str, text: str) -> None:
    """Write a note about a group."""
    with side() as api:
        api.write_note(group_id, text)
    click.echo(f"noted about {group_id}")


@review.command()
@group_id
@options.side
def canary(group_id: str) -> None:
    """Retry one item of the group, to see whether the cause is gone."""
    with side() as api:
        item_id = api.canary(group_id)
    click.echo(f"item {item_id} will be retried: `duly show {item_id}` shows the result")


@review.command(name="retry")
@group_id
@rate
@into
@options.side
@options.as_json
def retry_group(group_id: str, rate: float | None, into: str | None, as_json: bool) -> None:
    """Retry all items of the group, at once or at a --rate."""
    with side() as api:
        made = api.retry_group(group_id, rate, into)
    words.print_one(made, as_json, _line(made))


@review.command(name="discard")
@group_id
@reason
@options.side
@options.as_json
def discard_group(group_id: str, reason: str, as_json: bool) -> None:
    """Take all items of the group out of review for good."""
    with side() as api:
        made = api.discard_group(group_id, reason)
    words.print_one(made, as_json, _line(made))


@options.listing(short_help="Acts on many items: order, show, stop.")
@most
@options.side
@options.as_json
def acts(most: int, as_json: bool) -> None:
    """List acts on many items, newest first."""
    with side() as api:
        found = list(api.acts(most=most))
    words.print_lines(found, as_json, "there are no acts on many items", _line)


@acts.command(name="order")
@click.argument("action", type=click.Choice(["cancel", "retry", "discard"]))
@options.item_filter
@rate
@into
@reason
@click.option("--count", "is_counted", is_flag=True, help="Only count the items.")
@options.side
@options.as_json
def order_act(
    action: Action, rate: float | None, into: str | None, reason: str, is_counted: bool, as_json: bool,
    **filter: Unpack[ActOptions],
) -> None:  # fmt: skip
    """Cancel, retry or discard all items that match, as durable work of a worker."""
    with side() as api:
        if is_counted:
            click.echo(str(api.count(action, filter)))
            return
        made = api.order(action, filter, rate=rate, reason=reason, queue=into)
    words.print_one(made, as_json, _line(made))


def _about_one(name: Literal["show", "cancel"], doc: str) -> None:
    """A command about one act."""

    @acts.command(name=name, help=doc)
    @click.argument("act_id", type=options.ID, metavar="ID")
    @options.side
    @options.as_json
    def about_one(act_id: int, as_json: bool) -> None:
        with side() as api:
            found = api.act(act_id) if name == "show" else api.cancel_act(act_id)
        words.print_one(found, as_json, _line(found))


_about_one("show", "Show the progress of an act.")
_about_one("cancel", "Stop an act. Items that it has changed stay changed.")


def _line(act: ShownAct) -> str:
    given = sorted((name, value) for name, value in asdict(act.filter).items() if value is not None)
    what = " ".join(f"{name}={value}" for name, value in given) or "all items"
    return f"act {act.id} {act.action} {what}: {act.state}, {act.seen} of {act.total} seen, {act.changed} changed"
