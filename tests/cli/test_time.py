"""Schedules, slots, limits, reports and the plan, as people at a terminal see them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import Result

from duly import Backoff, Every, Slots
from duly import Duly as App
from duly.core.decide import Rules, decide
from duly.core.model import Done, Failed
from duly.engine.watch import Watch
from tests.cli.conftest import Duly, call
from tests.outbound.provider import Provider, answer
from tests.support import claim, settle, share

WORK = """
from duly import Duly, Limit, Slots

app = Duly()


@app.task(limits=Limit("api", 2, per="1m"), breaker=1)
def sync(sku: str, n: int = 1) -> None: ...
"""


@pytest.fixture
def work(tmp_path: Path) -> str:
    (tmp_path / "shop.py").write_text(WORK)
    return f"{tmp_path / 'shop.py'}:app"


@pytest.fixture
def app(database_url: str) -> Iterator[App]:
    one = App(database_url)

    @one.task(breaker=1)
    def sync(sku: str) -> None: ...

    yield one
    one.close()


def lines(result: Result) -> str:
    assert result.exit_code == 0, result.output
    return result.stdout


def test_a_schedule_is_added_shown_changed_paused_run_and_removed(duly: Duly, work: str, app: App) -> None:
    said = lines(
        duly("schedules", "add", "sync", "daily 09:00", "sku=A1", "--key", "a", "--zone", "Asia/Tokyo", "--app", work)
    )
    assert "every day at 09:00 (Asia/Tokyo)" in said
    (made,) = json.loads(lines(duly("schedules", "--json")))
    assert (made["key"], made["rule"], made["state"], made["args"]) == (
        "a",
        "daily 09:00",
        "active",
        {"sku": "A1", "n": 1},
    )
    number = str(made["id"])
    assert "every day at 09:00" in lines(duly("schedules"))
    assert "Europe/Zagreb" in lines(
        duly("schedules", "change", number, "--zone", "Europe/Zagreb", "--max-lateness", "2h")
    )
    assert lines(duly("schedules", "pause", number)) == f"paused: {number}\n"
    assert "paused" in lines(duly("schedules"))
    lines(duly("schedules", "resume", number))
    lines(duly("schedules", "run-now", number))
    (item,) = app.read.page(task="sync")
    assert item.args == {"sku": "A1", "n": 1}
    told = json.loads(lines(duly("schedules", "show", number, "--next", "3", "--json")))
    assert len(told["next"]) == 3
    actions = [note["action"].removeprefix("schedule.") for note in told["audit"]]
    assert actions == ["run_now", "resumed", "paused", "changed", "created"]
    assert all(note["actor"].startswith("cli") for note in told["audit"])
    assert "run_now" in lines(duly("schedules", "show", number))
    lines(duly("schedules", "remove", number))
    assert lines(duly("schedules")) == "no schedules match\n"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("add", "sync", "daily 25:00", "sku=A", "--key", "a"), "25:00"),
        (("add", "sync", "daily 09:00", "sku=A", "--key", "a", "--zone", "Europe/Zagreeb"), "zone"),
        (("add", "sync", "daily 09:00", "--key", "a"), "sku"),
        (("add", "nope", "daily 09:00", "--key", "a"), "nope"),
        (("add", "sync", "daily 09:00", "sku=A", "--key", " "), "key"),
        (("add", "sync", "daily 09:00", "sku=A", "--key", "a", "--max-lateness", "soon"), "max_lateness"),
        (("change", "7"), "nothing to change"),
        (("change", "7", "--rule", "daily 09:00"), "no schedule 7"),
        (("pause", "7"), "no schedule 7"),
        (("preview", "every so often"), "every"),
        (("preview", "daily 09:00", "--zone", "../etc/passwd"), "zone"),
    ],
)
def test_a_wrong_word_gets_one_clear_line(duly: Duly, work: str, words: tuple[str, ...], problem: str) -> None:
    result = duly("schedules", *words, DULY_APP=work)
    assert result.exit_code in (1, 2)
    assert problem in result.stderr
    assert "Traceback" not in result.output
    assert len(result.stderr.strip().splitlines()) == 1


def test_a_rule_is_explained_without_a_database() -> None:
    said = lines(call("schedules", "preview", "30 2-22/4 * * *", "--next", "2"))
    assert said.splitlines()[0] == "every day at :30 of hours 2, 6, 10, 14, 18 and 22 (UTC)"
    told = json.loads(lines(call("schedules", "preview", "yearly 02-29 09:00", "--zone", "Europe/Zagreb", "--json")))
    assert told["rule"] == "yearly 02-29 09:00"
    assert len(told["next"]) == 5


def test_it_is_said_where_clocks_change(duly: Duly, app: App) -> None:
    rule = ("daily 02:30", "--zone", "Europe/Zagreb", "--next", "366")
    said = lines(call("schedules", "preview", *rule))
    assert "02:30 does not exist that day; runs 03:30" in said
    assert "02:30 happens twice that day; runs the first time" in said
    told = json.loads(lines(call("schedules", "preview", *rule, "--json")))
    assert {note["note"].partition(" ")[0] for note in told["notes"]} == {"02:30"}
    rule_of = {"rule": "yearly 03-28 02:30", "zone": "Europe/Zagreb"}
    made = app.schedules.create("sync", rule_of["rule"], {"sku": "1"}, key="spring", zone=rule_of["zone"])
    shown = lines(duly("schedules", "show", str(made.id), "--next", "10"))
    assert "clocks     2027-03-28" in shown


def test_slots_are_drawn_and_a_rebalance_is_only_done_when_asked(duly: Duly, app: App) -> None:
    app.schedules.create_many("sync", Slots(3), [{"key": str(n), "args": {"sku": str(n)}} for n in range(9)])
    gone = [each.id for each in app.schedules.pages(ring="sync") if each.slot == 0]
    app.schedules.remove(*gone)
    assert [slot["members"] for slot in json.loads(lines(duly("slots", "--json")))] == [0, 3, 3]
    assert "█" in lines(duly("slots"))
    assert "2 members would move" in lines(duly("slots", "--rebalance"))
    assert [slot.members for slot in app.schedules.slots("sync")] == [0, 3, 3]
    assert len(json.loads(lines(duly("slots", "--rebalance", "--json")))) == 2
    assert "2 members moved" in lines(duly("slots", "--rebalance", "--yes"))
    assert [slot.members for slot in app.schedules.slots("sync")] == [2, 2, 2]
    assert "no schedule has slots" in lines(duly("slots", "--ring", "other"))
    refused = call("slots", "--rebalance", "--url", "http://127.0.0.1:9")
    assert (refused.exit_code, "works on a database only" in refused.stderr) == (2, True)


def test_a_deactivated_schedule_is_listed_and_reactivated(duly: Duly, app: App) -> None:
    made = app.schedules.create("sync", Every("1h"), {"sku": "A"}, key="a")
    with app.internals.store.transaction() as connection:
        connection.execute("update duly_schedule set broken_at = created_at, next_at = null, failures = 5")
    assert "deactivated" in lines(duly("schedules", "--state", "broken"))
    lines(duly("schedules", "reactivate", str(made.id)))
    assert app.schedules.get(made.id).is_active
    again = duly("schedules", "reactivate", str(made.id))
    assert (again.exit_code, "is active" in again.stderr) == (1, True)


def test_limits_are_set_and_cleared_while_everything_runs(duly: Duly) -> None:
    assert "no limit" in lines(duly("limits"))
    assert lines(duly("limits", "set", "api", "4/1m")) == "api: 4/1m\n"
    assert "4/60s" in lines(duly("limits"))
    assert json.loads(lines(duly("limits", "--json")))[0]["most"] == 4
    lines(duly("limits", "clear", "api"))
    assert "as in the code" in lines(duly("limits"))
    wrong = duly("limits", "set", "api", "often")
    assert (wrong.exit_code, "2/1m" in wrong.stderr) == (2, True)


def test_late_and_stuck_items_are_reported(duly: Duly, app: App) -> None:
    assert lines(duly("late")) == "nothing was late\n"
    assert lines(duly("stuck")) == "nothing is stuck\n"
    long_ago = datetime.now(UTC) - timedelta(hours=5)
    app.task_named("sync").at(long_ago).put(sku="A")
    app.task_named("sync").at(long_ago).put(sku="B")
    now = datetime.now(UTC)
    settle(
        app.internals.store, claim(app.internals.store, share("sync", limit=1), tasks=["sync"], now=now), Done(), now
    )
    (late,) = json.loads(lines(duly("late", "--json")))
    assert late["lateness_seconds"] > 4 * 3600
    assert "5 h" in lines(duly("late"))
    (stuck,) = json.loads(lines(duly("stuck", "--json")))
    assert (stuck["state"], stuck["attempts"]) == ("waiting", 0)
    assert "5 h" in lines(duly("stuck"))
    assert json.loads(lines(duly("stuck", "--grace", "6h", "--json"))) == []


def test_alerts_that_stand_are_listed(duly: Duly, app: App) -> None:
    assert lines(duly("alerts")) == "nothing is wrong\n"
    app.task_named("sync").at(datetime.now(UTC) - timedelta(hours=5)).put(sku="A")
    Watch(app.internals.store, "w", ["sync"], app.settings, post=print).tick(app.clock.now())
    assert "oldest_due" in lines(duly("alerts"))
    assert json.loads(lines(duly("alerts", "--json")))[0]["name"] == "oldest_due"


def test_the_dead_mans_switch_needs_no_worker(duly: Duly, app: App) -> None:
    nobody = duly("alive")
    assert (nobody.exit_code, nobody.stdout) == (1, "no worker has ever run\n")
    watch = Watch(app.internals.store, "w", ["sync"], app.settings, post=print)
    watch.tick(app.clock.now() - timedelta(minutes=10))
    assert duly("alive").exit_code == 1
    assert duly("alive", "--max-age", "1h").exit_code == 0
    with Provider(answer(200, b"{}")) as provider:
        assert duly("alive", "--webhook", f"{provider.url}/dead").exit_code == 1
    assert provider.requests[0].body["alert"] == "no_tick"
    watch.tick(app.clock.now())
    assert json.loads(lines(duly("alive", "--json")))["alive"] is True


def test_a_webhook_that_is_away_does_not_hide_the_answer(duly: Duly) -> None:
    result = duly("alive", "--webhook", "http://127.0.0.1:9/dead")
    assert result.exit_code == 1
    assert "did not accept the notification" in result.stderr


def test_the_plan_of_five_thousand_products_has_the_figures_of_its_document() -> None:
    plan = json.loads(lines(call("plan", "--products", "5000", "--json")))
    assert (plan["slot_minutes"], plan["day_calls"], plan["day_limit"], plan["fits"]) == (10.5, 534, 2_880, True)
    said = lines(call("plan", "--products", "5000"))
    assert said.splitlines()[:2] == [
        "5,000 products fit.",
        "First problem: from 5,701 products on: more products fail in a day (5.0%) than retry windows allow.",
    ]
    rows = dict(each for line in said.splitlines() if len(each := line.split("  ", 1)) == 2)
    assert rows["A slot"].strip() == "21 calls, 10.5 minutes"
    assert rows["The fullest hour"].strip() == "26 of 120 calls (21.7 %), 13.0 minutes"
    assert rows["The day"].strip() == "534 of 2,880 calls (18.5 %)"
    assert "_" not in said, "no field names"


def test_a_plan_that_does_not_fit_says_so_first_and_why() -> None:
    said = lines(call("plan", "--products", "5000", "--failure-rate", "0.1")).splitlines()
    assert said[:3] == [
        "5,000 products do not fit:",
        "  more products fail in a day (10.0%) than retry windows allow",
        "First problem: from 2,701 products on: more products fail in a day (10.0%) than retry windows allow.",
    ]
    assert any(line.startswith("Retries needed a day") and "556 if 10.0%" in line for line in said)
    assert call("plan", "--failure-rate", "1").exit_code == 2


def test_growth_is_the_scaling_table_of_the_document() -> None:
    said = lines(call("plan", "--products", "5000", "--growth"))
    assert [line.split() for line in said.splitlines()[4:7]] == [
        ["1,000", "42", "5", "%", "yes", "none"],
        ["5,000", "208", "19", "%", "yes", "none"],
        ["10,000", "417", "36", "%", "no", "increase", "the", "retry", "limit", "to", "100"],
    ]
    assert "20,000      833     71 %  no    add retry windows (every 2 hours); increase" in said
    assert "2,880 calls a day carry 28,800 products if each call is used, and 20,000 with room" in said
    assert "from 5,701 products on" in lines(call("plan", "--growth"))
    told = json.loads(lines(call("plan", "--products", "5000", "--growth", "--json")))
    assert told["growth"][2]["settings"] == {"catalog_retry_limit": 100}


@pytest.mark.parametrize("start", ["yesterday", "2026-01-01"])
def test_a_simulation_that_starts_nowhere_is_refused(start: str) -> None:
    result = call("simulate", "catalog", "--days", "1", "--products", "1", "--start", start)
    assert (result.exit_code, "start" in result.stderr) == (2, True)


def test_a_simulation_may_start_now() -> None:
    assert call("simulate", "catalog", "--days", "0.5", "--products", "24", "--start", "now").exit_code == 0


def test_late_and_stuck_items_are_told_with_what_they_are_about(duly: Duly, app: App) -> None:
    long_ago, now = datetime.now(UTC) - timedelta(hours=5), datetime.now(UTC)
    app.task_named("sync").options(at=long_ago, key="order-7").put(sku="A")
    (item,) = claim(app.internals.store, share("sync", limit=1), tasks=["sync"], now=now)
    retried = decide(item, Failed("busy"), now, Rules(retry=Backoff(base=3_600)))
    app.internals.store.settle([retried], [item.fence])
    (stuck,) = json.loads(lines(duly("stuck", "--json")))
    assert (stuck["key"], stuck["subject"], stuck["lane"], stuck["attempts"]) == ("order-7", None, "retry", 1)
    assert "order-7" in lines(duly("stuck"))
    app.task_named("sync").at(datetime.now(UTC) + timedelta(hours=1)).put(sku="B")
    assert len(json.loads(lines(duly("stuck", "--json")))) == 1, "what waits for its own time is not stuck"


def test_the_dead_mans_switch_tells_until_the_webhook_takes_it(duly: Duly, monkeypatch: pytest.MonkeyPatch) -> None:
    class Enough(Exception):
        pass

    waits: list[float] = []

    def pause(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 4:
            raise Enough

    monkeypatch.setattr("time.sleep", pause)
    with Provider(answer(503), answer(503), answer(200, b"{}"), answer(200, b"{}")) as provider:
        result = duly("alive", "--webhook", f"{provider.url}/dead", "--every", "1m")
    assert isinstance(result.exception, Enough)
    assert len(provider.requests) == 3, "twice in vain, and then once"
    assert waits == [60.0] * 4


def test_what_an_outage_deactivated_is_reactivated_and_run(duly: Duly, app: App) -> None:
    for n in range(4):
        app.schedules.create("sync", Every(86_400), {"sku": f"S{n}"}, key=f"p{n}")
    with app.internals.store.transaction() as connection:
        connection.execute(
            "update duly_schedule set broken_at = created_at, next_at = null, failures = 5 where key <> 'p3'"
        )
    assert lines(duly("schedules", "reactivate-all", "--task", "other")) == "0 reactivated\n"
    assert lines(duly("schedules", "reactivate-all", "--cause", "TimeoutError")) == "0 reactivated\n"
    assert lines(duly("schedules", "reactivate-all", "--task", "sync", "--run")) == "3 reactivated\n"
    assert app.schedules.page(state="broken") == []
    assert len(app.read.page(task="sync", state="waiting")) == 3, "and each is tried now"
    told = [note.action for note in app.schedules.audit()]
    assert told.count("schedule.reactivated") == 3


def test_the_dead_mans_switch_outlives_whom_it_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    class Enough(Exception):
        pass

    passed = 0.0

    def pause(seconds: float) -> None:
        nonlocal passed
        passed += seconds
        if passed >= 600:
            raise Enough

    monkeypatch.setattr("time.sleep", pause)
    monkeypatch.setattr("time.monotonic", lambda: passed)
    nowhere = {"DULY_URL": "http://127.0.0.1:9"}
    with Provider(answer(200, b"{}")) as provider:
        found = call("alive", "--webhook", f"{provider.url}/dead", "--every", "2m", **nowhere)
    assert isinstance(found.exception, Enough)
    assert "no answer for 4 min" in found.stdout
    assert len(provider.requests) == 1, "it is told once, when it has been so for long enough"
    assert call("alive", **nowhere).exit_code != 0
