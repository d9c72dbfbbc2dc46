"""Products of another system as rows of an import, each with its state there.

The columns are those of the table `product_sync_schedule` of the original specification, and `in_stock`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any, Literal, TypeAlias
from uuid import UUID

from msgspec import Struct

from duly.apps.catalog.supplier import Kept, hash_of
from duly.core import codec
from duly.core.errors import DulyError, InputError
from duly.core.model import Failed
from duly.core.policy.retry import class_names
from duly.core.wire import Doc
from duly.tasks.checks import checked_text
from duly.verbs.takeover import Past

SyncStatus: TypeAlias = Literal["pending", "syncing", "success", "failed"]
STATUSES: tuple[SyncStatus, ...] = ("pending", "syncing", "success", "failed")

DIGITS = 15  # that a price has at most before its point, and after it, as one that the API writes as text
COUNT = 2**31 - 1
ERROR_LIMIT = 1_000_000  # characters of an error, of which the first 500 are kept
NAMED = 10  # rows with errors that are named

YES, NO = ("true", "t", "yes", "y", "on", "1"), ("false", "f", "no", "n", "off", "0")


class FailedBefore(DulyError):
    """The last sync of a product had failed in the system that it was imported from."""


class Import(Struct, frozen=True, kw_only=True):
    """One product of another system. What is not known is left out."""

    user_id: str
    sku: str
    hour_bucket: int | None = None  # without one, it gets the emptiest
    sync_status: SyncStatus | None = None  # without one, failures in a row mean that it failed
    last_sync_at: datetime | None = None
    last_successful_sync: date | None = None
    consecutive_failures: int = 0
    last_error: str | None = None
    is_active: bool = True
    last_boeing_hash: str | None = None
    last_price: Decimal | None = None
    last_quantity: int | None = None
    in_stock: bool | None = None

    @property
    def has_failed(self) -> bool:
        """Whether its last sync failed. One that failures deactivated has, whatever its status says."""
        if self.sync_status is None or not self.is_active:
            return self.consecutive_failures > 0 or self.sync_status == "failed"
        return self.sync_status == "failed"

    @property
    def is_known_by_values(self) -> bool:
        """Whether what it looked like is known, so that a first sync that finds the same is not a change."""
        return self.last_price is not None and self.last_quantity is not None

    def past(self) -> Past:
        """What its schedule takes over.

        Where price and quantity are known, its hash is made of them as ours is, so that what has not changed since is
        not taken for news. A stock that is not known is no change either.
        """
        price, quantity, in_stock = self.last_price, self.last_quantity, self.in_stock
        value = self.last_boeing_hash
        if price is not None and quantity is not None:
            value = hash_of(price, quantity, in_stock)
        kept = Kept(
            price=price, quantity=quantity, in_stock=in_stock,
            success_on=self.last_successful_sync, synced_at=self.last_sync_at,
        )  # fmt: skip
        error = self.last_error or "it failed before it was imported"
        is_success = self.sync_status == "success"
        return Past(
            slot=self.hour_bucket,
            fingerprint=value,
            keep=None if kept == Kept() else codec.encode(kept),
            failures=self.consecutive_failures,
            failed=Failed(error, class_names(FailedBefore())) if self.has_failed else None,
            tried_at=self.last_sync_at,
            last_error=self.last_error,
            last_success_at=self.succeeded_at if is_success else None,
            is_active=self.is_active,
        )

    @property
    def succeeded_at(self) -> datetime | None:
        day = self.last_successful_sync
        return self.last_sync_at or (datetime(day.year, day.month, day.day, tzinfo=UTC) if day else None)


class ImportedRow(Struct, frozen=True):
    """What an import did with one of its rows."""

    row: Annotated[int, Doc("From 1, in the order of the rows.")]
    user_id: str
    sku: str
    result: Annotated[
        Literal["new", "known", "repeated"],
        Doc("known: the product existed and is unchanged; repeated: an earlier row has it."),
    ]
    text: Annotated[str, Doc("The same in plain words, and what comes next for the product.")]


class Imported(Struct, frozen=True):
    """What an import did."""

    products: Annotated[int, Doc("How many are new.")]
    rows: list[ImportedRow]


def imported(row: Mapping[str, Any], hour_buckets: int | None = None) -> Import:
    """A row of an import, checked. Numbers, dates and times may be text, as in CSV; empty text means no value.

    Without `hour_buckets`, whoever knows them checks the slot.
    """
    for name in row:
        if name not in COLUMNS:
            raise InputError(str(name), f"is not a column of an import. {ACCEPTED}")
    for name in ("user_id", "sku"):
        if row.get(name) in (None, ""):
            raise InputError(name, "is required")
    given = {name: COLUMNS[name](name, value) for name, value in row.items() if value not in (None, "")}
    found = Import(**{name: value for name, value in given.items() if name not in IGNORED})
    if hour_buckets is not None and found.hour_bucket is not None and found.hour_bucket >= hour_buckets:
        raise InputError("hour_bucket", f"must be from 0 to {hour_buckets - 1}, got {found.hour_bucket}")
    return found


def imported_all(rows: Iterable[Mapping[str, Any]], hour_buckets: int | None = None) -> list[Import]:
    """All rows, checked. An error names the first bad row with its column, and how many others are bad."""
    found: list[Import] = []
    first: InputError | None = None
    others: list[str] = []
    count = 0
    for place, row in enumerate(rows):
        try:
            found.append(imported(row, hour_buckets))
        except InputError as error:
            if first is None:
                first = InputError(f"rows[{place}].{error.field}", error.problem)
                continue
            count += 1
            if len(others) < NAMED:
                others.append(f"rows[{place}].{error.field}")
    if first is not None:
        more = f"; {count:,} more: {', '.join(others)}{', …' if count > len(others) else ''}" if count else ""
        raise InputError(first.field, first.problem + more)
    return found


# -- the columns, each with the function that reads a value


def _name(column: str, value: Any) -> str:
    if isinstance(value, UUID) or (isinstance(value, int) and not isinstance(value, bool)):
        value = str(value)  # as a database may keep it
    text = checked_text(column, value, 200)
    if not text.strip():
        raise InputError(column, "must not be blank")
    return text


def _error(column: str, value: Any) -> str:
    return checked_text(column, value, ERROR_LIMIT)[:500]


def _hash(column: str, value: Any) -> str:
    return checked_text(column, value, 200)


def _whole(most: int) -> Callable[[str, Any], int]:
    def read(column: str, value: Any) -> int:
        text = str(value).strip()
        if isinstance(value, bool | float) or not (text.isascii() and text.isdigit()) or len(text) > 12:
            raise InputError(column, f"must be a whole number from 0 to {most:,}, got {value!r:.40}")
        if int(text) > most:
            raise InputError(column, f"must be at most {most:,}, got {text}")
        return int(text)

    return read


def _yes_or_no(column: str, value: Any) -> bool:
    text = str(value).strip().lower()
    if text not in (*YES, *NO):
        raise InputError(column, f"must be true or false, got {value!r:.40}")
    return text in YES


def _price(column: str, value: Any) -> Decimal:
    try:
        if isinstance(value, bool):
            raise InvalidOperation
        price = Decimal(str(value).strip())
    except InvalidOperation:
        raise InputError(column, f"must be a number such as 19.99, got {value!r:.40}") from None
    if not (price.is_finite() and price >= 0):
        raise InputError(column, f"must be a number that is not negative, got {price!s:.40}")
    exponent = price.as_tuple().exponent
    if price.adjusted() >= DIGITS or (isinstance(exponent, int) and -exponent > DIGITS):
        raise InputError(column, f"must have at most {DIGITS} digits on each side of its point, got {price!s:.40}")
    return price


def _status(column: str, value: Any) -> SyncStatus:
    for status in STATUSES:
        if status == value:
            return status
    raise InputError(column, f"must be one of {', '.join(STATUSES)}, got {value!r:.40}")


def _moment(column: str, value: Any) -> datetime:
    """A time; one without a zone is in UTC."""
    try:
        found = value if isinstance(value, datetime) else datetime.fromisoformat(value.strip())
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (AttributeError, ValueError, OverflowError):
        raise InputError(column, f"must be a time such as 2026-12-01 09:00:00+00, got {value!r:.40}") from None


def _day(column: str, value: Any) -> date:
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    try:
        return date.fromisoformat(value.strip())
    except (AttributeError, ValueError):
        raise InputError(column, f"must be a date such as 2026-12-01, got {value!r:.40}") from None


def _anything(_: str, value: Any) -> Any:
    return value


COLUMNS: Mapping[str, Callable[[str, Any], Any]] = {
    "user_id": _name,
    "sku": _name,
    "hour_bucket": _whole(100_000),
    "sync_status": _status,
    "last_sync_at": _moment,
    "last_successful_sync": _day,
    "consecutive_failures": _whole(1_000_000),
    "last_error": _error,
    "is_active": _yes_or_no,
    "last_boeing_hash": _hash,
    "last_price": _price,
    "last_quantity": _whole(COUNT),
    "in_stock": _yes_or_no,
    "id": _anything,
    "created_at": _anything,
    "updated_at": _anything,
}
# Columns of the table that an import accepts and does not keep: products have their own here.
IGNORED = ("id", "created_at", "updated_at")
ACCEPTED = f"Accepted columns: {', '.join(COLUMNS)}"
