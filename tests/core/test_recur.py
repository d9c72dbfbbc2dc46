"""Recurrence rules as values and as text: what they refuse, what they say, and that they are quick."""

from __future__ import annotations

import string
from datetime import UTC, date, datetime, timedelta, timezone
from itertools import pairwise
from timeit import repeat
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from duly.core.policy.recur import (
    Cron,
    Daily,
    Every,
    Monthly,
    Rule,
    Slot,
    Slots,
    Weekly,
    Yearly,
    between,
    latest,
    parse,
    preview,
    zone_named,
)
from duly.core.policy.rule_text import ALIASES

ZAGREB, Z = zone_named("Europe/Zagreb"), zone_named("UTC")
NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)


def upcoming(rule: Rule, n: int = 4, after: datetime = NOW, zone: ZoneInfo = Z) -> list[str]:
    return [f"{at:%Y-%m-%d %H:%M:%S}".removesuffix(":00") for at in preview(rule, after, zone, n)]


# -- what falls due


def test_an_occurrence_is_strictly_after_and_in_utc() -> None:
    at = datetime(2026, 11, 16, 8, tzinfo=UTC)
    rule = Daily("09:00")
    assert rule.next(at - timedelta(microseconds=1), ZAGREB) == at
    assert rule.next(at, ZAGREB) == at + timedelta(days=1)
    assert rule.next(at.astimezone(timezone(timedelta(hours=-9))), ZAGREB) == at + timedelta(days=1)
    assert rule.next(at, ZAGREB).tzinfo is UTC


def test_weekly_on_some_days() -> None:
    assert upcoming(Weekly("mon,fri", "08:00")) == [
        "2026-11-16 08:00", "2026-11-20 08:00", "2026-11-23 08:00", "2026-11-27 08:00",
    ]  # fmt: skip
    assert Weekly("Friday,mon", "8:00") == Weekly("mon,fri", "08:00")
    assert Weekly("sat-mon", "08:00").days == "mon,sat,sun"


def test_monthly_on_a_day_that_short_months_lack() -> None:
    assert upcoming(Monthly(31, "09:00")) == [
        "2026-11-30 09:00", "2026-12-31 09:00", "2027-01-31 09:00", "2027-02-28 09:00",
    ]  # fmt: skip
    assert upcoming(Monthly(31, "09:00", short="skip")) == [
        "2026-12-31 09:00", "2027-01-31 09:00", "2027-03-31 09:00", "2027-05-31 09:00",
    ]  # fmt: skip
    assert upcoming(Monthly(30, "09:00", short="skip"), after=datetime(2028, 1, 30, 9, tzinfo=UTC), n=1) == [
        "2028-03-30 09:00"
    ]


def test_monthly_counts_from_the_end_too() -> None:
    assert upcoming(Monthly(-1, "09:00"), n=4) == upcoming(Monthly(31, "09:00"), n=4)
    assert upcoming(Monthly(-28, "09:00"), n=3, after=datetime(2028, 1, 15, tzinfo=UTC)) == [
        "2028-02-02 09:00", "2028-03-04 09:00", "2028-04-03 09:00",
    ]  # fmt: skip


def test_yearly_by_text_or_by_date() -> None:
    assert Yearly(date(1984, 12, 24), "18:00") == Yearly("12-24", "18:00") == Yearly("12-24", "18:00:00")
    assert upcoming(Yearly("12-24", "18:00"), n=2) == ["2026-12-24 18:00", "2027-12-24 18:00"]


def test_times_are_sorted_and_have_seconds() -> None:
    rule = Daily("17:30", "9:00:30", "17:30:00")
    assert rule == Daily("09:00:30,17:30")
    assert upcoming(rule, n=3) == ["2026-11-15 17:30", "2026-11-16 09:00:30", "2026-11-16 17:30"]


