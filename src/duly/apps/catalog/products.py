"""Products as shown to people, and the task that syncs them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta, Struct
from msgspec.inspect import DecimalType, StrType, UnionType, type_info
from msgspec.structs import fields

from duly import Attempt, Duly, Fingerprint, Limit, Skip, Slots, Source, Windows
from duly.apps.catalog.day import LIMIT, Day, day_of
from duly.apps.catalog.imports import Imported, SyncStatus, imported_all
from duly.apps.catalog.settings import CatalogSettings, CatalogTuning
from duly.apps.catalog.supplier import BadEntry, Found, Kept, Offer, ask
from duly.apps.catalog.takeover import take_over
from duly.core.codec import decode
from duly.core.errors import DoesNotExist, InputError
from duly.core.filters import first
from duly.core.model import Schedule, cut
from duly.core.results import SlotLoad
from duly.core.shown import Row
from duly.outbound.http import Unreachable
from duly.tasks.checks import checked_rows
from duly.tasks.task import Task
from duly.verbs import LOCAL, Principal, local
from duly.verbs.schedules import ScheduleRow
from duly.verbs.timetable import Standing

if TYPE_CHECKING:
    from duly.virtual.simulation import Simulation

ERROR_LIMIT = 500

Text = Annotated[str, Meta(min_length=1, max_length=200, pattern=r"\S")]

STANDINGS: dict[SyncStatus, Standing] = {
    "pending": "waiting",
    "syncing": "running",
    "success": "done",
    "failed": "failing",
}


class Listing(Struct, frozen=True):
    """One user's product: what a sync is about."""

    user_id: Text
    sku: Text


class Product(Struct, frozen=True, kw_only=True):
    """A product as people see it."""

    id: int
    user_id: str
    sku: str
    hour_bucket: int
    sync_status: SyncStatus
    last_sync_at: datetime | None
    last_successful_sync: date | None
    consecutive_failures: int
    last_error: str | None
    is_active: bool
    last_boeing_hash: str | None
    last_price: Decimal | None
    last_quantity: int | None
    created_at: datetime


class Reactivated(Struct, frozen=True):
    """How many products were reactivated at once, and whether more are left that could be."""

    products: int
    is_more: bool


