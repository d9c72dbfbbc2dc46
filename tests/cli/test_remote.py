"""Commands with `--url`: the same words and the same answers as on the database, through a service on a real socket."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from duly import Duly
from duly.core.model import Done
from duly.facade.loading import load_app
from duly.verbs import LOCAL
from duly.verbs.acts import portions
from duly.web.server import Service
from tests.cli.conftest import call
from tests.support import KNOWN, claim, settle, share

Remote = Callable[..., Result]


@pytest.fixture
def served(app_file: str, database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Duly]:
    """The app that is served. No command below is told of its database."""
    with monkeypatch.context() as patched:
        patched.setenv("DULY_DATABASE_URL", database_url)
        app = load_app(app_file)
    yield app
    app.close()


@pytest.fixture
def url(served: Duly) -> Iterator[str]:
    """A service for the local admin."""
    with Service(served, "127.0.0.1", 0) as service:
        yield service.url


@pytest.fixture
def remote(url: str) -> Remote:
    """Run a command through the service. No database is named, so none can be used."""

    def run(*words: str, **env: str) -> Result:
        return call(*words, DULY_URL=url, **env)

    return run


@pytest.fixture
def local(database_url: str) -> Remote:
    def run(*words: str) -> Result:
        return call(*words, DULY_DATABASE_URL=database_url)

    return run


def told(result: Result) -> Any:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_an_item_is_put_shown_retried_and_cancelled(remote: Remote, local: Remote) -> None:
    said = remote("put", "remind", "phone=385", "n=2", "--at", "2099-01-01T00:00Z", "--key", "k1")
    assert said.exit_code == 0, said.output
    (row,) = told(remote("items", "--json"))
    assert said.stdout.startswith(f"item {row['id']} of remind: due ")
    assert row["args"] == {"phone": "385", "n": 2}, "a value is text where only text fits, as on a database"
    (known,) = told(local("items", "--json"))
    assert row.keys() == known.keys()
    assert [row[name] for name in row if name != "fence"] == [known[name] for name in known if name != "fence"]

    again = remote("put", "remind", "phone=385", "n=2", "--at", "2099-01-01T00:00Z", "--key", "k1")
    assert "has this key already: waiting" in again.stdout
    delayed = ("put", "remind", "phone=1", "--delay", "1h", "--key", "k2", "--json")
    assert [told(remote(*delayed))["fresh"] for _ in range(2)] == [True, False]

    number = str(row["id"])
    story = told(remote("show", number, "--json"))
    assert story.keys() == told(local("show", number, "--json")).keys()
    assert "item" in remote("show", number).stdout
    assert f"item {number} of remind: due" in remote("retry", number, "--delay", "5m").stdout
    assert told(remote("retry", number, "--json", "--at", "2099-01-01T00:00+00:00"))[0]["due_at"].startswith("2099")
    assert remote("cancel", number, "--reason", "enough").stdout == f"item {number} of remind: cancelled\n"
    assert told(local("show", number, "--json"))["item"]["last_error"] == "enough"


def test_what_a_person_does_is_in_the_audit_log_on_either_side(served: Duly, app_file: str, database_url: str) -> None:
    env = {"DULY_DATABASE_URL": database_url, "DULY_APP": app_file}
    call("put", "remind", "phone=1", "--delay", "1h", **env)
    (row,) = served.read.pages()
    call("cancel", str(row.id), "--reason", "enough", **env)
    call("retry", str(row.id), **env)
    call("queues", "pause", "remind", **env)
    call("queues", "resume", "remind", **env)
    notes = served.schedules.audit()
    assert [note.action for note in notes] == [
        "queue.resumed", "queue.paused", "item.retried", "item.cancelled", "item.put",
    ]  # fmt: skip
    assert {note.actor.partition(":")[0] for note in notes} == {"cli"}


def test_lists_are_filtered_and_paged_alike(remote: Remote, local: Remote, database_url: str) -> None:
    app = Duly(database_url)
    app.task(name="remind")(_remind)
    app.tasks["remind"].after(3_600).put_many({"phone": str(number)} for number in range(1_200))
    app.close()
    for words in (
        ["--limit", "1000"],
        ["--limit", "7", "--task", "remind"],
        ["--state", "failed"],
        ["--queue", "none"],
        ["--limit", "5", "--state", "waiting"],
    ):
        here, there = told(local("items", "--json", *words)), told(remote("items", "--json", *words))
        assert [row["id"] for row in here] == [row["id"] for row in there]
    last = str(here[-1]["id"])
    assert f"--before {last}" in remote("items", "--limit", "5").stdout
    older = told(remote("items", "--limit", "5", "--before", last, "--json"))
    assert [row["id"] for row in older] == [int(last) - number for number in range(1, 6)]
    assert remote("items", "--state", "done").stdout == "no items match\n"


def test_items_are_searched_alike_and_a_search_without_an_index_says_so(
    remote: Remote, local: Remote, database_url: str
) -> None:
    app = Duly(database_url)
    app.task(name="remind")(_remind)
    first, *_ = [app.task_named("remind").after(3_600).put(phone=str(number)).id for number in range(30)]
    app.task_named("remind").after(60).put(phone="other")
    app.cancel(first, reason="the Line is busy")
    app.close()
    for words, count in (
        (["--where", "phone=7"], 1),
        (["--where", "phone=7", "--where", "phone=8"], 0),
        (["--error", "line IS"], 1),
        (["--state", "cancelled", "--state", "failed"], 1),
        (["--date", "due", "--from", "2020-01-01T00:00Z", "--to", "2020-01-02T00:00Z"], 0),
        (["--date", "finished", "--from", "2020-01-01T00:00Z"], 1),
        (["--min-tries", "1"], 0),
        (["--owner", "ana"], 0),
        (["--job", "1"], 0),
        (["--schedule", "1"], 0),
        (["--error-group", "abc"], 0),
        (["--task", "remind", "--limit", "3"], 3),
    ):
        here, there = local("items", "--json", *words), remote("items", "--json", *words)
        assert [row["id"] for row in told(here)] == [row["id"] for row in told(there)], words
        assert len(told(here)) == count, words
        assert here.stderr == there.stderr == "", "JSON and nothing else"
        remarks = [side("items", *words).stderr for side in (local, remote)]
        assert ("no index for this filter" in remarks[0]) == ("no index for this filter" in remarks[1]), words
    assert "31 items were scanned" in local("items", "--where", "phone=7").stderr
    assert local("items").stderr == ""
    for side in (local, remote):
        assert "where" in side("items", "--where", "phone").stderr
        assert "from" in side("items", "--from", "yesterday").stderr


def test_an_act_takes_the_filters_of_the_list(remote: Remote, local: Remote, served: Duly) -> None:
    for side in (remote, local):
        item = served.task_named("remind").after(3_600).put(phone="7").id
        side("cancel", str(item), "--reason", "the line is busy")
        counted = ("acts", "order", "retry", "--state", "cancelled", "--state", "failed", "--error", "BUSY")
        assert side(*counted, "--where", "phone=7", "--from", "2020-01-01T00:00Z", "--count").stdout == "1\n"
        assert side(*counted, "--to", "2020-01-01T00:00Z", "--count").stdout == "0\n"
        made = told(side(*counted, "--into", "repair", "--json"))
        assert (made["total"], made["filter"]["error"]) == (1, "BUSY")
        for _ in portions(served.internals.verbs.context, made["id"]):
            pass
        assert (served.read.item(item).state, served.read.item(item).queue) == ("waiting", "repair")
        assert "queue" in side("acts", "order", "cancel", "--task", "remind", "--into", "repair").stderr
        side("cancel", str(item), "--reason", "done")


def test_an_ended_item_is_put_again(remote: Remote, local: Remote) -> None:
    number = str(told(remote("put", "remind", "phone=1", "--delay", "1h", "--json"))["id"])
    assert "only an item that has ended" in remote("again", number).stderr
    remote("cancel", number)
    for side in (remote, local):
        made = told(side("again", number, "--delay", "5m", "--json"))
        assert (made["fresh"], str(made["id"]) == number) == (True, False)
        assert "of remind: due " in side("again", number).stdout
        keyed = [side("again", number, "--key", f"k{side is local}", "--at", "2099-01-01T00:00Z") for _ in range(2)]
        assert [": due" in keyed[0].stdout, "has this key already" in keyed[1].stdout] == [True, True]


def _remind(phone: str) -> None: ...


def test_a_schedule_is_made_listed_and_acted_upon(remote: Remote, local: Remote) -> None:
    said = remote("schedules", "add", "remind", "daily 09:00", "phone=385", "--key", "mornings", "--max-lateness", "1h")
    assert said.exit_code == 0, said.output
    (row,) = told(remote("schedules", "--json"))
    assert said.stdout.startswith(f"schedule {row['id']}: ")
    (known,) = told(local("schedules", "--json"))
    assert row == known
    number = str(row["id"])
    assert remote("schedules", "pause", number, number).stdout == f"paused: {number}\n"
    assert local("schedules", "pause", number, number).stdout == f"paused: {number}\n"
    assert "paused" in remote("schedules").stdout
    assert told(remote("schedules", "--state", "paused", "--json"))[0]["id"] == row["id"]
    assert remote("schedules", "resume", number).stdout == f"resumed: {number}\n"
    assert remote("schedules", "run-now", number).stdout == f"running: {number}\n"
    assert len(told(remote("items", "--json"))) == 1
    assert told(remote("schedules", "--after", number, "--json")) == []
    assert remote("schedules", "reactivate", number).exit_code in (0, 1)
    assert remote("schedules", "remove", number).stdout == f"removed: {number}\n"
    assert remote("schedules").stdout == "no schedules match\n"


def test_a_schedule_is_shown_and_changed_alike(remote: Remote, local: Remote) -> None:
    remote("schedules", "add", "remind", "daily 09:00", "phone=385", "--key", "k", "--zone", "Europe/Zagreb")
    number = str(told(remote("schedules", "--json"))[0]["id"])
    changed = remote("schedules", "change", number, "--rule", "daily 10:00", "--max-lateness", "2h", "--rank", "3")
    assert changed.stdout == f"schedule {number}: every day at 10:00 (Europe/Zagreb)\n", changed.output
    remote("schedules", "run-now", number)
    here, there = (side("schedules", "show", number, "--next", "3", "--json") for side in (local, remote))
    assert told(here) == told(there)
    assert (len(told(there)["next"]), len(told(there)["items"]), told(there)["rank"]) == (3, 1, 3)
    assert [note["action"] for note in told(there)["audit"]][:2] == ["schedule.run_now", "schedule.changed"]
    assert local("schedules", "show", number, "--utc").stdout == remote("schedules", "show", number, "--utc").stdout
    assert local("schedules", "change", number, "--zone", "UTC").stdout.startswith(f"schedule {number}: every day")
    for words, code, problem in (
        (["show", "4711"], 1, "there is no schedule 4711"),
        (["change", "4711", "--rank", "1"], 1, "there is no schedule 4711"),
        (["change", number, "--rule", "dayly"], 2, "rule: "),
        (["change", number], 2, "change: nothing to change"),
    ):
        refused = remote("schedules", *words)
        assert (refused.exit_code, problem in refused.stderr) == (code, True), refused.output


def test_a_ring_is_filtered_by_the_service(remote: Remote, local: Remote) -> None:
    for key, rule in (("a", "slots 24"), ("b", "daily 09:00"), ("c", "slots 24")):
        remote("schedules", "add", "remind", rule, "phone=1", "--key", key)
    for words in (["--ring", "remind"], ["--ring", "none"], ["--ring", "remind", "--slot", "1"]):
        here, there = told(local("schedules", "--json", *words)), told(remote("schedules", "--json", *words))
        assert [row["key"] for row in here] == [row["key"] for row in there]
    assert [row["key"] for row in told(remote("schedules", "--json", "--ring", "remind"))] == ["a", "c"]


def test_queues_are_shown_paused_and_resumed(remote: Remote, local: Remote) -> None:
    remote("put", "remind", "phone=1", "--delay", "1h")
    (here,), (there,) = told(local("queues", "--json")), told(remote("queues", "--json"))
    assert here == there
    assert "remind is paused" in remote("queues", "pause", "remind").stdout
    assert "paused" in remote("queues").stdout
    assert remote("queues", "pause", "nosuch").stdout == local("queues", "pause", "nosuch").stdout
    assert "there is no queue nosuch yet" in remote("queues", "pause", "nosuch").stdout
    remote("queues", "resume", "nosuch")
    assert remote("queues", "resume", "remind").stdout == "remind is resumed\n"
    assert told(local("queues", "--json"))[0]["paused"] is False


def test_what_the_service_refuses_is_one_line_with_the_field(remote: Remote) -> None:
    for words, code, problem in (
        (["show", "4711"], 1, "there is no item 4711"),
        (["cancel", "4711"], 1, "there is no item 4711"),
        (["schedules", "pause", "4711"], 1, "there is no schedule 4711"),
        (["put", "remnd", "phone=1"], 2, "task: there is no task 'remnd' here; known: linger, remind, where"),
        (["put", "remind", "n=2"], 2, "phone: "),
        (["put", "remind", "phone=1", "n=x"], 2, "n: "),
        (["put", "remind", "phone=1", "--at", "tomorrow"], 2, "at: "),
        (["schedules", "add", "remind", "dayly", "phone=1", "--key", "k"], 2, "rule: "),
        (["retry", "1", "--delay", "soon"], 2, "delay: must be seconds"),
    ):
        refused = remote(*words)
        assert (refused.exit_code, problem in refused.stderr) == (code, True), (words, refused.output)
        assert refused.stderr.count("\n") == 1


@pytest.fixture
def guarded(served: Duly) -> Iterator[str]:
    """A service that lets nobody in without a key; Ana could have one."""
    served.internals.verbs.users.create(LOCAL, "ana")
    served.internals.verbs.users.make_key(LOCAL, "ana", "first")
    with Service(served, "0.0.0.0", 0) as service:
        yield service.url.replace("0.0.0.0", "127.0.0.1")


def test_without_the_right_key_one_is_told_which_option_helps(served: Duly, guarded: str) -> None:
    url = guarded
    key, secret = served.internals.verbs.users.make_key(LOCAL, "ana", "test", ("read", "write"))
    for refused in (call("items", "--url", url), call("items", "--url", url, "--api-key", "duly_wrong")):
        assert (refused.exit_code, "--api-key or DULY_API_KEY" in refused.stderr) == (2, True), refused.output
    put = call("put", "remind", "phone=1", "--delay", "1h", "--url", url, "--api-key", secret)
    assert put.exit_code == 0, put.output
    (row,) = told(call("items", "--json", DULY_URL=url, DULY_API_KEY=secret))
    assert row["task"] == "remind"
    forbidden = call("queues", DULY_URL=url, DULY_API_KEY=secret)
    assert (forbidden.exit_code, forbidden.stderr) == (1, "Error: needs the scope admin\n")
    served.internals.verbs.users.revoke_key(LOCAL, key.id)
    assert call("items", DULY_URL=url, DULY_API_KEY=secret).exit_code == 2


def test_a_key_that_may_write_only_is_enough_to_act(served: Duly, guarded: str) -> None:
    writer = {
        "DULY_URL": guarded,
        "DULY_API_KEY": served.internals.verbs.users.make_key(LOCAL, "ana", "test", ("write",))[1],
    }
    words = ("put", "remind", "phone=1", "--at", "2099-01-01T00:00Z", "--key", "k")
    put = call(*words, **writer)
    assert put.exit_code == 0, put.output
    (row,) = served.read.pages()
    assert put.stdout == f"item {row.id} of remind is put\n"
    assert call(*words, **writer).stdout == f"item {row.id} of remind has this key already\n"
    assert call("cancel", str(row.id), **writer).stdout == f"item {row.id}: cancelled\n"
    assert call("retry", str(row.id), **writer).stdout == f"item {row.id} will be retried\n"
    assert told(call("retry", str(row.id), "--json", **writer)) == [{"id": row.id}]
    assert call("show", str(row.id), **writer).stderr == "Error: needs the scope read\n"


def test_nobody_there_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("duly.client.connection.PAUSE", 0.001)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    refused = call("items", "--url", f"http://127.0.0.1:{port}")
    assert refused.exit_code == 1
    assert refused.stderr.startswith("Error: cannot reach 127.0.0.1")
    assert refused.stderr.count("\n") == 1
    assert call("items", "--url", "nonsense").stderr == "Error: url: must be http://host or https://host\n"


def test_the_command_line_decides_between_a_service_and_a_database(sqlite_url: str, tmp_path: Path) -> None:
    nowhere = "http://127.0.0.1:1"
    both = call("items", "--url", nowhere, "--database-url", sqlite_url)
    assert (both.exit_code, "either --url or --database-url" in both.stderr) == (2, True)
    said = call("items", "--database-url", sqlite_url, DULY_URL=nowhere)
    assert said.stdout == "no items match\n"
    slots = call("slots", "--database-url", sqlite_url, DULY_URL=nowhere)
    assert slots.exit_code == 0, "a database on the command line beats a variable"


def test_the_doctor_and_limits_answer_for_the_service_that_duly_url_names(remote: Remote, served: Duly) -> None:
    served.set_limit("boeing", "2/1m")
    (limit,) = told(remote("limits", "--json"))
    assert (limit["name"], limit["most"]) == ("boeing", 2)
    served.pause("remind")
    result = remote("doctor", "--json")
    found = {each["subject"]: each for each in json.loads(result.stdout)}
    assert found["key"]["text"] == "belongs to local, with the scopes read, write, admin"
    assert found["workers"]["level"] == "bad"
    assert result.exit_code == 1
    assert found["queues"]["text"] == "paused: remind"
    nowhere = call("doctor", "--url", "http://127.0.0.1:1")
    assert nowhere.exit_code == 1
    assert "cannot reach 127.0.0.1:1" in " ".join(nowhere.stdout.split())


def test_history_is_the_same_through_the_service(remote: Remote, local: Remote, served: Duly) -> None:
    from duly.core.settings import Settings
    from duly.engine.historian import Historian

    assert "nothing was recorded" in local("history").stdout
    served.internals.telemetry.ran([("remind", 0.5), ("remind", 0.25)])
    Historian(served.internals.store, served.internals.telemetry, Settings(), {}, list).write(served.clock.now())
    here, there = told(local("history", "--json")), told(remote("history", "--json"))
    assert there["series"] == here["series"]
    assert there.keys() == here.keys()
    (series,) = there["series"]
    assert (series["subject"], series["measure"], series["points"][0][1:]) == ("remind", "run", [2, 0.375, 0.5])
    assert remote("history", "--task", "remind").stdout == local("history", "--task", "remind").stdout
    assert "0.375" in remote("history", "--measure", "run").stdout
    assert remote("history", "--job", "7").exit_code == local("history", "--job", "7").exit_code == 1
    assert remote("history", "--measure", "x").exit_code == local("history", "--measure", "x").exit_code == 2


def test_what_is_late_and_stuck_is_told_alike_through_the_service(remote: Remote, local: Remote, served: Duly) -> None:
    assert remote("late").stdout == local("late").stdout == "nothing was late\n"
    assert remote("stuck").stdout == local("stuck").stdout == "nothing is stuck\n"
    long_ago, now = served.clock.now() - timedelta(hours=5), served.clock.now()
    for phone in ("1", "2", "3"):
        served.task_named("remind").options(at=long_ago, key=phone).put(phone=phone)
    settle(served.internals.store, claim(served.internals.store, share("remind", limit=2), now=now), Done(), now)
    late = told(remote("late", "--json"))
    assert {each["key"] for each in late} == {"1", "2"}
    assert late == told(local("late", "--json"))
    assert told(remote("late", "--json", "--limit", "1"))[0] in late
    assert told(remote("late", "--json", "--grace", "6h")) == []
    (stuck,), (known,) = told(remote("stuck", "--json")), told(local("stuck", "--json"))
    assert stuck["key"] == "3"
    assert {**stuck, "age_seconds": 0} == {**known, "age_seconds": 0}
    assert told(remote("stuck", "--json", "--grace", "6h")) == []
    assert "5 h" in remote("late").stdout
    assert "5 h" in remote("stuck").stdout


def test_alerts_and_signs_of_life_are_told_alike_through_the_service(
    remote: Remote, local: Remote, served: Duly
) -> None:
    nobody = remote("alive")
    assert (nobody.exit_code, nobody.stdout) == (1, "no worker has ever run\n")
    assert remote("alerts").stdout == "nothing is wrong\n"
    now = served.clock.now() - timedelta(minutes=10)
    served.internals.store.write("alive", {**KNOWN, "name": "w1", "tasks": "[]", "started_at": now, "now": now})
    served.internals.store.write(
        "alert", {"name": "source:x", "now": now, "message": "x is down", "details": '{"backAt": 7}'}
    )
    for run in (remote, local):
        assert run("alive").exit_code == 1
        found = run("alive", "--max-age", "1h")
        assert (found.exit_code, found.stdout) == (0, "the last report of a worker is 10 min old\n")
        assert json.loads(run("alive", "--json").stdout)["age_seconds"] == pytest.approx(600, abs=30)
        assert run("alerts").stdout.startswith("source:x: x is down, since ")
    assert told(remote("alerts", "--json")) == told(local("alerts", "--json"))


def test_how_it_is_now_is_told_alike_through_the_service(remote: Remote, local: Remote, served: Duly) -> None:
    assert "no worker is running" in local("now").stdout
    served.put("remind", phone="385")
    served.pause("remind")
    now = served.clock.now()
    served.internals.store.write("alive", {**KNOWN, "name": "w1", "tasks": "[]", "started_at": now, "now": now})
    served.internals.store.write(
        "alert", {"name": "late_items", "now": now, "message": "many are late", "details": '{"lateEvents": 7}'}
    )
    served.set_limit("boeing", "2/1m")
    here, there = told(local("now", "--json")), told(remote("now", "--json"))
    assert there["totals"] == here["totals"]
    assert there["reasons"] == here["reasons"]
    assert there.keys() == here.keys()
    assert there["queues"][0].keys() == here["queues"][0].keys()
    assert there["alerts"][0]["details"] == {"lateEvents": 7}
    assert there["health"] == "bad"
    for run in (remote, local):
        text = run("now").stdout
        for words in (
            "there are problems",
            "many are late",
            "queue remind is paused",
            "1 waiting (1 due",
            "7 late since",
            "w1",
        ):
            assert words in text, (words, text)
        assert "0 of 2" in text