def test_every_is_elapsed_time_from_its_anchor() -> None:
    assert upcoming(Every("15m"), n=2) == ["2026-11-15 12:15", "2026-11-15 12:30"]
    anchor = datetime(2026, 11, 15, 12, 0, 7, 500_000, tzinfo=UTC)
    assert preview(Every(90, anchor=anchor), NOW, Z, 2) == [anchor, anchor + timedelta(seconds=90)]
    assert Every(90, anchor=anchor).next(NOW - timedelta(minutes=5), Z) == anchor - timedelta(seconds=270)
    spring = datetime(2026, 3, 28, 12, tzinfo=UTC)
    first, second = preview(Every("1d"), spring, ZAGREB, 2)
    assert second - first == timedelta(hours=24)


def test_the_same_length_in_other_words_is_the_same_rule() -> None:
    assert Every("15m") == Every(900) == Every(900.0) == Every("900s") == Every(timedelta(minutes=15))
    assert Every("24h") == Every("1d")
    assert Every("7d").period == "1w"
    paris = datetime(2026, 1, 1, 1, tzinfo=timezone(timedelta(hours=1)))
    assert str(Every(90, anchor=paris)) == "every 90s anchor=2026-01-01T00:00:00+00:00"


def test_slots_divide_a_day_evenly() -> None:
    rules = [Slots(24).at(slot) for slot in range(24)]
    assert rules[10] == Slot(10, of=24) == Slot(10, of=24, period=timedelta(days=1))
    assert upcoming(rules[10], n=2) == ["2026-11-16 10:00", "2026-11-17 10:00"]
    assert upcoming(rules[10], n=2, zone=ZAGREB) == upcoming(rules[10], n=2), "no zone moves a slot"
    midnight = datetime(2026, 11, 15, 23, 59, 59, tzinfo=UTC)
    assert [rule.next(midnight, Z).hour for rule in rules] == list(range(24))


def test_uneven_slots_differ_by_a_second_at_most() -> None:
    start = datetime(2026, 11, 15, 11, 59, 59, tzinfo=UTC)
    found = [Slots(7, period="1h").at(slot).next(start, Z) for slot in range(7)]
    assert {(b - a).seconds for a, b in pairwise(found)} == {514, 515}


def test_aliases_are_crons() -> None:
    assert {alias: Cron(alias).text for alias in ALIASES} == ALIASES
    assert parse("@Daily") == parse("cron 0 0 * * *") == parse(" 0  0 * *\t* ") == Cron("@midnight")
    assert upcoming(Cron("@weekly"), n=1) == ["2026-11-22 00:00"]


def test_a_cron_takes_names_steps_and_ranges() -> None:
    assert upcoming(Cron("30 2-22/4 * * *"), n=3) == ["2026-11-15 14:30", "2026-11-15 18:30", "2026-11-15 22:30"]
    assert Cron("0 9 * jan mon-fri") == Cron("0 9 * JAN MON-FRI")
    assert upcoming(Cron("0 9 * JAN MON-FRI"), n=2) == ["2027-01-01 09:00", "2027-01-04 09:00"]
    assert upcoming(Cron("0 0 29 2 *"), n=2, after=datetime(2097, 1, 1, tzinfo=UTC)) == [
        "2104-02-29 00:00", "2108-02-29 00:00",
    ]  # fmt: skip


numbers = st.sets(st.integers(0, 59), min_size=1, max_size=4)


