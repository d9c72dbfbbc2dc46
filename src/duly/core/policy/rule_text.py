"""The text of rules: parses user input into canonical form, and describes a rule in English.

Text comes in from anywhere, so every piece is bounded before it is expanded, and is refused by a ValueError that names
its field. Which days and minutes a cron matches is asked of cronsim, once for each combination of fields.
"""

from __future__ import annotations

import re
from calendar import isleap
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import TypeAlias

from cronsim import CronSim, CronSimError

Length: TypeAlias = str | float | timedelta

ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
UNITS = {"w": 604_800, "d": 86_400, "h": 3600, "m": 60, "s": 1}
LONGEST = 3653 * UNITS["d"]
MOST_TIMES = 96
# One year of each kind: there are fourteen, by the weekday of 1 January and whether it is a leap year.
CALENDARS = {(date(year, 1, 1).weekday(), isleap(year)): year for year in range(2000, 2028)}

_TIME = re.compile(r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))?")
_LENGTH = re.compile(r"([0-9]{1,9})([smhdw])")
_MONTH_DAY = re.compile(r"([0-9]{1,2})-([0-9]{1,2})")
_CRON = re.compile(r"[0-9A-Z*,/#-]+(?: [0-9A-Z*,/#-]+){4}")
_STEPS = re.compile(r"\*(?:/([0-9]+))?")


