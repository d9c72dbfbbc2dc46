"""Rules that follow local time in the zone of the schedule: certain days, at certain times of day.

A rule knows days and times only; `zones` finds the instants, also where local time skips or repeats an hour.
"""

from __future__ import annotations

from bisect import bisect_left
from calendar import isleap, monthrange
from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from typing import ClassVar, Literal, TypeAlias, get_args
from zoneinfo import ZoneInfo

from duly.core.policy import rule_text, zones
from duly.core.policy.rule_text import listed, one_of, quoted
from duly.core.policy.zones import DAY, Doubled, Skipped, clock_time, first_instant, instant, second_after

Short: TypeAlias = Literal["last", "skip"]
Leap: TypeAlias = Literal["feb28", "mar1", "skip"]

_ORIGIN = date(1970, 1, 1).toordinal()
# How each field that is text is brought into its canonical form.
_FORMS: dict[str, Callable[[object], str]] = {
    "text": rule_text.cron,
    "days": rule_text.weekday_names,
    "on": rule_text.month_day,
    "at": rule_text.times_of_day,
}


@dataclass(frozen=True, kw_only=True)
class Civil:
    """Certain days, at certain times of day, in local time. (No Struct, since `Daily` takes any number of arguments.)

    `skipped`: a time that the clocks skip falls due `later` by the gap (02:30 is 03:30), `earlier` by it (01:30), or
    not at all (`skip`). `doubled`: a time that comes twice falls due at the `first`, the `second` or `both`.
    """

    word: ClassVar[str]
    # Its options, each with the words that it may have, the default first.
    options: ClassVar[dict[str, tuple[str, ...]]] = {"skipped": get_args(Skipped), "doubled": get_args(Doubled)}

    skipped: Skipped = "later"
    doubled: Doubled = "first"

    def __post_init__(self) -> None:
        for name, known in self.options.items():
            one_of(name, getattr(self, name), known)
        for each in fields(self):
            if form := _FORMS.get(each.name):
                object.__setattr__(self, each.name, form(getattr(self, each.name)))

    def next(self, after: datetime, zone: ZoneInfo) -> datetime | None:
        """The first occurrence after `after`, in UTC."""
        return instant(first_instant(self._first_wall, second_after(after), zone, self.skipped, self.doubled))

    def __str__(self) -> str:
        given = {name: getattr(self, name) for name in self.options}
        chosen = [f"{name}={word}" for name, word in given.items() if word != self.options[name][0]]
        return " ".join([self.word, *self._words, *chosen])

    def describe(self, zone: ZoneInfo) -> str:
        return f"{self._days} at {listed(self._words[-1].split(','))} ({zone})"

    def note(self, at: datetime, zone: ZoneInfo) -> str | None:
        """The clock change at this occurrence, in words; None if there is none."""
        local = at.astimezone(zone)
        wall = local.replace(tzinfo=None, fold=0)
        if zones.is_doubled(wall, zone):
            times = {"first": "the first time", "second": "the second time", "both": "both times"}[self.doubled]
            return f"{clock_time(wall)} happens twice that day; runs {times}"
        wanted = self._missing(at, wall, zone)
        return None if wanted is None else f"{clock_time(wanted)} does not exist that day; runs {clock_time(wall)}"

    def _missing(self, at: datetime, wall: datetime, zone: ZoneInfo) -> datetime | None:
        """The skipped local time that this occurrence replaces, if it does."""
        fold = 1 if self.skipped == "earlier" else 0
        for days in (0, -1, 1):  # a skipped time may stand on the day before or after
            midnight = wall.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=days)
            for second in self._times:
                wanted = midnight + timedelta(seconds=second)
                if zones.is_missing(wanted, zone) and wanted.replace(tzinfo=zone, fold=fold).astimezone(UTC) == at:
                    return wanted
        return None

    @property
    def _words(self) -> tuple[str, ...]:
        """What its text has between its word and its options, in the order of the fields; the times come last."""
        return tuple(str(getattr(self, each.name)) for each in fields(self) if each.name not in self.options)

    @property
    def _days(self) -> str:
        raise NotImplementedError

    @cached_property
    def _times(self) -> tuple[int, ...]:
        return rule_text.seconds_of_day(self._words[-1])

    def _first_day(self, day: int) -> int:
        """The first wanted day at or after a day; days count from 1970."""
        raise NotImplementedError

    def _first_wall(self, wall: int) -> int:
        today, second = divmod(wall, DAY)
        day = self._first_day(today)
        if day == today:
            index = bisect_left(self._times, second)
            if index < len(self._times):
                return day * DAY + self._times[index]
            day = self._first_day(today + 1)
        return day * DAY + self._times[0]


