"""Calls the API of the supplier: one call for many products, with one answer, or one error, for each."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from hashlib import md5
from typing import Annotated, Any, TypeAlias

from msgspec import Meta, Struct

from duly import GiveUp, InputError
from duly.apps.catalog.settings import CatalogSettings
from duly.core.codec import convert
from duly.outbound.http import BadAnswer, OutboundError, post_json


class Offer(Struct, frozen=True):
    """A product as the API returns it."""

    sku: str
    price: Decimal
    quantity: int
    in_stock: bool

    @property
    def hash(self) -> str:
        return hash_of(self.price, self.quantity, self.in_stock)

    @property
    def hash_without_stock(self) -> str:
        """The hash of a product whose stock its former system did not keep."""
        return hash_of(self.price, self.quantity, None)


def hash_of(price: Decimal, quantity: int, in_stock: bool | None) -> str:
    return md5(f"{_told(price)} {quantity} {in_stock}".encode(), usedforsecurity=False).hexdigest()


class Kept(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the schedule of a product remembers: its last offer, and when that came."""

    price: Decimal | None = None
    quantity: int | None = None
    in_stock: bool | None = None
    success_on: date | None = None
    synced_at: datetime | None = None


class _Entry(Struct, frozen=True):
    """What an entry of an answer has to be: a price as a number or, as some APIs write money, as its digits."""

    sku: str
    price: int | float | Annotated[str, Meta(pattern=r"\A[0-9]{1,15}(\.[0-9]{1,15})?\Z")]
    quantity: Annotated[int, Meta(ge=0, le=2**31 - 1)]
    in_stock: bool


def _told(price: Decimal) -> str:
    """A price in the words that it always had in hashes, where they tell it: those of a float."""
    rounded = str(float(price))
    return rounded if Decimal(rounded) == price else str(price.normalize())


Found: TypeAlias = dict[str, Offer | Exception]


class CallRefused(OutboundError):
    """A status after which a retry cannot help."""


class BadEntry(BadAnswer):
    """An answer in which one product is missing or malformed: the trouble of that product, not of the supplier."""


def ask(settings: CatalogSettings, skus: Sequence[str]) -> Found:
    """The answers of the API for these products, by SKU; the same error for all of them if the call failed."""
    secret = {"Authorization": f"Bearer {settings.api_key}"} if settings.api_key else {}
    try:
        answer = post_json(
            f"{settings.base_url.rstrip('/')}/catalog/batch",
            {"skus": skus},
            headers=secret,
            timeout=settings.timeout_seconds,
        ).json()
        products = answer.get("products") if isinstance(answer, dict) else None
        if not isinstance(products, list):
            raise BadAnswer('the answer is not {"products": […]}')
    except GiveUp as refused:
        # To give up would send ten products to review for what is mostly not their fault (a key that expired, a path
        # that moved). As a failure it waits for the windows, and the breaker gives up on what never recovers.
        return dict.fromkeys(skus, CallRefused(refused.reason))
    except Exception as error:
        return dict.fromkeys(skus, error)
    return _read(products)


def _read(products: Sequence[Any]) -> Found:
    """By SKU. A bad entry is the trouble of its own SKU only."""
    found: Found = {}
    for entry in products:
        sku = entry.get("sku") if isinstance(entry, dict) else None
        if not isinstance(sku, str):
            continue
        told = _offer(sku, entry)
        if sku in found and found[sku] != told:
            told = BadEntry(f"the answer has {sku!r} twice, and differently")
        found[sku] = told
    return found


def _offer(sku: str, entry: Any) -> Offer | Exception:
    try:
        told: _Entry = convert(entry, _Entry)
        price = Decimal(str(told.price))  # of a float, the digits that were sent
    except (InputError, ValueError) as error:  # also of a number with thousands of digits
        return BadEntry(f"the answer for {sku!r} is malformed: {error}")
    if not price.is_finite() or price < 0:
        return BadEntry(f"the price of {sku!r} is {told.price}")
    return Offer(sku, price, told.quantity, told.in_stock)
