"""`duly schedules`, `duly slots` and `duly limits`: when things happen again, how evenly, and how much at most."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

import click

from duly.cli import options, words
from duly.cli.sides import side, time_of
from duly.core.errors import InputError

if TYPE_CHECKING:
    from duly.core.filters import ScheduleChange, ScheduleFields
    from duly.core.results import ScheduleAction, ScheduleState

STATES = ("active", "paused", "broken")


@options.listing(short_help="List, create, change, pause and run schedules.")
@click.option("--task", help="Only those of this task.")
@click.option("--state", type=click.Choice(STATES), help="Only these; broken: deactivated after failures in a row.")
@click.option("--ring", help="Only members of this ring.")
@click.option("--slot", type=int, metavar="N", help="Only members of this slot.")
@click.option("--after", type=options.ID, default=0, metavar="ID", help="Go on after this id.")
@options.most(default=50)
@options.told
def schedules(
    as_json: bool, in_utc: bool, task: str | None, state: ScheduleState | None, ring: str | None, slot: int | None,
    after: int, most: int,
) -> None:  # fmt: skip
    """List schedules with their rules and next times."""
    with side() as api:
        found = list(api.schedules(task=task, state=state, ring=ring, slot=slot, after=after, most=most))
        now = time_of(api)
    if words.is_all_told(found, as_json, "no schedules match"):
        return
    rows = [
        [
            str(each.id),
            each.task,
            words.cut(each.key, 30),
            words.cut(each.describe, 48),
            words.short(each.next_at, now, in_utc) if each.next_at else _status(each.state),
            str(each.failures or ""),
        ]
        for each in found
    ]
    titles = (("id", "right"), "task", "key", "when", "next", ("failures", "right"))
    words.console().print(words.table(*titles, rows=rows))
    if len(found) == most:
        click.echo(f"more: --after {found[-1].id}")


@schedules.command(name="add")
@click.argument("task")
@click.argument("rule")
@click.argument("pairs", nargs=-1, metavar="[NAME=VALUE]...")
@click.option("--key", required=True, help="Its name: one schedule per task and key.")
@click.option("--args", "text", metavar="JSON", help="The arguments as one JSON object.")
@click.option("--zone", default="UTC", show_default=True, help="An IANA zone, such as Europe/Zagreb.")
@click.option("--catch-up", type=click.Choice(["all", "latest", "skip"]), help="What becomes of missed occurrences.")
@options.span_option("--max-lateness", help="Do not start later than this after the planned time, such as 1h.")
@click.option("--overlap", type=click.Choice(["allow", "skip", "supersede"]), help="If the one before is not over.")
@options.app
@options.side
@options.as_json
def add_schedule(
    task: str, rule: str, pairs: tuple[str, ...], key: str, text: str | None, spec: str | None, as_json: bool,
    **chosen: Unpack[ScheduleFields],
) -> None:  # fmt: skip
    """Create a schedule, or change the one under this key.

    RULE is such as "daily 09:00", "weekly mon,fri 08:00", "monthly -1 18:00", "yearly 02-29 09:00", "every 15m",
    "slots 24", or five fields of cron.
    """
    from duly.cli.put import fitting, json_object, named_pairs

    args = json_object(text)
    with side(spec, with_tasks=True) as api:
        made = fitting(lambda **read: api.schedule(task, rule, key, {**args, **read}, **chosen), named_pairs(pairs))
        now = time_of(api)
    when = words.full(made.next_at, now) if made.next_at else "never"
    words.print_one(made, as_json, f"schedule {made.id}: {made.describe}; next {when}")


@schedules.command(name="show")
@click.argument("schedule_id", type=options.ID, metavar="ID")
@click.option("--next", "n", type=click.IntRange(1, 100), default=5, show_default=True, help="How many times ahead.")
@options.told
def show_schedule(schedule_id: int, n: int, as_json: bool, in_utc: bool) -> None:
    """Show one schedule: its rule in words, its next times, its last items and its last lines of the audit log."""
    with side() as api:
        found, now = api.schedule_story(schedule_id, n), time_of(api)
    if as_json:
        words.print_json(found)
        return
    for name in ("id", "task", "key", "state", "describe", "rule", "zone", "catch_up", "overlap", "args"):
        click.echo(f"{name:10} {getattr(found, name)}")
    problem = f": {words.cut(found.last_error, 60)}" if found.failures else ""
    click.echo(f"failures   {found.failures} in a row{problem}")
    for time in found.next:
        click.echo(f"next       {words.full(time, now, in_utc)}")
    for note in found.notes:
        click.echo(f"clocks     {words.full(note.at, now, in_utc)}: {note.note}")
    for item in found.items:
        click.echo(
            f"item       {item.id} {words.short(item.planned_at, now, in_utc)} {item.state} {item.outcome or ''}"
        )
    for line in found.audit:
        click.echo(f"audit      {words.short(line.at, now, in_utc)} {line.actor} {line.action}")


@schedules.command(name="preview")
@click.argument("rule")
@click.option("--zone", default="UTC", show_default=True)
@click.option("--next", "n", type=click.IntRange(1, 1000), default=5, show_default=True)
@options.as_json
def preview_rule(rule: str, zone: str, n: int, as_json: bool) -> None:
    """Say what a rule means, in words and in its next times. Needs no database."""
    from datetime import UTC, datetime

    from duly.core.policy.recur import clock_notes, parse, preview, zone_named

    try:
        read, place = parse(rule), zone_named(zone)
    except ValueError as error:
        field = "zone" if str(error).startswith("zone:") else "rule"
        raise InputError(field, str(error).removeprefix(f"{field}: ")) from None
    now = datetime.now(UTC)
    ahead = preview(read, now, place, n)
    notes = clock_notes(read, now, ahead, place)
    if as_json:
        told = [{"at": at, "note": note} for at, note in notes]
        words.print_json({"rule": str(read), "describe": read.describe(place), "next": ahead, "notes": told})
        return
    click.echo(read.describe(place))
    for time in ahead:
        click.echo(f"{time.astimezone(place):%a %Y-%m-%d %H:%M:%S %z}")
    for at, note in notes:
        click.echo(f"{at.astimezone(place):%a %Y-%m-%d}: {note}")


@schedules.command(name="change")
@click.argument("schedule_id", type=options.ID, metavar="ID")
@click.option("--rule")
@click.option("--zone")
@click.option("--catch-up", type=click.Choice(["all", "latest", "skip"]))
@options.span_option("--max-lateness")
@click.option("--overlap", type=click.Choice(["allow", "skip", "supersede"]))
@click.option("--rank", type=int)
@options.side
def change_schedule(schedule_id: int, **fields: Unpack[ScheduleChange]) -> None:
    """Change a schedule. With another rule or zone its next time is planned anew."""
    if all(value is None for value in fields.values()):
        raise InputError(
            "change", "nothing to change; give --rule, --zone, --catch-up, --max-lateness, --overlap or --rank"
        )
    with side() as api:
        click.echo(f"schedule {schedule_id}: {api.change_schedule(schedule_id, **fields).describe}")


def _act(name: str, action: ScheduleAction, doc: str, done: str) -> None:
    """A command for one action on schedules."""

    @schedules.command(name=name, help=f"{doc} All of them or none.")
    @click.argument("ids", type=options.ID, nargs=-1, required=True, metavar="ID...")
    @options.side
    def command(ids: tuple[int, ...]) -> None:
        with side() as api:
            changed = api.act_on_schedules(action, *ids)
        click.echo(f"{done}: {', '.join(map(str, changed))}")


_act("pause", "pause", "Create no more items until the schedules are resumed.", "paused")
_act("resume", "resume", "Continue paused schedules from now on. Missed occurrences are not made up for.", "resumed")
_act("run-now", "run", "Create one more item now. The next planned time does not change.", "running")
_act("remove", "remove", "Remove schedules and cancel their waiting items.", "removed")
_act("reactivate", "reactivate", "Reactivate schedules that were deactivated after failures in a row.", "reactivated")


@schedules.command(name="reactivate-all")
@click.option("--task", help="Only those of this task.")
@click.option("--cause", metavar="CLASS", help="Only those whose last item ended with this class of errors.")
@click.option("--run", is_flag=True, help="And one occurrence of each now.")
@options.side
def reactivate_all(task: str | None, cause: str | None, run: bool) -> None:
    """Try again all that were deactivated after failures in a row, such as by an outage."""
    with side() as api:
        count = api.reactivate_all(task=task, cause=cause, run=run)
    click.echo(f"{count} reactivated")


@click.command(short_help="Show how evenly slots are filled.")
@click.option("--ring", help="Only this ring (the task's name).")
@click.option("--rebalance", is_flag=True, help="Show who would have to move to make them even again.")
@click.option("--yes", is_flag=True, help="With --rebalance: move them.")
@options.database_url
@options.as_json
def slots(ring: str | None, rebalance: bool, yes: bool, as_json: bool) -> None:
    """The load of each slot: its active members. Nobody is ever moved unless you say so."""
    with options.opened() as app:
        if rebalance:
            names = [ring] if ring else sorted({each.ring for each in app.schedules.slots()})
            moves = [move for name in names for move in app.schedules.rebalance(name)]
            if yes:
                app.verbs.schedules.move(options.who(), moves)
            if as_json:
                words.print_json(moves)
                return
            for move in moves:
                click.echo(f"{move.key}: slot {move.slot} {'→' if yes else 'would move to'} {move.to}")
            click.echo(f"{len(moves)} members {'moved' if yes else 'would move; --yes moves them'}")
            return
        found = app.schedules.slots(ring)
    if words.is_all_told(found, as_json, "no schedule has slots"):
        return
    most = max((each.members for each in found), default=0) or 1
    for each in found:
        click.echo(f"{each.ring}  {each.slot:>4}  {each.members:>7}  {'█' * round(40 * each.members / most)}")


@options.listing(short_help="Show and change limits while everything runs.")
@options.side
@options.as_json
def limits(as_json: bool) -> None:
    """Show what limits have counted, and what a person set in place of the code's values."""
    with side() as api:
        found, now = api.limits(), time_of(api)
    if words.is_all_told(found, as_json, "no limit has been used or set yet"):
        return
    table = [
        [
            each.name,
            "as in the code" if each.most is None else f"{each.most}{_per(each.per_seconds)}",
            str(each.granted),
            words.relative(each.last, now) if each.last else "",
        ]
        for each in found
    ]
    words.console().print(words.table("limit", "set to", ("granted", "right"), "last", rows=table))


@limits.command(name="set")
@click.argument("name")
@click.argument("limit", metavar="N[/PERIOD]")
@options.side
def set_limit(name: str, limit: str) -> None:
    """Allow 2/1m (calls in any minute) or 4 (at the same time) from now on, over the whole fleet."""
    with side() as api:
        api.set_limit(name, limit)
    click.echo(f"{name}: {limit}")


@limits.command(name="clear")
@click.argument("name")
@options.side
def clear_limit(name: str) -> None:
    """What the code says counts again."""
    with side() as api:
        api.set_limit(name, None)
    click.echo(f"{name}: as in the code")


def _per(seconds: float | None) -> str:
    return "" if seconds is None else f"/{seconds:g}s"


def _status(state: str) -> str:
    return {"broken": "deactivated", "paused": "paused"}.get(state, "over")
