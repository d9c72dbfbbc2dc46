"""Reminders as shown to people, and the task that places their calls."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict, Unpack, get_args

from msgspec import Meta, Struct

from duly import Attempt, Duly, InputError
from duly.apps.reminders.settings import QUEUE, RemindersSettings
from duly.core.errors import DoesNotExist, DulyError
from duly.core.filters import checked_most
from duly.core.model import NewItem, State, Tried
from duly.core.shown import Row
from duly.core.wire import Doc
from duly.outbound.http import BadAnswer, attempt_headers, post_json
from duly.outbound.interrupt import uninterrupted
from duly.tasks import puttable
from duly.tasks.checks import checked_moment
from duly.tasks.task import Task
from duly.verbs import LOCAL, Principal

if TYPE_CHECKING:
    from duly.virtual.simulation import Simulation

log = logging.getLogger("duly.reminders")

MESSAGE_LIMIT = 1_000
CALL_ID_LIMIT = 1_000
PHONE = r"\A\+ *[1-9](?: *[0-9]){4,14} *\Z"  # E.164, written with or without spaces

Phone = Annotated[str, Meta(pattern=PHONE)]
Message = Annotated[str, Meta(min_length=1, max_length=MESSAGE_LIMIT)]
Name = Annotated[str, Meta(max_length=200)]

Status = Literal["scheduled", "processing", "completed", "pending_retry", "failed", "cancelled"]

STATES: dict[Status, State] = {
    "scheduled": "waiting",
    "pending_retry": "waiting",
    "processing": "running",
    "completed": "done",
    "failed": "failed",
    "cancelled": "cancelled",
}


PAGE = 500
GOLDEN = 0.6180339887498949  # its multiples, without their whole parts, are spread evenly from 0 to 1


class Reminder(Struct, frozen=True, kw_only=True):
    """A reminder as people see it."""

    id: int
    phone: str
    message: str
    name: str
    status: Status
    date_time_utc: datetime
    attempt_count: int
    max_attempts: int
    next_retry_at: datetime | None
    last_error: str | None
    idempotency_key: Annotated[str | None, Doc("The key of the latest try.")]
    execution_key: Annotated[str, Doc("The key of all tries.")]
    vapi_call_id: str | None
    attempts: tuple[Tried, ...]  # those that did not succeed


class Options(TypedDict, total=False):
    """The options of a reminder, besides phone, message and time."""

    name: str
    key: str | None
    max_attempts: int | None
    owner: str | None


class Reminders:
    def __init__(self, app: Duly, task: Task[..., Any]) -> None:
        self.app = app
        self.task = task

    def schedule(self, phone: str, message: str, at: datetime | str, **options: Unpack[Options]) -> Reminder:
        """Schedule a call of `phone` with this message at this time; once per `key`, however often it is called."""
        return self.get(self.app.internals.place(self.new(phone, message, at, **options)).id)

    def new(
        self,
        phone: str,
        message: str,
        at: datetime | str,
        *,
        name: str = "",
        key: str | None = None,
        max_attempts: int | None = None,
        owner: str | None = None,
    ) -> NewItem:
        """The same, checked and not yet put."""
        if not isinstance(phone, str) or not re.fullmatch(PHONE, phone):
            raise InputError("phone", f"must be + and 5 to 15 digits, such as +385 1 234, got {phone!r:.40}")
        if not isinstance(message, str) or not message.strip():
            raise InputError("message", "must be text that is not empty")
        if at is None:
            raise InputError("at", "is required: when to call")
        args = {"phone": phone.replace(" ", ""), "message": message, "name": name}
        try:
            options: puttable.Options = {"at": at, "key": key, "tries": max_attempts}
            return self.task.make_item(args, options, self.app.internals.telemetry.traceparent(), owner)
        except InputError as error:
            raise InputError("max_attempts", error.problem) if error.field == "tries" else error from None

    def get(self, reminder_id: int) -> Reminder:
        story = self.app.read.story(reminder_id)
        if story.item.task != self.task.name:
            raise DoesNotExist(f"there is no reminder {reminder_id}")
        return self.seen(story.item, story.tries)

    def list(
        self,
        status: Status | None = None,
        most: int = 100,
        *,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
    ) -> tuple[Reminder, ...]:
        """Newest first, without their attempts: those with this status, to be called from `since` to before `until`."""
        found: list[Row] = []
        given = {"since": since, "until": until}
        limits = {name: None if at is None else checked_moment(name, at) for name, at in given.items()}
        checked_most(most)
        while len(found) < most:
            before = found[-1].id if found else None
            page = self.page(None, status, before=before, most=min(most - len(found), PAGE), **limits)
            if not page:
                break
            found.extend(page)
        return tuple(self.seen(row) for row in found)

    def page(
        self,
        owner: str | None,
        status: Status | None = None,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        before: int | None = None,
        most: int = 100,
    ) -> Sequence[Row]:
        """A page of the items of this owner's reminders, newest first; None means those of all owners."""
        if status is not None and status not in STATES:
            raise InputError("status", f"must be one of {', '.join(get_args(Status))}, got {status!r:.40}")
        is_again = status == "pending_retry" if status in ("scheduled", "pending_retry") else None
        state = STATES[status] if status is not None else None
        return self.app.read.owned_planned(
            owner, self.task.name, state=state, is_again=is_again, since=since, until=until, before=before, most=most
        )

    def edit(
        self,
        reminder_id: int,
        *,
        at: datetime | str | None = None,
        phone: str | None = None,
        message: str | None = None,
        name: str | None = None,
        who: Principal = LOCAL,
    ) -> Reminder:
        """Another time, phone or message for a reminder that waits or has failed."""
        self.get(reminder_id)
        given = {"phone": phone and phone.replace(" ", ""), "message": message, "name": name}
        said = {field: value for field, value in given.items() if value is not None}
        self.app.internals.verbs.items.edit(
            who, reminder_id, at=at, args=(lambda row: {**row.args, **said}) if said else None
        )
        return self.get(reminder_id)

    def cancel(self, reminder_id: int, who: Principal = LOCAL, *, reason: str = "") -> Reminder:
        """Cancel a reminder, also while it is being called."""
        self.app.internals.verbs.items.cancel(who, self.get(reminder_id).id, reason=reason)
        return self.get(reminder_id)

    def retry(self, reminder_id: int, who: Principal = LOCAL) -> Reminder:
        """Call now: a failed or cancelled reminder with all its tries, a waiting one sooner."""
        self.app.internals.verbs.items.retry(who, self.get(reminder_id).id)
        return self.get(reminder_id)

    def seen(self, row: Row, tries: Sequence[Tried] = ()) -> Reminder:
        """The reminder that an item is."""
        status = status_of(row)
        return Reminder(
            id=row.id,
            phone=row.args["phone"],
            message=row.args["message"],
            name=row.args.get("name", ""),
            status=status,
            date_time_utc=row.planned_at,
            attempt_count=row.attempt,
            max_attempts=row.max_attempts or self.task.tries,
            next_retry_at=row.due_at if status == "pending_retry" else None,
            last_error=row.last_error.partition("\n")[0] if row.last_error else None,
            idempotency_key=latest_key(row),
            execution_key=row.execution_key,
            vapi_call_id=row.result["vapi_call_id"] if row.result else None,
            attempts=tuple(tries),
        )


