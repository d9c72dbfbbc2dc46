"""Wrong values at every door: an error of duly that names the field, the same on a database and through a service."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from duly import Duly
from duly.client import Client
from duly.core.errors import DoesNotExist, DulyError, InputError
from duly.web.server import Service
from tests.cli.test_doors import remind


@pytest.fixture
def app(database_url: str) -> Iterator[Duly]:
    app = Duly(database_url)
    app.task(name="remind")(remind)
    yield app
    app.close()


@pytest.fixture
def client(app: Duly) -> Iterator[Client]:
    with Service(app, "127.0.0.1", 0) as service, Client(service.url) as client:
        yield client


NO_ID = (True, 1.5, "5", "", float("nan"), "\ud800", "\0", None, [], {})
BEYOND = (0, -1, 2**63)
NO_NAME = (True, 1.5, 0, float("nan"), "", "\ud800", "\0", [], {})
NO_TIME = (True, 1.5, "5", "", -1, 0, float("nan"), "\ud800", "\0", [], {}, "9999-01-01T00:00:00Z")
NO_SECONDS = ("", "x", -1, float("nan"), float("inf"), 1e300)  # in a query, where a number is text
NO_NUMBER = ("5", "", -1, float("nan"), float("inf"), 1e300, "\ud800", [], {})

# What takes the id of one row, and its name in errors. The first argument is `app.client` or a client of the service.
BY_ID: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "item": ("item_id", lambda door, value: door.item(value)),
    "story": ("item_id", lambda door, value: door.story(value)),
    "again": ("item_id", lambda door, value: door.again(value)),
    "edit": ("item_id", lambda door, value: door.edit(value, rank=1)),
    "cancel": ("ids.0", lambda door, value: door.cancel(value)),
    "retry": ("ids.0", lambda door, value: door.retry(value)),
    "discard": ("ids.0", lambda door, value: door.discard(value)),
    "act_on": ("ids.0", lambda door, value: door.act_on("cancel", [value])),
    "act_on_schedules": ("ids.0", lambda door, value: door.act_on_schedules("pause", value)),
    "schedule_story": ("schedule_id", lambda door, value: door.schedule_story(value)),
    "change_schedule": ("schedule_id", lambda door, value: door.change_schedule(value, rank=1)),
    "act": ("act_id", lambda door, value: door.act(value)),
    "cancel_act": ("act_id", lambda door, value: door.cancel_act(value)),
    "job": ("job_id", lambda door, value: door.job(value)),
    "pause_job": ("job_id", lambda door, value: door.pause_job(value)),
    "cancel_job": ("job_id", lambda door, value: door.cancel_job(value)),
    "check_job": ("job_id", lambda door, value: door.check_job(value)),
    "remove_job": ("job_id", lambda door, value: door.remove_job(value)),
}
# What takes another value, with the wrong ones.
BY_VALUE: dict[str, tuple[str, tuple[Any, ...], Callable[[Any, Any], Any]]] = {
    "put task": ("task", NO_NAME, lambda door, value: door.put(value, {"phone": "1"})),
    "put key": ("key", NO_NAME, lambda door, value: door.put("remind", {"phone": "1"}, key=value)),
    "put at": ("at", NO_TIME, lambda door, value: door.put("remind", {"phone": "1"}, at=value)),
    "put delay": ("delay", NO_NUMBER, lambda door, value: door.put("remind", {"phone": "1"}, delay=value)),
    "put rank": ("rank", (*NO_ID[:-3], 101), lambda door, value: door.put("remind", {"phone": "1"}, rank=value)),
    "put tries": ("tries", (0, -1, "5", 1.5), lambda door, value: door.put("remind", {"phone": "1"}, tries=value)),
    "put phone": ("phone", NO_NAME[:4], lambda door, value: door.put("remind", {"phone": value})),
    "late": ("grace", NO_SECONDS, lambda door, value: door.late(grace=value)),
    "late most": ("most", (0, -1, 10_001, "", 1.5), lambda door, value: door.late(most=value)),
    "stuck": ("grace", NO_SECONDS, lambda door, value: door.stuck(grace=value)),
    "kickoff": ("durationMs", ("5s", 0, -1, float("nan"), 1e9, None), lambda door, value: door.kick_off_job(1, value)),
    "group": ("group_id", NO_NAME, lambda door, value: door.group(value)),
}


def raised(act: Callable[[Any, Any], Any], door: Any, value: Any) -> tuple[type[Exception], str | None]:
    with pytest.raises(DulyError) as error:
        act(door, value)
    return type(error.value), getattr(error.value, "field", None)


@pytest.mark.parametrize("name", BY_ID)
def test_what_is_no_id_is_refused_by_its_field_at_every_door(app: Duly, client: Client, name: str) -> None:
    field, act = BY_ID[name]
    for value in NO_ID:
        for door in (app.client, client):
            assert raised(act, door, value) == (InputError, field), (value, door)


@pytest.mark.parametrize("name", BY_ID)
def test_a_number_that_no_row_has_as_its_id_does_not_exist_at_every_door(app: Duly, client: Client, name: str) -> None:
    for value in BEYOND:
        for door in (app.client, client):
            assert raised(BY_ID[name][1], door, value) == (DoesNotExist, None), (value, door)


@pytest.mark.parametrize("name", BY_VALUE)
def test_a_wrong_value_is_refused_by_its_field_at_every_door(app: Duly, client: Client, name: str) -> None:
    field, values, act = BY_VALUE[name]
    for value in values:
        for door in (app.client, client):
            kind, named = raised(act, door, value)
            assert (issubclass(kind, InputError), named) == (True, field), (value, door)


def test_code_is_refused_alike(app: Duly) -> None:
    acts: tuple[Callable[[Any], Any], ...] = (
        app.cancel, app.retry, app.discard, app.again, app.edit, app.wait, app.read.item, app.read.story,
        app.schedules.get, app.schedules.pause, app.schedules.resume, app.schedules.reactivate, app.schedules.run_now,
        app.schedules.remove, app.schedules.change,
    )  # fmt: skip
    for act in acts:
        for value in NO_ID:
            with pytest.raises(InputError):
                act(value)


def test_a_timeout_is_a_number_of_seconds(app: Duly) -> None:
    placed, job = app.put("remind", phone="1"), app.job("remind", [{"phone": "1"}])
    for value in ("5", True, float("nan"), [], {}):
        for wait in (placed.wait, job.wait, lambda value: app.wait(placed.id, value)):
            with pytest.raises(InputError, match=r"^timeout: must be a number"):
                wait(value)
    for wait in (placed.wait, job.wait):
        with pytest.raises(TimeoutError):
            wait(-1)
