"""Review, acts, edits, limits, users and the audit log at the command line: the same words on both sides."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from click.testing import Result

from duly import Duly
from duly.core.model import GiveUp
from duly.facade.loading import load_app
from duly.web.server import Service
from tests.cli.conftest import call
from tests.support import claim, settle, share

Run = Callable[..., Result]


@pytest.fixture
def app(app_file: str, database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Duly]:
    with monkeypatch.context() as patched:
        patched.setenv("DULY_DATABASE_URL", database_url)
        app = load_app(app_file)
    app.migrate()
    yield app
    app.close()


@pytest.fixture(params=["local", "remote"])
def run(request: pytest.FixtureRequest, app: Duly, app_file: str, database_url: str) -> Iterator[Run]:
    if request.param == "local":
        yield lambda *words, **env: call(*words, DULY_DATABASE_URL=database_url, DULY_APP=app_file, **env)
    else:
        with Service(app, "127.0.0.1", 0) as served:
            yield lambda *words, **env: call(*words, DULY_URL=served.url, **env)


def told(result: Result) -> Any:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def said(result: Result) -> str:
    assert result.exit_code == 0, result.output
    return result.stdout


def failed(app: Duly, times: int = 1) -> list[int]:
    """Items in review that failed alike."""
    ids = [app.put("remind", phone=str(number)).id for number in range(times)]
    now = app.clock.now() + timedelta(seconds=1)  # its clock may be a little behind that of the database
    items = claim(app.internals.store, share("remind", limit=times), tasks=["remind"], now=now)
    assert sorted(item.id for item in items) == ids
    settle(app.internals.store, items, GiveUp("no such number"), now)
    return ids


def actions(app: Duly) -> list[str]:
    return [line.action for line in reversed(app.internals.verbs.audit.page())]


def test_an_item_is_edited(run: Run, app: Duly) -> None:
    item_id = app.task_named("remind").after(60).put(phone="1", n=2).id
    words = ("edit", str(item_id), "phone=3", "--at", "2030-01-01T09:00Z", "--queue", "calls", "--tries", "7")
    row = told(run(*words, "--json"))
    assert (row["args"], row["queue"], row["max_attempts"]) == ({"phone": "3", "n": 2}, "calls", 7)
    assert row["planned_at"] == row["due_at"] == "2030-01-01T09:00:00Z"
    assert told(run("edit", str(item_id), "--args", '{"phone": "4"}', "--json"))["args"] == {"phone": "4", "n": 1}
    assert f"item {item_id} of remind: due" in said(run("edit", str(item_id), "--rank", "5"))
    assert actions(app) == ["item.edited"] * 3


@pytest.mark.parametrize(
    ("words", "complaint"),
    [((), "edit: nothing to change"), (("--rank", "500"), "rank"), (("n=x",), "n: "), (("--at", "soon"), "at: ")],
)
def test_what_an_item_cannot_be_is_refused(run: Run, app: Duly, words: tuple[str, ...], complaint: str) -> None:
    item_id = app.task_named("remind").after(60).put(phone="1").id
    refused = run("edit", str(item_id), *words)
    assert (refused.exit_code, complaint in refused.stderr) == (2, True), refused.stderr
    assert actions(app) == []


def test_items_are_discarded(run: Run, app: Duly) -> None:
    first, second = failed(app, 2)
    assert said(run("discard", str(first), "--reason", "old")) == f"item {first} of remind: cancelled\n"
    (row,) = told(run("discard", str(second), "--json"))
    assert row["state"] == "cancelled"
    assert actions(app) == ["item.discarded"] * 2


def test_a_group_is_looked_at_noted_and_tried(run: Run, app: Duly) -> None:
    assert said(run("review")) == "nothing is in review\n"
    ids = failed(app, 3)
    (group,) = told(run("review", "--json"))
    assert (group["task"], group["items"], group["sample"] in ids) == ("remind", 3, True)
    assert "remind" in said(run("review"))
    assert said(run("review", "note", group["id"], "the line is dead")) == f"noted about {group['id']}\n"
    shown = told(run("review", "show", group["id"], "--json"))
    assert ([note["text"] for note in shown["notes"]], "no such number" in shown["error"]) == (
        ["the line is dead"],
        True,
    )
    assert "the line is dead" in said(run("review", "show", group["id"]))
    assert f"item {group['sample']} will be retried" in said(run("review", "canary", group["id"]))
    assert app.read.item(group["sample"]).state == "waiting"
    made = told(run("review", "retry", group["id"], "--rate", "2", "--json"))
    assert (made["action"], made["total"], made["state"]) == ("retry", 2, "running")
    assert "state=failed: running, 0 of 2 seen" in said(run("review", "discard", group["id"], "--reason", "old"))
    assert actions(app) == ["review.noted", "review.canary", "act.ordered", "act.ordered"]
    refused = run("review", "retry", "0" * 16)
    assert (refused.exit_code, "there is no group" in refused.stderr) == (1, True)


def test_an_act_is_counted_ordered_followed_and_stopped(run: Run, app: Duly) -> None:
    assert said(run("acts")) == "there are no acts on many items\n"
    failed(app, 2)
    words = ("acts", "order", "retry", "--task", "remind", "--state", "failed")
    assert said(run(*words, "--count")) == "2\n"
    made = told(run(*words, "--json"))
    assert (made["total"], made["filter"]["task"]) == (2, "remind")
    line = f"act {made['id']} retry state=failed task=remind: {{}}, 0 of 2 seen, 0 changed\n"
    assert said(run("acts", "show", str(made["id"]))) == line.format("running")
    assert said(run("acts", "cancel", str(made["id"]))) == line.format("cancelled")
    assert said(run("acts")) == line.format("cancelled")
    assert [each["id"] for each in told(run("acts", "--json"))] == [made["id"]]
    assert actions(app) == ["act.ordered", "act.cancelled"]


def test_limits_are_set_and_cleared(run: Run, app: Duly) -> None:
    assert said(run("limits", "set", "boeing", "2/1m")) == "boeing: 2/1m\n"
    (limit,) = told(run("limits", "--json"))
    assert (limit["name"], limit["most"], limit["per_seconds"]) == ("boeing", 2, 60.0)
    assert "2/60s" in said(run("limits"))
    assert said(run("limits", "clear", "boeing")) == "boeing: as in the code\n"
    refused = run("limits", "set", "boeing", "many")
    assert (refused.exit_code, "limit: " in refused.stderr) == (2, True)
    assert actions(app) == ["limit.set", "limit.set"]


def test_users_come_and_go(run: Run, app: Duly) -> None:
    assert said(run("users", "add", "ana")).startswith("ana is a user")
    said(run("users", "role", "ana", "admin"))
    said(run("users", "disable", "ana"))
    said(run("users", "enable", "ana"))
    (user,) = told(run("users", "--json"))
    assert (user["id"], user["role"], user["disabled_at"], user["has_password"]) == ("ana", "admin", None, False)
    assert run("users", "add", "ana").exit_code == 1
    made = told(run("keys", "add", "ana", "--name", "k", "--expires", "90d", "--json"))
    assert app.internals.verbs.users.by_key(made["secret"])
    assert said(run("keys", "revoke", made["id"])) == f"key {made['id']} of ana is revoked\n"
    (key,) = told(run("keys", "--user", "ana", "--json"))
    assert (key["id"], key["scopes"], key["revoked_at"] is None) == (made["id"], ["read", "write"], False)
    assert actions(app) == ["user.created", *["user.changed"] * 3, "key.created", "key.revoked"]


def test_the_audit_log_is_read(run: Run, app: Duly) -> None:
    assert said(run("audit")) == "the audit log is empty\n"
    app.pause("ring")
    app.set_limit("boeing", "4")
    (line,) = told(run("audit", "--subject", "limit:boeing", "--json"))
    assert (line["actor"], line["action"], line["details"]) == ("local", "limit.set", {"limit": "4"})
    text = said(run("audit"))
    assert "local queue.paused queue:ring" in text
    assert text.index("limit.set") < text.index("queue.paused"), "newest first"