class Catalog:
    def __init__(
        self, app: Duly, task: Task[..., Any], settings: CatalogTuning, ask: Callable[[Sequence[str]], Found]
    ) -> None:
        self.app = app
        self.task = task
        self.settings = settings
        self.rule = Slots(settings.hour_buckets)
        self.ask = ask

    def publish(
        self, user_id: str, sku: str, owner: str | None = None, connection: Any = None, actor: str = "local"
    ) -> Product:
        """Sync this product every day, at the hour that has the fewest; publishing twice is publishing once."""
        verbs = self.app.internals.verbs
        with verbs.context.joining(connection) as connection:
            row = self._row(user_id, sku)
            is_new = verbs.schedules.create_many(self.task, self.rule, [row], owner, connection=connection)
            product = self.product(user_id, sku, connection)
            if is_new:
                about = f"schedule:{product.id}", {"sku": sku}
                verbs.audit.note(local(actor), "product.published", *about, connection)
        return product

    def publish_many(self, rows: Iterable[Mapping[str, str]]) -> int:
        """Any number, each with its user_id and sku; returns how many are new. A bad row stops all of them."""
        return self.app.internals.verbs.schedules.create_many(
            self.task, self.rule, checked_rows("rows", rows, self._row)
        )

    def import_many(
        self,
        rows: Iterable[Mapping[str, Any]],
        *,
        is_owned: bool = False,
        who: Principal = LOCAL,
        connection: Any = None,
    ) -> Imported:
        """Take products over from another system, with their state there; returns what became of each row.

        Each row has a user_id and a sku, and may have the other columns of the table `product_sync_schedule`, and
        in_stock. Products that exist stay as they are. A bad row stops all of them. With `is_owned`, products belong to
        their users, as those do that users publish over HTTP.
        """
        found = imported_all(rows, self.settings.hour_buckets)
        return take_over(
            self.app, self.task, self.settings.hour_buckets, found, self._row,
            is_owned=is_owned, who=who, connection=connection,
        )  # fmt: skip

    def withdraw(self, user_id: str, sku: str, actor: str = "local") -> None:
        """Stop syncing it; a waiting sync is cancelled, and its place in the slot becomes free."""
        self.app.internals.verbs.schedules.remove(local(actor), self._find(user_id, sku).id)

    def reactivate(
        self, user_id: str, sku: str, actor: str = "local", *, sync_now: bool = False, connection: Any = None
    ) -> Product:
        """A person says that a product which failed too often may be tried again, from its next slot on, or now too.

        Its last sync is discarded if it stands in review.
        """
        schedule = self._find(user_id, sku, connection)
        self.app.internals.verbs.schedules.reactivate(
            local(actor), schedule.id, run_now=sync_now, discard=True, connection=connection
        )
        return self.product(user_id, sku, connection)

    def reactivate_all(
        self,
        cause: str | None = None,
        *,
        sync_now: bool = False,
        owner: str | None = None,
        who: Principal = LOCAL,
        connection: Any = None,
    ) -> Reactivated:
        """Reactivate what was deactivated by one cause, which `day` names, or all of it: a thousand at a time."""
        done, is_more = self.app.internals.verbs.schedules.reactivate_all(
            who, self.task.name, cause=cause, owner=owner, run_now=sync_now, discard=True, connection=connection
        )
        return Reactivated(done, is_more)

    def day(self, owner: str | None = None) -> Day:
        """Where this day stands, in UTC: each slot, each retry window, and the calls that the API allows."""
        return day_of(self.app, self.task, self.settings, owner)

    def product(self, user_id: str, sku: str, connection: Any = None) -> Product:
        return self.seen([self._find(user_id, sku, connection)])[0]

    def products(
        self,
        *,
        user_id: str | None = None,
        hour_bucket: int | None = None,
        sync_status: SyncStatus | None = None,
        is_active: bool | None = None,
        text: str | None = None,
        owner: str | None = None,
        after: int = 0,
        most: int = 100,
    ) -> tuple[Product, ...]:
        """By id; `after` is the last id of the page before, and `text` a part of a user's id or of a SKU."""
        if sync_status is not None and sync_status not in STANDINGS:
            raise InputError("sync_status", f"must be one of {', '.join(STANDINGS)}, got {sync_status!r:.40}")
        standing = STANDINGS[sync_status] if sync_status is not None else None
        filters = {"standing": standing, "slot": hour_bucket, "is_active": is_active, "text": text}
        found = (each for each in self._all(owner, filters, after) if user_id in (None, each.user_id))
        return tuple(first(found, most))

    def slots(self) -> list[SlotLoad]:
        """How many active products each slot has."""
        taken = {load.slot: load for load in self.app.schedules.slots(self.task.name)}
        return [taken.get(slot) or SlotLoad(self.task.name, slot, 0) for slot in range(self.settings.hour_buckets)]

    def _row(self, user_id: str, sku: str) -> ScheduleRow:
        args = {"user_id": user_id, "sku": sku}
        self.task.checked_args(dict(args))
        return {"key": _key(user_id, sku), "args": args}

    def _find(self, user_id: str, sku: str, connection: Any = None) -> Schedule:
        try:
            return self.app.schedules.find(self.task.name, _key(user_id, sku), connection)
        except DoesNotExist:
            raise DoesNotExist(f"{user_id!r:.80} has no product {sku!r:.80}") from None

    def _all(self, owner: str | None, filters: dict[str, Any], after: int) -> Iterator[Product]:
        while page := self.app.schedules.standing(owner, self.task.name, **filters, after=after, most=1_000):
            yield from self.seen(page)
            after = page[-1].id

    def seen(self, schedules: Sequence[Schedule]) -> list[Product]:
        """The products that these schedules are."""
        last = [schedule.last_item for schedule in schedules if schedule.last_item is not None]
        items = {item.id: item for item in self.app.read.rows(last)}
        return [_product(schedule, items.get(schedule.last_item or 0)) for schedule in schedules]


def install(
    app: Duly, settings: CatalogSettings, on_change: Task[..., Any] | None = None, tuning: CatalogTuning | None = None
) -> Catalog:
    """Register the task `catalog.sync` on this app; see `catalog_on`."""
    tuning = tuning or settings
    money = _money_of(on_change) if on_change is not None else Decimal
    windows = Windows(tuning.retry_windows, cap=tuning.retry_limit)
    limit = Limit(LIMIT, tuning.calls_per_minute, per="1m")

    @app.task(
        name="catalog.sync",
        queue="catalog",
        batch=tuning.batch_size,
        limits=limit,
        source=Source(LIMIT, own=(BadEntry,)),
        retry=windows,
        breaker=tuning.max_consecutive_failures,
        deadline=tuning.stuck_threshold_seconds,
    )
    def sync(rows: list[Listing], attempts: list[Attempt]) -> list[Any]:
        """Ask for these products in one call; one outcome for each."""
        now = app.clock.now()
        synced = _synced_today(app, attempts, now.date())
        skus = list(dict.fromkeys(row.sku for row, is_synced in zip(rows, synced, strict=True) if not is_synced))
        found = catalog.ask(skus) if skus else {}
        outcomes: list[Any] = []
        for row, is_synced in zip(rows, synced, strict=True):
            offer = found.get(row.sku)
            if is_synced:
                outcomes.append(Skip("synced today already"))
            elif isinstance(offer, Offer):
                then = [on_change.new(**_news(row, offer, money))] if on_change is not None else []
                kept, also = _kept_of(offer, now), [offer.hash_without_stock]
                outcomes.append(Fingerprint(offer.hash, keep=kept, then=then, also=also))
            else:
                outcomes.append(offer or BadEntry(f"the answer does not have {row.sku!r}"))
        return outcomes

    catalog = Catalog(app, sync, tuning, partial(ask, settings))
    return catalog


