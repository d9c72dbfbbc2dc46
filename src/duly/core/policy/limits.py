"""Limits: how many calls there may be in any window of time, or at the same time, over all workers together.

A limit is enforced when items are claimed, by a row that all workers share. But it promises something about calls, and
a call begins some time after its claim: the answer has to arrive, and a slot has to be free. So the row has for each
call the time by which it has to begin, give or take a little (`SLACK`). A call that does not begin by then is given
back, and so is its token. The next call in its place may begin a window later.

With a database at a distance a worker asks early (`StartTiming.ahead`), and is granted calls that may begin a moment
later. Its own calls it counts by its own clock, which says exactly when they began. Those of others it counts by the
database's clock, which it knows only as exactly as the round trip allows (`StartTiming.blur`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import lru_cache

from msgspec import Struct

from duly.core.model import NO_STARTS, Meter, StartTiming

MOST = 10_000
SLACK = 0.02
# The slack in seconds is at least this, however short the window: a process needs some time to begin a call.
LEAST_SLACK = 0.05
# But it is at most this part of the window.
MOST_SLACK = 0.25
# The part of the slack within which a call must begin. The rest is for the way from this check to the callee.
START_WITHIN = 0.8
# Workers that know when their own calls began let them begin within this part of a window, and later if they must.
SPREAD_WITHIN = 0.04
# But not later than this part of it.
MOST_SPREAD = 0.5
# How early calls are granted at most.
MOST_AHEAD = timedelta(seconds=5)
# Only calls of windows up to this length (in seconds) are granted early: of a longer one, a round trip is no part that
# matters, and a worker that dies would keep what it was granted for long.
AHEAD_UP_TO = 30.0

_UNITS = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_PERIOD = re.compile(r"(\d+(?:\.\d+)?)?\s*([smhd])")
_TEXT = re.compile(r"(\d+)(?:\s*/\s*(\S+))?")


class Limit(Struct, frozen=True):
    """`Limit("boeing", 2, per="1m")`: at most 2 calls in any minute. `Limit("gpu", 4)`: at most 4 at the same time.

    With `by`, the name of an argument, each of its values has a limit of its own.
    """

    name: str
    most: int
    per: float | str | timedelta | None = None
    by: str | None = None

    def __post_init__(self) -> None:
        check(self.most, self.seconds)

    @property
    def seconds(self) -> float | None:
        return None if self.per is None else period(self.per)

    def meter(self, key: str = "") -> Meter:
        return Meter(f"{self.name}:{key}" if key else self.name, self.most, per=self.seconds)


def check(most: object, per: float | None) -> None:
    if isinstance(most, bool) or not isinstance(most, int) or not 0 <= most <= MOST:
        raise ValueError(f"most: must be between 0 and {MOST:,}, got {most!r}; use a shorter window for more")
    if per is not None and not 0.1 <= per <= 31 * 86_400:
        raise ValueError(f"per: must be between a tenth of a second and 31 days, got {per:g} s")


def period(given: float | str | timedelta) -> float:
    """Seconds; `"30s"`, `"1m"`, `"m"`, `"2h"`, a number or a timedelta."""
    if isinstance(given, timedelta):
        return given.total_seconds()
    if isinstance(given, str):
        if not (match := _PERIOD.fullmatch(given.strip())):
            raise ValueError(f"per: must be like 30s, 1m, 2h or 1d, got {given!r:.80}")
        return float(match[1] or 1) * _UNITS[match[2]]
    return float(given)


def parse_limit(text: str) -> tuple[int, float | None]:
    """`2/1m` or `2/m`: calls in any minute; `4`: at the same time."""
    if not (match := _TEXT.fullmatch(text.strip())):
        raise ValueError(f"limit: must be like 2/1m (calls in any minute) or 4 (at the same time), got {text!r:.80}")
    most, per = int(match[1]), None if match[2] is None else period(match[2])
    check(most, per)
    return most, per


@lru_cache(1_000)
def slack(per: float) -> timedelta:
    """How much later than it could a token becomes free; a call must begin within a part of it."""
    return timedelta(seconds=max(per * SLACK, min(LEAST_SLACK, per * MOST_SLACK)))


def tokens(meter: Meter, hits: Sequence[datetime], running: int, now: datetime) -> tuple[int, datetime | None]:
    """How many calls are free now, and when there will be more. `hits` are the times of past grants, oldest first.

    A grant of a time far ahead was made before the clock was set back: it no longer counts.
    """
    if meter.is_concurrency:
        return max(meter.most - running, 0), None
    recent = worth_keeping(meter, hits, now)
    free = max(meter.most - len(recent), 0)
    if meter.since is not None:
        return free, meter.until
    return (free, None) if free else (0, next_free(meter, recent, now))


def next_free(meter: Meter, hits: Sequence[datetime], now: datetime) -> datetime | None:
    """When the next call may begin under a limit with a window, after these (in order); None: when a person says so."""
    if not meter.most:
        return None
    return now if len(hits) < meter.most else max(now, hits[-meter.most] + _window(meter))


def worth_keeping(meter: Meter, hits: Sequence[datetime], now: datetime) -> list[datetime]:
    """The times of past grants that can still count."""
    if meter.since is not None:
        return [hit for hit in hits if hit >= meter.since]
    window = _window(meter)
    return [hit for hit in hits if now - window < hit <= now + window + 4 * MOST_AHEAD]


def as_known(meter: Meter, hits: Sequence[datetime], timing: StartTiming) -> list[datetime]:
    """These hits as the worker of this timing may count them, in order: its own calls from when they really began."""
    own = timing.own.get(meter.name, NO_STARTS)
    if not own:
        return sorted(hits)
    within = START_WITHIN * slack(meter.per or 0)
    starts = {hit: iter(own[hit]) for hit in set(hits) & own.keys()}
    known: list[datetime] = []
    for hit in hits:
        start = next(starts[hit], None) if hit in starts else None
        if start is None:
            known.append(hit)
        else:
            known.append(start.by if start.begun is None else min(start.by, start.begun - within))
    return sorted(known)


def grants_ahead(meters: Sequence[Meter]) -> bool:
    """Whether calls under these limits are granted before they may begin."""
    return all(meter.per is not None and meter.per <= AHEAD_UP_TO for meter in meters if meter.since is None)


def _window(meter: Meter) -> timedelta:
    return timedelta(seconds=meter.per or 0) + slack(meter.per or 0)
