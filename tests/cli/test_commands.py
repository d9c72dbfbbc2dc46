"""Every command, as a table and as JSON, on both databases."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

import duly as package
from duly import Backoff
from duly import Duly as App
from duly.store.migrate import latest
from tests.cli.conftest import Duly, call
from tests.support import heads, opened, share


@pytest.fixture
def app(database_url: str) -> Any:
    """The app that puts and fails what the commands look at."""
    app = App(database_url)

    @app.task(retry=Backoff(base=60, tries=2))
    def remind(phone: str, n: int = 1) -> None: ...

    yield app
    app.close()


def parsed(result: Result) -> Any:
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    return json.loads(result.stdout)


def printed(result: Result) -> str:
    assert result.exit_code == 0, result.output
    assert max(map(len, result.stdout.splitlines())) <= 80
    return str(result.stdout)


def fail(app: App, item_id: int, error: str = "OSError: the line is busy\n\nTraceback…") -> None:
    """One failed try of this item, as a worker would settle it."""
    from duly.core.decide import decide
    from duly.core.model import Failed

    item = claim(app, item_id)
    change = decide(item, Failed(error, ("OSError",)), app.clock.now(), app.tasks["remind"].rules)
    assert app.internals.store.settle([change], [item.fence]) == []


def claim(app: App, item_id: int) -> Any:
    now = app.clock.now() + timedelta(seconds=1)  # its clock may be a little behind that of the database
    shares = [share("remind", lane) for lane in ("main", "retry")]
    items = app.internals.store.claim(shares, "host:1:abc", now, timedelta(seconds=20))
    (item,) = [item for item in items if item.id == item_id]
    return item


# -- the root


def test_the_version_is_the_packages() -> None:
    assert call("--version").stdout == f"duly {package.__version__}\n"


def test_help_fits_a_terminal_and_cuts_no_sentence() -> None:
    text = printed(call("--help"))
    assert "..." not in text.partition("Commands:")[2]
    for command in ("up", "worker", "migrate", "put", "items", "show", "retry", "cancel", "queues", "doctor"):
        assert f"\n  {command} " in text
        assert "Usage:" in printed(call(command, "--help"))


@pytest.mark.parametrize(
    ("url", "code", "words"),
    [
        ("mysql://root@host/x", 2, "database_url: 'mysql' is not known"),
        ("sqlite://", 2, "database_url: SQLite needs a file"),
        ("sqlite:///nowhere.db", 2, "database_url: there is no database at nowhere.db yet"),
        ("postgresql://u:se%zzcret@127.0.0.1/x", 2, "database_url: PostgreSQL does not understand this URL"),
        ("postgresql://u:secret@127.0.0.1:1/x", 1, "cannot connect"),
    ],
)
def test_a_wrong_url_gets_one_clear_line(url: str, code: int, words: str) -> None:
    result = call("items", "--database-url", url)
    assert result.exit_code == code
    assert words in result.stderr
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1
    assert "cret" not in result.stderr
    assert result.stdout == ""


def test_a_look_leaves_no_empty_database_behind(tmp_path: Path) -> None:
    call("items")
    call("doctor")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("DULY_CONCURRENCY", "many", "DULY_CONCURRENCY: must be a whole number"),
        ("DULY_LOG_FORMAT", "xml", "DULY_LOG_FORMAT: 'xml' is none of"),
    ],
)
def test_a_bad_setting_gets_one_clear_line(name: str, value: str, words: str) -> None:
    result = call("settings", **{name: value})
    assert result.exit_code == 2
    assert words in result.stderr
    assert result.stderr.count("\n") == 1


def test_an_unknown_setting_in_the_file_gets_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "duly.toml").write_text("concurency = 3\n")
    result = call("settings")
    assert result.exit_code == 2
    assert "'concurency' is not a setting" in result.stderr


# -- migrate


def test_migrate_tells_what_it_applied_and_then_that_there_is_nothing_to_do(blank_url: str) -> None:
    assert "applied 0001_core" in printed(call("migrate", "--database-url", blank_url))
    assert "nothing to do" in printed(call("migrate", "--database-url", blank_url))


def test_migrate_tells_it_in_json(blank_url: str) -> None:
    applied = parsed(call("migrate", "--json", "--database-url", blank_url))["applied"]
    with opened(blank_url) as store:
        assert len([name for name in applied if "/" not in name]) == latest(store)
        assert "reminders/0001_views" in applied
    assert parsed(call("migrate", "--json", "--database-url", blank_url)) == {"applied": []}


# -- put


def test_put_reads_values_as_json_where_that_fits_and_as_text_elsewhere(duly: Duly, app: App, app_file: str) -> None:
    placed = parsed(duly("put", "remind", "phone=385123", "n=7", "--app", app_file, "--json"))
    assert placed["fresh"]
    assert app.read.item(placed["id"]).args == {"phone": "385123", "n": 7}


def test_put_takes_the_arguments_as_one_object(duly: Duly, app: App, app_file: str) -> None:
    text = printed(duly("put", "remind", "--args", '{"phone": "+385 1", "n": 2}', "--app", app_file))
    (row,) = app.read.page()
    assert text.startswith(f"item {row.id} of remind: due ")
    assert row.args == {"phone": "+385 1", "n": 2}


def test_put_knows_when_and_how(duly: Duly, app: App, app_file: str) -> None:
    options = ["--at", "2031-12-01T09:00+01:00", "--key", "k1", "--rank", "-5", "--tries", "9"]
    text = printed(duly("put", "remind", "phone=x", *options, DULY_APP=app_file))
    (row,) = app.read.page()
    assert row.due_at == datetime(2031, 12, 1, 8, tzinfo=UTC)
    assert (row.key, row.rank, row.max_attempts) == ("k1", -5, 9)
    assert "2031-12-01 08:00:00 +00:00 (in " in text


@pytest.mark.parametrize(
    ("delay", "seconds"), [("90", 90), ("90s", 90), ("5m", 300), ("1h30m", 5_400), ("2d", 172_800)]
)
def test_put_understands_spans(app: App, app_file: str, duly: Duly, delay: str, seconds: float) -> None:
    duly("put", "remind", "phone=x", "--delay", delay, "--app", app_file)
    (row,) = app.read.page()
    assert (row.due_at - app.clock.now()).total_seconds() == pytest.approx(seconds, abs=20)


def test_put_under_a_live_key_finds_the_item_that_has_it(duly: Duly, app_file: str) -> None:
    first = parsed(duly("put", "remind", "phone=x", "--key", "k", "--app", app_file, "--json"))
    assert "has this key already" in printed(duly("put", "remind", "phone=x", "--key", "k", "--app", app_file))
    conflict = duly("put", "remind", "phone=y", "--key", "k", "--app", app_file)
    assert conflict.exit_code == 1
    assert f"belongs to item {first['id']}" in conflict.stderr


def test_a_put_with_a_delay_is_the_same_when_it_is_said_again(duly: Duly, app_file: str) -> None:
    words = ("put", "remind", "phone=x", "--key", "k", "--delay", "1h", "--app", app_file)
    first = parsed(duly(*words, "--json"))
    assert f"item {first['id']} of remind has this key already" in printed(duly(*words))


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["remind", "phone=x", "n=many"], "n: expected `int`"),
        (["remind"], "phone: is required"),
        (["remind", "phone=x", "color=red"], "color: is not an argument of this task"),
        (["remind", "phone"], "phone: must be NAME=VALUE"),
        (["remind", "phone=x", "key=k"], "key: is not an argument of this task"),
        (["remind", "--args", "[1]"], "args: must be one JSON object"),
        (["remind", "phone=x", "--delay", "soon"], "delay: must be seconds or such as"),
        (["remind", "phone=x", "--at", "2031-12-01T09:00"], "at: has no time zone"),
        (["remind", "phone=x", "--at", "2031-12-01T09:00Z", "--delay", "1"], "delay: give either at or delay"),
        (["remind", "phone=x", "--rank", "500"], "rank: must be a whole number"),
        (["nothing"], "task: there is no task 'nothing' here; known: linger, remind, where"),
    ],
)
def test_a_wrong_put_names_the_word_and_stores_nothing(
    duly: Duly, app: App, app_file: str, words: list[str], problem: str
) -> None:
    result = duly("put", *words, "--app", app_file)
    assert result.exit_code == 2
    assert problem in result.stderr
    assert app.read.page() == []


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        (None, "which app has this task?"),
        ("nowhere.py:app", "there is no file nowhere.py"),
        ("no.such.module:app", "cannot import no.such.module"),
        ("{file}:nothing", "nothing in"),
    ],
)
def test_a_wrong_app_gets_one_clear_line(sqlite_url: str, app_file: str, spec: str | None, problem: str) -> None:
    words = ["--app", spec.format(file=app_file.rpartition(":")[0])] if spec else []
    result = call("put", "remind", "phone=x", *words, "--database-url", sqlite_url)
    assert result.exit_code == 2
    assert problem in result.stderr
    assert result.stderr.count("\n") == 1


# -- items and show


def test_items_are_listed_newest_first_with_the_way_to_older_ones(duly: Duly, app: App) -> None:
    ids = [app.task_named("remind").after(300).put(phone="x").id for _ in range(3)]
    text = printed(duly("items", "--limit", "2"))
    lines = text.splitlines()
    assert [int(line.split()[0]) for line in lines[1:3]] == [ids[2], ids[1]]
    assert "in 5 min" in lines[1]
    assert lines[-1] == f"older items: --before {ids[1]}"
    assert [row["id"] for row in parsed(duly("items", "--json", "--before", str(ids[1])))] == [ids[0]]


def test_items_can_be_chosen(duly: Duly, app: App) -> None:
    failed = app.task_named("remind").options(key="k", tries=1).put(phone="a").id
    fail(app, failed)
    app.task_named("remind").after(60).put(phone="b")
    for words in (["--state", "failed"], ["--key", "k"]):
        assert [row["id"] for row in parsed(duly("items", "--json", *words))] == [failed]
    for words in (["--task", "remind"], ["--queue", "remind"]):
        assert len(parsed(duly("items", "--json", *words))) == 2
    assert parsed(duly("items", "--json", "--task", "other")) == []
    assert printed(duly("items", "--task", "other")) == "no items match\n"


def test_a_wide_terminal_shows_the_error_too(duly: Duly, app: App) -> None:
    fail(app, app.put("remind", phone="a").id)
    assert "the line is busy" in duly("items", COLUMNS="140").stdout
    assert "busy" not in printed(duly("items"))


def test_an_unusual_end_is_shown_with_its_reason(duly: Duly, app: App) -> None:
    from duly import Skip
    from duly.core.decide import decide

    item = claim(app, app.task_named("remind").options(key="k").put(phone="x").id)
    app.internals.store.settle(
        [decide(item, Skip("on holiday"), app.clock.now(), app.tasks["remind"].rules)], [item.fence]
    )
    app.task_named("remind").options(key="k2", delay=60).put(phone="x")
    text = duly("items", COLUMNS="140").stdout
    assert "skipped: on holiday" in text
    assert "key k2" in text


def test_a_long_task_name_is_folded_and_kept_whole(database_url: str, duly: Duly) -> None:
    app = App(database_url)
    app.task(name="a" * 190)(lambda: None)
    app.put("a" * 190)
    app.close()
    _, *lines = printed(duly("items")).splitlines()
    assert sum(map(len, re.findall("a{2,}", " ".join(lines)))) == 190
    assert "waiting" in lines[0]
    assert max(map(len, lines)) <= 80


def test_times_are_local_or_utc(duly: Duly, app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    item = app.task_named("remind").at("2031-07-01T12:00Z").put(phone="x").id
    zone = "CET-1CEST,M3.5.0,M10.5.0/3"
    with monkeypatch.context() as here:
        here.setenv("TZ", zone)
        time.tzset()
        assert "2031-07-01 14:00:00 +02:00" in duly("show", str(item), TZ=zone).stdout
        assert "2031-07-01 12:00:00 +00:00" in duly("show", str(item), "--utc", TZ=zone).stdout
    time.tzset()


def test_show_tells_the_story_of_an_item(duly: Duly, app: App) -> None:
    item = app.task_named("remind").options(key="k").put(phone="+385").id
    fail(app, item)
    text = printed(duly("show", str(item)))
    for words in (f"item {item} remind  waiting", "retry lane", "+385", "try 1 failed on host:1:abc", "due again"):
        assert words in text
    assert "Traceback…" in text
    story = parsed(duly("show", str(item), "--json"))
    assert story["item"]["args"] == {"phone": "+385", "n": 1}
    assert [tried["error_class"] for tried in story["tries"]] == ["OSError"]


def test_show_tells_who_runs_an_item_and_until_when(duly: Duly, app: App) -> None:
    item = app.put("remind", phone="x").id
    claim(app, item)
    text = printed(duly("show", str(item)))
    assert "lease until" in text
    assert "try 1 started on host:1:abc" in text


def test_there_is_no_such_item(duly: Duly) -> None:
    for words in (["show", "12345"], ["retry", "12345"], ["cancel", "12345"]):
        result = duly(*words)
        assert result.exit_code == 1
        assert result.stderr == "Error: there is no item 12345\n"


# -- retry and cancel


def test_an_item_in_review_is_retried_when_a_person_says_so(duly: Duly, app: App) -> None:
    first, second = (app.task_named("remind").options(tries=1, delay=delay).put(phone="x").id for delay in (0, 60))
    fail(app, first)
    assert app.read.item(first).state == "failed"
    rows = parsed(duly("retry", str(first), str(second), "--delay", "5m", "--json"))
    assert [(row["id"], row["state"]) for row in rows] == [(first, "waiting"), (second, "waiting")]
    text = printed(duly("retry", str(first), "--at", "2031-12-01T09:00Z"))
    assert text.startswith(f"item {first} of remind: due 2031-12-01 09:00:00 +00:00 (in ")
    assert app.read.item(first).attempt == 0


def test_items_are_cancelled_with_a_reason(duly: Duly, app: App) -> None:
    running, waiting = (app.task_named("remind").after(delay).put(phone="x").id for delay in (0, 60))
    claim(app, running)
    text = printed(duly("cancel", str(running), str(waiting), "--reason", "wrong number"))
    assert text.splitlines() == [f"item {item} of remind: cancelled" for item in (running, waiting)]
    assert app.read.item(running).last_error == "wrong number"
    assert "cancelled wrong number" in printed(duly("show", str(waiting)))
    app.retry(waiting)
    (row,) = parsed(duly("cancel", str(waiting), "--json"))
    assert row["state"] == "cancelled"


def test_what_is_done_can_be_neither_retried_nor_cancelled(duly: Duly, app: App) -> None:
    from duly.core.decide import decide
    from duly.core.model import Done

    item = app.put("remind", phone="x").id
    running = claim(app, item)
    app.internals.store.settle([decide(running, Done(), app.clock.now(), app.tasks["remind"].rules)], [running.fence])
    for words in ("retry", "cancel"):
        result = duly(words, str(item))
        assert result.exit_code == 1
        assert f"item {item} is done and cannot be" in result.stderr


# -- queues


def test_queues_show_what_waits_runs_and_is_in_review(duly: Duly, app: App) -> None:
    fail(app, app.task_named("remind").options(tries=1).put(phone="a").id)
    fail(app, app.put("remind", phone="b").id)
    claim(app, app.put("remind", phone="c").id)
    app.put("remind", phone="d")
    app.task_named("remind").after(60).put(phone="e")
    (queue,) = parsed(duly("queues", "--json"))
    counts = {name: queue[name] for name in ("queue", "waiting", "retrying", "due", "running", "failed", "paused")}
    assert counts == {
        "queue": "remind", "waiting": 3, "retrying": 1, "due": 1, "running": 1, "failed": 1, "paused": False,
    }  # fmt: skip
    assert queue["oldest_due_seconds"] < 60
    assert printed(duly("queues")).splitlines()[1].split()[:4] == ["remind", "3", "1", "1"]


def test_a_queue_is_paused_and_resumed(duly: Duly, app: App) -> None:
    app.put("remind", phone="x")
    assert "remind is paused" in printed(duly("queues", "pause", "remind"))
    assert parsed(duly("queues", "--json"))[0]["paused"]
    assert printed(duly("queues")).splitlines()[1].rstrip().endswith("paused")
    assert heads(app.internals.store) == []
    assert "remind is resumed" in printed(duly("queues", "resume", "remind"))
    assert len(heads(app.internals.store)) == 1


def test_pausing_what_nothing_has_the_name_of_says_so(duly: Duly) -> None:
    said = printed(duly("queues", "pause", "nosuch"))
    assert "nosuch is paused" in said
    assert "there is no queue nosuch yet: items put into it will wait" in said
    assert parsed(duly("queues", "--json"))[0]["paused"]


def test_no_queue_is_no_error(duly: Duly) -> None:
    assert parsed(duly("queues", "--json")) == []
    assert "no queue" in printed(duly("queues"))


# -- settings


def test_settings_say_value_source_and_meaning(tmp_path: Path) -> None:
    (tmp_path / "duly.toml").write_text("sweep_seconds = 2\n")
    env = {
        "SCHEDULER_BATCH_SIZE": "7",
        "DULY_DATABASE_URL": "postgresql://u:hunter2@h/x",
        "DULY_VAPI_API_KEY": "hunter2",
    }
    found = {each["name"]: each for each in parsed(call("settings", "--json", **env))}
    assert (found["concurrency"]["value"], found["concurrency"]["source"]) == (7, "SCHEDULER_BATCH_SIZE")
    assert (found["sweep_seconds"]["value"], found["sweep_seconds"]["source"]) == (2.0, "duly.toml")
    assert found["lease_seconds"]["source"] == "default"
    assert found["lease_seconds"]["doc"]
    assert found["database_url"]["value"] == "postgresql://u:***@h/x"
    text = printed(call("settings", **env))
    assert "hunter2" not in text
    assert "concurrency = 7  (SCHEDULER_BATCH_SIZE)" in text


def test_commands_of_an_app_whose_packages_are_missing_report_what_to_install(database_url: str) -> None:
    def run(*arguments: str, missing: str = "google.protobuf") -> subprocess.CompletedProcess[str]:
        without = f"import sys; sys.modules[{missing!r}] = None; from duly.cli import main; main()"
        env = {**os.environ, "DULY_DATABASE_URL": database_url}
        command = [sys.executable, "-c", without, *arguments]
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)

    assert run("migrate").returncode == 0
    for words in (["messages", "list", "--json"], ["retry-service"]):
        for missing in ("google.protobuf", "pika"):
            asked = run(*words, missing=missing)
            assert (asked.returncode, asked.stdout) == (2, ""), asked.stderr
            assert "pip install 'duly[rabbitmq]'" in asked.stderr
            assert "Traceback" not in asked.stderr
    shown = run("--help", missing="duly.apps.messages.commands")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "messages is not available" in " ".join(shown.stdout.split())
    assert "pip install 'duly[rabbitmq]'" in run("messages", "list", missing="duly.apps.messages.commands").stderr
    assert run("products", "--help").returncode == 0, "other apps do not suffer"
