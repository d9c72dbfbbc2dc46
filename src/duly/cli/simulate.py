"""`duly plan` and `duly simulate`: what a catalog costs, and what the next days bring."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from duly.cli import options
from duly.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from duly.apps.capacity import Plan
    from duly.sim import Model, Simulation, Story


@click.command(short_help="What a catalog of so many products costs in calls and minutes.")
@click.option("--products", type=click.IntRange(0, 10_000_000), default=5_000, show_default=True)
@click.option("--batch", type=click.IntRange(1), default=10, show_default=True, help="SKUs per call.")
@click.option("--rate", type=click.FloatRange(0, min_open=True), default=2, show_default=True, help="Calls a minute.")
@click.option("--slots", type=click.IntRange(1), default=24, show_default=True, help="Slots a day.")
@click.option("--windows", type=click.IntRange(0), default=6, show_default=True, help="Retry windows a day.")
@click.option("--cap", type=click.IntRange(0), default=50, show_default=True, help="Products per retry window.")
@options.as_json
def plan(as_json: bool, **given: Any) -> None:
    """Hourly load, minutes per slot, API budget and utilisation; and what breaks first as the catalog grows."""
    from duly.apps.capacity import plan as planned
    from duly.cli import words

    made = planned(**given)
    if as_json:
        words.print_json(made)
    else:
        _print_plan(made)


def _print_plan(made: Plan) -> None:
    from duly.cli import words

    for name in made.__struct_fields__:
        value = getattr(made, name)
        if isinstance(value, float):
            value = f"{value:,.1f}"
        click.echo(f"{name.replace('_', ' '):28} {words.cut(str(value), 90)}")


@click.command(short_help="The next days in virtual time, with failures, outages and crashes.")
@click.argument("what", metavar="catalog|birthdays|MODULE:APP")
@click.option("--days", type=click.FloatRange(0, 3_660, min_open=True), default=7, show_default=True)
@click.option("--start", default="2026-01-01T00:00+00:00", show_default=True, metavar="TIME", help="Or: now.")
@click.option("--products", type=click.IntRange(0, 1_000_000), default=5_000, show_default=True, help="For catalog.")
@click.option("--people", type=click.IntRange(0, 1_000_000), default=10_000, show_default=True, help="For birthdays.")
@click.option("--failure-rate", type=click.FloatRange(0, 1), default=0.0, show_default=True, help="Share of items.")
@click.option("--outage", "outages", multiple=True, metavar="AT/LONG", help="Every call fails: 2026-01-03T10:00/6h.")
@click.option("--burst", "bursts", multiple=True, metavar="AT/LONG@RATE", help="Another failure rate for a while.")
@click.option("--down", "downtimes", multiple=True, metavar="AT/LONG", help="No worker runs.")
@click.option("--slow", type=float, default=0.0, metavar="SECONDS", help="How long each call takes.")
@click.option("--crash-rate", type=click.FloatRange(0, 1), default=0.0, show_default=True, help="Share of calls.")
@click.option("--seed", type=int, default=0, show_default=True, help="The same seed gives the same days.")
@options.as_json
def simulate(
    what: str, days: float, start: str, products: int, people: int, outages: tuple[str, ...],
    bursts: tuple[str, ...], downtimes: tuple[str, ...], as_json: bool, **rates: Any,
) -> None:  # fmt: skip
    """Run the real engine over days in seconds: schedules, slots, windows, limits and retries as they would be.

    Handlers are not called, and nothing outside is touched: a model says how each call ends.
    """
    from duly.cli import words
    from duly.sim import Model, span

    model = Model(
        outages=tuple(span("outage", text) for text in outages),
        bursts=tuple(span("burst", text) for text in bursts),
        downtimes=tuple(span("down", text) for text in downtimes),
        **rates,
    )
    if days != days:  # not a number
        raise InputError("days", "must be a number of days")
    begin = _begin(start)
    end = begin + timedelta(days=days)
    with _quiet(), _world(what, model, begin, products, people) as world:
        _run(world, begin, end, shows=not as_json)
        story = world.story(begin, end)
    if as_json:
        words.print_json(story)
    else:
        _print_story(what, story, begin, end)


def _begin(start: str) -> datetime:
    from duly.task import when

    if start == "now":
        return datetime.now(UTC).replace(microsecond=0)
    try:
        return when(start, None, lambda: datetime.now(UTC))
    except InputError as error:
        raise InputError("start", error.problem) from None


@contextmanager
def _quiet() -> Iterator[None]:
    """A simulated failure is no news."""
    import logging

    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


@contextmanager
def _world(what: str, model: Model, begin: datetime, products: int, people: int) -> Iterator[Simulation]:
    from duly import Duly
    from duly.app import load_app
    from duly.sim import Simulation
    from duly.testing import stage

    fill: Callable[[Simulation], None] = lambda _: None  # noqa: E731
    if what == "catalog":
        from duly.apps.catalog import catalog_on, simulated

        app = Duly()
        catalog = catalog_on(app)
        fill = lambda world: simulated(catalog, world, products)  # noqa: E731
    elif what == "birthdays":
        from duly.apps.birthdays import birthdays_on
        from duly.apps.birthdays import simulated as simulated_birthdays

        app = Duly()
        birthdays = birthdays_on(app)
        fill = lambda world: simulated_birthdays(birthdays, world, people)  # noqa: E731
    else:
        app = load_app(what)
    # What joins does so a minute before, so that the first hour is a whole one.
    with stage(app, begin - timedelta(minutes=1)) as (clock, runner):
        world = Simulation(app, clock, runner, model)
        fill(world)
        yield world


def _run(world: Simulation, begin: datetime, end: datetime, shows: bool) -> None:
    """Hour by hour, with a bar on a terminal."""
    import sys

    is_shown = shows and sys.stderr.isatty()
    days = max((end - begin).days, 1)
    with click.progressbar(length=days, label="days", file=sys.stderr, hidden=not is_shown) as bar:
        for day in range(1, days + 1):
            world.run_until(min(begin + timedelta(days=day), end) - timedelta(microseconds=1))
            bar.update(1)
    world.run_until(end - timedelta(microseconds=1))


def _print_story(what: str, story: Story, begin: datetime, end: datetime) -> None:
    from duly.cli import words

    console = words.console()
    click.echo(f"{what}, {begin:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} UTC")
    click.echo("\nload by hour of the day, each day's dispatches: average, least and most")
    _bars([(f"{hour.at:%H}:00", hour.dispatched) for hour in story.hours])
    if story.windows:
        cap = story.windows[0].cap
        click.echo(f"\nretries by window: average, least and most of at most {cap}")
        _bars([(f"{window.at:%H:%M}", window.dispatched) for window in story.windows])
    rows = [
        ["calls", f"{story.calls.total:,}, at most {story.calls.max_per_minute} in any minute"],
        ["tries", f"{story.attempts:,} for {story.done:,} done"],
        ["recovered after failures", f"{story.recovered:,}"],
        ["in review", f"{story.failed:,}"],
        ["deactivated", f"{story.deactivated:,}"],
        ["crashes of workers", f"{story.crashes:,}"],
        ["skipped occurrences", f"{story.skipped:,}"],
        ["lateness", f"half within {words.span(story.late.p50_s)}, 99 % within {words.span(story.late.p99_s)}, "
                     f"at most {words.span(story.late.max_s)}"],
    ]  # fmt: skip
    click.echo()
    console.print(words.table("", "", rows=rows))


def _bars(pairs: list[tuple[str, int]]) -> None:
    """One bar per label: the average, and in what range it moved."""
    groups: dict[str, list[int]] = {}
    for label, count in pairs:
        groups.setdefault(label, []).append(count)
    most = max((max(counts) for counts in groups.values()), default=0) or 1
    for label in sorted(groups):
        counts = groups[label]
        average = sum(counts) / len(counts)
        bar = "█" * round(40 * average / most)
        click.echo(f"  {label}  {bar:40}  {average:8.1f}  {min(counts)}-{max(counts)}")