@dataclass(frozen=True)
class Cron(Civil):
    """Five fields, or one of `@hourly @daily @midnight @weekly @monthly @yearly @annually`.

    When the hour is `*` or `*/n`, minutes are taken as they really pass, whatever `skipped` and `doubled` say: a
    doubled hour has them in both passes, a skipped hour has none.

    >>> str(Cron("@daily"))
    'cron 0 0 * * *'
    """

    word: ClassVar[str] = "cron"

    text: str

    def next(self, after: datetime, zone: ZoneInfo) -> datetime | None:
        if not self._hours_pass:
            return super().next(after, zone)
        return instant(first_instant(self._first_wall, second_after(after), zone, "skip", "both"))

    def note(self, at: datetime, zone: ZoneInfo) -> str | None:
        return None if self._hours_pass else super().note(at, zone)

    def describe(self, zone: ZoneInfo) -> str:
        text = rule_text.cron_in_english(self.text) or f'cron "{self.text}"'
        return text if text == "every minute" else f"{text} ({zone})"

    @cached_property
    def _hours_pass(self) -> bool:
        return rule_text.passes_hours(self.text)

    @cached_property
    def _times(self) -> tuple[int, ...]:
        return rule_text.cron_times(*self.text.split()[:2])

    @cached_property
    def _which(self) -> str:
        return self.text.split(maxsplit=2)[2]

    def _first_day(self, day: int) -> int:
        if self._which == "* * *":
            return day
        year = date.fromordinal(day + _ORIGIN).year
        while True:  # some day matches, for `cron` checked that, and every kind of year comes back within 40 years
            new_year = date(year, 1, 1)
            start = new_year.toordinal() - _ORIGIN
            wanted = rule_text.cron_days(self._which, new_year.weekday(), isleap(year))
            index = bisect_left(wanted, day - start)
            if index < len(wanted):
                return start + wanted[index]
            year += 1


@dataclass(frozen=True, init=False)
class Daily(Civil):
    """Every day at one or more times: `Daily("09:00", "17:30")`."""

    word: ClassVar[str] = "daily"

    at: str

    def __init__(self, *at: str, skipped: Skipped = "later", doubled: Doubled = "first") -> None:
        object.__setattr__(self, "skipped", skipped)
        object.__setattr__(self, "doubled", doubled)
        object.__setattr__(self, "at", ",".join(at) if all(isinstance(one, str) for one in at) else at)
        self.__post_init__()

    @property
    def _days(self) -> str:
        return "every day"

    def _first_day(self, day: int) -> int:
        return day


@dataclass(frozen=True)
class Weekly(Civil):
    """On some weekdays: `Weekly("mon,fri", "08:00")`, `Weekly("mon-fri", "08:00,17:00")`."""

    word: ClassVar[str] = "weekly"

    days: str
    at: str

    @property
    def _days(self) -> str:
        return rule_text.weekdays_in_english(rule_text.weekdays(self.days))

    @cached_property
    def _wait(self) -> tuple[int, ...]:
        """For each weekday, the number of days from there to the next wanted one."""
        wanted = rule_text.weekdays(self.days)
        return tuple(min((day - today) % 7 for day in wanted) for today in range(7))

    def _first_day(self, day: int) -> int:
        return day + self._wait[(day + 3) % 7]


@dataclass(frozen=True)
class Monthly(Civil):
    """On a day of each month; -1 is the last. `short`: in a month without that day, the `last` one, or `skip` it."""

    word: ClassVar[str] = "monthly"
    options: ClassVar[dict[str, tuple[str, ...]]] = {"short": get_args(Short), **Civil.options}

    day: int
    at: str
    short: Short = "last"

    def __post_init__(self) -> None:
        super().__post_init__()
        if type(self.day) is not int or not (1 <= self.day <= 31 or -28 <= self.day <= -1):
            raise ValueError(f"day: must be between 1 and 31, or -1 (the last) to -28, got {quoted(self.day)}")

    @property
    def _days(self) -> str:
        if self.day < -1:
            return f"{rule_text.counted(-1 - self.day, 'day')} before the last day of each month"
        if self.day == -1:
            return "on the last day of each month"
        rest = "" if self.day < 29 else " that has one" if self.short == "skip" else " (the last day of shorter ones)"
        return f"on day {self.day} of each month{rest}"

    def _first_day(self, day: int) -> int:
        today = date.fromordinal(day + _ORIGIN)
        year, month, start = today.year, today.month, day - today.day + 1
        while True:
            length = monthrange(year, month)[1]
            wanted = self.day if self.day > 0 else length + 1 + self.day
            if (wanted <= length or self.short == "last") and (found := start + min(wanted, length) - 1) >= day:
                return found
            start += length
            year, month = (year, month + 1) if month < 12 else (year + 1, 1)


@dataclass(frozen=True)
class Yearly(Civil):
    """On a day of each year, `MM-DD` or a date. `leap`: which day stands for 29 February in other years, if any."""

    word: ClassVar[str] = "yearly"
    options: ClassVar[dict[str, tuple[str, ...]]] = {"leap": get_args(Leap), **Civil.options}

    on: str | date
    at: str
    leap: Leap = "feb28"

    @property
    def _days(self) -> str:
        month, day = self._month_day
        if (month, day) != (2, 29):
            return f"every year on {day} {rule_text.MONTHS[month - 1]}"
        if self.leap == "skip":
            return "every leap year on 29 February"
        return f"every year on 29 February ({'28 February' if self.leap == 'feb28' else '1 March'} in other years)"

    @cached_property
    def _month_day(self) -> tuple[int, int]:
        month, day = str(self.on).split("-")
        return int(month), int(day)

    def _first_day(self, day: int) -> int:
        year = date.fromordinal(day + _ORIGIN).year
        while True:
            month, nth = self._month_day
            if nth == 29 and month == 2 and not isleap(year):
                month, nth = {"feb28": (2, 28), "mar1": (3, 1), "skip": (0, 0)}[self.leap]
            if month and (found := date(year, month, nth).toordinal() - _ORIGIN) >= day:
                return found
            year += 1
