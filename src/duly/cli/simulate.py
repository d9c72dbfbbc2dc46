"""`duly simulate`: shows what the next days will bring."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import click

from duly import Duly
from duly.cli import options, words
from duly.core.errors import BrokenApp, ConfigError, InputError
from duly.facade.loading import load_app
from duly.facade.simulated import in_words
from duly.plugins import plugins, simulations

if TYPE_CHECKING:
    from duly.virtual.simulation import Conditions, Simulation
    from duly.virtual.story import SimulationResult


class _Simulate(click.Command):
    """A command with an option for each parameter of the apps that can be simulated."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        return [*super().get_params(ctx), *_parameters()]


def _parameters() -> list[click.Parameter]:
    """An option for each name. Apps whose parameters have the same name share it, each with a default of its own."""
    texts: dict[str, list[str]] = {}
    for app, simulation in simulations().items():
        for each in simulation.parameters:
            texts.setdefault(each.name, []).append(f"For {app}; default: {each.default}.")
    return [
        click.Option([f"--{name.replace('_', '-')}", name], type=click.IntRange(0, 1_000_000), help=" ".join(told))
        for name, told in texts.items()
    ]


@click.command(cls=_Simulate, short_help="Simulate the next days, with failures, outages and crashes.")
@click.argument("what", metavar="NAME|MODULE:APP")
@click.option("--days", type=click.FloatRange(0, 3_660, min_open=True), default=7, show_default=True)
@click.option("--start", default="2026-01-01T00:00+00:00", show_default=True, metavar="TIME", help="Or: now.")
@click.option("--failure-rate", type=click.FloatRange(0, 1), default=0.0, show_default=True, help="Share of items.")
@click.option("--outage", "outages", multiple=True, metavar="AT/LONG", help="Every call fails: 2026-01-03T10:00/6h.")
@click.option("--burst", "bursts", multiple=True, metavar="AT/LONG@RATE", help="Another failure rate for a while.")
@click.option("--down", "downtimes", multiple=True, metavar="AT/LONG", help="No worker runs.")
@click.option("--slow", type=float, default=0.0, metavar="SECONDS", help="How long each call takes.")
@click.option("--crash-rate", type=click.FloatRange(0, 1), default=0.0, show_default=True, help="Share of calls.")
@click.option("--seed", type=int, default=0, show_default=True, help="The same seed gives the same days.")
@options.span_option(
    "--late-after", help="How long after its time an item counts as late; default: as the app has it, or 1 minute."
)
@options.as_json
def simulate(
    what: str, days: float, start: str, outages: tuple[str, ...], bursts: tuple[str, ...],
    downtimes: tuple[str, ...], failure_rate: float, slow: float, crash_rate: float, seed: int,
    late_after: float | None, as_json: bool,
    **parameters: int | None,
) -> None:  # fmt: skip
    """Run the real engine over days in seconds, and account for everything that was planned.

    NAME is an installed app that can be simulated; the options at the end are its parameters. Handlers are not called
    and nothing outside is touched: a model decides how each call ends.
    """
    from duly.virtual.simulation import Conditions, interval

    model = Conditions(
        outages=tuple(interval("outage", text) for text in outages),
        bursts=tuple(interval("burst", text) for text in bursts),
        downtimes=tuple(interval("down", text) for text in downtimes),
        failure_rate=failure_rate,
        slow=slow,
        crash_rate=crash_rate,
        seed=seed,
    )
    if days != days:  # not a number
        raise InputError("days", "must be a number of days")
    begin = options.moment(None if start == "now" else start, "start") or datetime.now(UTC).replace(microsecond=0)
    end = begin + timedelta(days=days)
    known = simulations().get(what)
    if late_after is None:
        late_after = known.late_after if known is not None else 60.0
    with _quiet(), _world(what, model, begin, end, parameters) as world:
        _run(world, begin, end, shows=not as_json)
        story = world.story(begin, end, late_after)
    if as_json:
        words.print_json(story)
    else:
        _print_story(what, story, begin, end)


