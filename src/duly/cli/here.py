"""What commands do on a database: they call the verbs, as the user of this machine."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Unpack

from duly.cli import options
from duly.core.errors import InputError
from duly.core.model import Placed, Schedule
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
    from duly import Duly
    from duly.tasks.puttable import Options

PAGE = 500


class Here:
    def __init__(self, app: Duly) -> None:
        self._app = app

    def now(self) -> datetime:
        return self._app.clock.now()

    def put(self, task: str, args: dict[str, Any], **chosen: Unpack[Options]) -> Placed[Any]:
        new = self._app.task_named(task).make_item(args, chosen, self._app.telemetry.traceparent())
        return self._app.verbs.items.put(options.who(), new)

    def item(self, item_id: int) -> Row | None:
        return self._app.read.item(item_id)

    def story(self, item_id: int) -> Story:
        return self._app.read.story(item_id)

    def items(self, most: int, *, owner: str | None, **said: Any) -> tuple[list[Row], int | None]:
        """Items that fit, and how many were looked at if no index knows them."""
        from duly.verbs.listing import Filter

        said["since"], said["until"] = options.moment(said["since"], "from"), options.moment(said["until"], "to")
        filter, listing = Filter(**said), self._app.verbs.listing
        rows: list[Row] = []
        scanned, after = 0, None
        while True:
            found = listing.page(options.who(), filter, owner=owner, after=after, most=most - len(rows))
            rows += [Row(*(getattr(row, name) for name in Row.__struct_fields__)) for row in found.rows]
            scanned, after = scanned + found.scanned, found.place
            if after is None or len(rows) >= most:
                return rows, None if found.is_indexed else scanned

    def again(self, item_id: int, **chosen: Any) -> Placed[Any]:
        return self._app.verbs.items.again(options.who(), item_id, **chosen, trace=self._app.telemetry.traceparent())

    def retry(self, *ids: int, at: str | None, delay: float | timedelta | None) -> None:
        self._app.verbs.items.retry(options.who(), *ids, at=at, delay=delay)

    def cancel(self, *ids: int, reason: str) -> None:
        self._app.verbs.items.cancel(options.who(), *ids, reason=reason)

    def schedule(self, task: str, rule: str, key: str, args: dict[str, Any], **chosen: Any) -> dict[str, Any]:
        from duly.core.policy.recur import Slots

        word, _, number = rule.partition(" ")
        try:
            even = Slots(int(number)) if word == "slots" and number.isdecimal() else None
        except ValueError as error:
            raise InputError("rule", str(error)) from None
        made = self._app.verbs.schedules.create(options.who(), task, even or rule, args, key=key, **chosen)
        return plain(self._app, made)

    def schedules(self, **filters: Any) -> list[dict[str, Any]]:
        return [plain(self._app, each) for each in self._app.schedules.page(**filters)]

    def schedule_story(self, schedule_id: int, ahead: int) -> dict[str, Any]:
        from duly.core import codec

        schedules = self._app.schedules
        found = schedules.get(schedule_id)
        notes = [_fields(note) for note in schedules.audit(schedule_id, most=20)]
        times = schedules.preview(found.rule, found.zone, ahead) if found.is_active else []
        clock = self._app.verbs.schedules.clock_notes(found.rule, found.zone, times) if times else []
        return {
            **plain(self._app, found),
            "next": times,
            "notes": [_fields(note) for note in clock],
            "items": [_fields(each) for each in schedules.occurrences(schedule_id, 10)],
            "audit": [{**note, "details": codec.decode(note["details"])} for note in notes],
        }

    def change_schedule(self, schedule_id: int, **fields: Any) -> str:
        """Change a schedule; returns its new rule in words."""
        changed = self._app.verbs.schedules.change(options.who(), schedule_id, **fields)
        return self._app.schedules.describe(changed)

    def reactivate_all(self, task: str | None, cause: str | None, run: bool) -> int:
        count, is_more = 0, True
        while is_more:  # some at a time, so that what ends this can be asked for again
            schedules = self._app.verbs.schedules
            done, is_more = schedules.reactivate_all(options.who(), task, cause=cause, run_now=run)
            count += done
        return count

    def act_on_schedules(self, act: str, *ids: int) -> None:
        getattr(self._app.verbs.schedules, act)(options.who(), *ids)

    def queues(self) -> list[dict[str, Any]]:
        return self._app.read.queues()

    def act_on_queue(self, act: str, name: str) -> str | None:
        """Pause or resume a queue; returns a remark about it, if there is one."""
        queues = self._app.verbs.queues
        return (queues.pause if act == "pause" else queues.resume)(options.who(), name)

    # -- items in review, and many at once

    def discard(self, *ids: int, reason: str) -> None:
        self._app.verbs.items.discard(options.who(), *ids, reason=reason)

    def edit(self, item_id: int, **fields: Any) -> Row:
        return self._app.verbs.items.edit(options.who(), item_id, **fields)

    def groups(self, most: int) -> list[ShownGroup]:
        return self._app.verbs.review.groups(options.who(), most=most)

    def group(self, group_id: str) -> tuple[ShownGroup, str | None, list[ReviewNote]]:
        """The group, a sample's error, and what people wrote about it."""
        review, who = self._app.verbs.review, options.who()
        group = review.group(who, group_id)
        return group, self._app.read.item(group.sample).last_error, review.notes(who, group_id)

    def write_note(self, group_id: str, text: str) -> ReviewNote:
        return self._app.verbs.review.write_note(options.who(), group_id, text)

    def canary(self, group_id: str) -> int:
        return self._app.verbs.review.canary(options.who(), group_id)

    def retry_group(self, group_id: str, rate: float | None, queue: str | None) -> Act:
        return self._app.verbs.review.retry(options.who(), group_id, rate, queue)

    def discard_group(self, group_id: str, reason: str) -> Act:
        return self._app.verbs.review.discard(options.who(), group_id, reason)

    def count(self, action: Action, filter: dict[str, Any]) -> int:
        return self._app.verbs.acts.count(options.who(), filter).items

    def order(self, action: Action, filter: dict[str, Any], **said: Any) -> Act:
        return self._app.verbs.acts.order(options.who(), action, filter, **said)

    def acts(self, most: int) -> list[Act]:
        return self._app.verbs.acts.page(options.who(), most=most)

    def act(self, act_id: int) -> Act:
        return self._app.verbs.acts.get(options.who(), act_id)

    def cancel_act(self, act_id: int) -> Act:
        return self._app.verbs.acts.cancel(options.who(), act_id)

    # -- limits and the audit log

    def limits(self) -> list[LimitUse]:
        return self._app.read.limits()

    def set_limit(self, name: str, limit: str | None) -> None:
        self._app.verbs.limits.set(options.who(), name, limit)

    def late(self, grace: float, most: int) -> list[LateItem]:
        return self._app.read.late(grace, most)

    def stuck(self, grace: float, most: int) -> list[StuckItem]:
        return self._app.read.stuck(grace, most)

    def alerts(self) -> list[Alert]:
        return self._app.read.alerts()

    def silence(self) -> float | None:
        return self._app.read.silence()

    def picture(self) -> Picture:
        return self._app.verbs.now.look(options.who())

    def history(self, **asked: Any) -> Chart:
        return self._app.verbs.history.look(options.who(), **asked)

    def audit(self, subject: str | None, most: int) -> list[AuditLine]:
        return self._app.verbs.audit.page(subject, most=most)

    # -- users and keys

    def users(self) -> Iterator[User]:
        after = ""
        while found := self._app.verbs.users.page(options.who(), after, PAGE):
            yield from found
            after = found[-1].id

    def user(self, user_id: str) -> User:
        return self._app.verbs.users.get(options.who(), user_id)

    def create_user(self, user_id: str, role: Role, password: str | None) -> User:
        return self._app.verbs.users.create(options.who(), user_id, role, password)

    def change_user(
        self, user_id: str, *, role: Role | None = None, password: str | None = None, disabled: bool | None = None
    ) -> User:
        change = self._app.verbs.users.change
        return change(options.who(), user_id, role=role, password=password, is_disabled=disabled)

    def keys(self, user_id: str | None) -> Iterator[KeyInfo]:
        if user_id is not None:
            self.user(user_id)
        after = ""
        while found := self._app.verbs.users.keys(options.who(), user_id, after, PAGE):
            yield from found
            after = found[-1].id

    def make_key(
        self, user_id: str, name: str, scopes: tuple[str, ...], expires_at: datetime | None
    ) -> tuple[KeyInfo, str]:
        return self._app.verbs.users.make_key(options.who(), user_id, name, scopes, expires_at)

    def revoke_key(self, key_id: str) -> KeyInfo:
        return self._app.verbs.users.revoke_key(options.who(), key_id)


def plain(app: Duly, schedule: Schedule) -> dict[str, Any]:
    """A schedule as a value for JSON."""
    from duly.core import codec

    state = "broken" if schedule.broken_at else "paused" if schedule.paused_at else "active"
    return {
        **_fields(schedule),
        "state": state,
        "describe": app.schedules.describe(schedule),
        "args": codec.decode(schedule.args),
        "keep": None if schedule.keep is None else codec.decode(schedule.keep),
    }


def _fields(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__struct_fields__}
