"""Plans on SQLite: searches by index, and a count of its virtual machine's steps on a seeded file.

SQLite plans by its schema and by ANALYZE alone, so hundreds of thousands of rows show what a million would.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from duly.core.advance import advance_all
from duly.core.model import Ask, Done, Failed, Fingerprint, Item, Meter
from duly.store.contract import START
from duly.store.migrate import migrate
from duly.store.sql import sections
from duly.store.sqlite.store import SqliteStore
from duly.store.sqlite.values import to_int
from tests.store.seeded import DUE, LEASES, RECURRING, SEED, SHARES
from tests.support import LEASE, NOW, after, decided, new, opened, share

pytestmark = pytest.mark.xdist_group("plans-sqlite")

PLACE = {"queue": "q1", "lane": "main", "rank": 0, "task": "ring", "owner": ""}
# What the store passes to each statement; the values do not matter to the plan.
STATEMENTS: dict[str, dict[str, Any]] = {
    "survey": {**PLACE, "most": 1_000},
    "newest": {"now": to_int(NOW), "most": 10},
    "oldest": {"now": to_int(NOW), "most": 10},
    "next_due": {"now": to_int(NOW)},
    "pick": {**PLACE, "since": 0, "now": to_int(NOW), "started_since": None, "suspected": None, "most": 10},
    "claim": {"items": "[1,2]", "fence": 7, "worker": "w1", "now": to_int(NOW)},
    "held": {"ids": "[1,2]"},
    "settle_done": {"ids": "[1,2]", "fence": 7, "finished_at": to_int(NOW)},
    "settle": dict.fromkeys(
        ("id", "was", "fence", "state", "outcome", "lane", "due_at", "attempt", "failures", "crashes", "losses")
    )
    | dict.fromkeys(("finished_at", "result", "error", "error_class", "expired_at", "rank", "error_group"))
    | dict.fromkeys(("status", "changed_at", "was_due_at", "was_rank", "excuses", "cause")),
    "progress": {"id": 1, "fence": 7, "progress": "1"},
    "under": {"fences": "[1,2]"},
    "fetch": {"ids": "[1,2]"},
    "old": {"after": 0, "most": 100},
    "prune": {"ids": "[1, 2, 3]"},
    "live": {"task": "ring", "key": "k"},
    "show": {"id": 1},
    "next_schedule": {"without": "[1]"},
    "due_schedules": {"since": 0, "now": to_int(NOW), "seen": "[1]", "most": 10},
    "some_schedules": {"ids": "[1,2]"},
    "occur": {"id": 1, "at": to_int(NOW)},
    "move_on": {"id": 1, "next_at": 1, "last_at": 1, "skipped": 0, "last_item": 1},
    "settle_members": dict.fromkeys(
        (
            "schedule_id",
            "failures",
            "at",
            "error",
            "is_success",
            "is_broken",
            "is_excused",
            "is_unchanged",
            "fingerprint",
            "keep",
        )
    ),
    "waiting_of": {"ids": "[1,2]"},
    "running_of": {"ids": "[1,2]"},
    "taken": {"task": "ring", "key": "k1"},
    "occurrences": {"schedule_id": 1, "most": 10},
}
SIZES = {"finished": 200_000, "future": 200_000, "backlog": 50_000, "running": 10 * LEASES, "schedules": 200_000}


@pytest.fixture(scope="session", params=["none", "fresh"])
def seeded_file(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("plans") / "duly.db"
    url = f"sqlite:///{path}?synchronous=off"
    with opened(url) as store:
        migrate(store)
    seed_sqlite(path, analyze=request.param == "fresh")
    return url


def seed_sqlite(path: Path, *, analyze: bool) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("pragma synchronous = off")
    kept = connection.execute(
        "select name, sql from sqlite_master"
        " where tbl_name in ('duly_item', 'duly_schedule') and type = 'index' and sql is not null"
    ).fetchall()
    connection.execute("begin")
    for name, _ in kept:
        connection.execute(f"drop index {name}")
    for name, count in SIZES.items():
        statement = SEED[name].format(
            series="s",
            past=f"{to_int(after(-86_400))} + n % 86400 * 1000000",
            future=f"{to_int(after(60))} + n * 1000000",
            minute=to_int(after(-60)),
            uuid="''",
            due=DUE,
            recurring=RECURRING,
        )
        series = f"with recursive s(n) as (select 0 union all select n + 1 from s where n < {count - 1})"
        connection.execute(f"{series} {statement}")
    connection.execute(
        f"insert into duly_lease (fence, worker, lease_until, items) select fence, 'w0', {to_int(after(-60))},"
        " json_group_array(id) from duly_item where state = 'running' group by fence"
    )
    for _, definition in kept:
        connection.execute(definition)
    connection.execute("commit")
    if analyze:
        connection.execute("analyze")
    connection.close()


@pytest.mark.parametrize("name", STATEMENTS)
def test_sqlite_searches_by_index_and_never_scans_the_items(seeded_file: str, name: str) -> None:
    with opened(seeded_file) as store, store.transaction() as connection:
        statement = f"explain query plan {sections('sqlite')[name]}"
        told = [row[3] for row in connection.execute(statement, STATEMENTS[name])]
    assert [line for line in told if line.startswith("SCAN") and line.split()[1] in ("duly_item", "i", "n",
            "duly_schedule") and "INDEX duly_item_line" not in line] == []  # fmt: skip
    assert any(line.startswith("SEARCH") for line in told)
    if name in ("pick", "old", "survey", "due_schedules"):
        assert [line for line in told if "TEMP B-TREE" in line] == []


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("waiting_tasks", "duly_item_soon"),
        ("waiting_of_task", "duly_item_soon"),
        ("failed_of_task", "duly_item_review"),
    ],
)
def test_what_waits_or_failed_of_a_task_is_looked_for_among_such_items_only(
    seeded_file: str, name: str, index: str
) -> None:
    with opened(seeded_file) as store, store.transaction() as connection:
        given = {"task": "ring", "owner": None, "most": 10}
        told = [row[3] for row in connection.execute(f"explain query plan {sections('sqlite')[name]}", given)]
    assert [line for line in told if "duly_item" in line and not line.endswith(f"USING INDEX {index}")] == []


def test_hundreds_of_thousands_of_other_rows_do_not_slow_a_worker_on_sqlite(seeded_file: str) -> None:
    with opened(seeded_file) as store:
        steps = dict(count_steps(store))
    assert {verb: count for verb, count in steps.items() if count > STEPS[verb]} == {}
    assert set(steps) == set(STEPS)


def test_a_look_at_some_lines_costs_the_same_among_any_number_of_them(sqlite_url: str) -> None:
    counts = []
    with opened(sqlite_url) as store:
        for first, last in ((0, 100), (100, 10_000)):
            store.load(new(queue=f"q{number:05}") for number in range(first, last))
            counts.append(steps_of(store, partial(store.survey, START, 50)))
    assert counts[1] <= counts[0] + 1_000


STEPS = {
    "claim": 10_000, "extend": 2_000, "settle": 10_000, "expired": 20_000, "survey": 3_000, "prune": 10_000,
    "next schedule": 200, "recur": 20_000, "claim metered": 10_000, "settle members": 15_000,
}  # fmt: skip


def steps_of(store: SqliteStore, act: Callable[[], object]) -> int:
    """How many steps SQLite's virtual machine takes, in hundreds."""
    steps = 0

    def step() -> None:
        nonlocal steps
        steps += 100

    connect = store.connect

    def watched() -> sqlite3.Connection:
        connection = connect()
        connection.set_progress_handler(step, 100)
        return connection

    store.close()  # so that it connects anew
    store.connect = watched  # type: ignore[method-assign]
    act()
    store.close()
    store.connect = connect  # type: ignore[method-assign]
    return steps


