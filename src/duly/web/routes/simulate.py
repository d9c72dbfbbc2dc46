"""Simulations from the service: days in virtual time, in a process of their own, one at a time."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from msgspec import Struct
from pydantic import Field

from duly.core.errors import InputError
from duly.core.results import SimulatedDays, SimulatedSeries, Summary
from duly.core.wire import Doc
from duly.plugins import simulations
from duly.web.auth import Admin
from duly.web.problems import Problem
from duly.web.routing import Router, repeatable
from duly.web.schemas import Model, Word, example

router = Router(tags=["live"])

SECONDS = 25.0  # that a simulation may take
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)  # always the same, so that the same seed gives the same days
PROGRAM = [sys.executable, "-m", "duly.cli"]

_turn = threading.Lock()


class SimulateIn(Model, **example(app="shop", days=1, parameters={"products": 100}, failRate=0.05, downHours=6)):
    app: Word = Field(description="An installed app that can be simulated.")
    days: Annotated[float, Field(gt=0, le=14)] = 7
    parameters: dict[str, Annotated[int, Field(ge=0)]] = Field(
        default_factory=dict, description="The app's own parameters, as `GET /api/simulate` lists them."
    )
    seed: Annotated[int, Field(ge=0, le=2**31)] = Field(default=0, description="The same seed gives the same days.")
    down_hours: Annotated[float, Field(ge=0, le=168)] = Field(default=0, description="For how long no worker runs.")
    fail_rate: Annotated[float, Field(ge=0, le=1)] = Field(default=0, description="The share of items that fail.")


class SimulationParameter(Struct, frozen=True):
    name: str
    label: str
    shown: Annotated[int, Doc("The value if none is given.")]
    most: Annotated[int, Doc("The largest value.")]


class Simulation(Struct, frozen=True):
    app: str
    parameters: list[SimulationParameter]


class Simulations(Struct, frozen=True):
    items: list[Simulation]


@router.get("/api/simulate")
def list_simulations(principal: Admin) -> Simulations:
    """The installed apps that can be simulated, with the parameters of each."""
    found = sorted((name, each.parameters) for name, each in simulations().items())
    return Simulations([
        Simulation(name, [SimulationParameter(each.name, each.label, each.shown, each.most) for each in parameters])
        for name, parameters in found
    ])  # fmt: skip


@router.post("/api/simulate")
@repeatable("it changes nothing")
def simulate(asked: SimulateIn, principal: Admin) -> SimulatedDays:
    """Simulate the next days of an app in virtual time, also with failing calls or without workers.

    The real engine runs against a model of the outside world. Nothing is called, and your data is not touched.
    """
    values = _checked(asked)
    if not _turn.acquire(blocking=False):
        raise Problem(429, "another simulation is running", headers={"Retry-After": "5"})
    try:
        return _told(asked, _simulated(asked, values))
    finally:
        _turn.release()


def _checked(asked: SimulateIn) -> dict[str, int]:
    """The value of each parameter of the app."""
    known = simulations()
    if asked.app not in known:
        raise InputError("app", f"cannot be simulated; known: {', '.join(sorted(known)) or 'none'}")
    most = {each.name: each.most for each in known[asked.app].parameters}
    for name, value in asked.parameters.items():
        if name not in most:
            raise InputError(f"parameters.{name}", f"is not a parameter of {asked.app}; known: {', '.join(most)}")
        if value > most[name]:
            raise InputError(f"parameters.{name}", f"must be at most {most[name]}, got {value}")
    return {**{each.name: each.shown for each in known[asked.app].parameters}, **asked.parameters}


def _simulated(asked: SimulateIn, values: dict[str, int]) -> dict[str, Any]:
    command = [
        *PROGRAM, "simulate", asked.app, "--json", "--days", str(asked.days), "--start", BEGIN.isoformat(),
        "--seed", str(asked.seed), "--failure-rate", str(asked.fail_rate),
        *(f"--{name.replace('_', '-')}={value}" for name, value in values.items()),
    ]  # fmt: skip
    if asked.down_hours:
        command += ["--down", f"{_down_from(asked).isoformat()}/{asked.down_hours * 3600:g}s"]
    try:
        done = subprocess.run(  # noqa: S603 - our own program with checked numbers
            command, capture_output=True, timeout=SECONDS, check=False, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        raise Problem(
            422, f"days: took longer than {SECONDS:g} seconds; ask for fewer days, or smaller parameters", "days"
        ) from None
    if done.returncode != 0:
        reason = done.stderr.decode("utf8", "replace").strip().rpartition("\n")[2].removeprefix("Error: ")
        raise Problem(422, f"app: cannot be simulated: {reason[:500]}", "app")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _down_from(asked: SimulateIn) -> datetime:
    """After a third of the time, so that the days before and the recovery are visible."""
    return (BEGIN + timedelta(days=asked.days) / 3).replace(minute=0, second=0, microsecond=0)


def _told(asked: SimulateIn, story: dict[str, Any]) -> SimulatedDays:
    late = story["late"]
    found = Summary(
        calls=story["calls"]["total"], max_calls_per_minute=story["calls"]["max_per_minute"], tries=story["attempts"],
        done=story["done"], in_review=story["failed"], recovered=story["recovered"], deactivated=story["deactivated"],
        skipped=story["skipped"], late_p50_seconds=late["p50_s"], late_p99_seconds=late["p99_s"],
        late_most_seconds=late["max_s"],
    )  # fmt: skip
    lines = [
        f"{found.calls:,} calls, at most {found.max_calls_per_minute} in any minute",
        f"{found.tries:,} tries for {found.done:,} done",
        f"{found.recovered:,} recovered after failures, {found.in_review:,} in review, "
        f"{found.deactivated:,} deactivated",
        f"half started within {late['p50_s']:.1f} s of their time, 99 % within {late['p99_s']:.1f} s, "
        f"all within {late['max_s']:.1f} s",
    ]
    if asked.down_hours:
        lines.append(f"no worker ran for {asked.down_hours:g} hours from {_down_from(asked):%Y-%m-%d %H:%M} UTC on")
    series = [
        SimulatedSeries("dispatched per hour", _points(story["hours"])),
        SimulatedSeries("retried per window", _points(story["windows"])),
    ]
    return SimulatedDays(found, [each for each in series if each.points], lines)


def _points(rows: list[dict[str, Any]]) -> list[tuple[float, float]]:
    """How many at each time, all slots together."""
    totals: Counter[float] = Counter()
    for row in rows:
        totals[datetime.fromisoformat(row["at"]).timestamp()] += row["dispatched"]
    return sorted(totals.items())
