"""`duly products`: publish and withdraw them, on a database or through a service; `duly plan`: what a catalog costs."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from duly.apps.catalog import Product, catalog_on
from duly.apps.catalog.day import Day
from duly.apps.catalog.products import STANDINGS, Reactivated
from duly.cli import options, words
from duly.cli.sides import camel, chosen, read_as, snake
from duly.core.errors import DulyError, InputError

if TYPE_CHECKING:
    from duly import Duly
    from duly.apps.catalog.capacity import Plan
    from duly.client import Client


@click.command(short_help="What a catalog of so many products costs in calls and minutes.")
@click.option("--products", type=click.IntRange(0, 10_000_000), help="How many; else those that there are, or 5,000.")
@click.option("--batch", type=click.IntRange(1), help="SKUs per call.")
@click.option("--rate", type=click.FloatRange(0, min_open=True), help="Calls a minute.")
@click.option("--slots", type=click.IntRange(1), help="Slots a day.")
@click.option("--windows", type=click.IntRange(0), help="Retry windows a day.")
@click.option("--cap", type=click.IntRange(0), help="Products per retry window.")
@options.side
@options.as_json
def plan(as_json: bool, **said: Any) -> None:
    """Hourly load, minutes per slot, API budget and utilisation; and what breaks first as the catalog grows.

    What is not said is as the settings have it (DULY_CATALOG_…).
    """
    from duly.apps.catalog.capacity import CatalogTuning
    from duly.apps.catalog.capacity import plan as planned
    from duly.apps.catalog.settings import CatalogSettings
    from duly.config import section

    known = CatalogTuning.of(section(CatalogSettings))
    given = {
        "batch": known.batch_size, "rate": known.calls_per_minute, "slots": known.hour_buckets,
        "windows": known.windows_per_day, "cap": known.retry_limit,
        **{name: value for name, value in said.items() if value is not None},
    }  # fmt: skip
    if "products" not in given:
        given["products"] = _live() or 5_000
    made = planned(**given)
    if as_json:
        words.print_json(made)
    else:
        _print_plan(made)


def _live() -> int:
    """How many active products there are; 0 where there is no catalog, or no database that could have one."""
    try:
        with _side() as place:
            day: Day = place.day()
    except DulyError:
        return 0
    return sum(slot.planned for slot in day.slots)


def _print_plan(made: Plan) -> None:
    for name in made.__struct_fields__:
        value = getattr(made, name)
        if isinstance(value, float):
            value = f"{value:,.1f}"
        lines = [str(each) for each in value] if isinstance(value, tuple) else [] if value is None else [str(value)]
        for place, line in enumerate(lines or ["nothing does"]):
            click.echo(f"{'' if place else name.replace('_', ' '):28} {line}")


class _Here:
    """On the database that the settings name. A product is somebody's, so they have to be named."""

    def __init__(self, app: Duly) -> None:
        self._catalog = catalog_on(app)

    def page(self, user: str | None, most: int, filters: dict[str, Any]) -> Iterable[Product]:
        return self._catalog.products(user_id=user, most=most, **filters)

    def publish(self, user: str | None, sku: str) -> Product:
        return self._catalog.publish(_named(user), sku, actor=options.who().user_id)

    def withdraw(self, user: str | None, sku: str) -> None:
        self._catalog.withdraw(_named(user), sku, actor=options.who().user_id)

    def reactivate(self, user: str | None, sku: str, is_now: bool) -> Product:
        return self._catalog.reactivate(_named(user), sku, actor=options.who().user_id, sync_now=is_now)

    def reactivate_all(self, cause: str | None, is_now: bool) -> Reactivated:
        return self._catalog.reactivate_all(cause, sync_now=is_now, who=options.who())

    def import_many(self, rows: list[dict[str, Any]]) -> int:
        return self._catalog.import_many(rows, who=options.who())

    def day(self) -> Day:
        return self._catalog.day()


