"""The server that the demo calls, on this machine only: `POST /call`, /greetings, /products and /catalog/batch.

It accepts every call and message, except those that it was set up to refuse with `expect`. It finds most products by
number, some by name, and some not at all, and is slow about it, so that the progress of a job can be watched.
"""

from __future__ import annotations

import csv
import io
import json
import threading
import time
from collections.abc import Callable
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import uuid4

REFUSALS = {400: "not a phone number", 429: "too many calls", 503: "line busy"}
TAKES = 0.5  # seconds for the answer to a look-up

_THINGS = (
    "Tea pot", "Cup", "Saucer", "Kettle", "Milk jug", "Sugar bowl", "Tea strainer", "Tea cosy", "Tray", "Spoon", "Mug",
    "Thermos",
)  # fmt: skip
_COLOURS = ("blue", "red", "green", "white")
# The rows of the file of products.
PRODUCTS = [
    {"Product Name": f"{thing}, {colour}", "Manufacturer": "Acme", "Item No.": f"AC-{number}"}
    for number, (thing, colour) in enumerate(((thing, colour) for thing in _THINGS for colour in _COLOURS), 100)
]
# Products of the catalog that the supplier has no longer.
GONE = frozenset(f"AC-{number}" for number in (1_002, 1_007, 1_031, 1_104))


def products_csv() -> bytes:
    """The file, as CSV."""
    out = io.StringIO()
    writer = csv.DictWriter(out, list(PRODUCTS[0]))
    writer.writeheader()
    writer.writerows(PRODUCTS)
    return out.getvalue().encode()


class Provider:
    def __init__(self, takes: float = TAKES) -> None:
        self._takes = takes
        self._plans: dict[str, list[int]] = {}
        self._calls: dict[str, str] = {}
        self._failures = {"AC-105": 429, "AC-125": 429, "AC-112": 503}  # look-ups that fail once
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, self.answer))
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Provider:
        threading.Thread(target=self._server.serve_forever, name="duly-provider", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def expect(self, number: str, refusals: list[int]) -> None:
        """Answer the next calls to this number, or messages to this person, with these statuses; then accept them."""
        self._plans[number] = list(refusals)

    def answer(self, path: str, asked: dict[str, Any], key: str) -> tuple[int, dict[str, Any]]:
        """The status and the body of the response."""
        match path:
            case "/call":
                return self._call(asked["customer"]["number"], key)
            case "/greetings":
                return self._call(asked["userId"], key)
            case "/products":
                return self._look_up(asked["query"])
            case "/catalog/batch":
                return 200, {"products": [_offer(sku) for sku in asked["skus"] if sku not in GONE]}
        return 404, {"statusCode": 404, "message": "not found"}

    def _call(self, number: str, key: str) -> tuple[int, dict[str, Any]]:
        """Requests with the same key are the same call."""
        if refusals := self._plans.get(number):
            status = refusals.pop(0)
            return status, {"statusCode": status, "message": REFUSALS[status]}
        return 201, {"id": self._calls.setdefault(key, f"call_{uuid4().hex[:8]}"), "status": "queued"}

    def _look_up(self, query: str) -> tuple[int, dict[str, Any]]:
        """Every tenth product is found by its name only, every sixteenth is not found."""
        time.sleep(self._takes)
        if status := self._failures.pop(query, None):
            return status, {"message": "not now"}
        found = [
            {
                "title": row["Product Name"], "brand": row["Manufacturer"], "sku": row["Item No."],
                "price": f"{number}.90", "currency": "EUR", "url": f"https://acme.example/{row['Item No.']}",
                "retailer": "acme",
            }
            for number, row in enumerate(PRODUCTS, 1)
            if number % 16 and (query in row["Product Name"] or (number % 10 and query == row["Item No."]))
        ]  # fmt: skip
        return 200 if found else 404, {"products": found}


def _offer(sku: str) -> dict[str, Any]:
    """The supplier's answer for a product. Quantities change from minute to minute."""
    number, minute = sum(sku.encode()) * 31, int(time.time()) // 60
    return {"sku": sku, "price": 5 + number % 90 + 0.9, "quantity": (number + minute) % 40, "in_stock": True}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 5

    def __init__(self, answer: Callable[[str, Any, str], tuple[int, Any]], *given: Any) -> None:
        self._answer = answer
        super().__init__(*given)

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status, answer = self._answer(self.path, asked, self.headers["Idempotency-Key"])
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if status == 429:
            self.send_header("Retry-After", "3")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nothing is logged: the demo shows what happens."""
