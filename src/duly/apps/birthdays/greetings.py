"""People, their events, and the task that greets them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta, Struct

from duly import Attempt, Backoff, Duly, InputError, Throttled, Yearly
from duly.apps.birthdays.settings import QUEUE, Settings
from duly.core.codec import decode
from duly.core.errors import ConfigError, ItemNotFound
from duly.core.model import LIVE, Item, Schedule
from duly.core.policy.recur import parse, zone_named
from duly.outbound.http import attempt_headers, post_json
from duly.tasks.checks import checked_key, checked_rows
from duly.tasks.task import Task
from duly.verbs import local

if TYPE_CHECKING:
    from duly.virtual.simulation import Simulation

log = logging.getLogger("duly.birthdays")

PersonId = Annotated[str, Meta(min_length=1, max_length=200)]
Name = Annotated[str, Meta(min_length=1, max_length=200, pattern=r"\S")]

Leap = Literal["feb28", "mar1", "skip"]
Status = Literal["PENDING", "PROCESSING", "COMPLETED", "FAILED", "CANCELLED"]


class Person(Struct, frozen=True, kw_only=True):
    id: str
    first_name: str
    last_name: str
    birthday: str  # MM-DD
    zone: str
    leap: Leap  # when a person born on 29 February is greeted in other years
    next_at: datetime | None  # their next event
    user_id: str | None = None  # whose they are; None: code added them


class Event(Struct, frozen=True, kw_only=True):
    """One birthday of one person. `id` is None until it is due."""

    id: int | None
    person_id: str
    status: Status
    target: datetime
    attempts: int = 0
    executed_at: datetime | None = None
    next_try_at: datetime | None = None  # None for a FAILED event that is in review
    last_error: str | None = None


class Birthdays:
    def __init__(self, app: Duly, task: Task[..., Any], settings: Settings) -> None:
        self.app = app
        self.task = task
        self.settings = settings

    def add(
        self,
        person_id: str,
        first_name: str,
        last_name: str,
        birthday: date | str,
        zone: str,
        leap: Leap = "feb28",
        *,
        owner: str | None = None,
        actor: str = "local",
        connection: Any = None,
    ) -> Person:
        """Greet this person every year; `birthday` is a date, `YYYY-MM-DD` or `MM-DD`. Nobody is added twice."""
        row = self._row(person_id, first_name, last_name, birthday, zone, leap, owner)
        verbs = self.app.verbs
        with verbs.ground.joining(connection) as connection:
            is_new = verbs.schedules.create_many(self.task, None, [row], owner, connection)
            person = self._find(person_id, owner, connection)[1]
            if is_new:
                verbs.audit.note(local(actor), "person.added", f"person:{person_id}", {}, connection)
        if not is_new and _told(person) != (first_name, last_name, *_rule_words(row["rule"]), zone):
            raise InputError("person_id", f"{person_id!r:.80} is known, with other values; use change")
        return person

    def add_many(self, people: Iterable[Mapping[str, Any]]) -> int:
        """Any number, each with the arguments of `add`; returns how many are new. Those known stay as they are.

        A bad row stops all of them: nothing is written.
        """
        return self.app.verbs.schedules.create_many(self.task, None, checked_rows("people", people, self._row))

    def change(self, person_id: str, *, actor: str = "local", owner: str | None = None, **fields: Any) -> Person:
        """Change first_name, last_name, birthday, zone or leap. The pending event moves along; none happens twice."""
        schedule, person = self._find(person_id, owner)
        known = {name: getattr(person, name) for name in ("first_name", "last_name", "birthday", "zone", "leap")}
        for name in fields:
            if name not in known:
                raise InputError(name, f"cannot be changed; known: {', '.join(known)}")
        row = self._row(person_id, **{**known, **fields})
        args = {name: row[name] for name in ("person_id", "first_name", "last_name")}
        self.app.verbs.schedules.change(local(actor), schedule.id, args=args, rule=row["rule"], zone=row["zone"])
        return self.get(person_id, owner)

    def remove(self, person_id: str, *, actor: str = "local", owner: str | None = None) -> None:
        """No more greetings; one that waits is cancelled."""
        self.app.verbs.schedules.remove(local(actor), self._find(person_id, owner)[0].id)

    def seen(self, schedule: Schedule) -> Person:
        """The person that a schedule is about."""
        return _person(schedule)

    def get(self, person_id: str, owner: str | None = None) -> Person:
        return self._find(person_id, owner)[1]

    def list(self, most: int = 100, after: str | None = None) -> tuple[Person, ...]:
        """In the order in which they were added; `after` is the last id of the page before."""
        last = self._find(after)[0].id if after is not None else 0
        page = self.app.schedules.page(task=self.task.name, after=last, most=most)
        return tuple(_person(schedule) for schedule in page)

    def events(self, person_id: str, most: int = 100, owner: str | None = None) -> tuple[Event, ...]:
        """The event to come, then those that have become due, newest first."""
        schedule, person = self._find(person_id, owner)
        made = self.app.schedules.occurrences(schedule.id, most)
        live = {item.id: item for item in self.app.store.fetch([each.id for each in made if each.state in LIVE])}
        past = (
            Event(
                id=each.id,
                person_id=person_id,
                status=_status(each.state, live.get(each.id)),
                target=each.planned_at,
                attempts=each.attempt,
                executed_at=each.finished_at if each.state == "done" else None,
                next_try_at=live[each.id].due_at.astimezone(UTC) if each.state == "waiting" and each.attempt else None,
                last_error=each.last_error.partition("\n")[0] if each.last_error else None,
            )
            for each in made
        )
        pending = (
            [Event(id=None, person_id=person_id, status="PENDING", target=person.next_at)] if person.next_at else []
        )
        return tuple(islice((*pending, *past), most))

    def _find(self, person_id: str, owner: str | None = None, connection: Any = None) -> tuple[Schedule, Person]:
        try:
            schedule = self.app.schedules.find(self.task.name, _key(person_id, owner), connection)
            # An id of one owner may look like a key of another's person.
            if owner is not None and self.app.schedules.owned_one(schedule.id, owner, connection) is None:
                raise ItemNotFound(person_id)
        except ItemNotFound:
            raise ItemNotFound(f"there is no person {person_id!r:.80}") from None
        return schedule, _person(schedule)

    def _row(
        self,
        person_id: str,
        first_name: str,
        last_name: str,
        birthday: date | str,
        zone: str,
        leap: Leap = "feb28",
        owner: str | None = None,
    ) -> dict[str, Any]:
        """A person as a row of `create_many`, checked."""
        args = {"person_id": person_id, "first_name": first_name, "last_name": last_name}
        self.task.checked_args(dict(args))
        try:
            zone_named(zone)
        except ValueError as error:
            raise InputError("zone", str(error).removeprefix("zone: ")) from None
        rule = Yearly(_day(birthday), self.settings.at, leap=_leap(leap))
        return {"key": _key(checked_key(person_id), owner), "rule": rule, "zone": zone, "catch_up": "all", **args}


def install(app: Duly, settings: Settings) -> Birthdays:
    """Register the task `birthday` on this app."""
    try:
        Yearly("01-01", settings.at)
    except ValueError as error:
        raise ConfigError(f"birthdays_{error}") from None

    @app.task(queue=QUEUE, retry=Backoff(base=60, factor=1, tries=3), label="event")
    def birthday(person_id: PersonId, first_name: Name, last_name: Name, attempt: Attempt) -> None:
        """Tell the webhook."""
        about = {"eventId": attempt.id, "userId": person_id}
        try:
            _send(settings, person_id, f"Hey, {first_name} {last_name} it's your birthday", attempt)
        except Throttled:
            raise
        except Exception as error:
            problem = {"error": str(error), "attempts": attempt.number}
            log.error("Event processing failed", extra={**about, **problem})
            raise
        minutes = int((app.clock.now() - attempt.planned_at).total_seconds() // 60)
        log.info("Event processed successfully", extra={**about, "latenessMinutes": minutes})

    return Birthdays(app, birthday, settings)


def _send(settings: Settings, person_id: str, message: str, attempt: Attempt) -> None:
    if not settings.webhook_url:
        raise ConfigError("birthdays_webhook_url: say where greetings go, such as WEBHOOK_URL=https://example.com/hook")
    post_json(
        settings.webhook_url,
        {"message": message, "idempotencyKey": attempt.key, "eventId": attempt.id, "userId": person_id},
        headers=attempt_headers(attempt),
        timeout=settings.timeout_seconds,
    )


def _key(person_id: str, owner: str | None) -> str:
    """The key of a person's schedule. It has the owner in it, because two owners may have people with the same id."""
    return person_id if owner is None else f"{owner}/{person_id}"


