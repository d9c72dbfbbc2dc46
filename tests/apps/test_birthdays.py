"""Birthdays in virtual time, on both databases, against a real webhook: the seed's promises, one by one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from duly import Duly, InputError
from duly.apps.birthdays import Birthdays, Person, PersonEvent, birthdays_on, greetings
from duly.core.clock import ManualClock
from duly.core.errors import ConfigError, DoesNotExist
from duly.core.model import NewItem
from duly.testing import World
from tests.outbound.provider import Provider, accept_and_hang, answer

Desk = Callable[..., Provider]
Open = Callable[..., "House"]

START = datetime(2025, 3, 14, 12, 0, tzinfo=UTC)
BUSY = answer(503)
ANA = {"first_name": "Ana", "last_name": "Horvat", "birthday": "1990-03-15", "zone": "Europe/Zagreb"}


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


class House:
    """Birthdays on an app whose time moves only when told, and the webhook that hears of them."""

    def __init__(self, app: Duly, clock: ManualClock, provider: Provider | None, runner: asyncio.Runner) -> None:
        self.birthdays: Birthdays = birthdays_on(app)
        self.app = app
        self.clock = clock
        self.provider = provider
        self.world = World(app, clock, runner)

    def ana(self, **more: Any) -> None:
        self.birthdays.add("ana", **{**ANA, **more})

    def until(self, text: str) -> None:
        self.world.run_until(utc(text))

    def pass_without_worker(self, text: str) -> None:
        """Time goes by while nobody works."""
        self.clock.set(utc(text))

    def past(self, person_id: str = "ana") -> list[PersonEvent]:
        return [event for event in self.birthdays.events(person_id) if event.id is not None]

    @property
    def messages(self) -> list[str]:
        assert self.provider is not None
        return [request.body["message"] for request in self.provider.requests]


@pytest.fixture
def house(database_url: str, runner: asyncio.Runner) -> Iterator[Open]:
    apps: list[Duly] = []

    def open_with(provider: Provider | None = None, start: datetime = START, **settings: Any) -> House:
        clock = ManualClock(start)
        url = f"{provider.url}/hook" if provider else "http://127.0.0.1:9"
        given = {"birthdays_webhook_url": url, "birthdays_timeout_seconds": 10.0, **settings}
        apps.append(Duly(database_url, clock=clock, **given))
        return House(apps[-1], clock, provider, runner)

    yield open_with
    for app in apps:
        app.close()


def test_a_list_of_less_than_one_row_is_refused_by_its_field(house: Open) -> None:
    at = house()
    at.ana()
    for look in (lambda most: at.birthdays.events("ana", most), at.birthdays.list):
        for most in (-1, 0):
            with pytest.raises(InputError, match="most: must be a whole number from 1 on"):
                look(most)


# -- in time


def test_a_person_is_greeted_at_nine_of_their_own_morning(house: Open, call_desk: Desk) -> None:
    at = house(call_desk())
    at.ana()
    person = at.birthdays.get("ana")
    assert (person.birthday, person.zone, person.next_at) == ("03-15", "Europe/Zagreb", utc("2025-03-15T08:00"))
    (pending,) = at.birthdays.events("ana")
    assert (pending.status, pending.id, pending.target) == ("PENDING", None, utc("2025-03-15T08:00"))
    at.until("2025-03-15T07:59:59.999")
    assert at.messages == []
    at.until("2025-03-15T08:00")
    assert at.messages == ["Hey, Ana Horvat it's your birthday"]
    coming, done = at.birthdays.events("ana")
    assert (coming.status, coming.target) == ("PENDING", utc("2026-03-15T08:00"))
    assert (done.status, done.executed_at, done.attempts) == ("COMPLETED", utc("2025-03-15T08:00"), 1)


def test_the_webhook_gets_the_message_the_event_and_one_key(house: Open, call_desk: Desk) -> None:
    at = house(call_desk())
    at.ana()
    at.until("2025-03-16T00:00")
    (request,) = at.provider.requests
    (event,) = at.past()
    key = at.app.read.item(event.id).execution_key
    assert request.path == "/hook"
    assert (request.key, request.headers["duly-attempt"]) == (key, "1")
    assert request.body == {
        "message": "Hey, Ana Horvat it's your birthday",
        "idempotencyKey": key,
        "eventId": event.id,
        "userId": "ana",
    }


def test_nine_is_nine_also_when_the_clocks_have_changed_since_last_year(house: Open, call_desk: Desk) -> None:
    at = house(call_desk())
    at.ana(birthday="03-30", zone="Europe/London")  # clocks go forward on that day in 2025, the day before in 2026
    at.until("2027-01-01T00:00")
    assert [event.target for event in reversed(at.past())] == [utc("2025-03-30T08:00"), utc("2026-03-30T08:00")]
    at.birthdays.change("ana", birthday="03-29")
    assert at.birthdays.get("ana").next_at == utc("2027-03-29T08:00")


@pytest.mark.parametrize(
    ("leap", "days"),
    [
        ("feb28", ["2025-02-28", "2026-02-28", "2027-02-28", "2028-02-29"]),
        ("mar1", ["2025-03-01", "2026-03-01", "2027-03-01", "2028-02-29"]),
        ("skip", ["2028-02-29"]),
    ],
)
def test_whoever_was_born_on_29_february_is_greeted_as_declared(
    house: Open, call_desk: Desk, leap: Any, days: list[str]
) -> None:
    at = house(call_desk(), start=utc("2025-01-01"), keep_seconds=0.0)
    at.ana(birthday=date(2000, 2, 29), zone="UTC", leap=leap)
    assert (at.birthdays.get("ana").birthday, at.birthdays.get("ana").leap) == ("02-29", leap)
    at.until("2028-12-31")
    assert [event.target.date().isoformat() for event in reversed(at.past())] == days
    assert len(at.messages) == len(days)


def test_the_hour_is_a_setting(house: Open, call_desk: Desk) -> None:
    at = house(call_desk(), birthdays_at="07:30")
    at.ana()
    assert at.birthdays.get("ana").next_at == utc("2025-03-15T06:30")
    for bad in ("nine", "09:00,17:00"):
        with pytest.raises(ConfigError, match=r"^birthdays_at: "):
            house(call_desk(), birthdays_at=bad)


# -- downtime


def test_after_a_day_of_downtime_all_are_greeted_and_none_twice(
    house: Open, call_desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    at = house(call_desk(), start=utc("2025-03-15T08:30"))
    # Seventy people, whose nine o'clock is spread over the day on which nobody works.
    zones = ["Etc/GMT+5", "UTC", "Etc/GMT-1", "Etc/GMT+11", "Asia/Kolkata", "America/New_York", "Etc/GMT+8"]
    people = [
        {"person_id": f"p{n}", "first_name": "P", "last_name": str(n), "birthday": "03-15", "zone": zones[n % 7]}
        for n in range(50)
    ] + [
        {"person_id": f"q{n}", "first_name": "Q", "last_name": str(n), "birthday": "03-16", "zone": "Asia/Tokyo"}
        for n in range(20)
    ]
    assert at.birthdays.add_many(people) == 70
    due = {person.id for person in at.birthdays.list() if person.next_at < utc("2025-03-16T09:00")}
    at.pass_without_worker("2025-03-16T09:00")
    assert at.provider.requests == []
    at.world.run()
    assert len(at.provider.requests) == len(due)
    assert {request.body["userId"] for request in at.provider.requests} == due
    late = [record for record in caplog.records if record.getMessage() == "Late event execution (recovery)"]
    assert any(record.latenessHours == "24.0" for record in late)
    at.world.advance(days=2)
    at.world.run()
    assert len(at.provider.seen()) == len(at.provider.requests)
    for person in at.birthdays.list():
        assert person.next_at.year == 2026 or person.id not in due


def test_after_years_of_downtime_nobody_is_greeted_for_a_day_that_is_long_over(house: Open, call_desk: Desk) -> None:
    at = house(call_desk())
    at.ana()
    at.birthdays.add("ivo", "Ivo", "Ban", "05-27", "UTC")
    at.pass_without_worker("2030-06-01T00:00")
    at.world.run()
    assert at.messages == ["Hey, Ivo Ban it's your birthday"]
    assert (at.past(), [event.target.year for event in at.past("ivo")]) == ([], [2030])
    assert at.birthdays.get("ana").next_at == utc("2031-03-15T08:00")
    told = at.app.schedules.audit(at.app.schedules.find("birthday", "ana").id)[0]
    assert (told.action, told.details["count"], "too late" in str(told.details)) == ("schedule.skipped", 6, True)


def test_how_late_a_message_may_be_is_a_setting_and_one_that_is_too_late_is_not_completed(
    house: Open, call_desk: Desk
) -> None:
    at = house(call_desk(), birthdays_max_lateness_days=1.0)
    at.ana()
    at.app.pause("birthdays")
    at.until("2025-03-17T00:00")
    at.app.resume("birthdays")
    at.world.run()
    assert at.messages == []
    assert [(event.status, event.executed_at) for event in at.past()] == [("CANCELLED", None)]


def test_next_years_event_is_there_whatever_becomes_of_this_years(house: Open, call_desk: Desk) -> None:
    at = house(call_desk(BUSY, BUSY, BUSY), birthdays_tries=3)
    at.ana()
    at.until("2025-03-15T12:00")
    assert at.past()[0].status == "FAILED"
    assert at.birthdays.get("ana").next_at == utc("2026-03-15T08:00")
    at.until("2026-03-15T08:00")
    assert [event.status for event in at.past()] == ["COMPLETED", "FAILED"]


# -- failures


def test_an_outage_of_the_webhook_for_a_day_needs_nobody(house: Open, call_desk: Desk) -> None:
    at = house(call_desk(*[BUSY] * 29))
    at.ana()
    at.until("2025-03-16T07:00")
    assert at.past()[0].status == "FAILED"
    assert at.past()[0].next_try_at - at.clock.now() <= timedelta(hours=1)
    at.until("2025-03-16T10:00")
    (event,) = at.past()
    assert (event.status, event.attempts) == ("COMPLETED", 30)
    assert len(at.provider.seen()) == 1
    assert at.world.items(state="failed") == []


def test_tries_are_a_setting_and_the_last_failure_ends_in_review(house: Open, call_desk: Desk) -> None:
    at = house(call_desk(BUSY, BUSY, BUSY), birthdays_tries=3)
    at.ana()
    at.until("2025-03-15T08:00")
    (event,) = at.past()
    assert (event.status, event.attempts, event.next_try_at) == ("FAILED", 1, utc("2025-03-15T08:01"))
    assert "answered 503" in (event.last_error or "")
    at.until("2025-03-15T08:01")
    assert at.past()[0].next_try_at == utc("2025-03-15T08:03")
    at.until("2025-03-15T08:03")
    (event,) = at.past()
    assert (event.status, event.attempts, event.next_try_at, event.executed_at) == ("FAILED", 3, None, None)
    at.world.advance(days=30)
    assert len(at.provider.requests) == 3
    assert len(at.provider.seen()) == 1  # one key for the three
    at.app.retry(event.id)
    at.world.run()
    assert at.past()[0].status == "COMPLETED"


def test_a_webhook_that_took_the_message_but_did_not_say_so_can_tell_the_retry(house: Open, call_desk: Desk) -> None:
    at = house(call_desk(accept_and_hang), birthdays_timeout_seconds=1.0)
    at.ana()
    at.until("2025-03-15T08:00")
    (event,) = at.past()
    assert "TimedOut" in (event.last_error or "")
    at.until("2025-03-15T08:01")
    first, second = at.provider.requests
    assert first.key == second.key == first.body["idempotencyKey"] == second.body["idempotencyKey"]
    assert (first.headers["duly-attempt"], second.headers["duly-attempt"]) == ("1", "2")
    assert len(at.provider.calls) == 1
    assert at.past()[0].status == "COMPLETED"


def test_a_busy_webhook_puts_the_message_off_without_blame(house: Open, call_desk: Desk) -> None:
    at = house(call_desk(answer(429, Retry_After="90")))
    at.ana()
    at.until("2025-03-15T08:00")
    (event,) = at.past()
    assert (event.status, event.attempts) == ("PENDING", 0)
    at.until("2025-03-15T08:01:30")
    assert at.past()[0].status == "COMPLETED"


def test_a_refusal_goes_to_review_at_once(house: Open, call_desk: Desk) -> None:
    at = house(call_desk(answer(410, b"no such hook")))
    at.ana()
    at.until("2025-03-16T00:00")
    (event,) = at.past()
    assert (event.status, event.attempts, event.next_try_at) == ("FAILED", 1, None)
    assert "no such hook" in (event.last_error or "")


def test_without_a_webhook_the_event_says_which_setting_is_missing(house: Open) -> None:
    at = house(birthdays_webhook_url="")
    at.ana()
    at.until("2025-03-15T08:00")
    assert "WEBHOOK_URL" in (at.past()[0].last_error or "")


def test_the_log_tells_the_story_in_the_seeds_words(
    house: Open, call_desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    at = house(call_desk(BUSY), birthdays_tries=3)
    at.ana()
    at.pass_without_worker("2025-03-15T10:30")
    at.world.advance(minutes=1)
    (event,) = at.past()
    told = [record for record in caplog.records if record.name.startswith("duly")]
    assert [(record.levelname, record.getMessage()) for record in told] == [
        ("WARNING", "Late event execution (recovery)"),
        ("INFO", f"Processing event {event.id} (attempt 1/3)"),
        ("ERROR", "Event processing failed"),
        ("WARNING", f"Event {event.id} failed, scheduling retry"),
        ("INFO", f"Processing event {event.id} (attempt 2/3)"),
        ("INFO", "Event processed successfully"),
    ]
    late, failed, well = told[0], told[2], told[5]
    assert (late.eventId, late.latenessMinutes, late.latenessHours) == (event.id, 150, "2.5")
    assert (failed.eventId, failed.userId, failed.attempts) == (event.id, "ana", 1)
    assert (well.eventId, well.userId, well.latenessMinutes) == (event.id, "ana", 151)


# -- changes


def test_another_zone_moves_the_pending_event(house: Open, call_desk: Desk) -> None:
    at = house(call_desk())
    at.ana()
    person = at.birthdays.change("ana", zone="America/New_York")
    assert person.next_at == utc("2025-03-15T13:00")
    at.until("2025-03-15T12:59")
    assert at.messages == []
    at.until("2025-03-15T13:00")
    assert len(at.messages) == 1


@pytest.mark.parametrize("zone", ["America/Los_Angeles", "Asia/Tokyo", "Pacific/Kiritimati", "Pacific/Pago_Pago"])
def test_whoever_was_greeted_is_not_greeted_again_in_another_zone(house: Open, call_desk: Desk, zone: str) -> None:
    at = house(call_desk())
    at.ana()
    at.until("2025-03-15T08:00")
    person = at.birthdays.change("ana", zone=zone)
    assert person.next_at.year == 2026
    at.until("2025-12-31T00:00")
    assert len(at.messages) == 1


def test_whose_nine_oclock_is_over_in_the_new_zone_is_greeted_at_once(house: Open, call_desk: Desk) -> None:
    at = house(call_desk())
    at.ana(zone="America/Los_Angeles")
    at.until("2025-03-15T08:00")
    assert at.messages == []
    at.birthdays.change("ana", zone="Asia/Tokyo")
    at.world.run()
    assert len(at.messages) == 1
    assert at.past()[0].target == utc("2025-03-15T00:00")
    at.until("2026-03-14T23:59")
    assert len(at.messages) == 1


@pytest.mark.parametrize("zone", ["America/Los_Angeles", "Asia/Tokyo"])
def test_a_change_during_downtime_forgets_nobody(house: Open, call_desk: Desk, zone: str) -> None:
    at = house(call_desk())
    at.ana()
    at.pass_without_worker("2025-03-15T20:00")
    at.birthdays.change("ana", zone=zone)
    at.world.run()
    assert len(at.messages) == 1
    at.until("2025-12-31T00:00")
    assert len(at.messages) == 1


@pytest.mark.parametrize("zone", ["America/Los_Angeles", "Asia/Tokyo"])
def test_a_change_while_a_retry_waits_neither_forgets_nor_doubles(house: Open, call_desk: Desk, zone: str) -> None:
    at = house(call_desk(BUSY))
    at.ana()
    at.until("2025-03-15T08:00")
    at.birthdays.change("ana", zone=zone)
    at.until("2025-12-31T00:00")
    assert [event.status for event in at.past()] == ["COMPLETED"]
    assert len(at.provider.seen()) == 1


def test_another_birthday_replaces_the_event_that_waits(house: Open, call_desk: Desk) -> None:
    at = house(call_desk(BUSY))
    at.ana()
    at.until("2025-03-15T08:00")
    person = at.birthdays.change("ana", birthday="1990-06-01", last_name="Novak")
    assert person.next_at == utc("2025-06-01T07:00")
    at.until("2025-06-01T07:00")
    assert at.messages == ["Hey, Ana Horvat it's your birthday", "Hey, Ana Novak it's your birthday"]
    assert [event.status for event in at.past()] == ["COMPLETED", "CANCELLED"]


def test_another_name_is_used_from_the_next_event_on(house: Open, call_desk: Desk) -> None:
    at = house(call_desk())
    at.ana()
    at.birthdays.change("ana", first_name="Anna", actor="maja")
    at.until("2025-03-15T08:00")
    assert at.messages == ["Hey, Anna Horvat it's your birthday"]
    (note,) = at.app.schedules.audit(at.app.schedules.find("birthday", "ana").id)
    assert (note.actor, note.action) == ("maja", "schedule.changed")


def test_a_removed_person_is_not_greeted_and_what_waits_is_cancelled(house: Open, call_desk: Desk) -> None:
    at = house(call_desk(BUSY))
    at.ana()
    at.birthdays.add("ivo", "Ivo", "Ban", "03-16", "UTC")
    at.until("2025-03-15T08:00")
    (waiting,) = at.past()
    at.birthdays.remove("ana")
    at.birthdays.remove("ivo")
    at.until("2025-12-31T00:00")
    assert len(at.messages) == 1
    assert at.app.read.item(waiting.id).state == "cancelled"
    for look in (at.birthdays.get, at.birthdays.events, at.birthdays.remove, at.birthdays.change):
        with pytest.raises(DoesNotExist, match="there is no person 'ana'"):
            look("ana")


@pytest.mark.parametrize("zone", ["Europe/Zagreb", "America/New_York", "Pacific/Kiritimati"])
@pytest.mark.parametrize("owner", [None, "shop"])
def test_who_is_removed_and_added_again_on_the_day_is_greeted_once(
    house: Open, call_desk: Desk, zone: str, owner: str | None
) -> None:
    at = house(call_desk())
    at.ana(owner=owner)
    at.until("2025-03-15T08:30")
    for person_id, added in (("ana", at.birthdays.add), ("ana", None)):
        at.birthdays.remove(person_id, owner=owner)
        if added is not None:
            added("ana", **{**ANA, "zone": zone}, owner=owner)
        else:
            at.birthdays.add_many([{"person_id": "ana", **ANA, "zone": zone, "owner": owner}])
    at.until("2025-03-18T00:00")
    assert len(at.messages) == 1
    assert at.birthdays.get("ana", owner).next_at.year == 2026
    assert at.world.items(state="waiting") == []


def test_who_is_removed_while_they_are_greeted_and_added_again_is_greeted_once(
    house: Open, call_desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = house(call_desk())
    at.ana()
    send = greetings.post_json

    def removed_meanwhile(*given: Any, **more: Any) -> Any:
        at.birthdays.remove("ana")
        return send(*given, **more)

    monkeypatch.setattr(greetings, "post_json", removed_meanwhile)
    at.until("2025-03-15T08:30")
    monkeypatch.undo()
    at.ana(zone="America/New_York")
    at.until("2025-03-18T00:00")
    assert len(at.messages) == 1
    assert at.birthdays.get("ana").next_at.year == 2026


def test_who_is_removed_and_added_again_in_one_transaction_is_greeted_once(house: Open, call_desk: Desk) -> None:
    at = house(call_desk())
    at.pass_without_worker("2025-03-15T08:30")
    mark = NewItem(greetings.GREETED, "birthdays", b"{}", utc("2025-03-17T08:00"), "ana")
    with at.app.internals.store.transaction() as connection:
        at.app.internals.place(mark, connection)  # as removing leaves it
        at.birthdays.add("ana", **{**ANA, "zone": "America/New_York"}, connection=connection)
    assert at.birthdays.get("ana").next_at.year == 2026


def test_who_was_not_greeted_before_they_were_removed_is_greeted_when_they_are_back(
    house: Open, call_desk: Desk
) -> None:
    at = house(call_desk(BUSY))
    at.ana()
    at.until("2025-03-15T08:00")
    at.birthdays.remove("ana")
    at.ana(zone="America/New_York")
    at.until("2025-03-16T00:00")
    assert len(at.messages) == 2


def test_people_of_owners_are_found_by_them_though_they_were_added_together(house: Open) -> None:
    at = house()
    rows = [{"person_id": f"p{n}", **ANA, "owner": owner} for n in range(2) for owner in ("a", "b", None)]
    assert at.birthdays.add_many(rows) == 6
    assert at.birthdays.add_many(rows) == 0
    assert [person.id for person in at.birthdays.list(owner="a")] == ["p0", "p1"]
    assert at.birthdays.get("p1", "b").owner == "b"
    assert at.app.schedules.owned_one(at.app.schedules.find("birthday", "a/p0").id, "a") is not None
    everyone: list[Person] = []
    while page := at.birthdays.list(most=4, after=everyone[-1] if everyone else None):
        everyone += page
    assert len(everyone) == 6
    assert [person.id for person in at.birthdays.list(after="p0", owner="a")] == ["p1"]
    at.birthdays.change("p0", owner="a", zone="UTC")
    at.birthdays.remove("p0", owner="a")
    assert len(at.birthdays.list()) == 5


# -- in


def test_adding_twice_is_adding_once_and_never_changes_anybody(house: Open) -> None:
    at = house()
    at.ana()
    at.ana()
    assert len(at.birthdays.list()) == 1
    with pytest.raises(InputError, match="use change"):
        at.ana(zone="UTC")
    with pytest.raises(InputError, match="use change"):
        at.ana(birthday="03-16")
    assert at.birthdays.add_many([{"person_id": "ana", **ANA, "zone": "UTC"}]) == 0
    assert at.birthdays.get("ana").zone == "Europe/Zagreb"


def test_people_are_listed_a_page_at_a_time(house: Open) -> None:
    at = house()
    at.birthdays.add_many({"person_id": f"p{n}", **ANA} for n in range(5))
    first = at.birthdays.list(most=2)
    assert [person.id for person in first] == ["p0", "p1"]
    assert [person.id for person in at.birthdays.list(after="p1")] == ["p2", "p3", "p4"]


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"first_name": " "}, "first_name"),
        ({"last_name": "x" * 201}, "last_name"),
        ({"first_name": "a\x00b"}, "first_name"),
        ({"birthday": "1990-02-30"}, "birthday"),
        ({"birthday": "13-01"}, "birthday"),
        ({"birthday": 315}, "birthday"),
        ({"zone": "Mars/Olympus"}, "zone"),
        ({"zone": None}, "zone"),
        ({"leap": "feb30"}, "leap"),
    ],
)
def test_bad_input_names_its_field(house: Open, given: dict[str, Any], field: str) -> None:
    at = house()
    with pytest.raises(InputError) as refused:
        at.ana(**given)
    assert refused.value.field == field
    rows = [{"person_id": "ok", **ANA}, {"person_id": "ana", **ANA, **given}]
    with pytest.raises(InputError) as refused:
        at.birthdays.add_many(rows)
    assert refused.value.field == f"people[1].{field}"
    assert at.birthdays.list() == ()


def test_bad_rows_and_unknown_fields_are_named(house: Open) -> None:
    at = house()
    with pytest.raises(InputError, match=r"^people\[0\]: missing .*'zone'"):
        at.birthdays.add_many([{"person_id": "p", "first_name": "a", "last_name": "b", "birthday": "01-01"}])
    with pytest.raises(InputError, match=r"^people\[0\]: got an unexpected keyword argument 'age'"):
        at.birthdays.add_many([{"person_id": "p", **ANA, "age": 7}])
    with pytest.raises(InputError, match="person_id"):
        at.birthdays.add("", **ANA)
    at.ana()
    with pytest.raises(InputError, match=r"^age: cannot be changed"):
        at.birthdays.change("ana", age=35)


def test_the_shipped_app_is_importable_by_the_worker() -> None:
    from duly.facade.loading import load_app

    assert "birthday" in load_app("duly.apps.birthdays").tasks


def test_what_was_late_is_known_to_the_minute(house: Open, call_desk: Desk) -> None:
    at = house(call_desk())
    at.ana()
    at.pass_without_worker("2025-03-16T03:00")
    at.world.run()
    (event,) = at.past()
    assert event.executed_at - event.target == timedelta(hours=19)


def test_a_simulation_has_people_all_over_the_year_and_the_world() -> None:
    from duly.apps.birthdays import simulated
    from duly.virtual.simulation import Conditions, Simulation
    from duly.virtual.world import stage

    app = Duly()
    people = birthdays_on(app)
    with stage(app, START) as (clock, runner):
        world = Simulation(app, clock, runner, Conditions())
        simulated(people, world, 366)
        assert len({person.birthday for person in people.list(most=400)}) == 366
        world.run_until(START + timedelta(days=10))
        assert 8 <= len(world.ledger.calls) <= 12