def status_of(row: Row) -> Status:
    """The status of a reminder."""
    match row.state:
        case "waiting":
            return "pending_retry" if row.lane == "retry" or row.outcome == "throttled" else "scheduled"
        case "running":
            return "processing"
        case "done":
            return "completed"
        case ended:
            return ended


def latest_key(row: Row) -> str | None:
    """The key of the latest try; None before the first. A released try is not counted, but had its key."""
    number = row.attempt + (row.state == "waiting" and row.outcome in ("throttled", "released"))
    return f"{row.id}-{number}-{row.fence:08x}" if number and row.fence else None


def install(app: Duly, settings: RemindersSettings) -> Reminders:
    """Register the task `remind` on this app."""

    @app.task(queue=QUEUE, label="reminder")
    def remind(attempt: Attempt, phone: Phone, message: Message, name: Name = "") -> dict[str, str]:
        """Place the call. Returns the provider's id of it."""
        secret = {"Authorization": f"Bearer {settings.api_key}"} if settings.api_key else {}
        with uninterrupted():  # a call that was asked for is placed, also when the reminder is cancelled meanwhile
            answer = post_json(
                f"{settings.base_url.rstrip('/')}/call",
                {
                    "assistantId": settings.assistant_id,
                    "phoneNumberId": settings.phone_number_id,
                    "customer": {"number": phone.replace(" ", ""), **({"name": name} if name else {})},
                    "assistantOverrides": {"variableValues": {"message": message, "name": name}},
                    "metadata": {
                        "idempotency_key": attempt.key,
                        "attempt_key": attempt.attempt_key,
                        "attempt": attempt.number,
                        "reminder_id": attempt.id,
                    },
                },
                headers={**attempt_headers(attempt), **secret},
                timeout=settings.timeout_seconds,
            ).json()
        call_id = answer.get("id") if isinstance(answer, dict) else None
        if not isinstance(call_id, str) or not call_id:
            raise BadAnswer("the provider took the call but gave it no id")
        call_id = call_id[:CALL_ID_LIMIT]  # a long id is no reason to ask for a call that was placed
        log.info("Call initiated for reminder %s", attempt.id, extra={"itemId": attempt.id, "vapiCallId": call_id})
        result = {"vapi_call_id": call_id}
        with suppress(DulyError):  # a placed call is not a failure if only the database is down
            app.internals.verbs.items.keep_late(attempt.id, attempt.item.fence, result)
        return result

    return Reminders(app, remind)


def simulated(made: Reminders, world: Simulation, reminders: int) -> None:
    """Fill a simulation with this many reminders, evenly over its time. Calls are made by its model."""
    begin, long = world.clock.now(), world.until - world.clock.now()
    for n in range(reminders):
        at = begin + long * (n * GOLDEN % 1)
        made.app.internals.place(made.new(f"+385 1 {100_000 + n}", "Simulated", at))