@settings(derandomize=True, max_examples=100, deadline=None)
@given(
    numbers,
    st.sets(st.integers(0, 23), min_size=1, max_size=4),
    st.none() | st.sets(st.integers(1, 28), min_size=1, max_size=4),
    st.none() | st.sets(st.integers(1, 12), min_size=1, max_size=3),
    st.none() | st.sets(st.integers(0, 6), min_size=1, max_size=3),
    st.datetimes(datetime(2020, 1, 1), datetime(2040, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
)
def test_a_cron_matches_what_its_fields_list(
    minutes: set[int],
    hours: set[int],
    days: set[int] | None,
    months: set[int] | None,
    weekdays: set[int] | None,
    after: datetime,
) -> None:
    fields = [",".join(map(str, field)) if field else "*" for field in (minutes, hours, days, months, weekdays)]
    start = after.replace(hour=0, minute=0, second=0, microsecond=0)
    found: list[datetime] = []
    while not found:
        by_day, by_weekday = start.day in (days or ()), start.isoweekday() % 7 in (weekdays or ())
        wanted = by_day or by_weekday or not (days or weekdays)
        if wanted and start.month in (months or range(1, 13)):
            times = (start.replace(hour=hour, minute=minute) for hour in sorted(hours) for minute in sorted(minutes))
            found = [at for at in times if at > after]
        start += timedelta(days=1)
    assert Cron(" ".join(fields)).next(after, Z) == found[0]


def test_rules_end_before_the_year_9000_and_begin_after_1900() -> None:
    dusk = datetime(8999, 12, 31, 23, 59, tzinfo=UTC)
    for rule in SAMPLES:
        assert rule.next(dusk, Z) is None or rule.next(dusk, Z).year == 8999
        assert rule.next(datetime.max.replace(tzinfo=UTC), Z) is None
        assert rule.next(datetime.min.replace(tzinfo=UTC), ZAGREB).year in range(1900, 1905)
        assert preview(rule, datetime(8999, 12, 31, 23, 59, 59, tzinfo=UTC), Z, 5) == []


def test_a_naive_time_is_refused() -> None:
    for rule in SAMPLES:
        with pytest.raises(ValueError, match=r"^after: must be an aware datetime"):
            rule.next(datetime(2026, 1, 1), Z)  # noqa: DTZ001
    with pytest.raises(ValueError, match=r"^until: must be an aware datetime"):
        latest(Daily("09:00"), NOW, datetime(2027, 1, 1), Z)  # noqa: DTZ001


# -- several of them


def test_between_takes_its_end_and_not_its_start() -> None:
    hour = timedelta(hours=1)
    assert between(Every("1h"), NOW, NOW + 3 * hour, Z, 99) == [NOW + n * hour for n in (1, 2, 3)]
    assert between(Every("1h"), NOW, NOW + 3 * hour, Z, 2) == [NOW + n * hour for n in (1, 2)]
    assert between(Every("1h"), NOW, NOW, Z, 99) == between(Every("1h"), NOW, NOW - hour, Z, 99) == []
    assert preview(Every("1h"), NOW, Z, 0) == []


def test_the_latest_is_the_last_between() -> None:
    for rule in SAMPLES:
        for hours in (0, 1, 7, 24, 50, 800, 2000):
            after = NOW - timedelta(hours=hours)
            found = between(rule, after, NOW, ZAGREB, 100_000)
            assert latest(rule, after, NOW, ZAGREB) == (found[-1] if found else None), (rule, hours)


def test_the_latest_is_found_across_a_change_of_clocks() -> None:
    until = datetime(2026, 10, 25, 2, 45, fold=1, tzinfo=ZAGREB)
    after = datetime(2026, 10, 25, 2, 40, tzinfo=ZAGREB)
    assert latest(Daily("02:30", doubled="both"), after, until, ZAGREB) == datetime(2026, 10, 25, 1, 30, tzinfo=UTC)
    assert latest(Daily("02:30"), after, until, ZAGREB) is None


class Counted:
    """A rule that counts how often it is asked."""

    def __init__(self, rule: Rule) -> None:
        self.rule, self.asked = rule, 0

    def next(self, after: datetime, zone: ZoneInfo) -> datetime | None:
        self.asked += 1
        return self.rule.next(after, zone)


@pytest.mark.parametrize("text", ["* * * * *", "* * * 1 *", "0 0 1 1 *", "every 1s", "daily 09:00"])
def test_the_latest_of_years_is_found_in_a_few_steps(text: str) -> None:
    rule: Any = Counted(parse(text))
    found = latest(rule, NOW - timedelta(days=3000), NOW, Z)
    assert found is not None
    assert rule.rule.next(found, Z) > NOW
    assert rule.asked < 100


# -- refusals


@pytest.mark.parametrize(
    ("field", "make"),
    [
        *(("at", lambda at=at: Daily(at)) for at in ("", "24:00", "9", "09:60", "09:00:60", "9:0", "٠٩:00", None, 9)),
        ("at", lambda: Daily()),
        ("at", lambda: Daily("09:00", "")),
        ("at", lambda: Daily("09:00," * 5000)),
        ("at", lambda: Daily(*(f"{n // 60:02}:{n % 60:02}" for n in range(97)))),
        *(("days", lambda days=days: Weekly(days, "08:00")) for days in ("", "m", "mon,", "mon-", None, "mon" * 99)),
        *(("day", lambda day=day: Monthly(day, "08:00")) for day in (0, 32, -29, "1", 1.0, True, None)),
        ("short", lambda: Monthly(31, "08:00", short="first")),
        *(("on", lambda on=on: Yearly(on, "08:00")) for on in ("02-30", "13-01", "0-1", "1", "", None, 229)),
        ("leap", lambda: Yearly("02-29", "08:00", leap="feb29")),
        ("at", lambda: Yearly("02-29", "8")),
        *(("skipped", lambda value=value: Daily("09:00", skipped=value)) for value in ("first", "", None, ["later"])),
        *(("doubled", lambda value=value: Cron("@daily", doubled=value)) for value in ("later", "", None, ["first"])),
        *(
            ("period", lambda period=period: Every(period))
            for period in (0, -1, 0.5, 1.5, "0s", "11y", "15", "m", "1.5h", "4000d", "9" * 99 + "s", True, None)
        ),
        *(("period", lambda period=period: Every(period)) for period in (float("nan"), float("inf"), 10**400)),
        ("period", lambda: Every(timedelta(milliseconds=1500))),
        ("anchor", lambda: Every("15m", anchor=datetime(2026, 1, 1))),  # noqa: DTZ001
        ("anchor", lambda: Every("15m", anchor=datetime.min.replace(tzinfo=timezone(timedelta(hours=14))))),
        ("anchor", lambda: Every("15m", anchor="2026-01-01")),
        *(("n", lambda n=n: Slots(n)) for n in (0, -1, 100_000, 1.0, "24", True, None)),
        ("n", lambda: Slots(3601, period="1h")),
        ("period", lambda: Slots(24, period="1x")),
        *(("slot", lambda slot=slot: Slots(24).at(slot)) for slot in (-1, 24, "1", 1.0, True)),
        ("of", lambda: Slot(0, of=0)),
        *(
            ("text", lambda text=text: Cron(text))
            for text in (
                "", "* * * *", "* * * * * *", "60 * * * *", "* 24 * * *", "* * 32 * *", "* * * 13 *", "* * * * 8",
                "*/0 * * * *", "5-1 * * * *", "a * * * *", "@never", "0 0 31 2 *", "0 0 30 2 *", "0 0 31 4,6 *",
                "* * */20 * 1L", "0 0 * * MON#6", "0 0 ١ * *", "* * * * *\0", "1," * 200 + "1 * * * *", None, 5,
                "0 0 * * MON#1/2", "0 0 L/2-3 * *", "0 0 * * 1L/2", "0 0 LW-L * *",
            )
        ),
    ],
)  # fmt: skip
def test_a_bad_value_is_named(field: str, make: Any) -> None:
    with pytest.raises(ValueError, match=rf"^{field}: .*, got ") as refused:
        make()
    assert len(str(refused.value)) < 250


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "daily", "daily 09:00 17:30", "weekly mon", "monthly 1", "monthly one 09:00", "yearly 02-29", "every",
        "cron", "slot 10", "slot 10/", "slot /24", "slot 10/24/2", "slot 1_0/24", "slots 24", "never",
        "daily 09:00 period=1d", "every 15m doubled=both", "daily 09:00 doubled=both doubled=both",
        "daily doubled=both 09:00", "every 15m anchor=",
        "every 15m anchor=2026-01-01", "every 15m anchor=0001-01-01T00:00+14:00", "doubled=both", "=",
        "x" * 1001, "@reboot", "* * * *", "* * * * * *", "monthly ٣ 09:00", "daily 09:00 =",
    ],
)  # fmt: skip
def test_text_that_is_no_rule_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^\w+: .*, got ") as refused:
        parse(text)
    assert len(str(refused.value)) < 250