@contextmanager
def _quiet() -> Iterator[None]:
    """Log nothing about simulated failures."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


@contextmanager
def _world(
    what: str, model: Conditions, begin: datetime, end: datetime, parameters: Mapping[str, int | None]
) -> Iterator[Simulation]:
    from duly.virtual.simulation import Simulation
    from duly.virtual.world import stage

    simulation = simulations().get(what)
    app = _loaded(what) if simulation is None else Duly()
    made = None if simulation is None else plugins()[what].on(app)
    # Rows are made a minute before the beginning, so that the first hour is a whole one.
    with stage(app, begin - timedelta(minutes=1)) as (clock, runner):
        world = Simulation(app, clock, runner, model, until=end)
        if simulation is not None:
            given = {name: value for name, value in parameters.items() if value is not None}
            values = {each.name: given.get(each.name, each.default) for each in simulation.parameters}
            simulation.fill(made, world, **values)
        yield world


def _loaded(what: str) -> Duly:
    try:
        return load_app(what)
    except BrokenApp:
        raise
    except ConfigError as error:
        known = ", ".join(sorted(simulations()))
        raise ConfigError(f"{error}; installed apps that can be simulated: {known}") from None


def _run(world: Simulation, begin: datetime, end: datetime, shows: bool) -> None:
    """Run the simulation hour by hour, with a progress bar on a terminal."""
    is_shown = shows and sys.stderr.isatty()
    days = max((end - begin).days, 1)
    with click.progressbar(length=days, label="days", file=sys.stderr, hidden=not is_shown) as bar:
        for day in range(1, days + 1):
            world.run_until(min(begin + timedelta(days=day), end) - timedelta(microseconds=1))
            bar.update(1)
    world.run_until(end - timedelta(microseconds=1))


def _print_story(what: str, story: SimulationResult, begin: datetime, end: datetime) -> None:
    console = words.console()
    click.echo(f"{what}, {begin:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} UTC")
    click.echo("\nload by hour of the day, each day's dispatches: average, least and most")
    _bars([(f"{hour.at:%H}:00", hour.dispatched) for hour in story.hours])
    if story.windows:
        cap = story.windows[0].cap
        click.echo(f"\nretries by window: average, least and most of at most {cap}")
        _bars([(f"{window.at:%H:%M}", window.dispatched) for window in story.windows])
    click.echo()
    console.print(words.table("", "", rows=[[name, text] for name, text in _account(story)]))
    for each in story.interruptions:
        click.echo(in_words(each))


def _account(story: SimulationResult) -> list[tuple[str, str]]:
    """Where everything that was planned ended, and how it went."""
    late = story.lateness
    replaced = f", of which {story.replaced:,} failed until the next one was due" if story.replaced else ""
    return [
        ("planned", f"{story.planned:,}"),
        ("  done in time", f"{story.done:,}"),
        ("  done late", f"{story.late:,}, more than {words.span(story.late_after_s)} after their time"),
        ("  in review", f"{story.in_review:,}"),
        ("  deactivated", f"{story.deactivated:,}"),
        ("  skipped", f"{story.skipped:,}{replaced}"),
        ("  still failing", f"{story.still_failing:,}"),
        ("  still waiting", f"{story.waiting:,}"),
        ("recovered after failures", f"{story.recovered:,}"),
        ("tries", f"{story.attempts:,}"),
        ("calls", f"{story.calls.total:,}, at most {story.calls.max_per_minute} in any minute"),
        ("crashes of workers", f"{story.crashes:,}"),
        ("lateness of what was done", f"half within {words.span(late.p50_s)}, 99 % within {words.span(late.p99_s)}, "
                                      f"at most {words.span(late.max_s)}"),
    ]  # fmt: skip


def _bars(pairs: list[tuple[str, int]]) -> None:
    """A bar for each label, with the average and the range."""
    groups: dict[str, list[int]] = {}
    for label, count in pairs:
        groups.setdefault(label, []).append(count)
    most = max((max(counts) for counts in groups.values()), default=0) or 1
    for label in sorted(groups):
        counts = groups[label]
        average = sum(counts) / len(counts)
        bar = "█" * round(40 * average / most)
        click.echo(f"  {label}  {bar:40}  {average:8.1f}  {min(counts)}-{max(counts)}")
