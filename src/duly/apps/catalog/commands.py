"""`duly products`: publish and withdraw products, on a database or through a service; `duly plan`: required calls."""

from __future__ import annotations

import csv
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click
from msgspec.structs import asdict

from duly.apps.catalog import CatalogSettings, Product, capacity, catalog_on
from duly.apps.catalog.day import Day
from duly.apps.catalog.imports import imported
from duly.apps.catalog.products import STANDINGS, Reactivated
from duly.cli import options, words
from duly.cli.session import Session, acting, printing
from duly.config import section
from duly.core.errors import DulyError, InputError
from duly.core.wire import read, written
from duly.tasks.checks import checked_rows

if TYPE_CHECKING:
    from duly.client import Client

PORTION = 1_000  # products in one request


@click.command(short_help="What a catalog of a given size costs in calls and minutes.")
@click.option("--products", type=click.IntRange(0, 10_000_000), help="How many; default: those that exist, or 5,000.")
@click.option("--batch", type=click.IntRange(1), help="SKUs per call.")
@click.option("--rate", type=click.FloatRange(0, min_open=True), help="Calls a minute.")
@click.option("--slots", type=click.IntRange(1), help="Slots a day.")
@click.option("--windows", type=click.IntRange(0), help="Retry windows a day.")
@click.option("--cap", type=click.IntRange(0), help="Products per retry window.")
@printing
def plan(session: Session, **chosen: Any) -> None:
    """Hourly load, minutes per slot, API budget and utilisation; and what breaks first as the catalog grows.

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
    session.print_one(made, lambda: _print_plan(made))


def _live(session: Session) -> int:
    """How many active products there are; 0 where there is no catalog, or no database that could have one."""
    try:
        return sum(slot.planned for slot in _day(session).slots)
    except DulyError:
        return 0


def _day(session: Session) -> Day:
    return session.either(lambda app: catalog_on(app).day(), lambda client: client.http.get(Day, "/api/catalog/day"))


def _print_plan(made: capacity.Plan) -> None:
    for name in made.__struct_fields__:
        value = getattr(made, name)
        if isinstance(value, float):
            value = f"{value:,.1f}"
        lines = [str(each) for each in value] if isinstance(value, tuple) else [] if value is None else [str(value)]
        for place, line in enumerate(lines or ["nothing does"]):
            click.echo(f"{'' if place else name.replace('_', ' '):28} {line}")


sku = click.argument("sku")
of_user = click.option("--user", metavar="NAME", help="The user of the product.")
now = click.option("--now", "is_now", is_flag=True, help="Sync at once too, not only from the next slot on.")


def _path(sku: str) -> str:
    return f"/api/products/{quote(sku, safe='')}"


def _named(user: str | None) -> str:
    """The user of a product. A service knows its own user; on a database a user has to be named."""
    if user is None:
        raise InputError("user", "name the user of the product: --user NAME")
    return user


@options.listing(short_help="Products of the catalog: list, publish, withdraw.")
@of_user
@click.option("--status", "sync_status", type=click.Choice([*STANDINGS]), help="Result of the last sync.")
@click.option("--slot", "hour_bucket", type=click.IntRange(0), metavar="N", help="The hour that they are synced at.")
@click.option("--active/--inactive", "is_active", default=None, help="Only active, or only deactivated products.")
@click.option("--search", "text", metavar="TEXT", help="A part of a SKU, or of its user's name.")
@options.most()
@printing
def products(session: Session, user: str | None, most: int, **filters: Any) -> None:
    """List products with the result of their last sync."""

    def remote(client: Client) -> list[Product]:
        active = None if filters["is_active"] is None else str(filters["is_active"]).lower()
        query = {"status": filters["sync_status"], "slot": filters["hour_bucket"], "q": filters["text"]}
        found = client.http.pages(Product, "/api/products", None if user else most, **query, active=active)
        return list(islice((each for each in found if user in (None, each.user_id)), most))

    found = session.either(lambda app: list(catalog_on(app).products(user_id=user, most=most, **filters)), remote)
    session.print_lines(found, "there are no products", _line)


def _line(each: Product) -> str:
    state = each.sync_status if each.is_active else "deactivated"
    return f"{each.user_id} {each.sku}: slot {each.hour_bucket}, {state}, {each.consecutive_failures} failures in a row"


@products.command(name="publish")
@sku
@of_user
@acting
def publish_product(session: Session, sku: str, user: str | None) -> None:
    """Sync a product every day; publishing twice is publishing once."""
    made = session.either(
        lambda app: catalog_on(app).publish(_named(user), sku, actor=options.who().user_id),
        lambda client: client.http.post(Product, "/api/products", sku=sku, user_id=user),
    )
    click.echo(_line(made))


@products.command(name="withdraw")
@sku
@of_user
@acting
def withdraw_product(session: Session, sku: str, user: str | None) -> None:
    """Stop syncing a product. Its waiting items are cancelled."""
    session.either(
        lambda app: catalog_on(app).withdraw(_named(user), sku, actor=options.who().user_id),
        lambda client: client.http.request("DELETE", _path(sku), query={"userId": user}),
    )
    click.echo(f"{sku} is withdrawn")


@products.command(name="reactivate")
@sku
@of_user
@now
@acting
def reactivate_product(session: Session, sku: str, user: str | None, is_now: bool) -> None:
    """Reactivate a product that was deactivated after failures in a row."""

    def remote(client: Client) -> Product:
        path, query = f"{_path(sku)}/reactivate", {"userId": user}
        return read(Product, client.http.request("POST", path, {"syncNow": is_now}, query=query))

    session.either(
        lambda app: catalog_on(app).reactivate(_named(user), sku, actor=options.who().user_id, sync_now=is_now), remote
    )
    click.echo(f"{sku} is reactivated")


@products.command(name="reactivate-all")
@click.option("--cause", metavar="CLASS", help="Only what this class of errors deactivated; see `duly products day`.")
@now
@acting
def reactivate_products(session: Session, cause: str | None, is_now: bool) -> None:
    """Reactivate all deactivated products, or those with one cause."""
    portion = session.either(
        lambda app: partial(catalog_on(app).reactivate_all, cause, sync_now=is_now, who=options.who()),
        lambda client: partial(
            client.http.post, Reactivated, "/api/products/reactivate", cause=cause, sync_now=is_now
        ),
    )  # fmt: skip
    count, is_more = 0, True
    while is_more:
        done = portion()
        count, is_more = count + done.products, done.is_more
    click.echo(f"{count} products are reactivated")


@products.command(name="import")
@click.argument("path", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE")
@acting
def import_products(session: Session, path: Path) -> None:
    """Take products over from another system: a CSV file with the columns user_id and sku, and what else is known.

    That is hour_bucket, last_successful_sync, last_price, last_quantity, in_stock, last_boeing_hash and
    consecutive_failures. Products that are known stay as they are.
    """
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = [{name: value for name, value in row.items() if value} for row in csv.DictReader(file)]

    def remote(client: Client) -> int:
        read = [written(asdict(row)) for row in checked_rows("rows", rows, imported)]
        portions = [read[first : first + PORTION] for first in range(0, len(read), PORTION)]
        answers = [client.http.request("POST", "/api/products/import", {"products": each}) for each in portions]
        return sum(int(each["products"]) for each in answers)

    made = session.either(lambda app: catalog_on(app).import_many(rows, who=options.who()), remote)
    click.echo(f"{made} products are new")


@products.command(name="day")
@printing
def show_day(session: Session) -> None:
    """Show the state of this day, in UTC: slots, retry windows, calls, and what deactivated products."""
    day = _day(session)
    session.print_one(day, lambda: _print_day(day))


def _print_day(day: Day) -> None:
    click.echo(f"{day.day} {day.zone}")
    titles = ("slot", ">planned", ">done", ">failed", ">running", ">waiting")
    rows = [[each.hour, each.planned, each.done, each.failed, each.running, each.waiting] for each in day.slots]
    words.console().print(words.table(*titles, rows=rows))
    for window in day.windows:
        click.echo(f"retry window {window.at:%H:%M}: {window.used} of {window.cap} used, {window.waiting} wait")
    budget, statuses = day.budget, day.statuses
    click.echo(f"calls: {budget.used_today:,} of {budget.most_per_day:,} today, {budget.per_minute:g} a minute")
    counts = ", ".join(f"{getattr(statuses, name)} {name}" for name in statuses.__struct_fields__)
    click.echo(f"products: {counts}")
    for cause in day.causes:
        click.echo(f"deactivated by {cause.cause or 'what is no longer known'}: {cause.products}")


COMMANDS = (plan, products)