@pytest.mark.parametrize("thing", [None, 5, b"daily 09:00", ["daily"]])
def test_what_is_no_text_is_no_rule(thing: Any) -> None:
    with pytest.raises(ValueError, match=r"^rule: must be text"):
        parse(thing)


vocabulary = st.sampled_from(
    [
        "cron", "daily", "weekly", "monthly", "yearly", "every", "slot", "@daily", "*", "*/5", "1-5", "L", "LW",
        "MON#2", "5L", "09:00", "09:00,17:30", "mon,fri", "31", "-1", "02-29", "15m", "10/24", "doubled=both",
        "skipped=skip", "short=skip", "leap=mar1", "period=1h", "anchor=2026-01-01T00:00:00+00:00", "=", ",", "/",
        "#", "-", "0",
    ]
)  # fmt: skip


@settings(derandomize=True, max_examples=1500, deadline=None)
@given(
    st.text(max_size=60)
    | st.lists(vocabulary | st.text(string.printable, max_size=6), max_size=8).map(" ".join)
    | st.lists(st.text("0123456789*,-/#LWMON", min_size=1, max_size=9), min_size=5, max_size=5).map(" ".join)
)
@example("\ud800")
@example("weekly ſat 08:00")
@example("9" * 150 + " * * * *")
@example("every 15m anchor=9999-12-31T23:59:59-14:00")
def test_any_text_is_a_rule_or_a_value_error(text: str) -> None:
    try:
        rule = parse(text)
    except ValueError:
        return
    assert parse(str(rule)) == rule
    assert rule.next(NOW, ZAGREB) > NOW
    assert "\n" not in rule.describe(ZAGREB)