def quoted(value: object) -> str:
    """A value for an error message, cut to a line."""
    text = repr(value[:60] if isinstance(value, str) else value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def one_of(field: str, value: object, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ValueError(f"{field}: must be {listed(known, 'or')}, got {quoted(value)}")


def listed(names: Iterable[object], last: str = "and") -> str:
    *most, end = map(str, names)
    return f"{', '.join(most)} {last} {end}" if most else end


def counted(count: int, unit: str) -> str:
    return f"{count:,} {unit}" if count == 1 else f"{count:,} {unit}s"


# -- times, days, lengths


def times_of_day(at: object) -> str:
    """`9:00` or `17:30,9:00:00` in canonical form: sorted, each time once, without seconds that are zero."""
    names = at.split(",", MOST_TIMES) if isinstance(at, str) else [""]
    if len(names) > MOST_TIMES:
        raise ValueError(f"at: must be at most {MOST_TIMES} times of day, got {quoted(at)}")
    found = set()
    for name in names:
        match = _TIME.fullmatch(name)
        hour, minute, second = (int(part or 0) for part in match.groups()) if match else (24, 0, 0)
        if hour > 23 or minute > 59 or second > 59:
            raise ValueError(f"at: must be times of day such as '09:00' or '09:00,17:30:15', got {quoted(at)}")
        found.add((hour, minute, second))
    return ",".join(f"{h:02}:{m:02}:{s:02}" if s else f"{h:02}:{m:02}" for h, m, s in sorted(found))


def seconds_of_day(at: str) -> tuple[int, ...]:
    """What `times_of_day` gave, as seconds after midnight."""
    parts = ([int(part) for part in name.split(":")] for name in at.split(","))
    return tuple(3600 * part[0] + 60 * part[1] + sum(part[2:]) for part in parts)


def weekdays(days: object) -> tuple[int, ...]:
    """`mon,fri` or `mon-fri` as numbers, Monday being 0; a range may go past Sunday."""
    known = {name.lower()[:size]: number for number, name in enumerate(WEEKDAYS) for size in (3, len(name))}
    found: set[int] = set()
    for part in days.lower().split(",") if isinstance(days, str) and len(days) <= 100 else [""]:
        first, dash, last = part.partition("-")
        start, end = known.get(first), known.get(last if dash else first)
        if start is None or end is None:
            raise ValueError(f"days: must be weekdays such as 'mon,fri' or 'mon-fri', got {quoted(days)}")
        found.update((start + day) % 7 for day in range((end - start) % 7 + 1))
    return tuple(sorted(found))


def weekday_names(days: object) -> str:
    """The same in canonical form: `fri-sun,mon` is `mon,fri,sat,sun`."""
    return ",".join(WEEKDAYS[day][:3].lower() for day in weekdays(days))


def weekdays_in_english(days: Iterable[int]) -> str:
    known = {tuple(range(7)): "every day", tuple(range(5)): "on weekdays"}
    days = tuple(sorted(days))
    return known.get(days) or f"on {listed(WEEKDAYS[day] for day in days)}"


def month_day(on: object) -> str:
    """A date, or `MM-DD`, as `MM-DD`; it must be a day that exists in some year."""
    match = _MONTH_DAY.fullmatch(on) if isinstance(on, str) else None
    try:
        if match:
            on = date(2000, int(match[1]), int(match[2]))
        if isinstance(on, date):
            return f"{on.month:02}-{on.day:02}"
    except ValueError:
        pass
    raise ValueError(f"on: must be a day of the year such as '02-29', or a date, got {quoted(on)}")


def length(period: object) -> str:
    """`15m`, 900 or a timedelta in canonical form: a whole number of the largest unit that fits, from w, d, h, m, s."""
    seconds: float = -1
    if isinstance(period, timedelta):
        seconds = period.total_seconds()
    elif isinstance(period, int | float) and not isinstance(period, bool):
        seconds = period
    elif isinstance(period, str) and (match := _LENGTH.fullmatch(period)):
        seconds = int(match[1]) * UNITS[match[2]]
    if not (1 <= seconds <= LONGEST and seconds == int(seconds)):
        raise ValueError(
            f"period: must be whole seconds, or text such as '15m' (units {listed(UNITS)}), "
            f"from 1 second to 10 years, got {quoted(period)}"
        )
    unit = next(unit for unit in UNITS if seconds % UNITS[unit] == 0)
    return f"{int(seconds) // UNITS[unit]}{unit}"


def seconds_in(period: Length) -> int:
    """What `length` gave, in seconds."""
    text = str(period)
    return int(text[:-1]) * UNITS[text[-1]]


def spoken(seconds: int) -> str:
    """`15 minutes`, `24 hours`: days are given in hours, so that they are not taken for calendar days."""
    hours, rest = divmod(seconds, 3600)
    parts = [(hours, "hour"), (rest // 60, "minute"), (rest % 60, "second")]
    return listed(counted(count, unit) for count, unit in parts if count) if seconds else "0 seconds"


def moment(field: str, text: str) -> datetime:
    """An aware time in ISO 8601."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{field}: must be a time such as '2026-01-31T09:00+00:00', got {quoted(text)}") from None


def whole(field: str, text: str) -> int:
    if not re.fullmatch(r"-?[0-9]{1,6}", text):
        raise ValueError(f"{field}: must be a whole number, got {quoted(text)}")
    return int(text)


# -- cron


def cron(text: object) -> str:
    """A cron in canonical form: five fields in capitals, with aliases resolved, that match some minute of some year."""
    if not isinstance(text, str) or len(text) > 200:
        raise ValueError(f"text: must be a cron of at most 200 characters, got {quoted(text)}")
    fields = ALIASES.get(text.strip().lower()) or " ".join(text.upper().split())
    if not _CRON.fullmatch(fields):
        raise ValueError(f"text: must have 5 fields or be {listed(ALIASES, 'or')}, got {quoted(text)}")
    try:
        CronSim(fields, datetime(2000, 1, 1, tzinfo=UTC))
    except CronSimError as error:
        raise ValueError(f"text: {str(error).lower()} in the cron, got {quoted(text)}") from None
    which = fields.split(maxsplit=2)[2]
    if not any(cron_days(which, *calendar) for calendar in CALENDARS):
        raise ValueError(f"text: must match some day, got {quoted(text)}")
    return fields


@lru_cache(maxsize=1024)
def cron_times(minute: str, hour: str) -> tuple[int, ...]:
    """The seconds after midnight that two fields match."""
    sim = CronSim(f"{minute} {hour} * * *", datetime(2000, 1, 1, tzinfo=UTC))
    return tuple(3600 * h + 60 * m for h in sorted(sim.hours) for m in sorted(sim.minutes))


@lru_cache(maxsize=2048)
def cron_days(which: str, weekday: int, leap: bool) -> tuple[int, ...]:
    """The days, from 0, that the last three fields match in a year that begins on such a weekday."""
    new_year = date(CALENDARS[weekday, leap], 1, 1)
    sim = CronSim(f"0 0 {which}", datetime(2000, 1, 1, tzinfo=UTC))
    days = (new_year + timedelta(days=number) for number in range(365 + leap))
    # Day by day, because cronsim itself searches 50 years for a day that never comes.
    return tuple(number for number, day in enumerate(days) if day.month in sim.months and sim.match_day(day))


def passes_hours(text: str) -> bool:
    """Whether the hour of a cron is `*` or `*/n`, so that it follows elapsed hours, not local ones."""
    return _STEPS.fullmatch(text.split()[1]) is not None


def cron_in_english(text: str) -> str | None:
    """What a cron of a common form means; None for all others."""
    minute = text.split()[0]
    sim = CronSim(text, datetime(2000, 1, 1, tzinfo=UTC))
    minutes, hours = sorted(sim.minutes), sorted(sim.hours)
    steps = _STEPS.fullmatch(minute)
    step = int(steps[1] or 1) if steps else 0
    marks = listed(f":{m:02}" for m in minutes)
    if step and 60 % step == 0 and step < 60:
        when = "every minute" if step == 1 else f"every {step} minutes"
    elif len(minutes) > 6:
        return None
    elif len(minutes) * len(hours) <= 4:
        when = "at " + listed(f"{h:02}:{m:02}" for h in hours for m in minutes)
    else:
        when = f"at {marks}"
    if len(hours) == 24:
        when += " of every hour" if when.startswith("at :") else ""
    elif not when.startswith("at ") or when.startswith("at :"):
        run = len(hours) > 2 and hours[-1] - hours[0] == len(hours) - 1
        some = f"hours {listed(hours)}" if len(hours) > 1 else f"hour {hours[0]}"
        when += f" of hours {hours[0]} to {hours[-1]}" if run else f" of {some}"
    days = _cron_days_in_english(text)
    if days == "every day" and len(hours) == 24:
        return when
    return days and (f"{days} {when}" if when.startswith("at ") else f"{days}, {when}")


def _cron_days_in_english(text: str) -> str | None:
    _, _, day, month, weekday = text.split()
    sim = CronSim(text, datetime(2000, 1, 1, tzinfo=UTC))
    months = "" if month == "*" else listed(MONTHS[m - 1] for m in sorted(sim.months))
    if day == "*":
        if not all(isinstance(one, int) for one in sim.weekdays):
            return None
        days = weekdays_in_english({(one - 1) % 7 for one in sim.weekdays if isinstance(one, int)})
        return f"{days} in {months}" if months else days
    if weekday != "*" or min(sim.days) < 0 or len(sim.days) > 6:
        return None
    noun = "day" if len(sim.days) == 1 else "days"
    return f"on {noun} {listed(sorted(sim.days))} of {months or 'each month'}"
