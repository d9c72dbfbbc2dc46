"""Plans on the table of questions: those of a job or of an item are a short stretch of an index."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import pytest

from duly.verbs import LOCAL
from tests.apps.enrichment.conftest import Desk

# A hundred questions of each item, each of another try, because a try asks each only once; every tenth item has a job.
SEED = """
with recursive series(n) as (select 1 union all select n + 1 from series where n < 100)
insert into duly_search_event
       (item_id, job_id, attempt, fence, round, variant, retailer, status, milliseconds, created_at)
select i.id, case when i.id % 10 = 0 then :job else 999 end, 1, n, 0, 'sku', 'acme', 'not_found', 7, :now
  from duly_item i cross join series
 where i.task = 'enrichment.product'
"""


def test_questions_of_a_job_and_of_an_item_are_found_along_an_index(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, searches = desk.app.internals.store, desk.enrichment.searches
    job = desk.send("sku\nTP-7\n")
    desk.enrichment.product.put_many({"sku": f"TP-{number}"} for number in range(200))
    one = desk.enrichment.look_up(sku="TP-8").id
    store.query(SEED, {"job": job.id, "now": desk.app.clock.now()})
    store.query("analyze duly_search_event", {})
    asked: list[tuple[str, Mapping[str, Any]]] = []
    query = store.query

    def noted(sql: str, given: Mapping[str, Any], connection: Any = None) -> list[tuple[Any, ...]]:
        is_ours = threading.current_thread() is threading.main_thread()  # not what the desk's worker asks meanwhile
        if is_ours and (sql, given) not in asked:  # on SQLite the store passes it on to itself
            asked.append((sql, given))
        return query(sql, given, connection)

    monkeypatch.setattr(store, "query", noted)
    assert len(searches.page(LOCAL, job.id, after=1_000, most=50)) == 50
    assert len(searches.of(store.fetch([one])[0])) == 100
    explain = "explain query plan" if desk.app.settings.database_url.startswith("sqlite") else "explain"
    of_job, of_item = ("\n".join(str(row) for row in query(f"{explain} {sql}", given)) for sql, given in tuple(asked))
    assert "duly_search_event_job" in of_job
    assert "duly_search_event_pkey" in of_item
    for plan in (of_job, of_item):
        assert "Seq Scan" not in plan
        assert "SCAN" not in plan
    for sort in ("TEMP B-TREE", "Sort"):
        assert sort not in of_job, "its pages are read in the order of the index"
