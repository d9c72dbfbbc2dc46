"""`duly plan`: whether a catalog fits, what fails first as it grows, and what to change then."""

from __future__ import annotations

from textwrap import wrap
from typing import Any

import click

from duly.apps.catalog import CatalogSettings, capacity, catalog_on
from duly.apps.catalog.day import Day
from duly.cli import words
from duly.cli.session import Session, printing
from duly.config import section
from duly.core.errors import DulyError


@click.command(short_help="Whether a catalog of a given size fits, and what it costs in calls and minutes.")
@click.option("--products", type=click.IntRange(0, 10_000_000), help="How many; default: those that exist, or 5,000.")
@click.option("--batch", type=click.IntRange(1), help="SKUs per call.")
@click.option("--rate", type=click.FloatRange(0, min_open=True), help="Calls a minute.")
@click.option("--slots", type=click.IntRange(1), help="Slots a day.")
@click.option("--windows", type=click.IntRange(0), help="Retry windows a day.")
@click.option("--cap", type=click.IntRange(0), help="Products per retry window.")
@click.option(
    "--failure-rate", type=click.FloatRange(0, 1, max_open=True), metavar="SHARE",
    help="The share of all calls for a product that fail; default: 0.05.",
)  # fmt: skip
@click.option("--growth", "is_growth", is_flag=True, help="Show catalogs of other sizes, and what to change for each.")
@printing
def plan(session: Session, is_growth: bool, **chosen: Any) -> None:
    """Show whether a catalog fits, what fails first as it grows, and the calls and minutes that it needs.

    Options that are not given are as in the settings (DULY_CATALOG_…).
    """
    known = section(CatalogSettings)
    given = {
        "batch": known.batch_size, "rate": known.calls_per_minute, "slots": known.hour_buckets,
        "windows": known.windows_per_day, "cap": known.retry_limit,
        **{name: value for name, value in chosen.items() if value is not None},
    }  # fmt: skip
    if "products" not in given:
        given["products"] = _live(session) or 5_000
    made = capacity.plan(**given)
    session.print_one(made, lambda: _print_growth(made) if is_growth else _print_plan(made, given))


def _live(session: Session) -> int:
    """How many active products there are; 0 where there is no catalog, or no database that could have one."""
    try:
        return sum(slot.planned for slot in day_of_catalog(session).slots)
    except DulyError:
        return 0


def day_of_catalog(session: Session) -> Day:
    return session.either(lambda app: catalog_on(app).day(), lambda client: client.http.get(Day, "/api/catalog/day"))


def _print_plan(made: capacity.Plan, given: dict[str, Any]) -> None:
    _print_verdict(made)
    hour = "The fullest hour" if given["slots"] == 24 else "The fullest time from slot to slot"
    share = given.get("failure_rate", 0.05)
    least, most = f"{made.slot_least:,}", f"{made.slot_most:,}"
    rows = [
        ["Products in a slot", least if least == most else f"{least} to {most}"],
        ["A slot", f"{made.slot_calls:,} calls, {made.slot_minutes:,.1f} minutes"],
        ["A full retry window", f"{given['cap']:,} products, {made.window_calls:,} calls, "
               f"{made.window_minutes:,.1f} minutes"],
        [hour, f"{made.worst_hour_calls:,} of {made.hour_limit:,} calls ({made.hour_used_percent:.1f} %), "
               f"{made.worst_hour_minutes:,.1f} minutes"],
        ["Scheduled calls a day", f"{made.scheduled_calls:,}"],
        ["Retry calls a day", f"{made.retry_calls:,} at most"],
        ["The day", f"{made.day_calls:,} of {made.day_limit:,} calls ({made.day_used_percent:.1f} %)"],
        ["Retries needed a day", f"{made.retries_wanted:,.0f} if {share:.1%} of all calls for a product fail"],
        ["Retries possible a day", f"{made.retries_possible:,}"],
    ]  # fmt: skip
    click.echo()
    words.console().print(words.table("", "", rows=rows))
    click.echo("\nProblems as the catalog grows:")
    for each in made.breaks:
        click.echo(f"  {each}")
    if not made.breaks:
        click.echo("  none")


def _print_verdict(made: capacity.Plan) -> None:
    if made.fits:
        click.echo(f"{made.products:,} products fit.")
    else:
        click.echo(f"{made.products:,} products do not fit:")
        for each in made.breaks:
            if each.products <= made.products:
                click.echo(f"  {each.what}")
    first = made.breaks_first
    click.echo(f"First problem: {first}." if first else "There is no problem at any size.")


def _print_growth(made: capacity.Plan) -> None:
    _print_verdict(made)
    click.echo()
    click.echo(f"{'products':>10} {'per slot':>8} {'of calls':>8}  {'fits':4}  recommended changes")
    for each in made.growth:
        fits = "yes" if each.fits else "no"
        numbers = f"{each.products:>10,} {each.per_hour:>8,} {each.day_used_percent:>6.0f} %  {fits:4}  "
        for line in wrap("; ".join(each.changes) or "none", 80 - len(numbers)):
            click.echo(f"{numbers}{line}")
            numbers = " " * len(numbers)
    click.echo(
        f"\n{made.day_limit:,} calls a day carry {made.most_products:,} products if each call is used, and "
        f"{made.usable_products:,} with room for retries and errors."
    )
