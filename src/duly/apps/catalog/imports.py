"""Imports products from another system, with their slots, hashes and last successes."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Annotated, Any

from msgspec import Meta, Struct, ValidationError, convert

from duly import InputError
from duly.apps.catalog.supplier import Kept, Offer
from duly.core import codec

Word = Annotated[str, Meta(min_length=1, max_length=200, pattern=r"\S")]
DIGITS = 15  # that a price has at most before its point, and after it, as one that the API writes as text
Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]


class Import(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One product of another system. What it does not know is left out."""

    user_id: Word
    sku: Word
    hour_bucket: Annotated[int, Meta(ge=0)] | None = None  # without one, it gets the emptiest
    last_successful_sync: date | None = None
    last_price: Annotated[Decimal, Meta()] | None = None
    last_quantity: Count | None = None
    in_stock: bool | None = None
    last_boeing_hash: Annotated[str, Meta(max_length=200)] | None = None
    consecutive_failures: Annotated[int, Meta(ge=0, le=1_000_000)] = 0

    def facts(self) -> dict[str, Any]:
        """What its schedule remembers from the start.

        Where price, quantity and stock are known, its hash is made of them as ours is, so that what has not changed
        since is not taken for news.
        """
        price, quantity, in_stock = self.last_price, self.last_quantity, self.in_stock
        value = self.last_boeing_hash
        if price is not None and quantity is not None and in_stock is not None:
            value = Offer(self.sku, price, quantity, in_stock).hash
        kept = Kept(price=price, quantity=quantity, in_stock=in_stock, success_on=self.last_successful_sync)
        keep = None if kept == Kept() else codec.encode(kept)
        facts = {"slot": self.hour_bucket, "fingerprint": value, "keep": keep}
        return {name: known for name, known in facts.items() if known is not None} | {
            "failures": self.consecutive_failures
        }


def imported(hour_buckets: int | None = None, /, **row: Any) -> Import:
    """A row of an import, checked. Numbers and dates may be text, as in CSV, where an empty cell means no value.

    Without `hour_buckets`, whoever knows them checks the slot.
    """
    given = {name: value for name, value in row.items() if value not in (None, "")}
    try:
        found = convert(given, Import, strict=False)
    except ValidationError as error:
        raise codec.named(error) from None
    if hour_buckets is not None and found.hour_bucket is not None and found.hour_bucket >= hour_buckets:
        raise InputError("hour_bucket", f"must be from 0 to {hour_buckets - 1}, got {found.hour_bucket}")
    if found.last_price is not None:
        _check_price(found.last_price)
    return found


def _check_price(price: Decimal) -> None:
    if not (price.is_finite() and price >= 0):
        raise InputError("last_price", f"must be a number that is not negative, got {price!s:.40}")
    exponent = price.as_tuple().exponent
    if price.adjusted() >= DIGITS or (isinstance(exponent, int) and -exponent > DIGITS):
        raise InputError(
            "last_price", f"must have at most {DIGITS} digits on each side of its point, got {price!s:.40}"
        )
