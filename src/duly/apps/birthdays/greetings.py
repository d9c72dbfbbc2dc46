"""People, their events, and the task that greets them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta, Struct

from duly import Attempt, Backoff, Duly, InputError, Throttled, Yearly
from duly.apps.birthdays.settings import QUEUE, BirthdaysSettings
from duly.core.codec import decode
from duly.core.errors import ConfigError, DoesNotExist
from duly.core.filters import checked_most, first
from duly.core.model import LIVE, Item, NewItem, Schedule
from duly.core.policy.recur import parse, zone_named
from duly.core.wire import Doc
from duly.outbound.http import attempt_headers, post_json
from duly.tasks.checks import checked_key, checked_rows
from duly.tasks.task import Task
from duly.verbs import local
from duly.verbs.schedules import ScheduleRow

if TYPE_CHECKING:
    from duly.virtual.simulation import Simulation

# The task whose items stand for greetings of people who were removed, and how long one event of a year is the same.
GREETED = "birthday.greeted"
EVENT = timedelta(days=2)

log = logging.getLogger("duly.birthdays")

PersonId = Annotated[str, Meta(min_length=1, max_length=200)]
Name = Annotated[str, Meta(min_length=1, max_length=200, pattern=r"\S")]

Leap = Literal["feb28", "mar1", "skip"]
OwnedRow = tuple[str | None, Any]  # an owner, and a person as a ScheduleRow
Status = Literal["PENDING", "PROCESSING", "COMPLETED", "FAILED", "CANCELLED"]

STATUSES: dict[str, Status] = {"running": "PROCESSING", "done": "COMPLETED", "failed": "FAILED"}


class Person(Struct, frozen=True, kw_only=True):
    id: str
    first_name: str
    last_name: str
    birthday: Annotated[str, Doc("MM-DD.")]
    zone: str
    leap: Leap  # when a person born on 29 February is greeted in other years
    next_at: datetime | None  # their next event
    owner: Annotated[str | None, Doc("The user that they belong to; null: code or an admin added them.")] = None


class PersonEvent(Struct, frozen=True, kw_only=True):
    """One birthday of one person."""

    id: Annotated[int | None, Doc("Null until it is due.")]
    person_id: str
    status: Status
    target: datetime
    attempts: int = 0
    executed_at: datetime | None = None
    next_try_at: datetime | None = None  # None for a FAILED event that is in review
    last_error: str | None = None


class PersonStory(Person, frozen=True, kw_only=True):
    """A person with the next event and the past ones."""

    events: list[PersonEvent]


class Birthdays:
    def __init__(self, app: Duly, task: Task[..., Any], settings: BirthdaysSettings) -> None:
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
        """Greet this person every year; `birthday` is a date, `YYYY-MM-DD` or `MM-DD`. No person is added twice."""
        new = self._new(person_id, first_name, last_name, birthday, zone, leap, owner)
        verbs = self.app.internals.verbs
        with verbs.context.joining(connection) as connection:
            is_new = self._create([new], connection)
            person = self._find(person_id, owner, connection)[1]
            if is_new:
                verbs.audit.note(local(actor), "person.added", f"person:{person_id}", {}, connection)
        told = (person.first_name, person.last_name, person.birthday, person.leap, person.zone)
        if not is_new and told != (first_name, last_name, *_rule_words(new[1]["rule"]), zone):
            raise InputError("person_id", f"{person_id!r:.80} exists with other values; use change")
        return person

    def add_many(self, people: Iterable[Mapping[str, Any]]) -> int:
        """Any number, each with the arguments of `add`, also its owner; returns how many are new.

        Those known stay as they are. A bad row stops all of them: nothing is written.
        """
        checked = checked_rows("people", people, self._new)
        with self.app.internals.verbs.context.joining(None) as connection:
            return self._create(checked, connection)

    def _create(self, people: Iterable[OwnedRow], connection: Any) -> int:
        """Write these people; those who were greeted before they were removed are next greeted after that."""
        alike: dict[tuple[str | None, datetime | None], list[ScheduleRow]] = {}
        for owner, row in people:
            alike.setdefault((owner, self._greeted_until(row, connection)), []).append(row)
        create = self.app.internals.verbs.schedules.create_many
        return sum(create(self.task, None, rows, *of, connection=connection) for of, rows in alike.items())

    def _greeted_until(self, row: Any, connection: Any) -> datetime | None:
        """Until when the year's event of this person has been, though they were removed since; None: it has not."""
        now = self.app.clock.now()
        next_at = row["rule"].next(now, zone_named(row["zone"]))
        if next_at is None or next_at - now > EVENT:  # nearly always, and nothing has to be looked for
            return None
        marks = self.app.read.page(task=GREETED, key=row["key"], state="waiting", most=1, connection=connection)
        return marks[0].planned_at if marks else None

    def change(self, person_id: str, *, actor: str = "local", owner: str | None = None, **fields: Any) -> Person:
        """Change first_name, last_name, birthday, zone or leap. The pending event moves along; none happens twice."""
        schedule, person = self._find(person_id, owner)
        known = {name: getattr(person, name) for name in ("first_name", "last_name", "birthday", "zone", "leap")}
        for name in fields:
            if name not in known:
                raise InputError(name, f"cannot be changed; known: {', '.join(known)}")
        _, row = self._new(person_id, **{**known, **fields})
        self.app.internals.verbs.schedules.change(
            local(actor), schedule.id, args=row["args"], rule=row["rule"], zone=row["zone"]
        )
        return self.get(person_id, owner)

    def remove(self, person_id: str, *, actor: str = "local", owner: str | None = None) -> None:
        """No more greetings; one that waits is cancelled.

        Who was greeted, or is being greeted right now, is not greeted once more if they are added again.
        """
        verbs = self.app.internals.verbs
        with verbs.context.joining(None) as connection:
            schedule, _ = self._find(person_id, owner, connection)
            last, done = schedule.last_at, schedule.last_success_at
            is_greeted = last is not None and done is not None and last <= done
            is_being = any(
                row.state == "running" for row in self.app.read.rows([schedule.last_item or 0], connection=connection)
            )
            if last is not None and (is_greeted or is_being) and verbs.context.now() - last < EVENT:
                until = last + EVENT
                self.app.internals.place(NewItem(GREETED, QUEUE, b"{}", until, schedule.key, owner=owner), connection)
            verbs.schedules.remove(local(actor), schedule.id, connection=connection)

    @staticmethod
    def seen(schedule: Schedule) -> Person:
        """The person that a schedule is about."""
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
            owner=schedule.owner,
        )

    def get(self, person_id: str, owner: str | None = None) -> Person:
        return self._find(person_id, owner)[1]

    def list(
        self, most: int = 100, after: str | Person | None = None, *, owner: str | None = None
    ) -> tuple[Person, ...]:
        """In the order in which they were added: the people of this owner, or of all owners.

        `after` is the last person of the page before, or the id of one who has this owner.
        """
        if isinstance(after, Person):
            last = self._find(after.id, after.owner)[0].id
        else:
            last = self._find(after, owner)[0].id if after is not None else 0
        page = self.app.schedules.page(
            owner=owner, task=self.task.name, after=last, most=min(checked_most(most), 1_000)
        )
        return tuple(map(self.seen, page))

    def events(self, person_id: str, most: int = 100, owner: str | None = None) -> tuple[PersonEvent, ...]:
        """The event to come, then those that have become due, newest first."""
        schedule, person = self._find(person_id, owner)
        made = self.app.schedules.occurrences(schedule.id, most)
        live = {
            item.id: item for item in self.app.internals.store.fetch([each.id for each in made if each.state in LIVE])
        }
        past = (
            PersonEvent(
                id=each.id,
                person_id=person_id,
                status=_status(each.state, each.outcome, live.get(each.id)),
                target=each.planned_at,
                attempts=each.attempt,
                executed_at=each.finished_at if each.state == "done" and each.outcome == "done" else None,
                next_try_at=live[each.id].due_at.astimezone(UTC) if each.state == "waiting" and each.attempt else None,
                last_error=each.last_error.partition("\n")[0] if each.last_error else None,
            )
            for each in made
        )
        pending = (
            PersonEvent(id=None, person_id=person_id, status="PENDING", target=at) for at in (person.next_at,) if at
        )
        return tuple(first((*pending, *past), most))

    def _find(self, person_id: str, owner: str | None = None, connection: Any = None) -> tuple[Schedule, Person]:
        try:
            schedule = self.app.schedules.find(self.task.name, _key(person_id, owner), connection)
            # An id of one owner may look like a key of another's person.
            if owner is not None and self.app.schedules.owned_one(schedule.id, owner, connection) is None:
                raise DoesNotExist(person_id)
        except DoesNotExist:
            raise DoesNotExist(f"there is no person {person_id!r:.80}") from None
        return schedule, self.seen(schedule)

    def _new(
        self, person_id: str, first_name: str, last_name: str, birthday: date | str, zone: str, leap: Leap = "feb28",
        owner: str | None = None,
    ) -> OwnedRow:  # fmt: skip
        """A person as a row of `create_many`, checked."""
        args = {"person_id": person_id, "first_name": first_name, "last_name": last_name}
        self.task.checked_args(dict(args))
        try:
            zone_named(zone)
            rule = Yearly(_day(birthday), self.settings.at, leap=leap)
        except ValueError as error:  # which names its field first
            field, _, problem = str(error).partition(": ")
            raise InputError(field, problem) from None
        key, lateness = _key(checked_key(person_id), owner), self.settings.max_lateness_days * 86_400
        row = ScheduleRow(key=key, rule=rule, zone=zone, catch_up="all", max_lateness=lateness, args=args)
        return owner, row


