"""Checks the options of items and schedules: time, name, key, rank, tries and lateness."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar, cast

from duly.core.errors import InputError
from duly.core.filters import LAST_ID

NAME = re.compile(r"[\w.:@/+-]+( [\w.:@/+-]+)*")
GROUP = re.compile(r"[0-9a-f]{1,64}")
KEY_LIMIT = 500
REASON = 2_000  # characters
RANKS = range(-100, 101)
YEARS = range(1970, 9_801)  # so that a lateness or a delay can be added to a time without overflow
NUMBERS = (int, float)
LONGEST_WAIT = 3.2e9  # seconds; threads cannot wait much longer

T = TypeVar("T")


def when(at: Any, delay: Any, now: Callable[[], datetime]) -> datetime:
    """The due time that a caller gave, with either `at` or `delay`."""
    if at is not None and delay is not None:
        raise InputError("delay", "give either at or delay, not both")
    if at is not None:
        return checked_moment("at", at)
    seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
    if not is_number(seconds):
        raise InputError("delay", f"must be a number of seconds or a timedelta, not negative, got {delay!r}")
    return now() + timedelta(seconds=seconds)


def checked_moment(field: str, at: Any) -> datetime:
    """A time with its zone, given as a value or as ISO 8601 text."""
    if isinstance(at, str):
        try:
            at = datetime.fromisoformat(at)
        except ValueError:
            raise InputError(field, f"must be ISO 8601, such as 2026-12-01T09:00+01:00, got {at!r}") from None
    if not isinstance(at, datetime):
        raise InputError(field, f"must be a datetime or ISO 8601 text, got {type(at).__name__}")
    if at.tzinfo is None or at.utcoffset() is None:
        raise InputError(field, f"has no time zone: say which, such as {at.isoformat()}+01:00 or {at.isoformat()}Z")
    if at.year not in YEARS:
        raise InputError(field, f"must lie between the years {YEARS[0]} and {YEARS[-1]}, got {at.isoformat()}")
    return at.astimezone(UTC)


def checked_name(field: str, name: Any) -> str:
    if not isinstance(name, str) or len(name) > 200 or not NAME.fullmatch(name):
        raise InputError(field, f"must be 1 to 200 letters, digits or . _ : @ / + -, got {name!r:.80}")
    return name


def checked_lateness(given: Any) -> timedelta:
    lateness = given if isinstance(given, timedelta) else timedelta(seconds=given) if is_number(given) else None
    if lateness is None or not timedelta(0) <= lateness <= timedelta(days=36_500):
        raise InputError("max_lateness", f"must be a number of seconds or a timedelta, got {given!r:.80}")
    return lateness


def is_number(value: Any) -> bool:
    return isinstance(value, NUMBERS) and not isinstance(value, bool) and 0 <= value < 3.2e9


def checked_timeout(timeout: Any) -> float | None:
    """Seconds, which may be less than 0 as in Python's own calls; None: no limit."""
    if timeout is None:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, NUMBERS) or timeout != timeout:
        raise InputError("timeout", f"must be a number of seconds or None, got {timeout!r:.80}")
    return timeout if timeout < LONGEST_WAIT else None


def checked_key(key: Any, field: str = "key") -> str:
    if not isinstance(key, str) or not key.strip():
        raise InputError(field, f"must be text that is not empty, got {key!r:.80}")
    return checked_text(field, key, KEY_LIMIT)


def checked_rank(rank: Any) -> int:
    if isinstance(rank, bool) or not isinstance(rank, int) or rank not in RANKS:
        raise InputError("rank", f"must be a whole number from {RANKS[0]} (first) to {RANKS[-1]} (last), got {rank!r}")
    return rank


def checked_tries(tries: Any) -> int:
    if isinstance(tries, bool) or not isinstance(tries, int) or not 1 <= tries <= 1_000_000:
        raise InputError("tries", f"must be a whole number from 1 to 1,000,000, got {tries!r}")
    return tries


def checked_text(field: str, text: Any, most: int, least: int = 1) -> str:
    """Text of these many characters that every database can store."""
    if not isinstance(text, str):
        raise InputError(field, f"must be a string, got {text!r:.80}")
    if len(text) < least:
        raise InputError(field, "must not be empty")
    if len(text) > most:
        raise InputError(field, f"must have at most {most} characters, has {len(text)}")
    if "\x00" in text:
        raise InputError(field, "must not contain NUL characters")
    if not text.isascii():  # which is fast, and nearly always enough
        try:
            text.encode()
        except UnicodeEncodeError:
            raise InputError(field, "must be valid Unicode") from None
    return text


def checked_reason(text: Any) -> str:
    return checked_text("reason", text, REASON, least=0)


def checked_whole(field: str, number: Any, least: int, most: int = LAST_ID) -> int:
    """A whole number in these bounds; the largest that databases can hold is the default."""
    if isinstance(number, bool) or not isinstance(number, int) or not least <= number <= most:
        raise InputError(field, f"must be a whole number from {least:,} to {most:,}, got {number!r:.80}")
    return number


def checked_group(text: Any, field: str = "group_id") -> str:
    """The id of a group of failures."""
    if not isinstance(text, str) or not GROUP.fullmatch(text):
        raise InputError(field, f"must match {GROUP.pattern}, got {text!r:.80}")
    return text


def checked_choice(field: str, value: Any, choices: Sequence[T]) -> T:
    if value not in choices:
        raise InputError(field, f"must be one of {', '.join(map(str, choices))}, got {value!r:.80}")
    return cast("T", value)


def checked_rows(field: str, rows: Iterable[Mapping[str, Any]], check: Callable[..., T]) -> list[T]:
    """Call `check` with the values of each row, by name, and return its results. An error names the row."""
    checked = []
    for place, row in enumerate(rows):
        try:
            checked.append(check(**row))
        except InputError as error:
            raise InputError(f"{field}[{place}].{error.field}", error.problem) from None
        except TypeError as error:
            raise InputError(f"{field}[{place}]", str(error).partition("() ")[2]) from None
    return checked