# -- text

TEXTS = [
    "daily 09:00",
    "daily 09:00,17:30 doubled=both",
    "daily 09:00:30 skipped=skip doubled=second",
    "weekly mon,fri 08:00",
    "weekly sun 08:00,20:00 skipped=earlier",
    "monthly 31 09:00",
    "monthly 31 09:00 short=skip",
    "monthly -1 09:00",
    "yearly 02-29 09:00",
    "yearly 02-29 09:00 leap=mar1",
    "yearly 12-24 18:00 leap=skip doubled=both",
    "every 15m",
    "every 90s anchor=2026-01-01T00:00:00+00:00",
    "every 1w anchor=2026-01-01T00:00:00.000001+00:00",
    "cron 30 2-22/4 * * *",
    "cron 0 9 * JAN MON-FRI doubled=both",
    "cron 0 0 L * *",
    "slot 10/24",
    "slot 3/7 period=1h",
]
SAMPLES = [parse(text) for text in TEXTS]


@pytest.mark.parametrize("text", TEXTS)
def test_a_rule_is_stored_as_what_a_person_would_type(text: str) -> None:
    assert str(parse(text)) == text
    assert parse(f"  {text.replace(' ', '   ')} ") == parse(text)
    assert hash(parse(text)) == hash(parse(text))


def test_rules_are_values() -> None:
    assert len({*SAMPLES, *map(parse, TEXTS)}) == len(TEXTS)
    for rule in SAMPLES:
        for field in ("at", "period", "text", "doubled"):
            with pytest.raises(AttributeError):
                setattr(rule, field, "1d")


clocks = st.lists(st.times(), min_size=1, max_size=5).map(lambda times: [f"{one:%H:%M:%S}" for one in times])
policies = {
    "skipped": st.sampled_from(["later", "earlier", "skip"]),
    "doubled": st.sampled_from(["first", "second", "both"]),
}
periods = st.integers(1, 3653 * 86_400) | st.sampled_from(["1s", "15m", "36h", "2d", "10w"])
at = clocks.map(",".join)
long_periods = st.integers(3600, 3653 * 86_400) | st.sampled_from(["1h", "90m", "1d", "2w"])
crons = st.sampled_from([*ALIASES, "*/7 * * * *", "30 2-22/4 * * *", "0 9 1,15 * MON-FRI", "5 4 LW */2 *"])
weekday = st.sampled_from(["mon", "tue", "wed", "thu", "fri", "sat", "sun"])
any_rule = st.one_of(
    st.tuples(clocks, st.fixed_dictionaries(policies)).map(lambda made: Daily(*made[0], **made[1])),
    st.builds(Weekly, st.lists(weekday, min_size=1, max_size=7).map(",".join), at, **policies),
    st.builds(
        Monthly, st.integers(1, 31) | st.integers(-28, -1), at, short=st.sampled_from(["last", "skip"]), **policies
    ),
    st.builds(Yearly, st.dates(), at, leap=st.sampled_from(["feb28", "mar1", "skip"]), **policies),
    st.builds(
        Every,
        periods,
        anchor=st.datetimes(datetime(1901, 1, 2), datetime(8998, 1, 1), timezones=st.timezones()),  # noqa: DTZ001
    ),
    st.builds(Cron, crons, **policies),
    st.builds(
        lambda n, slot, period: Slots(n, period).at(slot % n), st.integers(1, 3600), st.integers(0), long_periods
    ),
)


