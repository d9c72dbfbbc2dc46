"""What the dashboard's pages have to know first."""

from __future__ import annotations

from pydantic import Field

from duly.web.schemas import Out


class ScreenOut(Out):
    app: str
    path: str
    title: str
    script: str = Field(description="Its module, below the static files.")
    is_on: bool = Field(description="False: its app is off here, and the screen says how to turn it on.")


class PanelOut(Out):
    title: str
    script: str = Field(description="Its module, below the static files.")
    tasks: list[str] = Field(description="The tasks whose jobs have it.")


class DashboardOut(Out):
    version: str
    screens: list[ScreenOut] = Field(description="Those of plug-ins, as far as you may use them.")
    panels: list[PanelOut] = Field(description="Those of plug-ins, on the pages of jobs.")
    trace_url: str | None = Field(description="Where a trace is looked at, with {trace_id} for its id.")
    pending: bool = Field(description="Whether there is a list of pending rows of all jobs.")
