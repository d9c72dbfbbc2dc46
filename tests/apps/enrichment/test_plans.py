"""Plans on the table of questions: those of a job or of an item are a short stretch of an index."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from duly.verbs import LOCAL
from tests.apps.enrichment.conftest import Desk

# Questions of two items, nearly all of the first one's; each of another try, because a try asks each only once.
SEED = """
with recursive series(n) as (select 1 union all select n + 1 from series where n < 20000)
insert into duly_search_event
       (item_id, job_id, attempt, fence, round, variant, retailer, status, milliseconds, created_at)
select case when n % 100 = 0 then :few else :many end, case when n % 100 = 0 then :job else 999 end,
       1, n, 0, 'sku', 'acme', 'not_found', 7, :now
  from series
"""


def test_questions_of_a_job_and_of_an_item_are_found_along_an_index(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, searches = desk.app.store, desk.enrichment.searches
    job = desk.send("sku\nTP-7\n")
    many, few = (desk.enrichment.look_up(sku=sku).id for sku in ("TP-8", "TP-9"))
    store.query(SEED, {"many": many, "few": few, "job": job.id, "now": desk.app.clock.now()})
    store.query("analyze duly_search_event", {})
    asked: list[tuple[str, Mapping[str, Any]]] = []
    query = store.query

    def noted(sql: str, given: Mapping[str, Any], connection: Any = None) -> list[tuple[Any, ...]]:
        asked.append((sql, given))
        return query(sql, given, connection)

    monkeypatch.setattr(store, "query", noted)
    assert len(searches.page(LOCAL, job.id, after=10_000, most=50)) == 50
    assert len(searches.of(store.fetch([few])[0])) == 200
    explain = "explain query plan" if desk.app.settings.database_url.startswith("sqlite") else "explain"
    of_job, of_item = ("\n".join(str(row) for row in query(f"{explain} {sql}", given)) for sql, given in asked)
    assert "duly_search_event_job" in of_job
    assert "duly_search_event_pkey" in of_item
    for plan in (of_job, of_item):
        assert "Seq Scan" not in plan
        assert "SCAN" not in plan
    for sort in ("TEMP B-TREE", "Sort"):
        assert sort not in of_job, "its pages are read in the order of the index"
