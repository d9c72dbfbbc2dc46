"""`duly plan`: what a catalog costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from duly.cli import options

if TYPE_CHECKING:
    from duly.apps.catalog.capacity import Plan


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
    from duly.apps.catalog.capacity import plan as planned
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
