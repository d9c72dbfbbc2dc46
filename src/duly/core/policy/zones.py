"""Time zones: which instants have a given local ("wall") time.

A zone is a sequence of spans, each with a constant offset from UTC. Where two spans meet, local time either skips (a
gap: local times without an instant) or repeats (a fold: local times with two). The policies for both are applied there,
and the search walks spans in the order of UTC, so the instants that it finds strictly increase. Instants and wall times
are whole seconds since 1970, as integers: date arithmetic would cost more than everything else.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from difflib import get_close_matches
from functools import lru_cache
from typing import Literal, NamedTuple, TypeAlias
from zoneinfo import ZoneInfo, available_timezones

from duly.core.policy.rule_text import quoted

Skipped: TypeAlias = Literal["later", "earlier", "skip"]
Doubled: TypeAlias = Literal["first", "second", "both"]

DAY = 86_400
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
# Occurrences lie between these: so date arithmetic cannot overflow, and every search ends.
DAWN = datetime(1900, 1, 1, tzinfo=UTC)
DUSK = datetime(9000, 1, 1, tzinfo=UTC)
END = (DUSK - EPOCH) // SECOND

_BLOCK = 366 * DAY
_MARGIN = 3 * DAY  # more than any change of an offset
_STEP = 2 * DAY
_REACH = 2 * DAY  # a local time and its instant differ by less than this, whatever the offset
_ZONE = re.compile(r"[A-Za-z0-9_+-]{1,30}(?:/[A-Za-z0-9_+-]{1,30}){0,2}")
_NOT_CIVIL = {"posix", "right", "localtime", "posixrules", "Factory"}  # copies, with leap seconds, the machine's own


class OffsetSpan(NamedTuple):
    """A span with one `offset`, from `since` to `until`. `before` and `behind` are the offsets of its neighbours.

    What is found in it holds for instants before `edge`.
    """

    since: int
    until: int
    offset: int
    before: int
    behind: int
    edge: int


def first_instant(
    first_wall: Callable[[int], int], at: int, zone: tzinfo, skipped: Skipped, doubled: Doubled
) -> int | None:
    """The first occurrence at or after `at`. `first_wall` gives the first wanted wall time at or after another."""
    while at < END:
        starts, spans = _spans(zone, at // _BLOCK)
        since, until, offset, before, behind, edge = spans[bisect_right(starts, at) - 1]
        wall = named = first_wall(at + offset)
        high = until
        if doubled == "first" and at < since + before - offset:  # it begins by repeating local times of the last span
            named = first_wall(since + before)
        elif doubled == "second" and behind < offset:  # the next span will repeat its last local times
            high -= offset - behind
        found = named - offset if named - offset < high else END
        if skipped == "later" and at < since + offset - before:
            missing = first_wall(at + before)
            if missing < since + offset:
                found = min(found, missing - before)
        elif skipped == "earlier" and behind > offset:
            missing = first_wall(max(at + behind, until + offset))
            if missing < until + behind:
                found = min(found, missing - behind)
        if found < edge:
            return found if found < END else None
        # The next wanted local time is `wall`, so nothing falls due before that instant, less the largest offset.
        at = max(edge, wall - offset - _REACH) if edge >= at + _REACH else edge
    return None


@lru_cache(maxsize=4096)
def _spans(zone: tzinfo, block: int) -> tuple[tuple[int, ...], tuple[OffsetSpan, ...]]:
    """The spans of about a year, and their starts. zoneinfo does not list transitions, so offsets are compared.

    The margins find transitions just outside, which matter inside. No zone has ever had two of them in three days.
    """
    edge = (block + 1) * _BLOCK
    low, high = block * _BLOCK - _MARGIN, edge + _MARGIN
    starts, offsets = [low], [_offset(zone, low)]
    calm = low
    for sample in range(low + _STEP, high + 1, _STEP):
        offset = _offset(zone, sample)
        while offset != offsets[-1]:
            turned = sample
            while turned - calm > 1:
                middle = (calm + turned) // 2
                if _offset(zone, middle) == offsets[-1]:
                    calm = middle
                else:
                    turned = middle
            starts.append(turned)
            offsets.append(_offset(zone, turned))
            calm = turned
        calm = sample
    ends = [*starts[1:], high]
    before, behind, edges = [offsets[0], *offsets], [*offsets[1:], offsets[-1]], [min(end, edge) for end in ends]
    return tuple(starts), tuple(map(OffsetSpan, starts, ends, offsets, before, behind, edges))


def _offset(zone: tzinfo, at: int) -> int:
    offset = datetime.fromtimestamp(at, zone).utcoffset()
    return offset // SECOND if offset else 0


def second_after(after: datetime) -> int:
    """The first whole second after an aware time, but not before `DAWN`."""
    return (within(after) - EPOCH) // SECOND + 1


def within(moment: datetime, field: str = "after") -> datetime:
    """An aware time, moved to `DAWN` or `DUSK` if it lies outside of them."""
    if moment.tzinfo is None:
        raise ValueError(f"{field}: must be an aware datetime, got {moment!r}")
    return DAWN if moment < DAWN else DUSK if moment > DUSK else moment


def instant(at: int | None) -> datetime | None:
    """Seconds since 1970 as a time; None from `DUSK` on."""
    return None if at is None or at >= END else datetime.fromtimestamp(at, UTC)


def zone_named(name: str) -> ZoneInfo:
    """The IANA zone of that name.

    >>> zone_named("Europe/Zagrab")
    Traceback (most recent call last):
    ValueError: zone: no such time zone, got 'Europe/Zagrab'; did you mean Europe/Zagreb?
    """
    if not (isinstance(name, str) and _ZONE.fullmatch(name)):
        raise ValueError(f"zone: must be the name of a time zone such as 'Europe/Zagreb', got {quoted(name)}")
    return _zone(name)


@lru_cache(maxsize=1024)
def _zone(name: str) -> ZoneInfo:
    try:
        if name.partition("/")[0] not in _NOT_CIVIL:
            return ZoneInfo(name)
    except (OSError, ValueError, KeyError):  # a folder, a file that is no zone, nothing at all
        pass
    known = {zone.lower(): zone for zone in _known_zones()}
    near = get_close_matches(name.lower(), known, n=1, cutoff=0.75)
    hint = f"; did you mean {known[near[0]]}?" if near else ""
    raise ValueError(f"zone: no such time zone, got {quoted(name)}{hint}")


@lru_cache(maxsize=1)
def _known_zones() -> tuple[str, ...]:
    return tuple(sorted(zone for zone in available_timezones() if zone.partition("/")[0] not in _NOT_CIVIL))


def is_doubled(wall: datetime, zone: ZoneInfo) -> bool:
    """Whether this local time comes twice in this zone."""
    first, second = (wall.replace(tzinfo=zone, fold=fold).utcoffset() for fold in (0, 1))
    return first != second and not is_missing(wall, zone)


def is_missing(wall: datetime, zone: ZoneInfo) -> bool:
    """Whether the clocks of this zone skip this local time."""
    back = wall.replace(tzinfo=zone).astimezone(UTC).astimezone(zone)
    return back.replace(tzinfo=None, fold=0) != wall


def clock_time(wall: datetime) -> str:
    return f"{wall:%H:%M:%S}" if wall.second else f"{wall:%H:%M}"
