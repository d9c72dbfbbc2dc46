"""What commands do through a service: they call the client, and get the same values as on a database."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from msgspec import convert

from duly.core.errors import ConfigError, DoesNotExist, InputError, WrongState
from duly.core.model import Placed
from duly.core.picture import Picture
from duly.core.shown import (
    Act,
    Action,
    Alert,
    AuditLine,
    Chart,
    KeyInfo,
    LateItem,
    LimitUse,
    ReviewNote,
    Role,
    Row,
    ShownGroup,
    Story,
    StuckItem,
    User,
)

if TYPE_CHECKING:
    from duly.client import Client, ServiceError

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")

PAGE_MOST = 500  # rows of one page of the service


class There:
    def __init__(self, client: Client) -> None:
        self._client = client

    def now(self) -> datetime:
        return datetime.now(UTC)

    def put(self, task: str, args: dict[str, Any], **chosen: Any) -> Placed[Any]:
        placed = _asking(self._client.put)(task, args, **_seconds(chosen))
        return Placed(placed.id, placed.execution_key, placed.fresh)

    def item(self, item_id: int) -> Row | None:
        """The item; None when the key may write but not read."""
        from duly.client import ServiceError

        try:
            return self.story(item_id).item
        except ServiceError as error:
            if error.status != 403:
                raise
            return None

    def story(self, item_id: int) -> Story:
        told = snake(self._client.request("GET", f"/api/items/{item_id}"))
        tries = [snake(each) for each in told["tries"]]
        origin = {"trace_id": told["trace_id"], "schedule_key": (told["schedule"] or {}).get("key")}
        known = {"lease_until": told["lease_until"], "timeline": told["timeline"]}
        return convert({"item": _row(told), "tries": tries, **known, **origin}, Story)

    def items(
        self, most: int, *, owner: str | None, below: int | None, states: tuple[str, ...], since: str | None,
        until: str | None, where: tuple[str, ...], **said: Any,
    ) -> tuple[list[Row], int | None]:  # fmt: skip
        """Items that fit, and how many were looked at if no index knows them."""
        more = {"state": ",".join(states) or None, "user_id": owner, "page_size": min(most, PAGE_MOST)}
        query = {**camel({**said, **more}), "from": since, "to": until, "where": list(where) or None}
        rows: list[Row] = []
        scanned = 0
        while True:
            page = _asking(self._client.request)("GET", "/api/items", query=query)
            found = (_row(snake(each)) for each in page["items"])
            rows += [row for row in found if below is None or row.id < below]
            scanned += page["search"]["scanned"]
            query["after"] = page["next"]
            if page["next"] is None or len(rows) >= most:
                return rows[:most], None if page["search"]["isIndexed"] else scanned

    def again(self, item_id: int, *, key: str | None, at: str | None, delay: float | timedelta | None) -> Placed[Any]:
        chosen = {name: value for name, value in (("key", key), ("at", at), ("delay", delay)) if value is not None}
        placed = _asking(self._client.again)(item_id, **_seconds(chosen))
        return Placed(placed.id, placed.execution_key, placed.fresh)

    def retry(self, *ids: int, at: str | None, delay: float | timedelta | None) -> None:
        from duly.tasks.checks import when

        if at is not None or delay is not None:
            at = when(at, delay, self.now).isoformat()
        for item_id in ids:
            self._client.retry(item_id, at)

    def cancel(self, *ids: int, reason: str) -> None:
        for item_id in ids:
            self._client.cancel(item_id, reason)

    def schedule(self, task: str, rule: str, key: str, args: dict[str, Any], **chosen: Any) -> dict[str, Any]:
        body = {"task": task, "rule": rule, "key": key, "args": args, **camel(_seconds(chosen))}
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
            "notes": [_timed(note, "at") for note in told["notes"]],
            "items": [_timed(snake(each), "planned_at") for each in told["items"]],
            "audit": [_timed(snake(each), "at") for each in told["audit"]],
        }

    def change_schedule(self, schedule_id: int, **fields: Any) -> str:
        return _asking(self._client.change_schedule)(schedule_id, **_seconds(fields)).describe

    def reactivate_all(self, **asked: Any) -> int:
        return self._client.reactivate_schedules(**asked)

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

    # -- items in review, and many at once

    def discard(self, *ids: int, reason: str) -> None:
        for item_id in ids:
            self._client.discard(item_id, reason)

    def edit(self, item_id: int, **fields: Any) -> Row:
        _asking(self._client.edit)(item_id, **fields)
        return self.story(item_id).item

    def groups(self, most: int) -> list[ShownGroup]:
        return [read_as(ShownGroup, each) for each in islice(self._client.groups(page_size=min(most, PAGE_MOST)), most)]

    def group(self, group_id: str) -> tuple[ShownGroup, str | None, list[ReviewNote]]:
        told = self._client.group(group_id)
        return read_as(ShownGroup, told), told["error"], [read_as(ReviewNote, each) for each in told["notes"]]

    def write_note(self, group_id: str, text: str) -> ReviewNote:
        return read_as(ReviewNote, self._client.write_note(group_id, text))

    def canary(self, group_id: str) -> int:
        return self._client.canary(group_id)

    def retry_group(self, group_id: str, rate: float | None, queue: str | None) -> Act:
        self._client.group(group_id)
        return _act(_asking(self._client.retry_group)(group_id, rate, queue))

    def discard_group(self, group_id: str, reason: str) -> Act:
        self._client.group(group_id)
        return _act(_asking(self._client.discard_group)(group_id, reason))

    def count(self, action: Action, filter: dict[str, Any]) -> int:
        return _asking(self._client.count)(action, filter)

    def order(self, action: Action, filter: dict[str, Any], **said: Any) -> Act:
        return _act(_asking(self._client.order)(action, filter, **said))

    def acts(self, most: int) -> list[Act]:
        return [_act(each) for each in islice(self._client.acts(page_size=min(most, PAGE_MOST)), most)]

    def act(self, act_id: int) -> Act:
        return _act(self._client.act(act_id))

    def cancel_act(self, act_id: int) -> Act:
        return _act(self._client.cancel_act(act_id))

    # -- limits and the audit log

    def limits(self) -> list[LimitUse]:
        return [read_as(LimitUse, each) for each in self._client.limits()]

    def set_limit(self, name: str, limit: str | None) -> None:
        _asking(self._client.set_limit)(name, limit)

    def late(self, grace: float, most: int) -> list[LateItem]:
        return [read_as(LateItem, each) for each in _asking(self._client.late)(grace, most)]

    def stuck(self, grace: float, most: int) -> list[StuckItem]:
        return [read_as(StuckItem, each) for each in _asking(self._client.stuck)(grace, most)]

    def alerts(self) -> list[Alert]:
        return [read_as(Alert, each) for each in self._client.alerts()]

    def silence(self) -> float | None:
        return self._client.silence()

    def picture(self) -> Picture:
        return convert(_deeply(self._client.now()), Picture)

    def history(self, *, job_id: int | None, **asked: Any) -> Chart:
        told = _asking(self._client.history)(job=job_id, **asked)
        return read_as(Chart, {**told, "since": told["from"], "until": told["to"]})

    def audit(self, subject: str | None, most: int) -> list[AuditLine]:
        from duly.core import codec

        told = islice(self._client.audit(subject), most)
        return [read_as(AuditLine, {**each, "details": ""}, details=codec.encode(each["details"])) for each in told]

    # -- users and keys

    def users(self) -> Iterator[User]:
        return (read_as(User, each) for each in self._client.users())

    def user(self, user_id: str) -> User:
        return read_as(User, self._client.user(user_id))

    def create_user(self, user_id: str, role: Role, password: str | None) -> User:
        return read_as(User, _asking(self._client.create_user)(user_id, role, password))

    def change_user(self, user_id: str, **fields: Any) -> User:
        return read_as(User, _asking(self._client.change_user)(user_id, **fields))

    def keys(self, user_id: str | None) -> Iterator[KeyInfo]:
        if user_id is not None:
            self.user(user_id)
        return (read_as(KeyInfo, each) for each in self._client.keys(user_id))

    def make_key(
        self, user_id: str, name: str, scopes: tuple[str, ...], expires_at: datetime | None
    ) -> tuple[KeyInfo, str]:
        options = {"user_id": user_id, "scopes": list(scopes), "expires_at": expires_at}
        told = _asking(self._client.make_key)(name, **options)
        return read_as(KeyInfo, told), told["secret"]

    def revoke_key(self, key_id: str) -> KeyInfo:
        return read_as(KeyInfo, self._client.revoke_key(key_id))


def read_as(kind: type[S], told: dict[str, Any], **more: Any) -> S:
    """What a service tells as the value that it is on a database; `more` is what it keeps to itself."""
    return convert({**snake(told), **more}, kind)


def _act(told: dict[str, Any]) -> Act:
    return read_as(Act, {**told, "filter": snake(told["filter"])}, options={}, place=0, until=0)


def _plain_there(told: dict[str, Any]) -> dict[str, Any]:
    return _timed(snake(told), "next_at")


def _timed(values: dict[str, Any], name: str) -> dict[str, Any]:
    """The same values, with the text of this one read as a time."""
    time = values[name]
    return {**values, name: None if time is None else datetime.fromisoformat(time)}


def _row(told: dict[str, Any]) -> Row:
    return convert({"fence": 0, **told}, Row)  # what a service keeps to itself


def snake(told: dict[str, Any]) -> dict[str, Any]:
    """The same with names in snake_case, except inside arguments and results."""
    return {re.sub(r"[A-Z]", lambda match: f"_{match[0].lower()}", name): value for name, value in told.items()}


def _deeply(told: Any) -> Any:
    """The same with names in snake_case all the way down, except inside the details of alerts."""
    if isinstance(told, list):
        return [_deeply(each) for each in told]
    if not isinstance(told, dict):
        return told
    return {name: value if name == "details" else _deeply(value) for name, value in snake(told).items()}


def camel(options: dict[str, Any]) -> dict[str, Any]:
    return {re.sub(r"_([a-z])", lambda match: match[1].upper(), name): value for name, value in options.items()}


def _seconds(chosen: dict[str, Any]) -> dict[str, Any]:
    return {name: value.total_seconds() if isinstance(value, timedelta) else value for name, value in chosen.items()}


def _asking(act: Callable[P, R]) -> Callable[P, R]:
    """The same function, which raises the service's errors about a field as InputError."""

    def ask(*args: P.args, **kwargs: P.kwargs) -> R:
        from duly.client import ServiceError

        try:
            return act(*args, **kwargs)
        except ServiceError as error:
            raise translated(error) from None

    return ask


def translated(error: ServiceError) -> Exception:
    """The error of duly that an error of the service stands for, so that both sides show the same."""
    match error.status:
        case 401:
            return ConfigError(f"{error}; give a key with --api-key or DULY_API_KEY")
        case 404:
            return DoesNotExist(str(error))
        case 409:
            return WrongState(str(error))
        case 422 if error.field is not None:
            field = error.field.removeprefix("args.")
            return InputError(field, str(error).removeprefix(f"{error.field}: "))
        case _:
            return error
