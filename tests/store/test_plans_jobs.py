"""Plans of lists of jobs: any page of any filter is a short stretch of an index, however many rows there are."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest

from duly.core.model import Done
from duly.store.migrate import migrate
from duly.store.sql import sections
from duly.store.sqlite.values import to_int
from tests.process.fleet import until
from tests.store.test_plans import MODES, Explained
from tests.support import NOW, after, fresh_database, opened, put_and_claim, settle

pytestmark = pytest.mark.xdist_group("plans")

ROWS = 100_000
MOST = 50
# Rows of three jobs, of which one has nearly all; most are done, and many changed in the same moment.
SEED = """
insert into duly_item (task, queue, args, due_at, planned_at, execution_key, created_at, state, job_id, row_no, status,
                       owner, changed_at)
select 'ring', 'ring/job-1', '{{}}', {at}, {at}, {key}, {at}, case when n % 5 = 0 then 'waiting' else 'done' end,
       1 + (n % 100 = 0) + (n % 1000 = 0), n, case when n % 5 = 0 then 'PENDING' else 'DONE' end,
       case when n % 100 = 0 then 'bob' else 'ana' end, {at}
  from {series}
"""
AFTER = {"after_at": after(ROWS / 200), "after_id": ROWS // 2, "most": MOST}
ALL = {"until": after(2 * ROWS), "until_at": after(2 * ROWS), "until_id": ROWS}
ANY_TYPE = {"job_type": None, "jobs": None, **ALL, **AFTER}
EVERYBODYS = {"owner": None, "each": 1, **ANY_TYPE}
WHILE = {"job_type": None, "owner": None, "since": after(ROWS / 300), "until": after(2 * ROWS), "most": MOST}
# What is asked, and along which index it is to be found.
ASKED: dict[str, tuple[str, dict[str, Any], str]] = {
    "rows of a status": ("job_items", {"job_id": 1, "status": "PENDING", **AFTER}, "duly_item_job"),
    "rows of a status that most have": ("job_items", {"job_id": 1, "status": "DONE", **AFTER}, "duly_item_job"),
    "rows by number": ("job_items_by_number", {"job_id": 1, "after": 90_000, "until": 90_050}, "duly_item_row"),
    "the next rows of all": ("listed_until", {"status": "PENDING", "ahead": 50, **ALL, **AFTER}, "duly_item_listed"),
    "pending rows of all": ("listed_items", {"status": "PENDING", **ANY_TYPE}, "duly_item_listed"),
    "rows of all that were skipped": ("listed_items", {"status": "SKIPPED", **ANY_TYPE}, "duly_item_listed"),
    "jobs whose rows come first": ("pending_heads", {"status": "PENDING", **EVERYBODYS}, "duly_item_job"),
    "jobs whose skipped rows come first": ("ended_heads", {"status": "SKIPPED", **EVERYBODYS}, "duly_item_job"),
    "pending rows of one": (
        "items_of_jobs", {"status": "PENDING", **EVERYBODYS, "each": MOST, "owner": "bob"}, "duly_item_job"
    ),
    "pending rows of one job": (
        "items_of_jobs", {"status": "PENDING", **EVERYBODYS, "each": MOST, "jobs": "[2]"}, "duly_item_job"
    ),
    "rows of a job that changed in a while": (
        "count_status", {"status": "PENDING", "jobs": "[1]", **WHILE}, "duly_item_job"
    ),
    "how fast jobs are": ("job_speeds", {"ids": "[1]", "since": after(ROWS / 300), "most": MOST}, "duly_item_job"),
    "rows to export": ("export_rows", {"job_id": 1, "after": 90_000, "most": MOST}, "duly_item_row"),
    "whether one is at work": ("jobs_at_work", {"ids": "[1,2,3]"}, "duly_item_job"),
}  # fmt: skip


MERGED = ("pending_heads", "ended_heads", "items_of_jobs", "job_speeds")
# The three jobs: two of one owner, and one of another.
JOBS = """
insert into duly_job (task, queue, owner, created_at, changed_at)
select 'ring', 'ring', case when n < 3 then 'ana' else 'bob' end, {at}, {at}
  from {series}
