"""A supplier's catalog API on a free port of this host: it knows every SKU, and misbehaves as it is told."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tests.outbound.provider import Answer, Desk, Provider


class CatalogApi(Provider):
    """Answers batches. Scripted answers come first; then what is said of single SKUs, and of how many may pass."""

    def __init__(self, *answers: Answer) -> None:
        super().__init__(*answers)
        self.missing: set[str] = set()
        self.entries: dict[str, Any] = {}  # instead of what is well
        self.passes: int | None = None  # so many more SKUs are answered, the others are missing; None: all

    def accept(self, request: Any) -> Answer:
        scripted = super().accept(request)
        return scripted if scripted.__name__ != "ok" else _answer_all

    def asked(self, since: int = 0) -> list[str]:
        """All SKUs that were asked for, from the n-th request on."""
        return [sku for request in self.requests[since:] for sku in request.body["skus"]]

    def products(self, skus: list[str]) -> list[Any]:
        found = []
        for sku in skus:
            if sku in self.missing or self.passes == 0:
                continue
            if self.passes is not None:
                self.passes -= 1
            found.append(self.entries.get(sku, entry(sku)))
        return found


def entry(sku: str, **more: Any) -> dict[str, Any]:
    return {"sku": sku, "price": 19.99, "quantity": 7, "in_stock": True, **more}


def _answer_all(desk: Desk) -> None:
    api = desk.provider
    assert isinstance(api, CatalogApi)
    desk.reply(200, json.dumps({"products": api.products(desk.request_seen.body["skus"])}).encode())


def answer_with(products: Callable[[list[str]], Any]) -> Answer:
    """Answer a batch with these products."""

    def scripted(desk: Desk) -> None:
        desk.reply(200, json.dumps({"products": products(desk.request_seen.body["skus"])}).encode())

    return scripted


def hang(desk: Desk) -> None:
    """Say nothing until the end."""
    desk.provider.closing.wait()
