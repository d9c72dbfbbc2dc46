"""`duly review` and `duly acts`: failures that look alike, and acts on many items at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from duly.cli import options
from duly.core.model import STATES

if TYPE_CHECKING:
    from duly.core.shown import Act, Action

group_id = click.argument("group_id", metavar="GROUP")
act_id = click.argument("act_id", type=options.ID, metavar="ID")
rate = click.option("--rate", type=click.FloatRange(0, 10_000, min_open=True), metavar="N", help="So many a second.")
reason = click.option("--reason", default="", help="Kept with the items.")
most = click.option("--limit", "most", type=click.IntRange(1, 500), default=20, show_default=True)


@click.group(invoke_without_command=True, short_help="Failures that look alike: see, note, retry, discard.")
@most
@options.database_url
@options.service
@options.as_json
@options.in_utc
@click.pass_context
def review(ctx: click.Context, most: int, as_json: bool, in_utc: bool) -> None:
    """List failures in review, grouped by what they have in common, the largest groups first."""
    if ctx.invoked_subcommand is not None:
        return
    from duly.cli import words
    from duly.cli.sides import side

    with side() as there:
        found, now = there.groups(most), there.now()
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
@options.database_url
@options.service
@options.as_json
@options.in_utc
def show_group(group_id: str, as_json: bool, in_utc: bool) -> None:
    """One group: how many, a sample's error, and what people wrote about it."""
    from duly.cli import words
    from duly.cli.sides import side

    with side() as there:
        (group, error, notes), now = there.group(group_id), there.now()
    if as_json:
        fields = {name: getattr(group, name) for name in group.__struct_fields__}
        words.print_json({**fields, "error": error, "notes": notes})
        return
    click.echo(f"{group.items} items of {group.task}, such as {group.sample}")
    if error:
        click.echo(error)
    for note in notes:
        click.echo(f"{words.short(note.at, now, in_utc)} {note.author}: {note.text}")


@review.command(name="note")
@group_id
@click.argument("text")
@options.database_url
@options.service
def write_note(group_id: str, text: str) -> None:
    """Write something down about a group."""
    from duly.cli.sides import side

    with side() as there:
        there.write_note(group_id, text)
    click.echo(f"noted about {group_id}")


@review.command()
@group_id
@options.database_url
@options.service
def canary(group_id: str) -> None:
    """Try one of the group again, to see whether the cause is gone."""
    from duly.cli.sides import side

    with side() as there:
        item_id = there.canary(group_id)
    click.echo(f"item {item_id} will be tried again: `duly show {item_id}` tells how it went")


@review.command(name="retry")
@group_id
@rate
@options.database_url
@options.service
@options.as_json
def retry_group(group_id: str, rate: float | None, as_json: bool) -> None:
    """Try all of the group again, at once or at a --rate."""
    from duly.cli.sides import side

    with side() as there:
        made = there.retry_group(group_id, rate)
    _tell(made, as_json)


@review.command(name="discard")
@group_id
@reason
@options.database_url
@options.service
@options.as_json
def discard_group(group_id: str, reason: str, as_json: bool) -> None:
    """Take all of the group out of review for good."""
    from duly.cli.sides import side

    with side() as there:
        made = there.discard_group(group_id, reason)
    _tell(made, as_json)


@click.group(invoke_without_command=True, short_help="Acts on many items at once: order, follow, stop.")
@most
@options.database_url
@options.service
@options.as_json
@click.pass_context
def acts(ctx: click.Context, most: int, as_json: bool) -> None:
    """List acts on many items, newest first."""
    if ctx.invoked_subcommand is not None:
        return
    from duly.cli import words
    from duly.cli.sides import side

    with side() as there:
        found = there.acts(most)
    if words.is_all_told(found, as_json, "there are no acts on many items"):
        return
    for each in found:
        click.echo(_line(each))


@acts.command(name="order")
@click.argument("action", type=click.Choice(["cancel", "retry", "discard"]))
@click.option("--state", type=click.Choice(STATES))
@click.option("--task")
@click.option("--queue")
@click.option("--group", "error_group", help="Only failures of this group.")
@rate
@reason
@click.option("--count", "is_counted", is_flag=True, help="Only say how many items it would mean.")
@options.database_url
@options.service
@options.as_json
def order_act(action: Action, rate: float | None, reason: str, is_counted: bool, as_json: bool, **filter: Any) -> None:
    """Cancel, retry or discard all items that fit, as durable work that a worker carries out."""
    from duly.cli.sides import side

    with side() as there:
        if is_counted:
            click.echo(str(there.count(action, filter)))
            return
        made = there.order(action, filter, rate, reason)
    _tell(made, as_json)


@acts.command(name="show")
@act_id
@options.database_url
@options.service
@options.as_json
def show_act(act_id: int, as_json: bool) -> None:
    """How far it is."""
    from duly.cli.sides import side

    with side() as there:
        found = there.act(act_id)
    _tell(found, as_json)


@acts.command(name="cancel")
@act_id
@options.database_url
@options.service
@options.as_json
def cancel_act(act_id: int, as_json: bool) -> None:
    """Stop it where it stands; what was done stays done."""
    from duly.cli.sides import side

    with side() as there:
        stopped = there.cancel_act(act_id)
    _tell(stopped, as_json)


def _tell(act: Act, as_json: bool) -> None:
    from duly.cli import words

    if as_json:
        words.print_json(act)
    else:
        click.echo(_line(act))


def _line(act: Act) -> str:
    what = " ".join(f"{name}={value}" for name, value in sorted(act.filter.items()) if value is not None) or "all items"
    return f"act {act.id} {act.action} {what}: {act.state}, {act.seen} of {act.total} seen, {act.changed} changed"
