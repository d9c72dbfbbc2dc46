"""Simulations: what is asked, and what it tells."""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct
from pydantic import Field

from duly.core.doc import Doc
from duly.web.schemas import Model, Word, example


class SimulateIn(Model):
    model_config = example(app="shop", days=1, parameters={"products": 100}, failRate=0.05, downHours=6)

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
