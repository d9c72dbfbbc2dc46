"""`duly review` and `duly acts`: failures that look alike, and acts on many items at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import click

from duly.cli import options, words
from duly.cli.items import DATES
from duly.cli.sides import side
from duly.core.model import STATES

if TYPE_CHECKING:
    from duly.core.shown import Act, Action

group_id = click.argument("group_id", metavar="GROUP")
rate = click.option("--rate", type=click.FloatRange(0, 10_000, min_open=True), metavar="N", help="So many a second.")
into = click.option("--into", metavar="QUEUE", help="Another queue for what is tried again.")
reason = click.option("--reason", default="", help="Kept with the items.")
most = options.most(500)


@options.listing(short_help="Failures that look alike: see, note, retry, discard.")
@most
@options.told
def review(most: int, as_json: bool, in_utc: bool) -> None:
    """List failures in review, grouped by what they have in common, the largest groups first."""
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
@options.told
def show_group(group_id: str, as_json: bool, in_utc: bool) -> None:
    """One group: how many, a sample's error, and what people wrote about it."""
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
@options.side
def write_note(group_id: str, text: str) -> None:
    """Write something down about a group."""
    with side() as there:
        there.write_note(group_id, text)
    click.echo(f"noted about {group_id}")


@review.command()
@group_id
@options.side
def canary(group_id: str) -> None:
    """Try one of the group again, to see whether the cause is gone."""
    with side() as there:
        item_id = there.canary(group_id)
    click.echo(f"item {item_id} will be tried again: `duly show {item_id}` tells how it went")


@review.command(name="retry")
@group_id
@rate
@into
@options.side
@options.as_json
def retry_group(group_id: str, rate: float | None, into: str | None, as_json: bool) -> None:
    """Try all of the group again, at once or at a --rate."""
    with side() as there:
        made = there.retry_group(group_id, rate, into)
    words.print_one(made, as_json, _line(made))


@review.command(name="discard")
@group_id
@reason
@options.side
@options.as_json
def discard_group(group_id: str, reason: str, as_json: bool) -> None:
    """Take all of the group out of review for good."""
    with side() as there:
        made = there.discard_group(group_id, reason)
    words.print_one(made, as_json, _line(made))


@options.listing(short_help="Acts on many items at once: order, follow, stop.")
@most
@options.side
@options.as_json
def acts(most: int, as_json: bool) -> None:
    """List acts on many items, newest first."""
    with side() as there:
        found = there.acts(most)
    words.print_lines(found, as_json, "there are no acts on many items", _line)


@acts.command(name="order")
@click.argument("action", type=click.Choice(["cancel", "retry", "discard"]))
@click.option("--state", "states", type=click.Choice(STATES), multiple=True, help="Repeatable.")
@click.option("--task")
@click.option("--queue")
@click.option("--key")
@click.option("--group", "error_group", help="Only failures of this group.")
@click.option("--error", metavar="TEXT", help="A part of the last error, in whatever case.")
@click.option("--schedule", "schedule_id", type=options.ID, metavar="ID", help="What this schedule made.")
@click.option("--job", "job_id", type=options.ID, metavar="ID", help="Rows of this job.")
@click.option("--min-tries", type=click.IntRange(1), metavar="N", help="Tried so often or more.")
@click.option("--date", "date_field", type=click.Choice(DATES), help="Which time is meant.  [default: created]")
@click.option("--from", "since", metavar="TIME", help="Not before, such as 2026-12-01T09:00+01:00.")
@click.option("--to", "until", metavar="TIME", help="Before this time.")
@click.option("--where", multiple=True, metavar="NAME=VALUE", help="Of an argument, or result.NAME=VALUE. Repeatable.")
@rate
@into
@reason
@click.option("--count", "is_counted", is_flag=True, help="Only say how many items it would mean.")
@options.side
@options.as_json
def order_act(
    action: Action, rate: float | None, into: str | None, reason: str, is_counted: bool, as_json: bool,
    states: tuple[str, ...], where: tuple[str, ...], since: str | None, until: str | None, **said: Any,
) -> None:  # fmt: skip
    """Cancel, retry or discard all items that fit, as durable work that a worker carries out."""
    times = {"since": options.moment(since, "from"), "until": options.moment(until, "to")}
    filter = {**said, **times, "state": ",".join(states) or None, "where": list(where) or None}
    with side() as there:
        if is_counted:
            click.echo(str(there.count(action, filter)))
            return
        made = there.order(action, filter, rate=rate, reason=reason, queue=into)
    words.print_one(made, as_json, _line(made))


def _about_one(name: Literal["show", "cancel"], doc: str) -> None:
    """A command about one act."""

    @acts.command(name=name, help=doc)
    @click.argument("act_id", type=options.ID, metavar="ID")
    @options.side
    @options.as_json
    def about_one(act_id: int, as_json: bool) -> None:
        with side() as there:
            found = there.act(act_id) if name == "show" else there.cancel_act(act_id)
        words.print_one(found, as_json, _line(found))


_about_one("show", "How far it is.")
_about_one("cancel", "Stop it where it stands; what was done stays done.")


def _line(act: Act) -> str:
    what = " ".join(f"{name}={value}" for name, value in sorted(act.filter.items()) if value is not None) or "all items"
    return f"act {act.id} {act.action} {what}: {act.state}, {act.seen} of {act.total} seen, {act.changed} changed"
