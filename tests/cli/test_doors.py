"""Every command on a database and through a service: the same output, and acts on many ids are all or nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import Result

from duly import Duly
from duly.client import Client
from duly.core.errors import DoesNotExist, DulyError, WrongState
from duly.core.model import Done, Failed, Outcome, Released, Snooze, Throttled
from duly.core.policy.recur import Slots
from duly.verbs import LOCAL
from duly.web.server import Service
from tests.cli.conftest import call
from tests.support import KNOWN, claim, settle, share

Run = Callable[..., Result]


def remind(phone: str, n: int = 1) -> str:
    return phone


@pytest.fixture
def app(database_url: str) -> Iterator[Duly]:
    app = Duly(database_url, pending_enabled=True)
    app.task(name="remind")(remind)
    yield app
    app.close()


@pytest.fixture
def url(app: Duly) -> Iterator[str]:
    with Service(app, "127.0.0.1", 0) as service:
        yield service.url


@pytest.fixture
def on_database(database_url: str) -> Run:
    return lambda *words: call(*words, DULY_DATABASE_URL=database_url)


@pytest.fixture
def through_service(url: str) -> Run:
    return lambda *words: call(*words, DULY_URL=url)


# -- what every list and every show command prints


def filled(app: Duly, folder: Path) -> dict[str, Any]:
    """One of everything that commands list or show; returns their ids."""
    now, task = app.clock.now(), app.task_named("remind")
    waiting = task.options(delay=3_600, key="k1").put(phone="385").id
    task.options(at=now - timedelta(hours=5), key="late").put(phone="1")
    settle(app.internals.store, claim(app.internals.store, share("remind", limit=1), now=now), Done(), now)
    task.options(at=now - timedelta(hours=5), tries=1).put(phone="2")
    settle(
        app.internals.store,
        claim(app.internals.store, share("remind", limit=1), now=now),
        Failed("OSError: busy", ("OSError",)),
        now,
    )
    (failed,) = [row.id for row in app.read.pages(state="failed", task="remind")]
    (group,) = [each for each in app.internals.verbs.review.groups(LOCAL) if each.task == "remind"]
    app.internals.verbs.review.write_note(LOCAL, group.id, "the line is down")
    schedule = app.internals.verbs.schedules.create(LOCAL, "remind", "daily 09:00", {"phone": "385"}, key="mornings")
    app.internals.verbs.schedules.run_now(LOCAL, schedule.id)
    app.internals.verbs.schedules.create(LOCAL, "remind", Slots(24), {"phone": "385"}, key="evenly")
    act = app.internals.verbs.acts.order(LOCAL, "retry", {"state": "failed", "error": "busy"}, rate=2, reason="back")
    app.internals.verbs.users.create(LOCAL, "ana")
    app.internals.verbs.users.make_key(LOCAL, "ana", "test")
    app.set_limit("boeing", "2/1m")
    app.pause("remind")
    app.internals.store.write("alive", {**KNOWN, "name": "w1", "tasks": "[]", "started_at": now, "now": now})
    app.internals.store.write(
        "alert", {"name": "late_items", "now": now, "message": "late", "details": '{"lateEvents": 7}'}
    )
    job = app.job(task, [{"phone": "a"}, {"phone": "b"}])
    return {
        "item": waiting, "failed": failed, "group": group.id, "schedule": schedule.id, "act": act.id, "job": job.id,
    }  # fmt: skip


COMMANDS = [
    "items",
    "items --state failed",
    "items --where phone=385 --limit 1",
    "items --before {failed}",
    "show {item}",
    "show {failed}",
    "review",
    "review show {group}",
    "acts",
    "acts show {act}",
    "schedules",
    "schedules --state active --task remind",
    "schedules show {schedule} --next 3",
    "queues",
    "slots",
    "limits",
    "late",
    "stuck",
    "alerts",
    "alive",
    "now",
    "history",
    "audit",
    "audit --subject schedule:{schedule}",
    "users",
    "keys",
    "keys --user ana",
    "jobs",
    "jobs show {job}",
    "jobs items {job}",
    "jobs items {job} --status PENDING",
    "jobs pending",
    "jobs pending --job {job}",
]
# Values that go on with time, and one that only a process with the tasks of a queue knows.
MOVING = {"age_seconds", "oldest_due_seconds", "from", "to", "at", "last_used_at", "lateness_seconds", "per_minute"}


def still(value: Any) -> Any:
    """The same without the values that cannot be compared."""
    if isinstance(value, list):
        return [still(each) for each in value]
    if isinstance(value, dict):
        return {name: None if name in MOVING else still(inner) for name, inner in value.items()}
    return value


def test_every_list_and_show_command_prints_the_same_json(
    app: Duly, on_database: Run, through_service: Run, tmp_path: Path
) -> None:
    ids = filled(app, tmp_path)
    for words in COMMANDS:
        here, there = (run(*words.format(**ids).split(), "--json") for run in (on_database, through_service))
        assert (here.exit_code, here.stderr) == (there.exit_code, there.stderr) == (here.exit_code, ""), words
        assert still(json.loads(here.stdout)) == still(json.loads(there.stdout)), words
        assert json.loads(here.stdout) or words == "history", f"{words} printed nothing to compare"


# -- acts on many ids


class Doors:
    """One act on many ids, through every door. An act returns the ids that it changed."""

    def __init__(self, app: Duly, url: str, on_database: Run, through_service: Run) -> None:
        self.app = app
        self._url = url
        self._runs = {"command line, database": on_database, "command line, service": through_service}
        self.names = ["python", "http", "client", *self._runs]

    def act(self, door: str, kind: str, action: str, *ids: int) -> tuple[str, str]:
        """What an act answered: ok, or the kind of error, and its text."""
        if door in self._runs:
            command = ["schedules", "run-now" if action == "run" else action] if kind == "schedule" else [action]
            ended = self._runs[door](*command, *map(str, ids))
            return ("ok", "") if ended.exit_code == 0 else ("error", ended.stderr.strip().removeprefix("Error: "))
        try:
            getattr(self, f"_{door}")(kind, action, ids)
        except DulyError as error:
            return "error", str(error)
        return "ok", ""

    def _python(self, kind: str, action: str, ids: tuple[int, ...]) -> None:
        verbs = self.app.internals.verbs.schedules if kind == "schedule" else self.app.internals.verbs.items
        getattr(verbs, "run_now" if action == "run" else action)(LOCAL, *ids)

    def _http(self, kind: str, action: str, ids: tuple[int, ...]) -> None:
        answer = httpx.post(f"{self._url}/api/{kind}s/act", json={"action": action, "ids": list(ids)}, timeout=60)
        if answer.status_code >= 400:
            kinds = {404: DoesNotExist, 409: WrongState}
            raise kinds[answer.status_code](answer.json()["detail"])
        assert answer.json() == {"ids": list(ids)}

    def _client(self, kind: str, action: str, ids: tuple[int, ...]) -> None:
        with Client(self._url) as client:
            acts = {"schedule": partial(client.act_on_schedules, action), "item": getattr(client, action, None)}
            done = acts[kind](*ids)
        assert done == list(ids)


def items(app: Duly, action: str) -> list[int]:
    """Three items that the action can change, and one that it cannot."""
    now = app.clock.now()
    soon = app.task_named("remind").options(at=now - timedelta(minutes=1), tries=1)
    made = [soon.put(phone=str(n)).id for n in range(3)]
    if action == "discard":
        claimed = claim(app.internals.store, share("remind", limit=10), now=now)
        settle(app.internals.store, claimed, Failed("OSError: busy", ("OSError",)), now)
    return made


def schedules(app: Duly, action: str) -> list[int]:
    keys = [f"{action}-{app.clock.now().timestamp()}-{n}" for n in range(3)]
    made = [
        app.internals.verbs.schedules.create(LOCAL, "remind", "daily 09:00", {"phone": "1"}, key=key).id for key in keys
    ]
    if action == "resume":
        app.internals.verbs.schedules.pause(LOCAL, *made)
    if action == "reactivate":
        for schedule_id in made:
            broken(app, schedule_id)
    return made


def broken(app: Duly, schedule_id: int) -> None:
    """Deactivate a schedule as failures in a row do."""
    from msgspec.structs import replace

    from duly.core.model import Revision

    now = app.clock.now()
    app.internals.store.revise(
        [schedule_id], now, 1, lambda found, _: [Revision(replace(found[0], broken_at=now, next_at=None))]
    )


def state_of(app: Duly, kind: str, ids: list[int]) -> list[Any]:
    """What an act changes, of each of these."""
    if kind == "item":
        rows = {row.id: row for row in app.read.rows(ids)}
        return [(rows[each].state, rows[each].outcome, rows[each].attempt) for each in ids]
    some: dict[int, Any] = {each.id: each for each in app.internals.verbs.schedules.some(ids)}
    shown = [some.get(each) for each in ids]
    return [
        None if each is None else (each.paused_at is None, each.broken_at is None, each.last_item is None)
        for each in shown
    ]


MATRIX = [
    *(("item", action) for action in ("cancel", "retry", "discard")),
    *(("schedule", action) for action in ("pause", "resume", "run", "reactivate", "remove")),
]


@pytest.mark.parametrize(("kind", "action"), MATRIX)
def test_an_act_on_many_ids_is_all_or_nothing_at_every_door(
    app: Duly, url: str, on_database: Run, through_service: Run, kind: str, action: str
) -> None:
    doors = Doors(app, url, on_database, through_service)
    make = items if kind == "item" else schedules
    answers, states = {}, {}
    for door in doors.names:
        first, second, third = made = make(app, action)
        before, lines = state_of(app, kind, made), len(app.internals.verbs.audit.page(most=1_000))
        missing = doors.act(door, kind, action, first, 999_999_999, second)
        assert missing == ("error", f"there is no {kind} 999999999"), door
        assert state_of(app, kind, made) == before, f"{door} changed something although one id was missing"
        assert len(app.internals.verbs.audit.page(most=1_000)) == lines, f"{door} wrote to the audit log"
        answers[door] = doors.act(door, kind, action, first, second)
        states[door] = state_of(app, kind, made)
        if kind == "item" and action != "retry":
            refused = doors.act(door, kind, action, third, first)
            assert (refused[0], str(first) in refused[1]) == ("error", True), (door, refused)
            assert state_of(app, kind, made) == states[door], f"{door} changed {third} although {first} could not be"
    assert set(answers.values()) == {("ok", "")}, answers
    assert len({str(each) for each in states.values()}) == 1, states
    changed = [now != then for now, then in zip(states["python"], before, strict=True)]
    assert changed[2] is False
    if action != "retry":
        assert changed[:2] == [True, True]


def test_an_act_over_http_may_skip_what_it_cannot_change(app: Duly, url: str) -> None:
    first, second, _ = items(app, "cancel")
    body = {"action": "cancel", "ids": [first, 999_999_999, second], "skip": True}
    assert httpx.post(f"{url}/api/items/act", json=body, timeout=60).json() == {"ids": [first, second]}
    with Client(url) as client:
        assert client.act_on("retry", [first, 999_999_999], skip=True) == [first]
        assert client.retry(second, delay=3_600) == [second]
    assert app.read.item(second).due_at > app.clock.now() + timedelta(minutes=30)
    for wrong in ({"skip": True, "action": "retry", "delay": 5}, {"action": "cancel", "at": _iso(app.clock.now())}):
        assert httpx.post(f"{url}/api/items/act", json={"ids": [first], **wrong}, timeout=60).status_code == 422


def _iso(time: datetime) -> str:
    return time.isoformat()


# -- why an item waits that was given back


@pytest.mark.parametrize(
    ("outcome", "cause"),
    [
        (Throttled(3_600), "asked to come back after 3600 s"),
        (Snooze(3_600), "snoozed for 3600 s"),
        (Released("the pace of boeing had no room for it"), "the pace of boeing had no room for it"),
    ],
    ids=["throttled", "snoozed", "released"],
)
def test_an_item_that_was_given_back_shows_why_at_every_door(
    app: Duly, url: str, database_url: str, outcome: Outcome, cause: str
) -> None:
    item_id = app.put("remind", phone="385").id
    store = app.internals.store
    settle(store, claim(store, share("remind"), now=app.clock.now()), outcome, app.clock.now())
    with Client(url) as client:
        for door in (app.client, client):
            assert [row.cause for row in door.find_items(10).rows] == [cause]
            assert [event.error for event in door.story(item_id).timeline if event.error] == [cause]
    for door_of_commands in ({"DULY_DATABASE_URL": database_url}, {"DULY_URL": url}):
        run = partial(call, COLUMNS="200", **door_of_commands)
        assert cause in run("items").stdout
        assert f"try given back on w1: {cause}" in " ".join(run("show", str(item_id)).stdout.split())


def test_a_row_of_a_job_that_was_given_back_shows_why_at_every_door(app: Duly, url: str) -> None:
    job = app.job(app.task_named("remind"), [{"phone": "385"}]).counts()
    store = app.internals.store
    now, line = app.clock.now(), share(job.rows_queue, task="remind")
    settle(store, claim(store, line, now=now), Throttled(60), now)
    with Client(url) as client:
        for door in (app.client, client):
            assert [row.last_error for row in door.job_items(job.id)] == ["asked to come back after 60 s"]
            assert [row.last_error for row in door.pending()] == ["asked to come back after 60 s"]
    settle(store, claim(store, line, now=now + timedelta(hours=1)), Done(), now)
    assert [row.last_error for row in app.client.job_items(job.id)] == [None]
