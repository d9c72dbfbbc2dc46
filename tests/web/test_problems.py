"""Errors in requests are described in words of our own, the field first."""

from __future__ import annotations

from typing import Any

import pytest

from tests.web.conftest import House

TIME = "2026-12-01T09:00:00+01:00"


@pytest.mark.parametrize(
    ("url", "body", "detail"),
    [
        ("/api/items", {}, "task: is required"),
        ("/api/items", None, "body: is required"),
        ("/api/items", [], "body: must be an object"),
        ("/api/items", {"task": "echo", "colour": 1}, "colour: is not a known field"),
        ("/api/items", {"task": 1}, "task: must be a string"),
        ("/api/items", {"task": ""}, "task: must not be empty"),
        ("/api/items", {"task": "x" * 201}, "task: must have at most 200 characters"),
        ("/api/items", {"task": "a\0b"}, "task: must not contain NUL characters"),
        ("/api/items", {"task": "echo", "args": 1}, "args: must be an object"),
        ("/api/items", {"task": "echo", "rank": "high"}, "rank: must be a whole number"),
        ("/api/items", {"task": "echo", "rank": 1.5}, "rank: must be a whole number"),
        ("/api/items", {"task": "echo", "rank": 101}, "rank: must be at most 100"),
        ("/api/items", {"task": "echo", "tries": 0}, "tries: must be at least 1"),
        ("/api/items", {"task": "echo", "delay": "soon"}, "delay: must be a number"),
        ("/api/items", {"task": "echo", "delay": 4e9}, "delay: must be at most 3000000000"),
        ("/api/items", {"task": "echo", "at": "soon"}, f"at: must be a time like {TIME}"),
        ("/api/items", {"task": "echo", "at": "2026-12-01T09:00:00"}, f"at: must be a time with its zone, like {TIME}"),
        ("/api/items", {"task": "echo", "at": "1066-12-01T09:00:00Z"}, "at: must lie between the years 1970 and 9800"),
        ("/api/items/act", {"action": "eat", "ids": [1]}, "action: must be 'cancel', 'retry' or 'discard'"),
        ("/api/items/act", {"action": "retry", "ids": []}, "ids: must not be empty"),
        ("/api/items/act", {"action": "retry", "ids": 1}, "ids: must be a list"),
        ("/api/items/act", {"action": "retry", "ids": [1, "x"]}, "ids.1: must be a whole number"),
        ("/api/items/act", {"action": "retry", "ids": [1], "skip": "maybe"}, "skip: must be true or false"),
        ("/api/items", {"task": "echo", "at": 5}, f"at: must be a time like {TIME}"),
        ("/api/items", {"task": "echo", "at": "5"}, f"at: must be a time like {TIME}"),
        ("/api/items", {"task": "echo", "rank": "5"}, "rank: must be a whole number"),
        ("/api/items", {"task": "echo", "rank": 1.0}, "rank: must be a whole number"),
        ("/api/items", {"task": "echo", "tries": True}, "tries: must be a whole number"),
        ("/api/items", {"task": "echo", "delay": "5"}, "delay: must be a number"),
        ("/api/items", {"task": "echo", "delay": True}, "delay: must be a number"),
        ("/api/items/act", {"action": "retry", "ids": [True]}, "ids.0: must be a whole number"),
        ("/api/items/act", {"action": "retry", "ids": ["1"]}, "ids.0: must be a whole number"),
        ("/api/items/act", {"action": "retry", "ids": [1], "skip": "yes"}, "skip: must be true or false"),
        ("/api/items/act", {"action": "retry", "ids": [1], "skip": 1}, "skip: must be true or false"),
        ("/api/acts/count", {"action": "retry", "filter": {"jobId": "1"}}, "filter.jobId: must be a whole number"),
        ("/api/jobs", {"source": "file:a.csv", "header": "yes"}, "header: must be true or false"),
        ("/api/products/import", {"products": [{"sku": "a", "lastSuccessfulSync": 5}]},
         "products.0.lastSuccessfulSync: must be a date like 2026-12-01"),
        ("/api/products/import", {"products": [{"sku": "a", "lastPrice": True}]},
         "products.0.lastPrice: must be a number"),
        ("/api/products/import", {"products": [{"sku": "a", "inStock": "yes"}]},
         "products.0.inStock: must be true or false"),
        ("/api/products/import", {"products": [{"sku": "a", "colour": "red"}]},
         "products.0: 'colour' is not a field of an import. Accepted fields: userId, sku, hourBucket, syncStatus, "
         "lastSyncAt, lastSuccessfulSync, consecutiveFailures, lastError, isActive, lastBoeingHash, lastPrice, "
         "lastQuantity, inStock, id, createdAt, updatedAt"),
        ("/api/products/import", {"products": [{"sku": "a", "syncStatus": "done"}]},
         "products.0.syncStatus: must be 'pending', 'syncing', 'success' or 'failed'"),
        ("/api/plan", {"rate": 0}, "rate: must be more than 0"),
        ("/api/plan", {"failureRate": 1}, "failureRate: must be less than 1"),
        ("/api/products/import", {"products": [{"sku": "a", "lastSuccessfulSync": "x"}]},
         "products.0.lastSuccessfulSync: must be a date like 2026-12-01"),
        ("/api/products/import", {"products": [{"sku": "a", "lastPrice": "x"}]},
         "products.0.lastPrice: must be a number"),
        ("/api/products/import", {"products": [{"sku": "a", "lastPrice": "9" * 31}]},
         "products.0.lastPrice: must have at most 30 digits"),
        ("/api/jobs", {"source": 5}, "source: must be a string"),
        ("/api/jobs", {}, "source: is required"),
    ],
)  # fmt: skip
def test_an_error_in_a_body_is_plain(house: House, url: str, body: Any, detail: str) -> None:
    answer = house.root.post(url, json=body) if body is not None else house.root.post(url)
    assert (answer.status_code, answer.json()["detail"]) == (422, detail)
    assert answer.json()["field"] == detail.partition(":")[0]


@pytest.mark.parametrize(
    ("url", "detail"),
    [
        ("/api/items?pageSize=many", "pageSize: must be a whole number"),
        ("/api/items?pageSize=501", "pageSize: must be at most 500"),
        ("/api/items?dateField=never", "dateField: must be 'created', 'due', 'started' or 'finished'"),
        ("/api/items?errorGroup=X", "errorGroup: must match ^[0-9a-f]{1,64}$"),
        ("/api/items?from=5", f"from: must be a time like {TIME}"),
        ("/api/items/0", "item_id: must be at least 1"),
        ("/api/late?grace=x", "grace: must be a number"),
        ("/api/late?grace=nan", "grace: must be a finite number"),
    ],
)
def test_an_error_in_a_query_or_path_is_plain(house: House, url: str, detail: str) -> None:
    answer = house.root.get(url)
    assert (answer.status_code, answer.json()["detail"]) == (422, detail)


def test_a_body_that_is_not_json_is_an_error_of_the_body(house: House) -> None:
    answer = house.root.post("/api/items", content=b"{,", headers={"Content-Type": "application/json"})
    assert answer.status_code == 422
    assert answer.json()["field"] == "body"
    assert answer.json()["detail"].startswith("body: is not valid JSON (")
