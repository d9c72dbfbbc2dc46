"""The next days of an app in virtual time, in a process of their own: for the service and for `app.client`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any

from msgspec import convert

from duly.core.errors import InputError
from duly.core.results import Interruption, SimulatedDays, SimulatedSeries, Summary
from duly.plugins import simulations

SECONDS = 25.0  # that a simulation may take
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)  # always the same, so that the same seed gives the same days
PROGRAM = [sys.executable, "-m", "duly.cli"]
NONE: Mapping[str, int] = MappingProxyType({})
# The bounds of what is asked; `days` must be more than the least.
BOUNDS = {"days": (0, 14), "seed": (0, 2**31), "down_hours": (0, 168), "out_hours": (0, 168), "fail_rate": (0, 1)}


def simulated(
    app: str,
    days: float = 7,
    parameters: Mapping[str, int] = NONE,
    seed: int = 0,
    down_hours: float = 0,
    fail_rate: float = 0,
    out_hours: float = 0,
) -> SimulatedDays:
    """Simulate these days. For `down_hours` no worker runs, and for `out_hours` every call fails."""
    given = {"days": days, "seed": seed, "down_hours": down_hours, "out_hours": out_hours, "fail_rate": fail_rate}
    for name, value in given.items():
        least, most = BOUNDS[name]
        if not least <= value <= most or (name == "days" and not value):
            raise InputError(name, f"must be between {least} and {most}, got {value!r:.40}")
    values = checked(app, parameters)
    command = [
        *PROGRAM, "simulate", app, "--json", "--days", str(days), "--start", BEGIN.isoformat(),
        "--seed", str(seed), "--failure-rate", str(fail_rate),
        *(f"--{name.replace('_', '-')}={value}" for name, value in values.items()),
    ]  # fmt: skip
    # After a third of the time, and after two, so that the days before and the recovery are visible.
    for option, thirds, hours in (("--down", 1, down_hours), ("--outage", 2, out_hours)):
        if hours:
            at = (BEGIN + timedelta(days=days) * thirds / 3).replace(minute=0, second=0, microsecond=0)
            command += [option, f"{at.isoformat()}/{hours * 3600:g}s"]
    return _told(_story(command))


def checked(app: str, parameters: Mapping[str, int]) -> dict[str, int]:
    """The value of each parameter of the app."""
    known = simulations()
    if app not in known:
        raise InputError("app", f"cannot be simulated; known: {', '.join(sorted(known)) or 'none'}")
    most = {each.name: each.most for each in known[app].parameters}
    for name, value in parameters.items():
        if name not in most:
            raise InputError(f"parameters.{name}", f"is not a parameter of {app}; known: {', '.join(most)}")
        if not 0 <= value <= most[name]:
            raise InputError(f"parameters.{name}", f"must be at most {most[name]}, got {value}")
    return {**{each.name: each.shown for each in known[app].parameters}, **parameters}


def _story(command: list[str]) -> dict[str, Any]:
    try:
        done = subprocess.run(  # noqa: S603 - our own program with checked numbers
            command, capture_output=True, timeout=SECONDS, check=False, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        raise InputError(
            "days", f"took longer than {SECONDS:g} seconds; ask for fewer days, or smaller parameters"
        ) from None
    if done.returncode != 0:
        reason = done.stderr.decode("utf8", "replace").strip().rpartition("\n")[2].removeprefix("Error: ")
        raise InputError("app", f"cannot be simulated: {reason[:500]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _told(story: dict[str, Any]) -> SimulatedDays:
    late = story["lateness"]
    gone = convert(story["interruptions"], list[Interruption])
    counted = ("planned", "done", "late", "in_review", "deactivated", "skipped", "still_failing", "waiting")
    found = Summary(
        **{name: story[name] for name in (*counted, "recovered")},
        calls=story["calls"]["total"], max_calls_per_minute=story["calls"]["max_per_minute"], tries=story["attempts"],
        late_after_seconds=story["late_after_s"], late_p50_seconds=late["p50_s"], late_p99_seconds=late["p99_s"],
        late_most_seconds=late["max_s"],
    )  # fmt: skip
    lines = [
        f"{found.planned:,} planned: {found.done:,} done in time, {found.late:,} late, {found.in_review:,} in review, "
        f"{found.deactivated:,} deactivated, {found.skipped:,} skipped, {found.still_failing:,} still failing, "
        f"{found.waiting:,} still waiting",
        f"{found.calls:,} calls, at most {found.max_calls_per_minute} in any minute; {found.tries:,} tries, and "
        f"{found.recovered:,} recovered after failures",
        f"half of what was done was done within {_long(late['p50_s'])} of its time, 99 % within "
        f"{_long(late['p99_s'])}, all within {_long(late['max_s'])}",
        *map(in_words, gone),
    ]
    series = [
        SimulatedSeries("dispatched per hour", _points(story["hours"])),
        SimulatedSeries("retried per window", _points(story["windows"])),
    ]
    return SimulatedDays(found, [each for each in series if each.points], lines, gone)


def in_words(gone: Interruption) -> str:
    """A downtime or an outage, and what it took to make up for it."""
    hours = (gone.end - gone.start).total_seconds() / 3_600
    what = "no worker ran" if gone.what == "down" else "every call failed"
    begun = f"{what} for {hours:g} h from {gone.start:%Y-%m-%d %H:%M} UTC on"
    if gone.in_review:
        begun += f", and {gone.in_review:,} went to review"
    if not gone.late:
        return f"{begun}: nothing was late"
    if gone.seconds is None:
        return f"{begun}: {gone.late:,} were late, and not all of them were tried by the end of these days"
    return f"{begun}: {gone.late:,} were late, and the last of them was tried {_long(gone.seconds)} after it"


def _long(seconds: float) -> str:
    """A length of time in its largest fitting unit."""
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.1f} {unit}"
    return f"{seconds:,.1f} s"


def _points(rows: list[dict[str, Any]]) -> list[tuple[float, float]]:
    """How many at each time, all slots together."""
    totals: Counter[float] = Counter()
    for row in rows:
        totals[datetime.fromisoformat(row["at"]).timestamp()] += row["dispatched"]
    return sorted(totals.items())
