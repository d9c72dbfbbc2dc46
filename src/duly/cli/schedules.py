"""`duly schedules` and `duly slots`: when things happen again, and how evenly."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NoReturn, Unpack

import click

from duly import Duly
from duly.cli import options, words
from duly.cli.items import fitting, json_object, named_pairs
from duly.cli.session import Session, acting, printing, printing_times, session
from duly.core.errors import InputError
from duly.core.filters import ScheduleFields
from duly.core.results import ScheduleAction
from duly.core.shown import ShownSchedule
from duly.verbs.timetable import Move, checked_zone, rule_preview

if TYPE_CHECKING:
    from duly.client import Client

STATES = ("active", "paused", "broken")

schedule_id = click.argument("schedule_id", type=options.ID, metavar="ID")
catch_up = click.option(
    "--catch-up", type=click.Choice(["all", "latest", "skip"]), help="Which missed occurrences still run."
)
max_lateness = options.span_option(
    "--max-lateness", help="Do not start later than this after the planned time, such as 1h."
)
overlap = click.option(
    "--overlap", type=click.Choice(["allow", "skip", "supersede"]), help="If the previous occurrence has not ended."
)


@options.listing(short_help="List, create, change, pause and run schedules.")
@click.option("--task", help="Only those of this task.")
@click.option("--state", type=click.Choice(STATES), help="Only these; broken: deactivated after failures in a row.")
@click.option("--ring", help="Only members of this ring.")
@click.option("--slot", type=int, metavar="N", help="Only members of this slot.")
@click.option("--after", type=options.ID, default=0, metavar="ID", help="Go on after this id.")
@options.most(default=50)
@printing_times
def schedules(session: Session, most: int, **filter: Any) -> None:
    """List schedules with their rules and next times."""
    found = list(session.api.schedules(most=most, **filter))

    def following(each: ShownSchedule) -> str:
        if each.next_at:
            return session.short(each.next_at)
        return {"broken": "deactivated", "paused": "paused"}.get(each.state, "over")

    session.print_table(
        found,
        "no schedules match",
        (">id", "task", "key", "~when", "next", ">failures"),
        lambda each: [each.id, each.task, each.key, each.describe, following(each),
                      each.failures or None],
    )  # fmt: skip
    if len(found) == most and not session.as_json:
        click.echo(f"more: --after {found[-1].id}")


@schedules.command(name="add")
@click.argument("task")
@click.argument("rule")
@options.arguments("The arguments as one JSON object")
@click.option("--key", required=True, help="Its name: one schedule per task and key.")
@click.option("--zone", default="UTC", show_default=True, help="An IANA zone, such as Europe/Zagreb.")
@catch_up
@max_lateness
@overlap
@session(options.as_json, with_tasks=True)
def add_schedule(
    session: Session, task: str, rule: str, pairs: tuple[str, ...], key: str, text: str | None,
    **chosen: Unpack[ScheduleFields],
) -> None:  # fmt: skip
    """Create a schedule, or change the one under this key.

    RULE is such as "daily 09:00", "weekly mon,fri 08:00", "monthly -1 18:00", "yearly 02-29 09:00", "every 15m",
    "slots 24", or five fields of cron.
    """
    args = json_object(text)
    made = fitting(lambda **read: session.api.schedule(task, rule, key, {**args, **read}, **chosen), named_pairs(pairs))
    session.print_one(made, f"schedule {made.id}: {made.describe}; next {session.full(made.next_at) or 'never'}")


@schedules.command(name="show")
@schedule_id
@click.option("--next", "n", type=click.IntRange(1, 100), default=5, show_default=True, help="How many times ahead.")
@printing_times
def show_schedule(session: Session, schedule_id: int, n: int) -> None:
    """Show one schedule: its rule in words, its next times, its last items and its last lines of the audit log."""
    found = session.api.schedule_story(schedule_id, n)
    names = ("id", "task", "key", "state", "describe", "rule", "zone", "catch_up", "overlap", "args")
    problem = f": {words.cut(found.last_error, 60)}" if found.failures else ""
    lines = [f"{name:10} {getattr(found, name)}" for name in names]
    lines += [f"failures   {found.failures} in a row{problem}"]
    lines += [f"next       {session.full(time)}" for time in found.next]
    lines += [f"clocks     {session.full(note.at)}: {note.note}" for note in found.notes]
    lines += [
        f"item       {each.id} {session.short(each.planned_at)} {each.state} {each.outcome or ''}"
        for each in found.items
    ]
    lines += [f"audit      {session.short(line.at)} {line.actor} {line.action}" for line in found.audit]
    session.print_one(found, lines)


@schedules.command(name="preview")
@click.argument("rule")
@click.option("--zone", default="UTC", show_default=True)
@click.option("--next", "n", type=click.IntRange(1, 1000), default=5, show_default=True)
@options.as_json
def preview_rule(rule: str, zone: str, n: int, as_json: bool) -> None:
    """Say what a rule means, in words and in its next times. Needs no database."""
    found, place = rule_preview(rule, zone, datetime.now(UTC), n), checked_zone(zone)
    if as_json:
        words.print_json(found)
        return
    click.echo(found.describe)
    for time in found.next:
        click.echo(f"{time.astimezone(place):%a %Y-%m-%d %H:%M:%S %z}")
    for each in found.notes:
        click.echo(f"{each.at.astimezone(place):%a %Y-%m-%d}: {each.note}")


@schedules.command(name="change")
@schedule_id
@click.option("--rule")
@click.option("--zone")
@catch_up
@max_lateness
@overlap
@click.option("--rank", type=int)
@acting
def change_schedule(session: Session, schedule_id: int, **fields: Any) -> None:
    """Change a schedule. With another rule or zone its next time is computed again."""
    changed = session.api.change_schedule(schedule_id, **options.given_any(fields, "change"))
    click.echo(f"schedule {schedule_id}: {changed.describe}")


def _act(name: str, action: ScheduleAction, doc: str, done: str) -> None:
    """A command for one action on schedules."""

    @schedules.command(name=name, help=f"{doc} All of them or none.")
    @click.argument("ids", type=options.ID, nargs=-1, required=True, metavar="ID...")
    @acting
    def command(session: Session, ids: tuple[int, ...]) -> None:
        changed = session.api.act_on_schedules(action, *ids)
        click.echo(f"{done}: {', '.join(map(str, changed))}")


_act("pause", "pause", "Create no more items until the schedules are resumed.", "paused")
_act("resume", "resume", "Continue paused schedules from now on. Missed occurrences are not made up for.", "resumed")
_act("run-now", "run", "Create one more item now. The next planned time does not change.", "running")
_act("remove", "remove", "Remove schedules and cancel their waiting items.", "removed")
_act("reactivate", "reactivate", "Reactivate schedules that were deactivated after failures in a row.", "reactivated")


@schedules.command(name="reactivate-all")
@click.option("--task", help="Only those of this task.")
@click.option("--cause", metavar="CLASS", help="Only those whose last item ended with this class of errors.")
@click.option("--run", is_flag=True, help="Also run one occurrence of each now.")
@acting
def reactivate_all(session: Session, task: str | None, cause: str | None, run: bool) -> None:
    """Try again all that were deactivated after failures in a row, such as by an outage."""
    click.echo(f"{session.api.reactivate_all(task=task, cause=cause, run=run)} reactivated")


@click.command(short_help="Show how evenly slots are filled.")
@click.option("--ring", help="Only this ring (the task's name).")
@click.option("--rebalance", is_flag=True, help="Show which members would have to move to make them even again.")
@click.option("--yes", is_flag=True, help="With --rebalance: move them.")
@printing
def slots(session: Session, ring: str | None, rebalance: bool, yes: bool) -> None:
    """Show the load of each slot: its active members. Members are moved only with --rebalance --yes."""
    if rebalance:
        moves = session.either(lambda app: _moves(app, ring, yes), _refuse_to_move)
        lines = [f"{move.key}: slot {move.slot} {'→' if yes else 'would move to'} {move.to}" for move in moves]
        total = f"{len(moves)} members {'moved' if yes else 'would move; --yes moves them'}"
        session.print_one(moves, [*lines, total])
        return
    found = session.api.slots(ring)
    most = max((each.members for each in found), default=0) or 1
    session.print_lines(
        found,
        "no schedule has slots",
        lambda each: f"{each.ring}  {each.slot:>4}  {each.members:>7}  {'█' * round(40 * each.members / most)}",
    )


def _moves(app: Duly, ring: str | None, is_carried_out: bool) -> list[Move]:
    """The members that have to move to make slots even again."""
    schedules = app.internals.verbs.schedules
    names = [ring] if ring else sorted({each.ring for each in schedules.slots()})
    moves = [move for name in names for move in schedules.rebalance(name)]
    if is_carried_out:
        schedules.move(options.who(), moves)
    return moves


def _refuse_to_move(_: Client) -> NoReturn:
    raise InputError("rebalance", "works on a database only; use --database-url in place of --url")
