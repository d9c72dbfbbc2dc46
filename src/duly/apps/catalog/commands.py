"""`duly products`: publish, import and withdraw products, on a database or through a service."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click
from msgspec.structs import asdict

from duly.apps.catalog import Product, catalog_on
from duly.apps.catalog.day import Day
from duly.apps.catalog.dumps import TABLE, rows_of
from duly.apps.catalog.imports import Imported, imported_all
from duly.apps.catalog.planning import day_of_catalog, plan
from duly.apps.catalog.products import STANDINGS, Reactivated
from duly.apps.catalog.takeover import in_portions
from duly.cli import options, words
from duly.cli.session import Session, acting, printing
from duly.core.errors import InputError
from duly.core.wire import read, written

if TYPE_CHECKING:
    from duly.client import Client

PORTION = 1_000  # products in one request


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
@click.argument("source", metavar="FILE|URL")
@click.option("--table", default=TABLE, show_default=True, metavar="NAME", help="The table of a database.")
@click.option("--without", multiple=True, metavar="COLUMN", help="Leave out a column. Repeatable.")
@printing
def import_products(session: Session, source: str, table: str, without: tuple[str, ...]) -> None:
    """Take products over from another system: a CSV file, or a database (sqlite:///FILE, postgresql://…).

    The columns are those of the table product_sync_schedule, and in_stock; user_id and sku are required. Products keep
    their slot, state, failures, last sync, last error and values. Those that exist stay as they are, so an import can
    be repeated. The other database is only read.
    """
    rows = rows_of(source, table, without)

    def remote(client: Client) -> Imported:
        sent = [written(asdict(each)) for each in imported_all(rows)]
        answers = list(in_portions(sent, PORTION, lambda portion: _sent(client, portion)))
        return Imported(sum(each.products for each in answers), [row for each in answers for row in each.rows])

    try:
        made = session.either(lambda app: catalog_on(app).import_many(rows, who=options.who()), remote)
    except InputError as error:
        raise InputError(_by_row(error.field), _by_row(error.problem)) from None
    session.print_one(made, lambda: _print_import(made))


def _sent(client: Client, rows: Sequence[Mapping[str, Any]]) -> Imported:
    return read(Imported, client.http.request("POST", "/api/products/import", {"products": rows}))


def _by_row(text: str) -> str:
    """The same with rows as people count them: `rows[2].sku` is row 3, sku."""
    return re.sub(r"rows\[(\d+)\]\.", lambda match: f"row {int(match[1]) + 1}, ", text)


def _print_import(made: Imported) -> None:
    for each in made.rows:
        click.echo(f"row {each.row}: {each.user_id} {each.sku}: {each.text}")
    others = len(made.rows) - made.products
    click.echo(f"{made.products:,} products are new" + (f", {others:,} rows changed nothing" if others else ""))


@products.command(name="day")
@printing
def show_day(session: Session) -> None:
    """Show the state of this day, in UTC: slots, retry windows, calls, and what deactivated products."""
    day = day_of_catalog(session)
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