"""


@pytest.fixture(scope="module")
def seeded_server(postgres_server: str) -> Iterator[str]:
    with fresh_database(postgres_server) as url, opened(url) as store:
        migrate(store)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(
                SEED.format(
                    at=f"timestamptz '{NOW}' + n / 100 * interval '1 second'",
                    key="gen_random_uuid()",
                    series=f"generate_series(1, {ROWS}) as s(n)",
                ).replace("(n % 100 = 0) + (n % 1000 = 0)", "(n % 100 = 0)::int + (n % 1000 = 0)::int")
            )
            connection.execute(JOBS.format(at=f"timestamptz '{NOW}'", series="generate_series(1, 3) as s(n)"))
            connection.execute("vacuum analyze duly_item, duly_job")
        yield url


@pytest.fixture(scope="module")
def seeded_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    path: Path = tmp_path_factory.mktemp("jobs") / "duly.db"
    with opened(f"sqlite:///{path}") as store:
        migrate(store)
        with store.transaction() as connection:
            connection.execute(
                "with recursive s(n) as (select 1 union all select n + 1 from s where n < 10000) "
                + SEED.format(at=f"{to_int(NOW)} + n / 100 * 1000000", key="n", series="s")
            )
            connection.execute(JOBS.format(at=to_int(NOW), series="(select 1 as n union select 2 union select 3)"))
    return f"sqlite:///{path}"


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for inner in plan.get("Plans", ()):
        yield from nodes(inner)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("what", ASKED)
def test_a_page_is_a_short_stretch_of_an_index_on_postgres(seeded_server: str, mode: str, what: str) -> None:
    name, given, index = ASKED[what]
    store = Explained(seeded_server, mode)
    try:
        store.read(name, given)  # so that the connection is there
        (plan,) = store.plans(lambda: store.read(name, given))
    finally:
        store.close()
    scans = [node for node in nodes(plan) if node.get("Relation Name") == "duly_item"]
    assert [scan.get("Index Name") for scan in scans] == [index], plan
    assert all(scan["Actual Rows"] <= 51 and scan.get("Rows Removed by Filter", 0) == 0 for scan in scans)
    is_merged = name in MERGED  # the first rows of each job are put in one order
    sorted_rows = [node["Actual Rows"] for node in nodes(plan) if node["Node Type"].endswith("Sort")]
    assert all(count <= 3 * MOST for count in sorted_rows) if is_merged else not sorted_rows
    assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < 200


@pytest.mark.parametrize("what", ASKED)
def test_a_page_is_found_along_an_index_on_sqlite(seeded_file: str, what: str) -> None:
    name, given, index = ASKED[what]
    plain = {key: to_int(value) if isinstance(value, datetime) else value for key, value in given.items()}
    with opened(seeded_file) as store, store.transaction() as connection:
        told = [row[3] for row in connection.execute(f"explain query plan {sections('sqlite')[name]}", plain)]
    assert any(line.startswith("SEARCH") and f"INDEX {index} " in line for line in told), told
    assert name in MERGED or not any("TEMP B-TREE" in line for line in told)
    assert not any(line.startswith(("SCAN duly_item", "SCAN i", "SCAN r")) for line in told)


def test_settling_an_item_without_a_job_writes_no_index(blank_postgres_url: str) -> None:
    """PostgreSQL writes all of them as soon as a column changes that any index has, also one that the row is not in."""
    counted = "select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables where relname = 'duly_item'"

    def updates() -> Any:
        with psycopg.connect(blank_postgres_url) as connection:
            return connection.execute(counted).fetchone()

    with opened(blank_postgres_url) as store:
        migrate(store)
        items = put_and_claim(store, 5)
        settle(store, items, Done())
    until(lambda: updates()[0] == 10)  # what a connection counted is known when it has ended
    assert updates() == (10, 5), "a claim takes a row out of the lines; its end changes no index"


MANY_JOBS = """
insert into duly_job (task, queue, created_at, changed_at, finished_at)
select 'ring', 'ring', {at}, {at}, {at}
  from {series}
"""
OF_ONE_JOB = {
    "job_sums": {"owner": None, "job_type": None, "jobs": "[7]"},
    "count_status": {"status": "PENDING", "jobs": "[7]", **WHILE},
}


@pytest.mark.parametrize("name", OF_ONE_JOB)
def test_one_job_of_many_is_looked_up_on_postgres(postgres_server: str, name: str) -> None:
    with fresh_database(postgres_server) as url, opened(url) as store:
        migrate(store)
        with psycopg.connect(url, autocommit=True) as connection:
            series = "generate_series(1, 5000) as s(n)"
            connection.execute(MANY_JOBS.format(at=f"timestamptz '{NOW}'", series=series))
            connection.execute("vacuum analyze duly_job")
        for mode in MODES:
            asked = Explained(url, mode)
            try:
                asked.read(name, OF_ONE_JOB[name])  # so that the connection is there
                (plan,) = asked.plans(lambda asked=asked: asked.read(name, OF_ONE_JOB[name]))
            finally:
                asked.close()
            scans = [node for node in nodes(plan) if node.get("Relation Name") == "duly_job" and node["Actual Loops"]]
            assert [scan.get("Index Name") for scan in scans] in (["duly_job_pkey"], ["duly_job_live"]), plan
            assert scans[0]["Actual Rows"] <= 1
            items = [node for node in nodes(plan) if node.get("Relation Name") == "duly_item" and node["Actual Loops"]]
            assert not items, "it is over, so nothing of it waits"


@pytest.mark.parametrize("name", OF_ONE_JOB)
def test_one_job_of_many_is_looked_up_on_sqlite(seeded_file: str, name: str) -> None:
    given = {key: to_int(each) if isinstance(each, datetime) else each for key, each in OF_ONE_JOB[name].items()}
    with opened(seeded_file) as store, store.transaction() as connection:
        told = [row[3] for row in connection.execute(f"explain query plan {sections('sqlite')[name]}", given)]
    assert any(line.startswith("SEARCH duly_job USING INTEGER PRIMARY KEY") for line in told), told