@settings(derandomize=True, max_examples=600, deadline=None)
@given(any_rule)
def test_parse_is_the_inverse_of_str(rule: Rule) -> None:
    assert parse(str(rule)) == rule
    assert str(parse(str(rule))) == str(rule)
    assert len(str(rule)) <= 1000


@settings(derandomize=True, max_examples=200, deadline=None)
@given(
    any_rule,
    st.datetimes(datetime(1901, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
    st.timezones(),
)
def test_occurrences_strictly_increase(rule: Rule, after: datetime, zone: ZoneInfo) -> None:
    found = preview(rule, after, zone, 10)
    assert all(one < other for one, other in pairwise([after, *found]))
    assert len(found) == 10


# -- plain English


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("daily 09:00", "every day at 09:00 (Europe/Zagreb)"),
        ("daily 09:00,13:00,17:30", "every day at 09:00, 13:00 and 17:30 (Europe/Zagreb)"),
        ("weekly mon,fri 08:00", "on Monday and Friday at 08:00 (Europe/Zagreb)"),
        ("weekly mon-fri 08:00", "on weekdays at 08:00 (Europe/Zagreb)"),
        ("monthly 5 09:00", "on day 5 of each month at 09:00 (Europe/Zagreb)"),
        ("monthly 31 09:00", "on day 31 of each month (the last day of shorter ones) at 09:00 (Europe/Zagreb)"),
        ("monthly 31 09:00 short=skip", "on day 31 of each month that has one at 09:00 (Europe/Zagreb)"),
        ("monthly -1 09:00", "on the last day of each month at 09:00 (Europe/Zagreb)"),
        ("monthly -3 09:00", "2 days before the last day of each month at 09:00 (Europe/Zagreb)"),
        ("yearly 12-24 18:00", "every year on 24 December at 18:00 (Europe/Zagreb)"),
        ("yearly 02-29 09:00", "every year on 29 February (28 February in other years) at 09:00 (Europe/Zagreb)"),
        ("yearly 02-29 09:00 leap=mar1", "every year on 29 February (1 March in other years) at 09:00 (Europe/Zagreb)"),
        ("yearly 02-29 09:00 leap=skip", "every leap year on 29 February at 09:00 (Europe/Zagreb)"),
        ("every 15m", "every 15 minutes"),
        ("every 1h", "every 1 hour"),
        ("every 90s", "every 1 minute and 30 seconds"),
        ("every 1d", "every 24 hours"),
        ("every 1h anchor=2026-01-01T00:00:00+00:00", "every 1 hour, counted from 2026-01-01 00:00:00 UTC"),
        ("slot 10/24", "slot 10 of 24: every day at 10:00 UTC"),
        ("slot 1/7", "slot 1 of 7: every day at 03:25:42 UTC"),
        ("slot 3/6 period=1h", "slot 3 of 6: every 1 hour, 30 minutes after its start (UTC)"),
        ("* * * * *", "every minute"),
        ("*/5 * * * *", "every 5 minutes (Europe/Zagreb)"),
        ("30 * * * *", "at :30 of every hour (Europe/Zagreb)"),
        ("0,30 * * * *", "at :00 and :30 of every hour (Europe/Zagreb)"),
        ("30 2-22/4 * * *", "every day at :30 of hours 2, 6, 10, 14, 18 and 22 (Europe/Zagreb)"),
        ("0 9 * * *", "every day at 09:00 (Europe/Zagreb)"),
        ("0,30 9,17 * * *", "every day at 09:00, 09:30, 17:00 and 17:30 (Europe/Zagreb)"),
        ("0 9 * * 1-5", "on weekdays at 09:00 (Europe/Zagreb)"),
        ("*/15 9-17 * * MON-FRI", "on weekdays, every 15 minutes of hours 9 to 17 (Europe/Zagreb)"),
        ("* 3 * * *", "every day, every minute of hour 3 (Europe/Zagreb)"),
        ("0 0 1 * *", "on day 1 of each month at 00:00 (Europe/Zagreb)"),
        ("0 0 1,15 1,7 *", "on days 1 and 15 of January and July at 00:00 (Europe/Zagreb)"),
        ("0 8 * 12 SUN", "on Sunday in December at 08:00 (Europe/Zagreb)"),
        ("*/7 * * * *", 'cron "*/7 * * * *" (Europe/Zagreb)'),
        ("0 0 L * *", 'cron "0 0 L * *" (Europe/Zagreb)'),
        ("0 0 13 * FRI", 'cron "0 0 13 * FRI" (Europe/Zagreb)'),
        ("0 0 * * MON#2", 'cron "0 0 * * MON#2" (Europe/Zagreb)'),
    ],
)
def test_a_rule_says_what_it_means(text: str, said: str) -> None:
    assert parse(text).describe(ZAGREB) == said


