"""Plans on PostgreSQL: very many future rows, very many finished rows and a long backlog slow down nothing.

The server tells the plans of the statements as the store itself runs them, with the rows and blocks that they touched:
under statistics that are stale, missing or fresh, with custom and with generic plans.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from urllib.parse import quote

import psycopg
import pytest

from duly.core.advance import advance_all, changed
from duly.core.model import Ask, Done, Failed, Fingerprint, Item, Lost, Meter, NewSchedule
from duly.store.migrate import migrate
from duly.store.postgres.store import PostgresStore
from tests.store.seeded import DUE, LEASES, RECURRING, SEED, SHARES
from tests.support import LEASE, NOW, after, decided, fresh_database, new, opened, scaled, share

pytestmark = pytest.mark.xdist_group("plans")

TABLES = ("duly_item", "duly_schedule")
STATISTICS = ("stale", "none", "fresh")
MODES = ("custom", "generic")


class Explained(PostgresStore):
    """A store whose server tells the plan of every statement that it ran."""

    def __init__(self, url: str, mode: str) -> None:
        wanted = {
            "session_preload_libraries": "auto_explain",
            "auto_explain.log_min_duration": "0",
            "auto_explain.log_analyze": "on",
            "auto_explain.log_timing": "off",
            "auto_explain.log_buffers": "on",
            "auto_explain.log_format": "json",
            "client_min_messages": "log",
            "plan_cache_mode": "auto" if mode == "auto" else f"force_{mode}_plan",
        }
        options = " ".join(f"-c {name}={value}" for name, value in wanted.items())
        super().__init__(f"{url}?options={quote(options)}")
        self.told: list[dict[str, Any]] = []

    def _configure(self, connection: Any) -> None:
        super()._configure(connection)
        connection.add_notice_handler(self._hear)

    def _hear(self, note: psycopg.errors.Diagnostic) -> None:
        _, plan, text = (note.message_primary or "").partition("plan:\n")
        if plan:
            self.told.append(json.loads(text)["Plan"])

    def plans(self, act: Callable[[], object]) -> list[dict[str, Any]]:
        self.told = []
        act()
        told, self.told = self.told, []
        return told


@pytest.fixture(scope="session")
def plans(postgres_server: str) -> Iterator[dict[tuple[str, str, str], list[dict[str, Any]]]]:
    """Every plan by statistics, mode and verb, gathered in one go over one seeded table."""
    with fresh_database(postgres_server) as url, opened(url) as store:
        migrate(store)
        with psycopg.connect(url, autocommit=True) as connection:
            seed_postgres(connection)
            found = {}
            for statistics in STATISTICS:
                if statistics == "none":
                    for table in TABLES:
                        connection.execute(f"delete from pg_statistic where starelid = '{table}'::regclass")
                if statistics == "fresh":
                    connection.execute("analyze duly_item, duly_lease, duly_schedule")
                for mode in MODES:
                    for verb, told in gather(url, mode):
                        found[statistics, mode, verb] = told
        yield found


def seed_postgres(connection: psycopg.Connection[Any]) -> None:
    for table in ("duly_attempt",):  # only for speed: it changes no plan
        connection.execute(f"alter table {table} set unlogged")
    for table in TABLES:
        connection.execute(f"alter table {table} set unlogged")
        connection.execute(f"alter table {table} set (autovacuum_enabled = off)")
    kept = connection.execute(
        "select indexname, indexdef from pg_indexes"
        " where tablename in ('duly_item', 'duly_schedule') and indexname not like '%pkey'"
    ).fetchall()
    for name, _ in kept:
        connection.execute(f"drop index {name}")
    many = scaled(200_000, 1_000_000)
    sizes = {"finished": many, "future": many, "backlog": many // 10, "running": 10 * LEASES, "schedules": many}
    for name, count in sizes.items():
        connection.execute(
            SEED[name].format(
                series=f"generate_series(0, {count - 1}) as s(n)",
                past=f"timestamptz '{after(-86_400)}' + n % 86400 * interval '1 second'",
                future=f"timestamptz '{after(60)}' + n * interval '1 second'",
                minute=f"timestamptz '{after(-60)}'",
                uuid="'00000000-0000-4000-8000-000000000000'::uuid",
                due=DUE,
                recurring=RECURRING,
            )
        )
        if name == "finished":  # what the statistics know until the next analyze
            connection.execute("analyze duly_item")
    connection.execute(
        "insert into duly_lease (fence, worker, lease_until, items) overriding system value"
        f" select fence, 'w0', timestamptz '{after(-60)}', array_agg(id) from duly_item where state = 'running'"
        " group by fence"
    )
    for _, definition in kept:
        connection.execute(definition)


def gather(url: str, mode: str) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    store = Explained(url, mode)
    try:
        yield "survey", store.plans(store.survey)
        claim = partial(store.claim, SHARES, "w1", NOW, LEASE)
        items = claim()
        yield "claim", store.plans(lambda: items.extend(claim()))
        held = {items[-1].fence: [item.id for item in items if item.fence == items[-1].fence]}
        yield "extend", store.plans(lambda: store.extend(held, NOW, after(20)))
        lost, _ = store.expired(NOW, 20)
        yield "expired", store.plans(lambda: store.expired(NOW, 20))
        done, failed = items[: len(items) // 2], items[len(items) // 2 :]
        plain = [decided(item, Done()) for item in done if item.fence == done[0].fence]
        yield "settle_done", store.plans(lambda: store.settle(plain, [done[0].fence]))
        changes = [decided(item, Failed("busy")) for item in failed]
        yield "settle", store.plans(lambda: store.settle(changes, [failed[0].fence]))
        losses = [decided(item, Lost()) for item in lost]
        yield "settle losses", store.plans(lambda: store.settle(losses, list({item.fence for item in lost})))
        yield "report", store.plans(lambda: store.report(items[0].id, items[0].fence, b"1"))
        yield "fetch", store.plans(lambda: store.fetch([item.id for item in items]))
        yield "prune", store.plans(lambda: store.prune(after(-3600), 0, 100))
        yield "put", store.plans(lambda: store.put([new(key="k", due_at=after(9e6)), new(due_at=after(9e6))]))
        yield "put again", store.plans(lambda: store.put([new(key="k", due_at=after(9e6))]))
        yield "show", store.plans(lambda: store.read("show", {"id": items[0].id}))
        yield "unserved", store.plans(lambda: store.read("waiting_tasks", {"most": 100}))
        yield from gather_time(store)
    finally:
        store.close()


def gather_time(store: Explained) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    yield "next schedule", store.plans(lambda: store.read("next_schedule", {"without": "[]"}))
    recur = partial(store.revise, None, NOW, 20, partial(advance_all, NOW))
    yield "recur", store.plans(lambda: recur() == 20 or pytest.fail("nothing was due"))
    items: list[Item] = []
    ask = Ask(share("recurring", limit=20, task="ring"), (Meter("x", 1000),))
    claim = partial(store.claim_metered, [ask], "w1", NOW, LEASE, 1, 20)
    yield "claim metered", store.plans(lambda: items.extend(claim()[0].items))
    assert len(items) == 20
    ends = [decided(item, Failed("busy") if item.id % 2 else Fingerprint("v1")) for item in items]
    yield "settle members", store.plans(lambda: store.settle(ends, [items[0].fence]))
    ids = [item.schedule_id for item in items]
    change = partial(store.revise, ids, NOW, 20, lambda some, waiting: [
        changed(each, waiting.get(each.id, ()), NOW, "ana", rank=each.rank + 1) for each in some
    ])  # fmt: skip
    yield "change", store.plans(change)
    joining = [
        NewSchedule("ring", f"{key}{id(items)}", "q", b"{}", "* * * * *", "UTC", after(9e6)) for key in "abcdefghij"
    ]
    yield "enroll", store.plans(lambda: store.enroll(joining, lambda *_: ("", NOW)))
    yield "enroll again", store.plans(lambda: store.enroll(joining, lambda *_: ("", NOW)))


# The most rows of items and schedules, and the most blocks, that one call may touch, whatever the tables hold. Blocks
# have room for the remains of rows claimed a moment ago, which an analyze in the background keeps for a while.
BOUNDS = {
    "survey": (50, 1_500),
    "claim": (300, 3_000),
    "extend": (200, 1_000),
    "expired": (300, 2_000),
    "settle_done": (200, 3_000),
    "settle": (200, 3_000),
    "settle losses": (300, 6_000),
    "report": (2, 50),
    "fetch": (300, 2_000),
    "prune": (200, 3_000),
    "put": (5, 100),
    "put again": (2, 50),
    "show": (2, 50),
    "unserved": (150, 1_000),
    "next schedule": (2, 50),
    "recur": (150, 3_000),
    "claim metered": (60, 1_500),
    "settle members": (150, 3_000),
    "change": (200, 6_000),
    "enroll": (20, 500),
    "enroll again": (20, 500),
}


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for part in plan.get("Plans", ()):
        yield from nodes(part)


def touched(node: dict[str, Any]) -> int:
    rows = sum(node.get(name, 0) for name in ("Actual Rows", "Rows Removed by Filter", "Rows Removed by Index Recheck"))
    return int(rows * node["Actual Loops"])


@pytest.mark.parametrize("verb", BOUNDS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("statistics", STATISTICS)
def test_millions_of_other_rows_do_not_slow_a_worker(
    plans: dict[tuple[str, str, str], list[dict[str, Any]]], statistics: str, mode: str, verb: str
) -> None:
    most_rows, most_blocks = BOUNDS[verb]
    told = plans[statistics, mode, verb]
    assert told, "the server told no plan"
    every = [node for plan in told for node in nodes(plan)]
    reads = [node for node in every if node.get("Relation Name") in TABLES and "Scan" in node["Node Type"]]
    assert [node for node in reads if node["Node Type"] == "Seq Scan"] == []
    assert sum(map(touched, reads)) <= most_rows, json.dumps(told, indent=1)
    assert sum(touched(node) for node in every if "Sort" in node["Node Type"]) <= most_rows
    assert sum(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] for plan in told) <= most_blocks


def test_a_long_transaction_elsewhere_does_not_slow_claims(postgres_url: str) -> None:
    """Its snapshot keeps the remains of every claimed row; claims start behind them."""
    store = Explained(postgres_url, "custom")
    try:
        with psycopg.connect(postgres_url) as elsewhere:
            elsewhere.execute("set transaction isolation level repeatable read")
            elsewhere.execute("select count(*) from duly_item")
            store.load(new(due_at=after(n * 0.001)) for n in range(20_000))
            some = share(limit=1_000, floors=(NOW,))
            blocks = []
            for _ in range(15):
                claimed: list[Item] = []
                act = partial(store.claim, [some], "w1", after(60), LEASE)
                told = store.plans(lambda act=act, claimed=claimed: claimed.extend(act()))
                reads = [node for plan in told for node in nodes(plan) if node.get("Index Name") == "duly_item_line"]
                blocks.append(sum(node["Shared Hit Blocks"] + node["Shared Read Blocks"] for node in reads))
                assert len(claimed) == 1_000
                store.settle([decided(item, Done()) for item in claimed], [claimed[0].fence])
                some = share(limit=1_000, floors=(claimed[-1].due_at,))
        assert max(blocks[5:]) < 2 * max(blocks[:5]), blocks
    finally:
        store.close()


@pytest.mark.parametrize("outcome", [Done(), Failed("busy")])
def test_many_tries_under_leases_of_their_own_are_not_compared_each_with_each(postgres_url: str, outcome: Any) -> None:
    """Once the server has seen a statement a few times it keeps a plan for it, made for short arrays."""
    store = Explained(postgres_url, "auto")
    many, rounds = 200, 16
    try:
        store.load(new() for _ in range(many * rounds))
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute("analyze duly_item")  # when nothing runs: the planner expects hardly a row to
        ask = Ask(share(limit=many), (Meter("at once", many),))
        for _ in range(rounds):
            told = store.plans(partial(run_many, store, ask, many, outcome))
            compared = sum(
                node.get("Rows Removed by Join Filter", 0) * node["Actual Loops"]
                for plan in told
                for node in nodes(plan)
            )
            assert compared <= 10 * many, json.dumps(told, indent=1)
    finally:
        store.close()


def test_a_claim_under_limits_starts_no_processes_however_many_leases_have_come_and_gone(postgres_url: str) -> None:
    store = Explained(postgres_url, "auto")
    try:
        many = 200
        store.load(new() for _ in range(many))
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            # As after a million calls, most of which are gone, and before the next vacuum.
            connection.execute(
                "insert into duly_lease (worker, lease_until, items, meters) "
                "select 'w', now(), '{}', array['other'] from generate_series(1, 100000)"
            )
            connection.execute("analyze duly_lease")
            connection.execute("delete from duly_lease")
        asks = [Ask(share(limit=1), (Meter(f"at once {n}", 1),)) for n in range(many)]
        told = store.plans(lambda: store.claim_metered(asks, "w1", NOW, LEASE, many, 1))
        assert any("duly_lease" in json.dumps(plan) for plan in told)
        assert [node for plan in told for node in nodes(plan) if node["Node Type"].startswith("Gather")] == []
    finally:
        store.close()


def run_many(store: Explained, ask: Ask, many: int, outcome: Any) -> None:
    (grant,) = store.claim_metered([ask], "w1", NOW, LEASE, many, 1)
    held = {item.fence: [item.id] for item in grant.items}
    assert len(held) == many
    store.extend(held, NOW, after(20))
    store.settle([decided(item, outcome) for item in grant.items], list(held))