def _person(schedule: Schedule) -> Person:
    args = decode(schedule.args)
    birthday, leap = _rule_words(parse(schedule.rule))
    return Person(
        id=args["person_id"],
        first_name=args["first_name"],
        last_name=args["last_name"],
        birthday=birthday,
        zone=schedule.zone,
        leap=leap,
        next_at=schedule.next_at.astimezone(UTC) if schedule.next_at else None,
        user_id=schedule.owner,
    )


def _told(person: Person) -> tuple[str, ...]:
    return person.first_name, person.last_name, person.birthday, person.leap, person.zone


def _rule_words(rule: Any) -> tuple[str, Leap]:
    assert isinstance(rule, Yearly)
    return str(rule.on), rule.leap


def _status(state: str, live: Item | None) -> Status:
    """The seed's word for where an event stands."""
    match state:
        case "waiting":
            return "FAILED" if live is not None and live.failures else "PENDING"
        case "running":
            return "PROCESSING"
        case "done":
            return "COMPLETED"
        case "failed":
            return "FAILED"
        case _:
            return "CANCELLED"


def _day(birthday: date | str) -> date | str:
    try:
        day = date.fromisoformat(birthday) if isinstance(birthday, str) and len(birthday) > 5 else birthday
        Yearly(day, "00:00")
    except ValueError:
        raise InputError("birthday", f"must be a date, YYYY-MM-DD or MM-DD, got {birthday!r:.40}") from None
    return day


def _leap(leap: Any) -> Leap:
    if leap not in ("feb28", "mar1", "skip"):
        raise InputError("leap", f"must be feb28, mar1 or skip, got {leap!r:.40}")
    found: Leap = leap
    return found


def simulated(birthdays: Birthdays, _: Simulation, people: int) -> None:
    """Fill a simulation with so many people, born on all days of the year and living all over the world."""
    zones = ("Europe/Zagreb", "America/New_York", "Asia/Tokyo", "America/Sao_Paulo", "Australia/Sydney", "Asia/Kolkata")
    leap_year = date(2000, 1, 1)
    birthdays.add_many(
        {
            "person_id": f"person-{n}",
            "first_name": "Person",
            "last_name": str(n),
            "birthday": leap_year + timedelta(days=n * 251 % 366),
            "zone": zones[n % len(zones)],
        }
        for n in range(people)
    )
