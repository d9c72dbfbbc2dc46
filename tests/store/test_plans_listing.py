"""Plans of lists of items: a walk is a short stretch of its index, and what it met is looked up by ids alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from duly.core import codec
from duly.store.migrate import migrate
from duly.store.sql import sections
from duly.store.sqlite.values import to_int
from tests.store.test_plans import MODES, STATISTICS, Explained, nodes, touched
from tests.support import NOW, after, fresh_database, opened

pytestmark = pytest.mark.xdist_group("plans")

ROWS = 100_000
MOST = 50
SEED = """
insert into duly_item (task, queue, args, due_at, planned_at, execution_key, created_at, state, owner, schedule_id,
                       job_id, row_no, status, changed_at, error_group)
select 'ring', 'ring', '{{}}', {at}, {at}, {key}, {at},
       case when n % 10 = 0 then 'failed' when n % 10 = 1 then 'waiting' else 'done' end,
       case when n % 2 = 0 then 'ana' end, n % 3, case when n % 5 = 0 then 1 end, case when n % 5 = 0 then n end,
       case when n % 5 = 0 then 'DONE' end, {at}, case when n % 20 = 0 then 'abc' end
  from {series}
"""
BEFORE = {"before": ROWS // 2, "most": MOST}
FILTER = dict.fromkeys(
    ("owner", "task", "queue", "error_group", "schedule_id", "job_id", "below", "key", "states", "error", "min_tries",
     "since", "until", "but"),
) | {"date_field": "created", "wanted": "[]"}  # fmt: skip
SOME = codec.encode(list(range(1, ROWS, ROWS // 2_000))).decode()
# What is asked, and along which index it is to be found.
ASKED: dict[str, tuple[dict[str, Any], str]] = {
    "walk_all": (BEFORE, "duly_item_pkey"),
    "walk_owner": ({"owner": "ana", **BEFORE}, "duly_item_owner"),
    "walk_review": (BEFORE, "duly_item_review"),
    "walk_group": ({"error_group": "abc", **BEFORE}, "duly_item_group"),
    "walk_job": ({"job_id": 1, **BEFORE}, "duly_item_row"),
    "walk_schedule": ({"schedule_id": 1, "before": after(ROWS // 2), "most": MOST}, "duly_item_occurrence"),
    "some_waiting": ({"most": MOST}, "duly_item_soon"),
}
ASKED |= {"newest_until": ({"id": ROWS // 2}, "duly_item_pkey")}
RISING = {"place": ROWS // 2, "until": ROWS, "most": MOST}
ASKED |= {
    "rise_all": (RISING, "duly_item_pkey"),
    "rise_owner": ({"owner": "ana", **RISING}, "duly_item_owner"),
    "rise_review": (RISING, "duly_item_review"),
    "rise_group": ({"error_group": "abc", **RISING}, "duly_item_group"),
}
PICKED: dict[str, dict[str, Any]] = {"fitting": {**FILTER, "ids": SOME}, "rows": {"ids": SOME, "owner": None}}


@pytest.fixture(scope="module", params=STATISTICS)
def seeded_server(request: pytest.FixtureRequest, postgres_server: str) -> Iterator[str]:
    with fresh_database(postgres_server) as url, opened(url) as store:
        migrate(store)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("alter table duly_item set (autovacuum_enabled = off)")
            if request.param == "stale":
                connection.execute("analyze duly_item")  # when it is empty
            connection.execute(
                SEED.format(
                    at=f"timestamptz '{NOW}' + n * interval '1 second'",
                    key="gen_random_uuid()",
                    series=f"generate_series(1, {ROWS}) as s(n)",
                )
            )
            if request.param == "fresh":
                connection.execute("vacuum analyze duly_item")
        yield url


@pytest.fixture(scope="module")
def seeded_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    path: Path = tmp_path_factory.mktemp("listing") / "duly.db"
    with opened(f"sqlite:///{path}") as store:
        migrate(store)
        with store.transaction() as connection:
            connection.execute(
                "with recursive s(n) as (select 1 union all select n + 1 from s where n < 10000) "
                + SEED.format(at=f"{to_int(NOW)} + n * 1000000", key="n", series="s")
            )
    return f"sqlite:///{path}"


def plan_of(url: str, mode: str, name: str, given: dict[str, Any]) -> dict[str, Any]:
    store = Explained(url, mode)
    try:
        store.read(name, given)  # so that the connection is there
        (plan,) = store.plans(lambda: store.read(name, given))
    finally:
        store.close()
    return plan


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ASKED)
def test_a_walk_is_a_short_stretch_of_its_index_on_postgres(seeded_server: str, mode: str, name: str) -> None:
    given, index = ASKED[name]
    plan = plan_of(seeded_server, mode, name, given)
    scans = [node for node in nodes(plan) if node.get("Relation Name") == "duly_item"]
    assert [scan.get("Index Name") for scan in scans] == [index], plan
    assert sum(map(touched, scans)) <= MOST
    assert not [node for node in nodes(plan) if node["Node Type"].endswith("Sort")]


TRENDS = {"groups": '["abc"]', "owner": None, "since": NOW, "most": MOST}


@pytest.mark.parametrize("mode", MODES)
def test_the_trend_of_a_group_looks_at_its_newest_items_only_on_postgres(seeded_server: str, mode: str) -> None:
    plan = plan_of(seeded_server, mode, "group_trends", TRENDS)
    scans = [node for node in nodes(plan) if node.get("Relation Name") == "duly_item"]
    assert [scan.get("Index Name") for scan in scans] == ["duly_item_group"], plan
    assert sum(map(touched, scans)) <= MOST


def test_the_trend_of_a_group_looks_at_its_newest_items_only_on_sqlite(seeded_file: str) -> None:
    told = explained(seeded_file, "group_trends", {**TRENDS, "since": to_int(NOW)})
    assert any(line.startswith("SEARCH r USING INDEX duly_item_group ") for line in told), told
    assert not any(line.startswith(("SCAN i", "SCAN r")) for line in told), told


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", PICKED)
def test_what_a_walk_met_is_looked_up_by_ids_alone_on_postgres(seeded_server: str, mode: str, name: str) -> None:
    plan = plan_of(seeded_server, mode, name, PICKED[name])
    scans = [node for node in nodes(plan) if node.get("Relation Name") == "duly_item"]
    assert all(node["Node Type"] != "Seq Scan" for node in scans), plan
    assert sum(touched(node) for node in scans) <= 2_000


@pytest.mark.parametrize("name", ASKED)
def test_a_walk_is_a_short_stretch_of_its_index_on_sqlite(seeded_file: str, name: str) -> None:
    given, index = ASKED[name]
    plain = {
        key: to_int(value) if name == "walk_schedule" and key == "before" else value for key, value in given.items()
    }
    told = explained(seeded_file, name, plain)
    by = "INTEGER PRIMARY KEY" if index == "duly_item_pkey" else f"INDEX {index}"
    # What waits is read from the first due on, so the whole index is the stretch, up to the limit.
    assert any(line.startswith(("SEARCH", "SCAN")) and by in line for line in told), told
    assert name == "some_waiting" or all(line.startswith("SEARCH") for line in told), told
    assert not any("TEMP B-TREE" in line for line in told), told


@pytest.mark.parametrize("name", PICKED)
def test_what_a_walk_met_is_looked_up_by_ids_alone_on_sqlite(seeded_file: str, name: str) -> None:
    told = explained(seeded_file, name, PICKED[name])
    assert any(line == "SEARCH duly_item USING INTEGER PRIMARY KEY (rowid=?)" for line in told), told
    assert not any(line.startswith("SCAN duly_item") for line in told), told


def explained(url: str, name: str, given: dict[str, Any]) -> list[str]:
    with opened(url) as store, store.transaction() as connection:
        return [row[3] for row in connection.execute(f"explain query plan {sections('sqlite')[name]}", given)]