def _synced_today(app: Duly, attempts: Sequence[Attempt], today: date) -> list[bool]:
    """Which of these had their sync of this UTC day: in a retry window after midnight, before their slot came.

    A sync that a person asked for in between, beside the slot's own, is always made.
    """
    ids = [attempt.schedule_id for attempt in attempts if attempt.schedule_id is not None]
    known = {schedule.id: schedule for schedule in app.schedules.some(ids)}
    return [
        (schedule := known.get(attempt.schedule_id or 0)) is not None
        and schedule.last_at == attempt.planned_at  # it is the slot's own
        and _kept(schedule).success_on == today
        for attempt in attempts
    ]


def _kept_of(offer: Offer, now: datetime) -> Kept:
    utc = now.astimezone(UTC)
    price, quantity = offer.price, offer.quantity
    return Kept(price=price, quantity=quantity, in_stock=offer.in_stock, success_on=utc.date(), synced_at=utc)


def _money_of(on_change: Task[..., Any]) -> Callable[[Decimal], Any]:
    """How this task takes a price: with all its digits if it says Decimal or str, and as a float otherwise."""
    said = [type_info(each.type) for each in fields(on_change.shape) if each.name == "price"]
    kinds = [kind for each in said for kind in (each.types if isinstance(each, UnionType) else (each,))]
    money = Decimal if any(isinstance(kind, DecimalType | StrType) for kind in kinds) else float
    on_change.checked_args(_news(Listing("user", "sku"), Offer("sku", Decimal("1.5"), 1, True), money))
    return money


def _news(row: Listing, offer: Offer, money: Callable[[Decimal], Any]) -> dict[str, Any]:
    values = {"price": money(offer.price), "quantity": offer.quantity, "in_stock": offer.in_stock}
    return {"user_id": row.user_id, "sku": row.sku, **values}


def _key(user_id: str, sku: str) -> str:
    """One text for both: a slash in a user's id is written so that it cannot be the one between them."""
    return f"{user_id.replace('%', '%25').replace('/', '%2F')}/{sku}"


def _kept(schedule: Schedule) -> Kept:
    return msgspec.json.decode(schedule.keep, type=Kept) if schedule.keep else Kept()


def _product(schedule: Schedule, item: Row | None) -> Product:
    args = decode(schedule.args)
    kept = _kept(schedule)
    synced_at = _synced_at(schedule, item, kept)
    return Product(
        id=schedule.id,
        user_id=args["user_id"],
        sku=args["sku"],
        hour_bucket=schedule.slot or 0,
        sync_status=_status(schedule, item),
        last_sync_at=synced_at.astimezone(UTC) if synced_at else None,
        last_successful_sync=kept.success_on,
        consecutive_failures=schedule.failures,
        last_error=cut(schedule.last_error.partition("\n")[0], ERROR_LIMIT) if schedule.last_error else None,
        is_active=schedule.is_active,
        last_boeing_hash=schedule.fingerprint,
        last_price=kept.price,
        last_quantity=kept.quantity,
        created_at=schedule.created_at.astimezone(UTC),
    )


def _synced_at(schedule: Schedule, item: Row | None, kept: Kept) -> datetime | None:
    """When it was last tried to sync it. An item that was skipped, because this day's sync had been, is no try."""
    if item is not None and item.started_at is not None and item.outcome != "skipped":
        return item.started_at
    return kept.synced_at or schedule.last_success_at


def _status(schedule: Schedule, item: Row | None) -> SyncStatus:
    """The sync status of a product, from its last item; if that was pruned, from its schedule."""
    match item.state if item else None:
        case "running":
            return "syncing"
        case "waiting" if item is not None and item.lane == "main":
            return "pending"
        case "done":
            return "success"
    if schedule.failures:
        return "failed"
    is_given_up = item is not None and (item.state == "failed" or item.outcome == "discarded")
    return "success" if schedule.last_success_at and not is_given_up else "pending"


def simulated(catalog: Catalog, world: Simulation, products: int) -> None:
    """Fill a simulation with this many products, and let its model answer for the API."""

    def answer(skus: Sequence[str]) -> Found:
        if world.upstream.is_out():
            return dict.fromkeys(skus, Unreachable("simulated outage"))
        week = world.clock.now().toordinal() // 7
        return {
            sku: BadEntry("simulated failure") if world.upstream.fails() else Offer(sku, Decimal("9.90"), week, True)
            for sku in skus
        }

    catalog.ask = answer
    world.answer = world.call
    catalog.publish_many({"user_id": "simulated", "sku": f"SKU-{n:06}"} for n in range(products))
