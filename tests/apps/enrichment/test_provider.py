"""What counts as a product, and as an answer."""

from __future__ import annotations

from typing import Any

import pytest

from duly.apps.enrichment.provider import LOOKED_AT, NoAnswer, Product, ask
from duly.apps.enrichment.settings import EnrichmentSettings
from tests.apps.enrichment.conftest import POT, Shop, told
from tests.outbound.provider import answer

QUESTION = {"by": "title", "query": "pot", "retailer": None}


def asked(shop: Shop) -> Product | None:
    return ask(EnrichmentSettings(base_url=shop.url), "/products", QUESTION)


@pytest.mark.parametrize(
    ("price", "text"),
    [
        ("19.90", "19.90"),
        ('"0.10"', "0.10"),
        ("1e3", "1000"),
        ("0.1234567890123", None),
        ("123456789012.123456789012", "123456789012.123456789012"),
        ("1e999999999", None),
        ("-1", None),
        ('"NaN"', None),
        ('"1.299,00"', None),
        ("true", None),
    ],
)
def test_a_price_is_exact_or_no_price(shop: Shop, price: str, text: str | None) -> None:
    shop.has["pot", ""] = answer(200, f'{{"products": [{{"title": "pot", "price": {price}}}]}}'.encode())
    if text is None:
        with pytest.raises(NoAnswer, match="a product of the answer is malformed"):
            asked(shop)
    else:
        found = asked(shop)
        assert found is not None
        assert found.result("title", "acme")["price"] == text


@pytest.mark.parametrize(
    "bad",
    [
        {"title": ""}, {"title": None}, {"title": "x" * 2_001}, {"url": "javascript:alert(1)"}, {"url": "https://a b"},
        {"image": "data:image/png;base64,AAAA"}, {"currency": "euro"}, {"brand": ["Acme"]}, {"sku": 7},
    ],
)  # fmt: skip
def test_a_malformed_product_is_passed_over_and_told_of_only_if_no_other_fits(shop: Shop, bad: dict[str, Any]) -> None:
    shop.has["pot", ""] = told({**POT, **bad}, {"title": "good"})
    found = asked(shop)
    assert found is not None
    assert found.title == "good"
    shop.has["pot", ""] = told({**POT, **bad})
    with pytest.raises(NoAnswer, match="malformed"):
        asked(shop)


def test_only_the_first_products_of_a_long_answer_are_looked_at(shop: Shop) -> None:
    shop.has["pot", ""] = told(*[{"title": f"pot {n}"} for n in range(LOOKED_AT + 1)])
    settings = EnrichmentSettings(base_url=f"{shop.url}/")
    assert ask(settings, "/products", QUESTION, lambda product: product.title == f"pot {LOOKED_AT - 1}") is not None
    assert ask(settings, "/products", QUESTION, lambda product: product.title == f"pot {LOOKED_AT}") is None
    assert "authorization" not in shop.requests[0].headers


def test_an_empty_answer_is_no_product(shop: Shop) -> None:
    shop.has["pot", ""] = told()
    assert asked(shop) is None


def test_nobody_there_is_trouble_with_the_network() -> None:
    with pytest.raises(NoAnswer) as refused:
        ask(EnrichmentSettings(base_url="http://127.0.0.1:9"), "/products", QUESTION)
    assert refused.value.trouble == "network"
