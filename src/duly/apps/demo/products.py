"""A file of products, and the provider that finds most of them by number, some by name, and some not at all.

Its answers are slow, so that the progress of the job can be watched.
"""

from __future__ import annotations

import csv
import io
import threading
import time
from typing import Any

TAKES = 0.5  # seconds for an answer

_THINGS = (
    "Tea pot", "Cup", "Saucer", "Kettle", "Milk jug", "Sugar bowl", "Tea strainer", "Tea cosy", "Tray", "Spoon", "Mug",
    "Thermos",
)  # fmt: skip
_COLOURS = ("blue", "red", "green", "white")


def _made() -> list[dict[str, str]]:
    wanted = [(thing, colour) for thing in _THINGS for colour in _COLOURS]
    return [
        {"Product Name": f"{thing}, {colour}", "Manufacturer": "Acme", "Item No.": f"AC-{number}"}
        for number, (thing, colour) in enumerate(wanted, 100)
    ]


PRODUCTS = _made()


def products_csv() -> bytes:
    """The file, as CSV."""
    out = io.StringIO()
    writer = csv.DictWriter(out, list(PRODUCTS[0]))
    writer.writeheader()
    writer.writerows(PRODUCTS)
    return out.getvalue().encode()


class ProductLookUps:
    """Every tenth product is found by its name only, every sixteenth is not found. Some requests fail once."""

    def __init__(self, takes: float = TAKES) -> None:
        self._takes = takes
        self._failures = {"AC-105": 429, "AC-125": 429, "AC-112": 503}
        self._lock = threading.Lock()

    def answer(self, question: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """The response to a look-up."""
        time.sleep(self._takes)
        query = question["query"]
        with self._lock:
            if status := self._failures.pop(query, None):
                return status, {"message": "not now"}
        found = [_product(number) for number, row in enumerate(PRODUCTS, 1) if _is_known(number, row, query)]
        return 200 if found else 404, {"products": found}


def _is_known(number: int, row: dict[str, str], query: str) -> bool:
    if number % 16 == 0:
        return False
    return query in row["Product Name"] or (number % 10 != 0 and query == row["Item No."])


def _product(number: int) -> dict[str, Any]:
    row = PRODUCTS[number - 1]
    return {
        "title": row["Product Name"], "brand": row["Manufacturer"], "sku": row["Item No."], "price": f"{number}.90",
        "currency": "EUR", "url": f"https://acme.example/{row['Item No.']}", "retailer": "acme",
    }  # fmt: skip
