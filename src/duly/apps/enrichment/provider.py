"""One question to the provider: a product, or none, or why there is no answer.

    POST {base_url}/products    {"by": "sku", "query": "65-12345-1", "retailer": "acme"}
    POST {base_url}/images      {"by": "image", "query": "blue tea pot", "retailer": null, "image": {…, "data": base64}}

    200  {"products": [{"title": …, "brand": …, "sku": …, "ean": …, "price": …, "currency": …, "url": …, "image": …,
                        "retailer": …}, …]}    the best first; only `title` has to be there
    404  the same as an empty list

Answers are not trusted: they are read up to a limit, no redirect is followed, and a product counts only if it has the
shape above. Prices are read as decimal numbers and never become binary fractions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw, Struct
from msgspec.structs import asdict

from duly import Throttled
from duly.apps.enrichment.settings import EnrichmentSettings
from duly.core import codec
from duly.core.policy.adapt import SPACINGS, Trouble, classify
from duly.outbound.http import BadStatus, OutboundError, TimedOut, request

ANSWER_LIMIT = 256 * 1024
LOOKED_AT = 50  # products of one answer
ANY_STATUS = range(1_000)  # every status is returned as a number, and checked here
HIGHEST, FINEST = 10**12, -12  # bounds of a price, and of the place of its last digit

Text = Annotated[str, Meta(max_length=2_000)]
Link = Annotated[str, Meta(max_length=4_000, pattern=r"^(?i:https?)://[^\s\"<>]+$")]
Currency = Annotated[str, Meta(pattern="^[A-Z]{3}$")]


class Product(Struct, frozen=True):
    """A product as the provider returns it."""

    title: Annotated[str, Meta(min_length=1, max_length=2_000)]
    brand: Text | None = None
    sku: Text | None = None
    ean: Text | None = None
    price: Decimal | None = None
    currency: Currency | None = None
    url: Link | None = None
    image: Link | None = None
    retailer: Text | None = None

    def __post_init__(self) -> None:
        price = self.price
        if price is None:
            return
        # A price is compared before it is written out: 1e999999999 would be a gigabyte of digits.
        is_sane = price.is_finite() and 0 <= price < HIGHEST and int(price.as_tuple().exponent) >= FINEST
        if not is_sane:
            raise ValueError("price is not an amount of money")

    def result(self, variant: str, retailer: str) -> dict[str, str | None]:
        """What becomes of a row for which this was found: always the same fields."""
        price = None if self.price is None else f"{self.price:f}"
        found_at = self.retailer or retailer or None
        return {**asdict(self), "price": price, "retailer": found_at, "matched_by": variant}


class _Answer(Struct):
    products: list[Raw]


class NoAnswer(Exception):
    """The provider did not answer, or not well: what kind of trouble that is, and how long it asked us to wait."""

    def __init__(self, trouble: Trouble, reason: str, retry_after: float = 0.0, *, is_guess: bool = True) -> None:
        super().__init__(reason)
        self.is_guess = is_guess  # it did not give a time to wait
        self.trouble = trouble
        self.reason = reason
        self.retry_after = retry_after


def ask(
    settings: EnrichmentSettings,
    path: str,
    question: Mapping[str, Any],
    fits: Callable[[Product], bool] = lambda _: True,
) -> Product | None:
    """The first product of the answer that fits; None when there is none. Raises NoAnswer."""
    secret = {"Authorization": f"Bearer {settings.api_key}"} if settings.api_key else {}
    url = f"{settings.base_url.rstrip('/')}{path}"
    try:
        response = request(
            "POST", url, msgspec.json.encode(question), headers=secret, timeout=settings.timeout_seconds,
            max_response_bytes=ANSWER_LIMIT, retry_statuses=ANY_STATUS,
        )  # fmt: skip
    except Throttled as busy:
        raise NoAnswer(
            "throttled", f"the provider asked us to wait {busy.delay:g} s", busy.delay, is_guess=False
        ) from None
    except OutboundError as error:
        trouble = _trouble(error)
        if trouble == "not_found":
            return None
        wait = SPACINGS["throttled"].base if trouble == "throttled" else 0.0
        raise NoAnswer(trouble, str(error), wait) from None
    if not response.is_whole:
        raise NoAnswer("unknown", f"{path}: the answer has more than {ANSWER_LIMIT:,} bytes")
    return _first(path, response.body, fits)


def _trouble(error: OutboundError) -> Trouble:
    if isinstance(error, BadStatus):
        return classify(error.status)
    return "timeout" if isinstance(error, TimedOut) else "network"


def _first(path: str, body: bytes, fits: Callable[[Product], bool]) -> Product | None:
    """The first product that fits. A malformed one is skipped, and reported only if no other fits."""
    problem = ""
    try:
        entries = msgspec.json.decode(codec.without_nul(body), type=_Answer).products
    except (ValueError, RecursionError) as error:
        raise NoAnswer("unknown", f'{path}: the answer is not {{"products": […]}}: {error}'[:300]) from None
    for entry in entries[:LOOKED_AT]:
        try:
            product = msgspec.json.decode(entry, type=Product)
        except (ValueError, RecursionError) as error:
            problem = problem or str(error)[:200]
            continue
        if fits(product):
            return product
    if problem:
        raise NoAnswer("unknown", f"{path}: a product of the answer is malformed: {problem}")
    return None
