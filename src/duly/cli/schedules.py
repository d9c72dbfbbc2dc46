"""`duly schedules`, `duly slots` and `duly limits`: when things happen again, how evenly, and how much at most."""

from __future__ import annotations

from typing import Any

import click

from duly.cli import options, words
from duly.cli.sides import side
from duly.core.errors import InputError

STATES = ("active", "paused", "broken")


@options.listing(short_help="List, create, change, pause and run schedules.")
@click.option("--task", help="Only those of this task.")
@click.option("--state", type=click.Choice(STATES), help="Only these; broken: deactivated after failures in a row.")
@click.option("--ring", help="Only members of this ring.")
@click.option("--slot", type=int, metavar="N", help="Only members of this slot.")
@click.option("--after", type=options.ID, default=0, metavar="ID", help="Go on after this id.")
@options.most(default=50)
@options.told
def schedules(as_json: bool, in_utc: bool, **filters: Any) -> None:
    """List schedules: what makes items again and again, and when it does next."""
    with side() as there:
        found, now = there.schedules(**filters), there.now()
    if words.is_all_told(found, as_json, "there are no such schedules"):
        return
    rows = [
        [
            str(each["id"]),
            each["task"],
            words.cut(each["key"], 30),
            words.cut(each["describe"], 48),
            words.short(each["next_at"], now, in_utc) if each["next_at"] else _status(each["state"]),
            str(each["failures"] or ""),
        ]
        for each in found
    ]
    titles = (("id", "right"), "task", "key", "when", "next", ("failures", "right"))
    words.console().print(words.table(*titles, rows=rows))
    if len(found) == filters["most"]:
        click.echo(f"more: --after {found[-1]['id']}")


@schedules.command(name="add")
@click.argument("task")
@click.argument("rule")
@click.argument("pairs", nargs=-1, metavar="[NAME=VALUE]...")
@click.option("--key", required=True, help="Its name: one schedule per task and key.")
@click.option("--args", "text", metavar="JSON", help="The arguments as one JSON object.")
@click.option("--zone", default="UTC", show_default=True, help="An IANA zone, such as Europe/Zagreb.")
@click.option("--catch-up", type=click.Choice(["all", "latest", "skip"]), help="What becomes of missed occurrences.")
@click.option("--max-lateness", metavar="TIME", help="Not worth starting later than this, such as 1h.")
@click.option("--overlap", type=click.Choice(["allow", "skip", "supersede"]), help="If the one before is not over.")
@options.app
@options.side
@options.as_json
def add_schedule(
    task: str, rule: str, pairs: tuple[str, ...], key: str, text: str | None, spec: str | None, as_json: bool,
    max_lateness: str | None, **said: Any,
) -> None:  # fmt: skip
    """Create a schedule, or change the one under this key.

    RULE is such as "daily 09:00", "weekly mon,fri 08:00", "monthly -1 18:00", "yearly 02-29 09:00", "every 15m",
    "slots 24", or five fields of cron.
    """
    from duly.cli.put import fitting, json_object, named_pairs

    chosen = {name: value for name, value in said.items() if value is not None}
    if max_lateness is not None:
        chosen["max_lateness"] = options.span(max_lateness, "max_lateness")
    args = json_object(text)
    with side(spec, with_tasks=True) as there:
        made: dict[str, Any] = fitting(
            lambda **read: there.schedule(task, rule, key, {**args, **read}, **chosen), named_pairs(pairs)
        )
        now = there.now()
    when = words.full(made["next_at"], now) if made["next_at"] else "never"
    words.print_one(made, as_json, f"schedule {made['id']}: {made['describe']}; next {when}")


