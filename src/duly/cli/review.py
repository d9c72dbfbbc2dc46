"""`duly review` and `duly acts`: failures that look alike, and acts on many items at once."""

from __future__ import annotations

from typing import Literal, Unpack

import click
from msgspec.structs import asdict

from duly.cli import options
from duly.cli.session import Session, acting, printing, printing_times
from duly.core.filters import ActOptions
from duly.core.shown import Action, ShownAct

group_id = click.argument("group_id", metavar="GROUP")
rate = click.option("--rate", type=click.FloatRange(0, 10_000, min_open=True), metavar="N", help="At most N a second.")
into = click.option("--into", metavar="QUEUE", help="Another queue for the retried items.")
reason = click.option("--reason", default="", help="Kept with the items.")
most = options.most(500)


@options.listing(short_help="Groups of similar failures: show, note, retry, discard.")
@most
@printing_times
def review(session: Session, most: int) -> None:
    """List groups of similar failures in review, the largest first."""
    session.print_table(
        list(session.api.groups(most=most)),
        "nothing is in review",
        ("group", "task", "~error", ">items", "last", ">such as"),
        lambda group: [group.id, group.task, group.error_class, group.items,
                       session.short(group.last_at), group.sample],
    )  # fmt: skip


@review.command(name="show")
@group_id
@printing_times
def show_group(session: Session, group_id: str) -> None:
    """Show one group: how many items, the error of a sample, and the notes about it."""
    group = session.api.group(group_id)
    lines = [f"{group.items} items of {group.task}, such as {group.sample}"]
    lines += [group.error] if group.error else []
    lines += [f"{session.short(note.at)} {note.author}: {note.text}" for note in group.notes]
    session.print_one(group, lines)


@review.command(name="note")
@group_id
@click.argument("text")
@acting
def write_note(session: Session, group_id: str, text: str) -> None:
    """Write a note about a group."""
    session.api.write_note(group_id, text)
    click.echo(f"noted about {group_id}")


@review.command()
@group_id
@acting
def canary(session: Session, group_id: str) -> None:
    """Retry one item of the group, to see whether the cause is gone."""
    item_id = session.api.canary(group_id)
    click.echo(f"item {item_id} will be retried: `duly show {item_id}` shows the result")


@review.command(name="retry")
@group_id
@rate
@into
@printing
def retry_group(session: Session, group_id: str, rate: float | None, into: str | None) -> None:
    """Retry all items of the group, at once or at a --rate."""
    _print_act(session, session.api.retry_group(group_id, rate, into))


@review.command(name="discard")
@group_id
@reason
@printing
def discard_group(session: Session, group_id: str, reason: str) -> None:
    """Take all items of the group out of review for good."""
    _print_act(session, session.api.discard_group(group_id, reason))


@options.listing(short_help="Acts on many items: order, show, stop.")
@most
@printing
def acts(session: Session, most: int) -> None:
    """List acts on many items, newest first."""
    session.print_lines(list(session.api.acts(most=most)), "there are no acts on many items", _line)


@acts.command(name="order")
@click.argument("action", type=click.Choice(["cancel", "retry", "discard"]))
@options.item_filter
@rate
@into
@reason
@click.option("--all", "is_all", is_flag=True, help="Every item: required if there is no filter.")
@click.option("--count", "is_counted", is_flag=True, help="Only count the items.")
@printing
def order_act(
    session: Session, action: Action, rate: float | None, into: str | None, reason: str, is_all: bool,
    is_counted: bool, **filter: Unpack[ActOptions],
) -> None:  # fmt: skip
    """Cancel, retry or discard all items that match, as durable work of a worker."""
    if is_counted:
        click.echo(str(session.api.count(action, filter)))
    else:
        _print_act(session, session.api.order(action, filter, all=is_all, rate=rate, reason=reason, queue=into))


def _about_one(name: Literal["show", "cancel"], doc: str) -> None:
    """A command about one act."""

    @acts.command(name=name, help=doc)
    @click.argument("act_id", type=options.ID, metavar="ID")
    @printing
    def about_one(session: Session, act_id: int) -> None:
        _print_act(session, session.api.act(act_id) if name == "show" else session.api.cancel_act(act_id))


_about_one("show", "Show the progress of an act.")
_about_one("cancel", "Stop an act. Items that it has changed stay changed.")


def _print_act(session: Session, act: ShownAct) -> None:
    session.print_one(act, _line(act))


def _line(act: ShownAct) -> str:
    given = sorted((name, value) for name, value in asdict(act.filter).items() if value is not None)
    what = " ".join(f"{name}={value}" for name, value in given) or "all items"
    return f"act {act.id} {act.action} {what}: {act.state}, {act.seen} of {act.total} seen, {act.changed} changed"