# -- zones by name


def test_a_zone_is_known_by_its_name() -> None:
    assert zone_named("Europe/Zagreb").key == "Europe/Zagreb"
    assert zone_named("America/Argentina/Buenos_Aires") is zone_named("America/Argentina/Buenos_Aires")
    assert zone_named("Etc/GMT+5").key == "Etc/GMT+5"


@pytest.mark.parametrize(
    ("name", "meant"),
    [("Europe/Zagrab", "Europe/Zagreb"), ("asia/tokyo", "Asia/Tokyo"), ("utc", "UTC"), ("Asia/Tokio", "Asia/Tokyo")],
)
def test_a_near_miss_is_answered_with_the_name_that_was_meant(name: str, meant: str) -> None:
    with pytest.raises(ValueError, match=rf"^zone: no such time zone, got '{name}'; did you mean {meant}?"):
        zone_named(name)


@pytest.mark.parametrize(
    "name",
    [
        "", " ", "../../etc/passwd", "/etc/passwd", "/usr/share/zoneinfo/UTC", "\0", "UTC\0", "UTC\n", "x" * 10_000,
        "Europe", "Europe/", "Europe//Zagreb", "./UTC", "Mars/Olympus", "zone.tab", "tzdata.zi", "localtime",
        "posixrules", "right/UTC", "posix/UTC", "Ünïcode", "\ud800", None, 5, b"UTC",
    ],
)  # fmt: skip
def test_a_name_that_is_no_zone_is_refused(name: Any) -> None:
    with pytest.raises(ValueError, match=r"^zone: .*, got ") as refused:
        zone_named(name)
    assert len(str(refused.value)) < 200


KNOWN = available_timezones()


@settings(derandomize=True, max_examples=60, deadline=None)
@given(st.text(max_size=30) | st.text(string.ascii_letters + "/_+-.", max_size=30))
def test_any_name_is_a_zone_or_a_value_error(name: str) -> None:
    if name in KNOWN:
        assert zone_named(name).key == name
    else:
        with pytest.raises(ValueError, match=r"^zone: "):
            zone_named(name)


# -- quick

# Ten times what it takes on a small machine, so that only a lost cache fails here.
QUICK = {"cron": 600, "monthly": 300, "weekly": 300}


@pytest.mark.parametrize("text", TEXTS)
def test_the_next_occurrence_is_quick(text: str) -> None:
    rule = parse(text)
    rule.next(NOW, ZAGREB)
    taken = min(repeat(lambda: rule.next(NOW, ZAGREB), number=100, repeat=5)) / 100 * 1e6
    assert taken < QUICK.get(text.split()[0], 150), f"{taken:.0f} microseconds"