@schedules.command(name="show")
@click.argument("schedule_id", type=options.ID, metavar="ID")
@click.option("--next", "n", type=click.IntRange(1, 100), default=5, show_default=True, help="How many times ahead.")
@options.told
def show_schedule(schedule_id: int, n: int, as_json: bool, in_utc: bool) -> None:
    """All about one: its rule in words, its next times, what it made, and what was done to it."""
    with side() as there:
        told, now = there.schedule_story(schedule_id, n), there.now()
    if as_json:
        words.print_json(told)
        return
    for name in ("id", "task", "key", "state", "describe", "rule", "zone", "catch_up", "overlap", "args"):
        click.echo(f"{name:10} {told[name]}")
    problem = f": {words.cut(told['last_error'], 60)}" if told["failures"] else ""
    click.echo(f"failures   {told['failures']} in a row{problem}")
    for time in told["next"]:
        click.echo(f"next       {words.full(time, now, in_utc)}")
    for each in told["notes"]:
        click.echo(f"clocks     {words.full(each['at'], now, in_utc)}: {each['note']}")
    for each in told["items"]:
        planned = words.short(each["planned_at"], now, in_utc)
        click.echo(f"item       {each['id']} {planned} {each['state']} {each['outcome'] or ''}")
    for note in told["audit"]:
        click.echo(f"audit      {words.short(note['at'], now, in_utc)} {note['actor']} {note['action']}")


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
@click.option("--max-lateness", metavar="TIME")
@click.option("--overlap", type=click.Choice(["allow", "skip", "supersede"]))
@click.option("--rank", type=int)
@options.side
def change_schedule(schedule_id: int, max_lateness: str | None, **said: Any) -> None:
    """Change it; another rule or zone plans anew."""
    fields = {name: value for name, value in said.items() if value is not None}
    if max_lateness is not None:
        fields["max_lateness"] = options.span(max_lateness, "max_lateness")
    if not fields:
        raise InputError("change", "say what: --rule, --zone, --catch-up, --max-lateness, --overlap or --rank")
    with side() as there:
        click.echo(f"schedule {schedule_id}: {there.change_schedule(schedule_id, **fields)}")


def _act(name: str, doc: str, done: str) -> None:
    """A command for one act on schedules."""

    @schedules.command(name=name.replace("_", "-"), help=doc)
    @click.argument("ids", type=options.ID, nargs=-1, required=True, metavar="ID...")
    @options.side
    def command(ids: tuple[int, ...]) -> None:
        with side() as there:
            there.act_on_schedules(name, *ids)
        click.echo(f"{done}: {', '.join(map(str, ids))}")


_act("pause", "Make no more items until it is resumed.", "paused")
_act("resume", "Go on from now; what was missed meanwhile stays missed.", "resumed")
_act("run_now", "One occurrence more, now; the plan stays as it is.", "running")
_act("remove", "Remove it, with what still waits of it.", "removed")
_act("reactivate", "Try again what was deactivated after failures in a row.", "reactivated")


@schedules.command(name="reactivate-all")
@click.option("--task", help="Only those of this task.")
@click.option("--cause", metavar="CLASS", help="Only those whose last item ended with this class of errors.")
@click.option("--run", is_flag=True, help="And one occurrence of each now.")
@options.side
def reactivate_all(task: str | None, cause: str | None, run: bool) -> None:
    """Try again all that were deactivated after failures in a row, such as by an outage."""
    with side() as there:
        count = there.reactivate_all(task=task, cause=cause, run=run)
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
    with side() as there:
        found, now = there.limits(), there.now()
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
    with side() as there:
        there.set_limit(name, limit)
    click.echo(f"{name}: {limit}")


@limits.command(name="clear")
@click.argument("name")
@options.side
def clear_limit(name: str) -> None:
    """What the code says counts again."""
    with side() as there:
        there.set_limit(name, None)
    click.echo(f"{name}: as in the code")


def _per(seconds: float | None) -> str:
    return "" if seconds is None else f"/{seconds:g}s"


def _status(state: str) -> str:
    return {"broken": "deactivated", "paused": "paused"}.get(state, "over")
