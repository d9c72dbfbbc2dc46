"""Rules of recurrence. A rule is a value that computes the next instant from an instant and a zone.

A rule has a text, which the database stores: `parse(str(rule)) == rule`. Civil rules (Cron, Daily, Weekly, Monthly,
Yearly) follow local time in the zone of the schedule; Every and Slot count elapsed time in any zone. Occurrences
strictly increase, lie on whole seconds (except those of an anchor that does not) and end before the year 9000.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import cached_property, lru_cache
from itertools import islice, takewhile
from typing import Any, TypeAlias
from zoneinfo import ZoneInfo

from msgspec import Struct
from msgspec.structs import force_setattr

from duly.core.policy import rule_text
from duly.core.policy.civil import Civil, Cron, Daily, Monthly, Weekly, Yearly
from duly.core.policy.rule_text import Length, listed, quoted
from duly.core.policy.zones import DAY, DUSK, EPOCH, instant, second_after, within, zone_named

__all__ = [
    "Cron", "Daily", "Every", "Monthly", "Rule", "Slot", "Slots", "Weekly", "Yearly",
    "between", "clock_notes", "latest", "parse", "preview", "zone_named",
]  # fmt: skip


class Every(Struct, frozen=True, dict=True):
    """Every `period` of elapsed time, counted from `anchor`: `Every("15m")`, `Every(90)`, `Every(timedelta(hours=1))`.

    This is not local time: `Every("1d")` is 24 hours, also on the day the clocks change.
    """

    period: Length
    anchor: datetime = EPOCH

    def __post_init__(self) -> None:
        force_setattr(self, "period", rule_text.length(self.period))
        anchor: object = self.anchor
        if not (isinstance(anchor, datetime) and anchor.tzinfo and 1901 <= anchor.year <= 8998):
            raise ValueError(f"anchor: must be an aware datetime from 1901 to 8998, got {quoted(anchor)}")
        force_setattr(self, "anchor", anchor.astimezone(UTC))

    def next(self, after: datetime, zone: ZoneInfo) -> datetime | None:
        """The first occurrence after `after`, in UTC, whatever the zone."""
        after = within(after)
        if after >= DUSK:
            return None
        found = self.anchor + ((after - self.anchor) // self._step + 1) * self._step
        return found if found < DUSK else None

    def __str__(self) -> str:
        return f"every {self.period}" + (f" anchor={self.anchor.isoformat()}" if self.anchor != EPOCH else "")

    def describe(self, zone: ZoneInfo) -> str:
        counted = f", counted from {self.anchor:%Y-%m-%d %H:%M:%S} UTC" if self.anchor != EPOCH else ""
        return f"every {rule_text.spoken(rule_text.seconds_in(self.period))}{counted}"

    @cached_property
    def _step(self) -> timedelta:
        return timedelta(seconds=rule_text.seconds_in(self.period))


class Slot(Struct, frozen=True, dict=True):
    """One of `of` even parts of a period, counted from 0: `Slot(10, of=24)` falls due at 10:00 UTC each day.

    Slots count elapsed time: periods follow each other from 1970-01-01 00:00 UTC on, whatever the zone.
    """

    slot: int
    of: int
    period: Length = "1d"

    def __post_init__(self) -> None:
        force_setattr(self, "period", rule_text.length(self.period))
        _check_parts("of", self.of, self.period)
        if type(self.slot) is not int or not 0 <= self.slot < self.of:
            raise ValueError(f"slot: must be between 0 and {self.of - 1}, got {quoted(self.slot)}")

    def next(self, after: datetime, zone: ZoneInfo) -> datetime | None:
        """The first occurrence after `after`, in UTC, whatever the zone."""
        offset, period = self._turn
        at = second_after(after)
        return instant(at + (offset - at) % period)

    def __str__(self) -> str:
        return f"slot {self.slot}/{self.of}" + (f" period={self.period}" if self.period != "1d" else "")

    def describe(self, zone: ZoneInfo) -> str:
        offset, period = self._turn
        name = f"slot {self.slot} of {self.of}"
        if period != DAY:
            return f"{name}: every {rule_text.spoken(period)}, {rule_text.spoken(offset)} after its start (UTC)"
        minutes, second = divmod(offset, 60)
        return f"{name}: every day at {minutes // 60:02}:{minutes % 60:02}{f':{second:02}' if second else ''} UTC"

    @cached_property
    def _turn(self) -> tuple[int, int]:
        period = rule_text.seconds_in(self.period)
        return self.slot * period // self.of, period


class Slots(Struct, frozen=True):
    """A period in `n` even parts, for schedules to be spread over. `Slots(24).at(10)` is the rule of one of them."""

    n: int
    period: Length = "1d"

    def __post_init__(self) -> None:
        force_setattr(self, "period", rule_text.length(self.period))
        _check_parts("n", self.n, self.period)

    def at(self, slot: int) -> Slot:
        return Slot(slot, self.n, self.period)


def _check_parts(field: str, parts: object, period: Length) -> None:
    most = min(100_000, rule_text.seconds_in(period))  # slots are at least a second apart
    if type(parts) is not int or not 1 <= parts <= most:
        raise ValueError(f"{field}: must be between 1 and {most:,} in {period}, got {quoted(parts)}")


Rule: TypeAlias = Cron | Every | Daily | Weekly | Monthly | Yearly | Slot


def occurrences(rule: Rule, after: datetime, zone: ZoneInfo) -> Iterator[datetime]:
    """All occurrences after `after`, oldest first."""
    found = rule.next(after, zone)
    while found is not None:
        yield found
        found = rule.next(found, zone)


def preview(rule: Rule, after: datetime, zone: ZoneInfo, n: int) -> list[datetime]:
    """The next n occurrences."""
    return list(islice(occurrences(rule, after, zone), n))


def clock_notes(rule: Rule, after: datetime, times: Sequence[datetime], zone: ZoneInfo) -> list[tuple[datetime, str]]:
    """What the clocks do at these next times of a rule, in plain words; none for rules that count elapsed time.

    Also the times in between that a rule leaves out because the clocks skip them.
    """
    if not isinstance(rule, Civil) or not times:
        return []
    found = [(at, note) for at in times if (note := rule.note(at, zone)) is not None]
    if rule.skipped == "skip":
        fuller: Any = parse(str(rule).replace(" skipped=skip", ""))
        left_out = set(between(fuller, after, times[-1], zone, 2 * len(times))) - set(times)
        notes = ((at, fuller.note(at, zone) or "") for at in left_out)
        found += [(at, f"{note.partition(';')[0]}; does not run") for at, note in notes]
    return sorted(found)


def between(rule: Rule, after: datetime, until: datetime, zone: ZoneInfo, most: int) -> list[datetime]:
    """The occurrences after `after` up to and including `until`, at most `most` of them, oldest first."""
    return list(takewhile(lambda one: one <= until, islice(occurrences(rule, after, zone), most)))


def latest(rule: Rule, after: datetime, until: datetime, zone: ZoneInfo) -> datetime | None:
    """The newest occurrence after `after` up to and including `until`.

    It looks back from `until` in doubling steps until there is an occurrence, then halves the time between that and
    `until`. So a missed year of a rule for every minute takes a few steps, not half a million.
    """
    # In UTC, because Python subtracts times of the same zone by their local times.
    after, until = within(after).astimezone(UTC), within(until, "until").astimezone(UTC)

    def first_in(start: datetime) -> datetime | None:
        one = rule.next(start, zone)
        return one if one is not None and one <= until else None

    found, step = None, timedelta(minutes=1)
    while found is None:
        start = until - step if until - after > step else after
        found = first_in(start)
        if found is None and start is after:
            return None
        step *= 2
    high = until
    while (later := first_in(found)) is not None:
        middle = later + (high - later) / 2
        further = first_in(middle)
        found, high = (further, high) if further is not None else (later, middle)
    return found


def parse(text: str) -> Rule:
    """Parse the text of a rule: the result of `str(rule)`, or a bare cron.

    >>> parse("weekly fri,mon 8:00") == Weekly("mon,fri", "08:00")
    True
    """
    if not isinstance(text, str) or not 0 < len(text) <= 1000:
        raise ValueError(f"rule: must be text of at most 1,000 characters, got {quoted(text)}")
    return _parsed(text)


_OPTIONS: dict[str, tuple[str, ...]] = {
    **{rule.word: tuple(rule.options) for rule in (Cron, Daily, Weekly, Monthly, Yearly)},
    "every": ("anchor",),
    "slot": ("period",),
}
_EXAMPLES = {
    "cron": "cron 30 2 * * *",
    "daily": "daily 09:00,17:30",
    "weekly": "weekly mon,fri 08:00",
    "monthly": "monthly 31 09:00",
    "yearly": "yearly 02-29 09:00",
    "every": "every 15m",
    "slot": "slot 10/24",
}


@lru_cache(maxsize=4096)
def _parsed(text: str) -> Rule:
    words, options = text.split(), dict[str, Any]()
    while words and "=" in words[-1]:
        name, _, value = words.pop().partition("=")
        if name in options:
            raise ValueError(f"rule: must have each option once, got {quoted(text)}")
        options[name] = value
    head = words[0].lower() if words else ""
    if head in _OPTIONS:
        words = words[1:]
    elif len(words) == 5 or head in rule_text.ALIASES:
        head = "cron"
    else:
        raise ValueError(f"rule: must begin with {listed(_OPTIONS, 'or')}, or be a cron, got {quoted(text)}")
    for name in options:
        if name not in _OPTIONS[head]:
            raise ValueError(f"rule: {head} has no option but {listed(_OPTIONS[head])}, got {quoted(name)}")
    match head, words:
        case "cron", [_, *_]:
            return Cron(" ".join(words), **options)
        case "daily", [at]:
            return Daily(at, **options)
        case "weekly", [days, at]:
            return Weekly(days, at, **options)
        case "monthly", [day, at]:
            return Monthly(rule_text.whole("day", day), at, **options)
        case "yearly", [on, at]:
            return Yearly(on, at, **options)
        case "every", [period]:
            return Every(period, **{name: rule_text.moment(name, value) for name, value in options.items()})
        case "slot", [part]:
            slot, _, of = part.partition("/")
            return Slot(rule_text.whole("slot", slot), rule_text.whole("of", of), **options)
    raise ValueError(f"rule: must be like '{_EXAMPLES[head]}', got {quoted(text)}")
