"""`duly products`: publish and withdraw them, on a database or through a service; `duly plan`: what a catalog costs."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from duly.apps.catalog import Product, catalog_on
from duly.apps.catalog.day import Day
from duly.apps.catalog.products import STANDINGS, Reactivated, SyncStatus
from duly.cli import options, words
from duly.cli.sides import chosen
from duly.core.errors import DulyError, InputError
from duly.core.wire import read, written

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
    from duly.apps.catalog.capacity import plan as planned
    from duly.apps.catalog.settings import CatalogSettings
    from duly.config import section

    known = section(CatalogSettings)
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
        with _side() as api:
            day = api.day()
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


class LocalProducts:
    """Products on a database, where the user of a product has to be named."""

    def __init__(self, app: Duly) -> None:
        self._catalog = catalog_on(app)
        self._who = options.who()

    def page(
        self,
        most: int,
        *,
        user: str | None = None,
        sync_status: SyncStatus | None = None,
        hour_bucket: int | None = None,
        is_active: bool | None = None,
        text: str | None = None,
    ) -> Iterator[Product]:
        found = self._catalog.products(
            user_id=user, most=most, sync_status=sync_status, hour_bucket=hour_bucket, is_active=is_active, text=text
        )
        return iter(found)

    def publish(self, user: str | None, sku: str) -> Product:
        return self._catalog.publish(_named(user), sku, actor=self._who.user_id)

    def withdraw(self, user: str | None, sku: str) -> None:
        self._catalog.withdraw(_named(user), sku, actor=self._who.user_id)

    def reactivate(self, user: str | None, sku: str, sync_now: bool = False) -> Product:
        return self._catalog.reactivate(_named(user), sku, actor=self._who.user_id, sync_now=sync_now)

    def reactivate_all(self, cause: str | None = None, sync_now: bool = False) -> Reactivated:
        return self._catalog.reactivate_all(cause, sync_now=sync_now, who=self._who)

    def import_many(self, rows: Sequence[Mapping[str, str]]) -> int:
        return self._catalog.import_many(rows, who=self._who)

    def day(self) -> Day:
        return self._catalog.day()


class ProductsClient:
    """Products through a service, by default those of the user whose key is used."""

    def __init__(self, client: Client) -> None:
        self._http = client.http

    def page(
        self,
        most: int,
        *,
        user: str | None = None,
        sync_status: SyncStatus | None = None,
        hour_bucket: int | None = None,
        is_active: bool | None = None,
        text: str | None = None,
    ) -> Iterator[Product]:
        active = None if is_active is None else str(is_active).lower()
        query = {"status": sync_status, "slot": hour_bucket, "active": active, "q": text}
        found = self._http.pages(Product, "/api/products", None if user else most, **query)
        return islice((each for each in found if user in (None, each.user_id)), most)

    def publish(self, user: str | None, sku: str) -> Product:
        return self._http.post(Product, "/api/products", sku=sku, user_id=user)

    def withdraw(self, user: str | None, sku: str) -> None:
        self._http.request("DELETE", _path(sku), query={"userId": user})

    def reactivate(self, user: str | None, sku: str, sync_now: bool = False) -> Product:
        path, query = f"{_path(sku)}/reactivate", {"userId": user}
        return read(Product, self._http.request("POST", path, {"syncNow": sync_now}, query=query))

    def reactivate_all(self, cause: str | None = None, sync_now: bool = False) -> Reactivated:
        return self._http.post(Reactivated, "/api/products/reactivate", cause=cause, sync_now=sync_now)

    def import_many(self, rows: Sequence[Mapping[str, str]]) -> int:
        made = 0
        for first in range(0, len(rows), 1_000):
            body = {"products": [written(row) for row in rows[first : first + 1_000]]}
            made += int(self._http.request("POST", "/api/products/import", body)["products"])
        return made

    def day(self) -> Day:
        return self._http.get(Day, "/api/catalog/day")


def _path(sku: str) -> str:
    return f"/api/products/{quote(sku, safe='')}"


def _named(user: str | None) -> str:
    if user is None:
        raise InputError("user", "name the user of the product: --user NAME")
    return user


def _side() -> AbstractContextManager[LocalProducts | ProductsClient]:
    return chosen(LocalProducts, ProductsClient)


of_user = click.option("--user", metavar="NAME", help="The user of the product.")


@options.listing(short_help="Products of the catalog: list, publish, withdraw.")
@of_user
@click.option("--status", "sync_status", type=click.Choice([*STANDINGS]), help="Result of the last sync.")
@click.option("--slot", "hour_bucket", type=click.IntRange(0), metavar="N", help="The hour that they are synced at.")
@click.option("--active/--inactive", "is_active", default=None, help="Those that are synced, or those that are not.")
@click.option("--search", "text", metavar="TEXT", help="A part of a SKU, or of its user's name.")
@options.most()
@options.side
@options.as_json
def products(user: str | None, most: int, as_json: bool, **filters: Any) -> None:
    """List products with the result of their last sync."""
    with _side() as api:
        found = list(api.page(most, user=user, **filters))
    words.print_lines(found, as_json, "there are no products", _line)


def _line(each: Product) -> str:
    state = each.sync_status if each.is_active else "deactivated"
    return f"{each.user_id} {each.sku}: slot {each.hour_bucket}, {state}, {each.consecutive_failures} failures in a row"


def _act(name: str, doc: str, line: Callable[[str, Product], str]) -> None:
    """A command for one act on a product."""

    @products.command(name=name, help=doc)
    @click.argument("sku")
    @of_user
    @options.side
    def act(sku: str, user: str | None) -> None:
        with _side() as api:
            made = getattr(api, name)(user, sku)
        click.echo(line(sku, made))


_act("publish", "Sync a product every day; publishing twice is publishing once.", lambda _, made: _line(made))
_act("withdraw", "Sync it no more; what waits of it is cancelled.", lambda sku, _: f"{sku} is withdrawn")

now = click.option("--now", "is_now", is_flag=True, help="Sync at once too, not only from the next slot on.")


@products.command(name="reactivate")
@click.argument("sku")
@of_user
@now
@options.side
def reactivate_product(sku: str, user: str | None, is_now: bool) -> None:
    """Reactivate a product that was deactivated after failures in a row."""
    with _side() as api:
        api.reactivate(user, sku, is_now)
    click.echo(f"{sku} is reactivated")


@products.command(name="reactivate-all")
@click.option("--cause", metavar="CLASS", help="Only what this class of errors deactivated; see `duly products day`.")
@now
@options.side
def reactivate_products(cause: str | None, is_now: bool) -> None:
    """Reactivate all deactivated products, or those with one cause."""
    count, is_more = 0, True
    with _side() as api:
        while is_more:
            done = api.reactivate_all(cause, is_now)
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
    with _side() as api:
        made = api.import_many(rows)
    click.echo(f"{made} products are new")


@products.command(name="day")
@options.side
@options.as_json
def show_day(as_json: bool) -> None:
    """Where this day stands, in UTC: slots, retry windows, calls, and what deactivated products."""
    with _side() as api:
        day = api.day()
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
