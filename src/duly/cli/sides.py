"""Where a command does its work: on the database itself (`Here`), or through a service that has it (`There`).

Both take and give the same values, so that a command is written once and its output is the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from duly.cli import options
from duly.errors import ConfigError, InputError, ItemNotFound, WrongState
from duly.model import Placed, Schedule
from duly.shown import Row, Story

if TYPE_CHECKING:
    from duly import Duly
    from duly.client import Client, ServiceError

P = ParamSpec("P")
R = TypeVar("R")

PAGE_MOST = 500  # rows that a service gives at once


@contextmanager
def side(spec: str | None = None, *, with_tasks: bool = False) -> Iterator[Here | There]:
    """The side that the command line chose; `with_tasks`: here, an app that knows its tasks is needed."""
    client = options.remote()
    if client is not None:
        with client, translating():
            yield There(client)
    elif with_tasks:
        from duly.app import load_app

        app = load_app(options.app_spec(spec))
        try:
            yield Here(app)
        finally:
            app.close()
    else:
        with options.opened() as app:
            yield Here(app)


@contextmanager
def translating() -> Iterator[None]:
    """What a service says against it leaves as an error of our own."""
    from duly.client import ServiceError

    try:
        yield
    except ServiceError as error:
        raise _translated(error) from None


class Here:
    def __init__(self, app: Duly) -> None:
        self._app = app

    def now(self) -> datetime:
        return self._app.clock.now()

    def put(self, task: str, args: dict[str, Any], **chosen: Any) -> Placed:
        new = self._app.task_named(task).new({**args, **chosen}, self._app.telemetry.traceparent())
        return self._app.verbs.items.put(options.who(), new)

    def item(self, item_id: int) -> Row | None:
        return self._app.read.item(item_id)

    def story(self, item_id: int) -> Story:
        return self._app.read.story(item_id)

    def items(self, before: int | None, most: int, **filters: Any) -> list[Row]:
        return self._app.read.page(before=before, most=most, **filters)

    def retry(self, *ids: int, at: str | None, delay: float | timedelta | None) -> None:
        self._app.verbs.items.retry(options.who(), *ids, at=at, delay=delay)

    def cancel(self, *ids: int, reason: str) -> None:
        self._app.verbs.items.cancel(options.who(), *ids, reason=reason)

    def schedule(self, task: str, rule: str, key: str, args: dict[str, Any], **chosen: Any) -> dict[str, Any]:
        from duly.policy import Slots

        word, _, number = rule.partition(" ")
        try:
            even = Slots(int(number)) if word == "slots" and number.isdecimal() else None
        except ValueError as error:
            raise InputError("rule", str(error)) from None
        made = self._app.verbs.schedules.create(options.who(), task, even or rule, key=key, **chosen, **args)
        return plain(self._app, made)

    def schedules(self, **filters: Any) -> list[dict[str, Any]]:
        return [plain(self._app, each) for each in self._app.schedules.page(**filters)]

    def schedule_story(self, schedule_id: int, ahead: int) -> dict[str, Any]:
        from duly import codec

        schedules = self._app.schedules
        found = schedules.get(schedule_id)
        notes = [_fields(note) for note in schedules.audit(schedule_id, most=20)]
        return {
            **plain(self._app, found),
            "next": schedules.preview(found.rule, found.zone, ahead) if found.is_active else [],
            "items": [_fields(each) for each in schedules.occurrences(schedule_id, 10)],
            "audit": [{**note, "details": codec.decode(note["details"])} for note in notes],
        }

    def change_schedule(self, schedule_id: int, **fields: Any) -> str:
        """Returns what it is now, in words."""
        changed = self._app.verbs.schedules.change(options.who(), schedule_id, **fields)
        return self._app.schedules.describe(changed)

    def act_on_schedules(self, act: str, *ids: int) -> None:
        getattr(self._app.verbs.schedules, act)(options.who(), *ids)

    def queues(self) -> list[dict[str, Any]]:
        return self._app.read.queues()

    def act_on_queue(self, act: str, name: str) -> str | None:
        """Returns what to know about it, if anything."""
        queues = self._app.verbs.queues
        return (queues.pause if act == "pause" else queues.resume)(options.who(), name)


class There:
    def __init__(self, client: Client) -> None:
        self._client = client

    def now(self) -> datetime:
        return datetime.now(UTC)

    def put(self, task: str, args: dict[str, Any], **chosen: Any) -> Placed:
        placed = _asking(self._client.put)(task, args, **_seconds(chosen))
        return Placed(placed.id, placed.execution_key, placed.fresh)

    def item(self, item_id: int) -> Row | None:
        """What became of it; None when the key may act but not look."""
        from duly.client import ServiceError

        try:
            return self.story(item_id).item
        except ServiceError as error:
            if error.status != 403:
                raise
            return None

    def story(self, item_id: int) -> Story:
        from msgspec import convert

        told = snake(self._client.request("GET", f"/api/items/{item_id}"))
        tries = [snake(each) for each in told["tries"]]
        return convert({"item": _row(told), "lease_until": told["lease_until"], "tries": tries}, Story)

    def items(self, before: int | None, most: int, **filters: Any) -> list[Row]:
        filters["page_size"] = min(most, PAGE_MOST)
        rows = (_row(snake(each)) for each in self._client.pages("/api/items", filters))
        return list(islice((row for row in rows if before is None or row.id < before), most))

    def retry(self, *ids: int, at: str | None, delay: float | timedelta | None) -> None:
        from duly.task import when

        if at is not None or delay is not None:
            at = when(at, delay, self.now).isoformat()
        for item_id in ids:
            self._client.retry(item_id, at)

    def cancel(self, *ids: int, reason: str) -> None:
        for item_id in ids:
            self._client.cancel(item_id, reason)

    def schedule(self, task: str, rule: str, key: str, args: dict[str, Any], **chosen: Any) -> dict[str, Any]:
        body = {"task": task, "rule": rule, "key": key, "args": args, **_camel(_seconds(chosen))}
        return _plain_there(_asking(self._client.request)("POST", "/api/schedules", body))

    def schedules(self, after: int, most: int, **filters: Any) -> list[dict[str, Any]]:
        filters["page_size"] = min(most, PAGE_MOST)
        rows = map(_plain_there, self._client.pages("/api/schedules", filters))
        return list(islice((row for row in rows if row["id"] > after), most))

    def schedule_story(self, schedule_id: int, ahead: int) -> dict[str, Any]:
        told = self._client.request("GET", f"/api/schedules/{schedule_id}", query={"ahead": ahead})
        return {
            **_plain_there(told),
            "next": [datetime.fromisoformat(time) for time in told["next"]],
            "items": [_timed(snake(each), "planned_at") for each in told["items"]],
            "audit": [_timed(snake(each), "at") for each in told["audit"]],
        }

    def change_schedule(self, schedule_id: int, **fields: Any) -> str:
        return _asking(self._client.change_schedule)(schedule_id, **_seconds(fields)).describe

    def act_on_schedules(self, act: str, *ids: int) -> None:
        for schedule_id in ids:
            if act == "remove":
                self._client.remove_schedule(schedule_id)
            else:
                self._client.act_on_schedule(schedule_id, "run" if act == "run_now" else act)

    def queues(self) -> list[dict[str, Any]]:
        return [snake(each) for each in self._client.queues()]

    def act_on_queue(self, act: str, name: str) -> str | None:
        return (self._client.pause if act == "pause" else self._client.resume)(name)


def plain(app: Duly, schedule: Schedule) -> dict[str, Any]:
    """A schedule as JSON tells it."""
    from duly import codec

    state = "broken" if schedule.broken_at else "paused" if schedule.paused_at else "active"
    return {
        **_fields(schedule),
        "state": state,
        "describe": app.schedules.describe(schedule),
        "args": codec.decode(schedule.args),
        "keep": None if schedule.keep is None else codec.decode(schedule.keep),
    }


def _plain_there(told: dict[str, Any]) -> dict[str, Any]:
    return _timed(snake(told), "next_at")


def _timed(values: dict[str, Any], name: str) -> dict[str, Any]:
    """The same with this text as the time that it is."""
    time = values[name]
    return {**values, name: None if time is None else datetime.fromisoformat(time)}


def _fields(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__struct_fields__}


def _row(told: dict[str, Any]) -> Row:
    from msgspec import convert

    return convert({"fence": 0, **told}, Row)  # what a service keeps to itself


def snake(told: dict[str, Any]) -> dict[str, Any]:
    """The same by our names; what is inside arguments and results stays as it is."""
    return {re.sub(r"[A-Z]", lambda match: f"_{match[0].lower()}", name): value for name, value in told.items()}


def _camel(options: dict[str, Any]) -> dict[str, Any]:
    return {re.sub(r"_([a-z])", lambda match: match[1].upper(), name): value for name, value in options.items()}


def _seconds(chosen: dict[str, Any]) -> dict[str, Any]:
    return {name: value.total_seconds() if isinstance(value, timedelta) else value for name, value in chosen.items()}


def _asking(act: Callable[P, R]) -> Callable[P, R]:
    """The same, with what the service says about a field as our own error about it."""

    def ask(*args: P.args, **kwargs: P.kwargs) -> R:
        from duly.client import ServiceError

        try:
            return act(*args, **kwargs)
        except ServiceError as error:
            raise _translated(error) from None

    return ask


def _translated(error: ServiceError) -> Exception:
    """Our own error that a service's is, so that it is told and counted the same."""
    match error.status:
        case 401:
            return ConfigError(f"{error}; give a key with --api-key or DULY_API_KEY")
        case 404:
            return ItemNotFound(str(error))
        case 409:
            return WrongState(str(error))
        case 422 if error.field is not None:
            field = error.field.removeprefix("args.")
            return InputError(field, str(error).removeprefix(f"{error.field}: "))
        case _:
            return error