def install(app: Duly, settings: BirthdaysSettings) -> Birthdays:
    """Register the task `birthday` on this app."""

    @app.task(name=GREETED, queue=QUEUE, internal=True)
    def greeted() -> None:
        """Does nothing: its item stands for the greeting of a removed person, until that day has ended everywhere."""

    @app.task(queue=QUEUE, retry=Backoff(base=60, factor=2, cap=3_600, tries=settings.tries), label="event")
    def birthday(attempt: Attempt, person_id: PersonId, first_name: Name, last_name: Name) -> None:
        """Tell the webhook."""
        about = {"eventId": attempt.id, "userId": person_id}
        greeting = {"message": f"Hey, {first_name} {last_name} it's your birthday", "idempotencyKey": attempt.key}
        try:
            if not settings.webhook_url:
                raise ConfigError(
                    "birthdays_webhook_url: set the URL of the webhook, such as WEBHOOK_URL=https://example.com/hook"
                )
            headers, timeout = attempt_headers(attempt), settings.timeout_seconds
            post_json(settings.webhook_url, {**greeting, **about}, headers=headers, timeout=timeout)
        except Throttled:
            raise
        except Exception as error:
            problem = {"error": str(error), "attempts": attempt.number}
            log.error("Event processing failed", extra={**about, **problem})
            raise
        minutes = int((app.clock.now() - attempt.planned_at).total_seconds() // 60)
        log.info("Event processed successfully", extra={**about, "latenessMinutes": minutes})

    return Birthdays(app, birthday, settings)


def _key(person_id: str, owner: str | None) -> str:
    """The key of a person's schedule. It has the owner in it, because two owners may have people with the same id."""
    return person_id if owner is None else f"{owner}/{person_id}"


def _rule_words(rule: Any) -> tuple[str, Leap]:
    assert isinstance(rule, Yearly)
    return str(rule.on), rule.leap


def _status(state: str, outcome: str | None, live: Item | None) -> Status:
    """The status of an event; one that was too late to be sent is CANCELLED."""
    if state == "waiting":
        return "FAILED" if live is not None and live.failures else "PENDING"
    is_too_late = state == "done" and outcome == "expired"
    return "CANCELLED" if is_too_late else STATUSES.get(state, "CANCELLED")


def _day(birthday: date | str) -> date | str:
    try:
        day = date.fromisoformat(birthday) if isinstance(birthday, str) and len(birthday) > 5 else birthday
        Yearly(day, "00:00")
    except ValueError:
        raise InputError("birthday", f"must be a date, YYYY-MM-DD or MM-DD, got {birthday!r:.40}") from None
    return day


def simulated(birthdays: Birthdays, _: Simulation, people: int) -> None:
    """Fill a simulation with this many people, born on all days of the year and living all over the world."""
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