class _There:
    """Through a service. Whoever is not named is the one whose key it is."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def page(self, user: str | None, most: int, filters: dict[str, Any]) -> Iterable[Product]:
        named = {QUERY[name]: value for name, value in filters.items() if value is not None}
        said = {name: str(value).lower() if isinstance(value, bool) else value for name, value in named.items()}
        rows = self._client.pages("/api/products", {"page_size": min(most, 500), **said})
        found = (read_as(Product, each) for each in rows)
        return islice((each for each in found if user in (None, each.user_id)), most)

    def publish(self, user: str | None, sku: str) -> Product:
        return read_as(Product, self._client.request("POST", "/api/products", {"sku": sku, "userId": user}))

    def withdraw(self, user: str | None, sku: str) -> None:
        self._client.request("DELETE", f"/api/products/{quote(sku, safe='')}", query={"userId": user})

    def reactivate(self, user: str | None, sku: str, is_now: bool) -> Product:
        path = f"/api/products/{quote(sku, safe='')}/reactivate"
        return read_as(Product, self._client.request("POST", path, {"syncNow": is_now}, query={"userId": user}))

    def reactivate_all(self, cause: str | None, is_now: bool) -> Reactivated:
        said = {"syncNow": is_now, **({} if cause is None else {"cause": cause})}
        return read_as(Reactivated, self._client.request("POST", "/api/products/reactivate", said))

    def import_many(self, rows: list[dict[str, Any]]) -> int:
        made = 0
        for first in range(0, len(rows), 1_000):
            said = [camel(row) for row in rows[first : first + 1_000]]
            made += int(self._client.request("POST", "/api/products/import", {"products": said})["products"])
        return made

    def day(self) -> Day:
        told = self._client.request("GET", "/api/catalog/day")
        return read_as(Day, {**told, "budget": snake(told["budget"])})


def _named(user: str | None) -> str:
    if user is None:
        raise InputError("user", "say whose product it is: --user NAME")
    return user


# What filters are called over HTTP.
QUERY = {"sync_status": "status", "hour_bucket": "slot", "is_active": "active", "text": "q"}


def _side() -> Any:
    return chosen(_Here, _There)


whose = click.option("--user", metavar="NAME", help="Whose product.")


@options.listing(short_help="Products of the catalog: list, publish, withdraw.")
@whose
@click.option("--status", "sync_status", type=click.Choice([*STANDINGS]), help="How their last sync went.")
@click.option("--slot", "hour_bucket", type=click.IntRange(0), metavar="N", help="The hour that they are synced at.")
@click.option("--active/--inactive", "is_active", default=None, help="Those that are synced, or those that are not.")
@click.option("--search", "text", metavar="TEXT", help="A part of a SKU, or of its user's name.")
@options.most()
@options.side
@options.as_json
def products(user: str | None, most: int, as_json: bool, **filters: Any) -> None:
    """List products with how their syncs went."""
    with _side() as place:
        found: list[Product] = list(place.page(user, most, filters))
    words.print_lines(found, as_json, "there are no products", _line)


def _line(each: Product) -> str:
    state = each.sync_status if each.is_active else "deactivated"
    return f"{each.user_id} {each.sku}: slot {each.hour_bucket}, {state}, {each.consecutive_failures} failures in a row"


def _act(name: str, doc: str, tell: Callable[[str, Product], str]) -> None:
    """A command for one act on a product."""

    @products.command(name=name, help=doc)
    @click.argument("sku")
    @whose
    @options.side
    def act(sku: str, user: str | None) -> None:
        with _side() as place:
            made = getattr(place, name)(user, sku)
        click.echo(tell(sku, made))


_act("publish", "Sync a product every day; publishing twice is publishing once.", lambda _, made: _line(made))
_act("withdraw", "Sync it no more; what waits of it is cancelled.", lambda sku, _: f"{sku} is withdrawn")

now = click.option("--now", "is_now", is_flag=True, help="Sync at once too, not only from the next slot on.")


@products.command(name="reactivate")
@click.argument("sku")
@whose
@now
@options.side
def reactivate_product(sku: str, user: str | None, is_now: bool) -> None:
    """Try a product again that was deactivated after failures in a row."""
    with _side() as place:
        place.reactivate(user, sku, is_now)
    click.echo(f"{sku} is reactivated")


@products.command(name="reactivate-all")
@click.option("--cause", metavar="CLASS", help="Only what this class of errors deactivated; see `duly products day`.")
@now
@options.side
def reactivate_products(cause: str | None, is_now: bool) -> None:
    """Try all products again that were deactivated, or those that one cause did."""
    count, is_more = 0, True
    with _side() as place:
        while is_more:
            done: Reactivated = place.reactivate_all(cause, is_now)
            count, is_more = count + done.products, done.is_more
    click.echo(f"{count} products are reactivated")


@products.command(name="import")
@click.argument("path", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE")
@options.side
def import_products(path: Path) -> None:
    """Take products over from another system: a CSV file with the columns user_id and sku, and what else is known.

    That is hour_bucket, last_successful_sync, last_price, last_quantity, in_stock, last_boeing_hash and
    consecutive_failures. Products that are known stay as they are.
    """
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = [{name: value for name, value in row.items() if value} for row in csv.DictReader(file)]
    with _side() as place:
        made = place.import_many(rows)
    click.echo(f"{made} products are new")


@products.command(name="day")
@options.side
@options.as_json
def show_day(as_json: bool) -> None:
    """Where this day stands, in UTC: slots, retry windows, calls, and what deactivated products."""
    with _side() as place:
        day: Day = place.day()
    if as_json:
        words.print_json(day)
        return
    click.echo(f"{day.day} {day.zone}")
    columns: list[Any] = ["slot", *((name, "right") for name in ("planned", "done", "failed", "running", "waiting"))]
    rows = [[each.hour, *map(str, (each.planned, each.done, each.failed, each.running, each.waiting))]
            for each in day.slots]  # fmt: skip
    words.console().print(words.table(*columns, rows=rows))
    for window in day.windows:
        click.echo(f"retry window {window.at:%H:%M}: {window.used} of {window.cap} used, {window.waiting} wait")
    budget, statuses = day.budget, day.statuses
    click.echo(f"calls: {budget.used_today:,} of {budget.most_per_day:,} today, {budget.per_minute:g} a minute")
    counts = ", ".join(f"{getattr(statuses, name)} {name}" for name in statuses.__struct_fields__)
    click.echo(f"products: {counts}")
    for cause in day.causes:
        click.echo(f"deactivated by {cause.cause or 'what is no longer known'}: {cause.products}")


COMMANDS = (plan, products)