def count_steps(store: SqliteStore) -> Iterator[tuple[str, int]]:
    """The steps of each verb."""
    counted = partial(steps_of, store)
    items = []
    yield "claim", counted(lambda: items.extend(store.claim(SHARES, "w1", NOW, LEASE)))
    held = {items[0].fence: [item.id for item in items]}
    yield "extend", counted(lambda: store.extend(held, NOW, after(20)))
    changes = [decided(item, Failed("busy") if item.id % 2 else Done()) for item in items]
    yield "settle", counted(lambda: store.settle(changes, [items[0].fence]))
    yield "expired", counted(lambda: store.expired(NOW, 20))
    yield "survey", counted(store.survey)
    yield "prune", counted(lambda: store.prune(after(-3600), 0, 100))
    yield "next schedule", counted(lambda: store.read("next_schedule", {"without": "[]"}))
    recur = partial(store.revise, None, NOW, 20, partial(advance_all, NOW))
    yield "recur", counted(lambda: recur() == 20 or pytest.fail("nothing was due"))
    made: list[Item] = []
    ask = Ask(share("recurring", limit=20, task="ring"), (Meter("x", 1000),))
    metered = partial(store.claim_metered, [ask], "w1", NOW, LEASE, 1, 20)
    yield "claim metered", counted(lambda: made.extend(metered()[0].items))
    assert len(made) == 20
    ends = [decided(item, Failed("busy") if item.id % 2 else Fingerprint("v1")) for item in made]
    yield "settle members", counted(lambda: store.settle(ends, [made[0].fence]))
