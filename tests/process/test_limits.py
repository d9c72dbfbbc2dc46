"""Limits on calls in a window of time, by a worker whose database is some milliseconds away."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import pytest
from bench.far import far
from bench.limits import busiest

from duly import Duly, Limit, Skip, Snooze
from tests.process.fleet import until

# A busy machine may take a moment between the last check of a call and the first line of its handler.
MOMENT = 0.05


@pytest.mark.parametrize("kind", ["async", "thread"])
@pytest.mark.parametrize("milliseconds", [12, 50])
def test_a_worker_far_from_its_database_makes_all_calls_of_a_limit_and_no_more(
    postgres_url: str, milliseconds: int, kind: str
) -> None:
    begun: list[float] = []
    counts: Counter[str] = Counter()
    with far(postgres_url, milliseconds / 1_000) as url:
        app = Duly(url)
        limit = Limit("callee", 10, per="0.5s")
        if kind == "async":

            @app.task(limits=limit)
            async def call(n: int) -> None:
                begun.append(time.monotonic())
                if n % 3 == 1:
                    raise Skip("nothing to do")
                if n % 3 == 2:
                    raise Snooze(3_600)
        else:

            @app.task(limits=limit, name="call")
            def call_in_thread(n: int) -> None:
                begun.append(time.monotonic())

        store = app.internals.store
        claim = store.claim_metered

        def counted(*given: Any) -> Any:
            grants = claim(*given)
            counts["granted"] += sum(grant.calls for grant in grants)
            return grants

        store.claim_metered = counted  # type: ignore[method-assign]
        next(iter(app.tasks.values())).put_many({"n": n} for n in range(90))
        with app.worker():
            until(lambda: len(begun) >= 60, 60)
        app.close()
    assert busiest(sorted(begun), limit.seconds - MOMENT) <= 10  # type: ignore[operator]
    assert counts["granted"] < 2 * len(begun), "what is granted is used"


def test_what_did_not_begin_before_the_worker_stopped_is_given_back(postgres_url: str) -> None:
    """The calls that were granted ahead; those of others that began count on."""
    begun: list[float] = []
    with far(postgres_url, 0.05) as url:
        app = Duly(url)

        @app.task(limits=Limit("callee", 3, per="5s"))
        async def call() -> None:
            begun.append(time.monotonic())

        call.put_many({} for _ in range(20))
        with app.worker():
            until(lambda: len(begun) >= 3, 60)
        rows = app.internals.store.read("all_meters", {"after": "", "most": 10})
        states = Counter(row.state for row in app.read.page(task="call", most=100))
        app.close()
    assert [len(row[3]) for row in rows] == [len(begun)]
    assert states == {"done": len(begun), "waiting": 20 - len(begun)}
