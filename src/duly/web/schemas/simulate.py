"""Simulations: what is asked, and what it tells."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from duly.web.schemas import Model, Out, Word, example


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


class ParameterOut(Out):
    name: str
    label: str
    shown: int = Field(description="The value if none is given.")
    most: int = Field(description="The largest value.")


class SimulationOut(Out):
    app: str
    parameters: list[ParameterOut]


class SimulationsOut(Out):
    items: list[SimulationOut]


class SummaryOut(Out):
    calls: int
    max_calls_per_minute: int
    tries: int
    done: int
    in_review: int
    recovered: int
    deactivated: int
    skipped: int
    late_p50_seconds: float
    late_p99_seconds: float
    late_most_seconds: float


class SeriesOut(Out):
    name: str
    points: list[tuple[float, float]] = Field(description="Seconds since 1970, and the value there.")


class SimulatedOut(Out):
    summary: SummaryOut
    series: list[SeriesOut]
    lines: list[str] = Field(description="The same in plain words.")
