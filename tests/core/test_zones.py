"""Civil rules in every zone, at every transition of four years, against a clock that is simply read.

`make chaos` looks at ten years.

The oracle reads the wall every quarter of an hour around a transition and looks names up in what it read: once, twice
or never. It knows no offsets and no rules of daylight saving time, only what zoneinfo shows at an instant.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import lru_cache
from itertools import groupby, pairwise, product
from pathlib import Path
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo, available_timezones

import pytest
import pytz
import tzdata

from duly.core.policy.civil import Civil
from duly.core.policy.recur import Cron, Daily, Monthly, Rule, Weekly, Yearly, between, preview
from tests.support import scaled

# Always two versions of the data, years apart, on any machine: PyPI's tzdata, which is installed with duly, and the one
# that pytz carries, a dependency of the tests alone and pinned to 2022, before Mexico, Jordan and Iran gave up changing
# their clocks and while Egypt did not. Files are read from their folders, so no process-wide search path is touched.
# The system's own, when there is one, is what zoneinfo prefers, so it is checked as well.
FOLDERS = {
    "tzdata": Path(tzdata.__file__).parent / "zoneinfo",
    "pytz": Path(pytz.__file__).parent / "zoneinfo",
    "system": Path("/usr/share/zoneinfo"),
}
DATABASES = [name for name, folder in FOLDERS.items() if (folder / "UTC").exists()]
NOT_CIVIL = {"posix", "right", "localtime", "posixrules", "Factory"}

POLICIES = list(product(("later", "earlier", "skip"), ("first", "second", "both")))
QUARTER, DAY = timedelta(minutes=15), timedelta(days=1)
FIRST, LAST = datetime(2026, 1, 1, tzinfo=UTC), datetime(2036, 1, 1, tzinfo=UTC)
YEARS = scaled(4, 10)  # of transitions
SAMPLES = [FIRST + n * DAY for n in range(0, YEARS * 366, 3)]


@lru_cache
def zones(database: str) -> dict[str, ZoneInfo]:
    """Each distinct zone once, under the first of its names; the others are the same bytes."""
    found: dict[bytes, tuple[str, ZoneInfo]] = {}
    for name, path in files(database).items():
        content = path.read_bytes()
        if content not in found:
            with path.open("rb") as file:
                found[content] = name, ZoneInfo.from_file(file, key=name)
    return dict(found.values())


def files(database: str) -> dict[str, Path]:
    folder = FOLDERS[database]
    paths = {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.is_file()}
    return {
        name: path
        for name, path in paths.items()
        if name.split("/")[0] not in NOT_CIVIL and path.read_bytes()[:4] == b"TZif"
    }


class Turn(NamedTuple):
    """A transition and the wall around it: `names` says at which instants the wall showed a time."""

    where: str
    zone: ZoneInfo
    at: datetime
    names: dict[datetime, list[datetime]]
    jumps: list[tuple[datetime, datetime]]

    @property
    def low(self) -> datetime:
        """Where the wall begins to skip or to repeat itself."""
        return min(self.told, self.shown)

    @property
    def high(self) -> datetime:
        return max(self.told, self.shown)

    @property
    def told(self) -> datetime:
        """What the wall would have shown at the transition."""
        return wall(self.at - QUARTER, self.zone) + QUARTER

    @property
    def shown(self) -> datetime:
        return wall(self.at, self.zone)

    def times(self) -> list[time]:
        """Where it hurts: around both ends and in the middle, and a time that nothing happens to."""
        middle = self.low + (self.high - self.low) // 2 // QUARTER * QUARTER
        names = {self.low - QUARTER, self.low, middle, self.high - QUARTER, self.high}
        return sorted({name.time() for name in names} | {time(12)})

    def expected(self, days: list[date], times: list[time], skipped: str, doubled: str) -> list[datetime]:
        found = set()
        for name in (datetime.combine(day, at) for day in days for at in times):
            instants = self.names.get(name, [])
            if len(instants) == 2:
                found |= {"first": {instants[0]}, "second": {instants[1]}, "both": set(instants)}[doubled]
            elif instants:
                found |= set(instants)
            elif skipped != "skip":
                (gap,) = (after - before - QUARTER for before, after in self.jumps if before < name < after)
                (shifted,) = self.names[name + gap if skipped == "later" else name - gap]
                found.add(shifted)
        return sorted(found)


def wall(at: datetime, zone: ZoneInfo) -> datetime:
    return at.astimezone(zone).replace(tzinfo=None)


def read_wall(where: str, zone: ZoneInfo, at: datetime) -> Turn:
    names, jumps, before = defaultdict(list), [], wall(at - 60 * 4 * QUARTER, zone)
    for step in range(-60 * 4, 60 * 4):
        shown = wall(at + step * QUARTER, zone)
        names[shown].append(at + step * QUARTER)
        if shown > before + QUARTER:
            jumps.append((before, shown))
        before = shown
    return Turn(where, zone, at, dict(names), jumps)


def transitions(zone: ZoneInfo) -> Iterator[datetime]:
    """No two are within three days, and each lies on a quarter of an hour: that is checked to the second."""

    def offset(at: datetime) -> timedelta | None:
        return at.astimezone(zone).utcoffset()

    offsets = [offset(sample) for sample in SAMPLES]
    for sample, before, after in zip(SAMPLES, offsets, offsets[1:], strict=False):
        if before != after:
            steps = range(3 * 96 + 1)
            turned = bisect_left(steps, True, key=lambda step: offset(sample + step * QUARTER) != before)
            at = sample + turned * QUARTER
            assert offset(at - timedelta(seconds=1)) == before, (zone, at)
            assert offset(at) == after, (zone, at)
            yield at


@lru_cache
def all_transitions(database: str) -> list[tuple[str, ZoneInfo, datetime]]:
    return [(name, zone, at) for name, zone in zones(database).items() for at in transitions(zone)]


@lru_cache
def alike(database: str) -> dict[tuple[object, ...], list[tuple[str, ZoneInfo, datetime]]]:
    """The transitions of one of all zones whose walls read alike from the first to the last: a rule sees no more."""
    found: dict[tuple[object, ...], list[tuple[str, ZoneInfo, datetime]]] = {}
    for _, group in groupby(all_transitions(database), key=lambda turn: turn[0]):
        mine = list(group)
        found.setdefault(tuple((at, *(wall(at - ago, zone) for ago in (DAY, 0 * DAY))) for _, zone, at in mine), mine)
    return found


@lru_cache
def turns(database: str) -> list[Turn]:
    """Every transition that no database before this one has had in the same way."""
    seen = {walls for earlier in DATABASES[: DATABASES.index(database)] for walls in alike(earlier)}
    return [read_wall(*turn) for walls, mine in alike(database).items() if walls not in seen for turn in mine]


EACH = [pytest.param(name, marks=pytest.mark.xdist_group("zones")) for name in DATABASES]  # walls are read once


@pytest.fixture(params=EACH)
def database(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def around(turn: Turn) -> tuple[datetime, datetime, list[date]]:
    """A window that the oracle has read with room on both sides, and the days that could fall into it."""
    start, end = turn.at - timedelta(hours=30), turn.at + timedelta(hours=30)
    first = wall(start, turn.zone).date()
    return start, end, [first + n * DAY for n in range(4)]


def test_a_daily_rule_is_right_at_every_transition_of_every_zone(database: str) -> None:
    for turn in turns(database):
        start, end, days = around(turn)
        for skipped, doubled in POLICIES:
            for times in (turn.times(), turn.times()[1:2], turn.times()[2:3]):
                rule = Daily(*map(str, times), skipped=skipped, doubled=doubled)
                wanted = [at for at in turn.expected(days, times, skipped, doubled) if start < at <= end]
                assert between(rule, start, end, turn.zone, 99) == wanted, (turn.where, turn.at, rule)


def test_every_civil_day_has_one_occurrence_at_every_transition_of_every_zone(database: str) -> None:
    noon = time(12)
    for where, zone, at in all_transitions(database):
        day = wall(at, zone).date()
        start, end = (datetime.combine(day + n * DAY, noon, zone).astimezone(UTC) for n in (-2, 2))
        turn = Turn(where, zone, at, {}, [])
        for one in turn.times():
            assert len(between(Daily(str(one)), start, end, zone, 99)) == 4, (where, at, one)


def test_a_yearly_rule_is_right_at_every_transition_of_every_zone(database: str) -> None:
    for turn in turns(database):
        start = turn.at - timedelta(hours=30)
        for name in {turn.low, turn.high - QUARTER}:
            for skipped, doubled in POLICIES:
                rule = Yearly(name.date(), str(name.time()), skipped=skipped, doubled=doubled)
                wanted = turn.expected([name.date()], [name.time()], skipped, doubled)
                found = preview(rule, start, turn.zone, len(wanted) + 1)
                assert found[:-1] == wanted, (turn.where, turn.at, rule)
                years = found[-1].year - turn.at.year if (name.month, name.day) not in ((1, 1), (12, 31)) else 1
                # A year in which the same time is skipped as well has none under that policy.
                assert years == 1 or skipped == "skip", (turn.where, turn.at, rule)


def test_every_year_has_one_birthday_in_every_zone(database: str) -> None:
    dates = {name: {date(2026, 3, 29)} for name in zones(database)}
    for name, zone, at in all_transitions(database):
        if name in SOME:
            dates[name].add(wall(at, zone).date())
    for name, zone in zones(database).items():
        for day in dates[name]:
            found = between(Yearly(day, "02:30"), FIRST - DAY, LAST - DAY, zone, 99)
            assert [wall(at, zone).year for at in found] == list(range(2026, 2036)), (name, day)


def test_a_cron_over_all_hours_follows_the_wall_as_it_passes(database: str) -> None:
    for turn in turns(database):
        start, end, _ = around(turn)
        read = sorted((at, name) for name, instants in turn.names.items() for at in instants if start < at <= end)
        quarters, even = Cron("*/15 * * * *"), Cron("30 */2 * * *", skipped="earlier", doubled="second")
        assert between(quarters, start, end, turn.zone, 999) == [at for at, _ in read], (turn.where, turn.at)
        wanted = [at for at, name in read if name.minute == 30 and name.hour % 2 == 0]
        assert between(even, start, end, turn.zone, 999) == wanted, (turn.where, turn.at)


def test_the_versions_of_the_data_really_differ() -> None:
    seen = {database: {(name, at) for name, _, at in all_transitions(database)} for database in DATABASES}
    assert len(seen["tzdata"]) > 100 * YEARS
    assert any(name == "America/Mexico_City" for name, _ in seen["pytz"] - seen["tzdata"])
    assert any(name == "Africa/Cairo" for name, _ in seen["tzdata"] - seen["pytz"])


def test_no_zone_is_left_out() -> None:
    known = {name for database in DATABASES for name in files(database)}
    assert {name for name in available_timezones() if name.split("/")[0] not in NOT_CIVIL} <= known


# -- by the second, in the zones that are hard

SOME = [
    "Africa/Cairo",  # skips and repeats midnight
    "Africa/Casablanca",  # changes around Ramadan, with a negative daylight saving time
    "America/Nuuk",
    "America/Santiago",  # midnight, in the other hemisphere
    "Antarctica/Troll",  # two hours
    "Asia/Beirut",
    "Asia/Gaza",
    "Asia/Kathmandu",
    "Australia/Lord_Howe",  # half an hour
    "Europe/Dublin",  # negative
    "Europe/Zagreb",
    "Pacific/Chatham",  # at a quarter to three
]
NEW = {name: ZoneInfo.from_file((FOLDERS["tzdata"] / name).open("rb"), key=name) for name in SOME}


@pytest.mark.parametrize("name", SOME)
def test_occurrences_are_right_to_the_second(name: str) -> None:
    zone = NEW[name]
    for at in list(transitions(zone))[:2]:
        start, end = at - timedelta(hours=3), at + timedelta(hours=3)
        second = timedelta(seconds=1)
        seconds = (end - start) // second
        shown = [(wall(start + n * second, zone), start + n * second) for n in range(1, seconds + 1)]
        turn = Turn(name, zone, at, {}, [])
        names = [n for edge in (turn.low, turn.high) for n in (edge - second, edge, edge + second)]
        times = {n.time() for n in names}
        rule = Daily(*map(str, times), skipped="skip", doubled="both")
        assert between(rule, start, end, zone, 99) == [at for name, at in shown if name.time() in times], at


@pytest.mark.parametrize("name", SOME)
def test_what_was_found_is_not_found_again_and_nothing_is_passed_over(name: str) -> None:
    """`next` from any instant is the first of what `next` finds from afar."""
    zone = NEW[name]
    for at in list(transitions(zone))[:2] or [FIRST]:
        for skipped, doubled in POLICIES:
            turn = Turn(name, zone, at, {}, [])
            rule = Daily(*map(str, turn.times()), skipped=skipped, doubled=doubled)
            found = between(rule, at - 2 * DAY, at + 2 * DAY, zone, 99)
            assert all(one < other for one, other in pairwise(found))
            for step in range(-100, 100, 3):
                start = at + step * QUARTER
                later = next(one for one in found if one > start)
                assert rule.next(start, zone) == rule.next(later - timedelta(microseconds=1), zone) == later


@pytest.mark.parametrize("name", SOME)
@pytest.mark.parametrize(("skipped", "doubled"), POLICIES)
def test_rules_that_say_the_same_agree(name: str, skipped: str, doubled: str) -> None:
    zone = NEW[name]
    for at in [*transitions(zone), FIRST][:3]:
        low = Turn(name, zone, at, {}, []).low
        clock = str(low.time())[:5]
        policies = {"skipped": skipped, "doubled": doubled}
        same: list[Civil] = [
            Daily(clock, **policies),
            Cron(f"{low.minute} {low.hour} * * *", **policies),
            Weekly("mon-sun", clock, **policies),
        ]
        once: list[Civil] = [
            Yearly(low.date(), clock, **policies),
            Cron(f"{low.minute} {low.hour} {low.day} {low.month} *", **policies),
        ]
        monthly: list[Civil] = [
            Monthly(low.day, clock, short="skip", **policies),
            Cron(f"{low.minute} {low.hour} {low.day} * *", **policies),
        ]
        for rules in (same, once, monthly):
            first, *others = (preview(rule, at - 2 * DAY, zone, 20) for rule in rules)
            assert all(other == first for other in others), rules


class Once(tzinfo):
    """A zone that changes its clocks once, whenever a test likes."""

    def __init__(self, at: datetime, before: timedelta, after: timedelta) -> None:
        self.at, self.before, self.after = at.replace(tzinfo=None), before, after

    def utcoffset(self, dt: datetime | None) -> timedelta:
        assert dt is not None
        turned = dt.replace(tzinfo=None) - (self.after if dt.fold else self.before) >= self.at
        return self.after if turned else self.before

    def fromutc(self, dt: datetime) -> datetime:
        utc = dt.replace(tzinfo=None)
        offset = self.after if utc >= self.at else self.before
        return (utc + offset).replace(tzinfo=self, fold=utc >= self.at and utc + offset < self.at + self.before)


@pytest.mark.parametrize("shift", [-1, 1, -24, 24])
def test_a_transition_is_seen_wherever_it_lies_in_the_year(shift: int) -> None:
    """Offsets are looked up in blocks of 366 days: this goes around the end of one, from just before it."""
    end = datetime(1970, 1, 1, tzinfo=UTC) + 56 * 366 * DAY
    for hour in range(-26, 100, 3):
        at = end + timedelta(hours=hour)
        zone: Any = Once(at, shift * timedelta(minutes=-30), shift * timedelta(minutes=30))
        turn = read_wall("once", zone, at)
        name = turn.low + (turn.high - turn.low) // 2
        for skipped, doubled in POLICIES:
            rule = Yearly(name.date(), str(name.time()), skipped=skipped, doubled=doubled)
            wanted = turn.expected([name.date()], [name.time()], skipped, doubled)
            start = min(end, at) - 2 * DAY
            assert between(rule, start, at + 20 * DAY, zone, 9) == wanted, (at, rule)


# -- stories

ZAGREB = NEW["Europe/Zagreb"]


def walls(rule: Rule, zone: ZoneInfo, start: datetime, n: int = 3) -> list[str]:
    return [at.astimezone(zone).strftime("%m-%d %H:%M %z") for at in preview(rule, start, zone, n)]


@pytest.mark.parametrize(
    ("skipped", "wanted"),
    [("later", "03-29 03:30 +0200"), ("earlier", "03-29 01:30 +0100"), ("skip", "03-30 02:30 +0200")],
)
def test_a_skipped_time_falls_due_later_or_earlier_or_not(skipped: str, wanted: str) -> None:
    rule = Daily("02:30", skipped=skipped)
    assert walls(rule, ZAGREB, datetime(2026, 3, 28, 12, tzinfo=UTC), 1) == [wanted]


@pytest.mark.parametrize(
    ("doubled", "wanted"),
    [
        ("first", ["10-25 02:30 +0200", "10-26 02:30 +0100"]),
        ("second", ["10-25 02:30 +0100", "10-26 02:30 +0100"]),
        ("both", ["10-25 02:30 +0200", "10-25 02:30 +0100"]),
    ],
)
def test_a_doubled_time_falls_due_once_unless_both_are_wanted(doubled: str, wanted: list[str]) -> None:
    rule = Daily("02:30", doubled=doubled)
    assert walls(rule, ZAGREB, datetime(2026, 10, 24, 12, tzinfo=UTC), 2) == wanted


def test_a_shifted_time_and_a_listed_one_are_one_occurrence() -> None:
    rule = Daily("02:30", "03:30")
    assert walls(rule, ZAGREB, datetime(2026, 3, 28, 12, tzinfo=UTC), 2) == ["03-29 03:30 +0200", "03-30 02:30 +0200"]


def test_a_time_shifted_earlier_takes_its_place_before_the_others() -> None:
    rule = Daily("01:45", "02:30", skipped="earlier")
    wanted = ["03-29 01:30 +0100", "03-29 01:45 +0100", "03-30 01:45 +0200"]
    assert walls(rule, ZAGREB, datetime(2026, 3, 28, 12, tzinfo=UTC)) == wanted


def test_midnight_that_does_not_exist_is_one_in_the_morning() -> None:
    rule = Daily("00:00")
    wanted = ["04-23 00:00 +0200", "04-24 01:00 +0300", "04-25 00:00 +0300"]
    assert walls(rule, NEW["Africa/Cairo"], datetime(2026, 4, 22, 12, tzinfo=UTC)) == wanted


def test_a_cron_of_the_night_runs_once_when_clocks_go_back() -> None:
    assert walls(Cron("30 2 * * *"), ZAGREB, datetime(2026, 10, 24, 12, tzinfo=UTC), 2) == [
        "10-25 02:30 +0200",
        "10-26 02:30 +0100",
    ]


def test_no_day_is_missing_or_double_in_these_years() -> None:
    for database in DATABASES:
        for where, zone, at in all_transitions(database):
            turn = Turn(where, zone, at, {}, [])
            assert turn.high - turn.low <= timedelta(hours=3), (where, at)


def test_a_day_that_never_was_is_observed_on_the_next() -> None:
    """Samoa went from Thursday 29 to Saturday 31 December 2011."""
    apia = ZoneInfo("Pacific/Apia")
    start = datetime(2011, 12, 28, 12, tzinfo=UTC)
    assert walls(Daily("09:00"), apia, start) == ["12-28 09:00 -1000", "12-29 09:00 -1000", "12-31 09:00 +1400"]
    assert walls(Yearly("12-30", "09:00"), apia, start, 2) == ["12-31 09:00 +1400", "12-30 09:00 +1400"]
    earlier = Yearly("12-30", "09:00", skipped="earlier")
    assert walls(earlier, apia, start, 2) == ["12-29 09:00 -1000", "12-30 09:00 +1400"]
    assert walls(Yearly("12-30", "09:00", skipped="skip"), apia, start, 1) == ["12-30 09:00 +1400"]
    assert between(Yearly("12-30", "09:00", skipped="skip"), start, start + 300 * DAY, apia, 9) == []


def test_a_day_that_came_twice_is_observed_once() -> None:
    """Kwajalein put its calendar back by a day on 30 September 1969."""
    kwajalein = ZoneInfo("Pacific/Kwajalein")
    start = datetime(1969, 9, 28, 12, tzinfo=UTC)
    assert [one[:11] for one in walls(Daily("09:00"), kwajalein, start, 4)] == [
        "09-29 09:00",
        "09-30 09:00",
        "10-01 09:00",
        "10-02 09:00",
    ]
    assert len(between(Yearly("09-30", "09:00", doubled="both"), start, start + 30 * DAY, kwajalein, 9)) == 2


@pytest.mark.parametrize("name", SOME)
@pytest.mark.parametrize("leap", ["feb28", "mar1", "skip"])
def test_a_birthday_on_29_february_is_observed_as_chosen(name: str, leap: str) -> None:
    other = {"feb28": "02-28", "mar1": "03-01"}.get(leap)
    wanted = [f"{year}-{'02-29' if year in (2028, 2032) else other} 09:00" for year in range(2026, 2036)]
    found = between(Yearly("02-29", "09:00", leap=leap), FIRST, LAST, NEW[name], 99)
    assert [f"{wall(at, NEW[name]):%Y-%m-%d %H:%M}" for at in found] == [day for day in wanted if "None" not in day]


def test_a_leap_day_waits_eight_years_around_2100() -> None:
    found = preview(Yearly("02-29", "09:00", leap="skip"), datetime(2095, 1, 1, tzinfo=UTC), ZAGREB, 2)
    assert [at.year for at in found] == [2096, 2104]
