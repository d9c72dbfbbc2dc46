"""Simulations from the service, one at a time."""

from __future__ import annotations

import threading
from typing import Annotated

from msgspec import Struct
from pydantic import Field

from duly.core.results import SimulatedDays
from duly.core.wire import Doc
from duly.facade.simulated import checked, simulated
from duly.plugins import simulations
from duly.web.auth import Admin
from duly.web.desk import App
from duly.web.problems import Problem
from duly.web.routing import Router, repeatable
from duly.web.schemas import Model, Word, example

router = Router(tags=["live"])

_turn = threading.Lock()


class SimulateIn(Model, **example(app="shop", days=1, parameters={"products": 100}, failRate=0.05, downHours=6)):
    app: Word = Field(description="An installed app that can be simulated.")
    days: Annotated[float, Field(gt=0, le=14)] = 7
    parameters: dict[str, Annotated[int, Field(ge=0)]] = Field(
        default_factory=dict, description="The app's own parameters, as `GET /api/simulate` lists them."
    )
    seed: Annotated[int, Field(ge=0, le=2**31)] = Field(default=0, description="The same seed gives the same days.")
    down_hours: Annotated[float, Field(ge=0, le=168)] = Field(default=0, description="For how long no worker runs.")
    out_hours: Annotated[float, Field(ge=0, le=168)] = Field(default=0, description="For how long every call fails.")
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
def list_simulations(app: App, principal: Admin) -> Simulations:
    """The apps of this service that can be simulated, with the parameters of each."""
    found = sorted((name, each.parameters) for name, each in simulations().items() if name in app.internals.plugins)
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
    checked(asked.app, asked.parameters)
    if not _turn.acquire(blocking=False):
        raise Problem(429, "another simulation is running", headers={"Retry-After": "5"})
    try:
        return simulated(**asked.model_dump())
    finally:
        _turn.release()
