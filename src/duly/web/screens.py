"""The one list of the dashboard's screens: those of the core and of plug-ins. The page makes its router of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

from msgspec import Struct

from duly.core.doc import Doc
from duly.core.shown import Scope
from duly.plugins import Plugin, Screen


class ScreenEntry(Struct, frozen=True, kw_only=True):
    """A screen of the dashboard. The page's router and navigation are made of these."""

    path: Annotated[str, Doc("Its address; `{id}` stands for the id of a row.")]
    title: str
    script: Annotated[str, Doc("Its module, below the static files.")]
    group: Annotated[str | None, Doc("Its group in the navigation; null: it is reached by links only.")] = None
    within: Annotated[str | None, Doc("The path of the screen that the navigation marks for it.")] = None
    key: Annotated[str | None, Doc("The key that opens it, after g.")] = None
    scope: Annotated[Scope, Doc("The scope that it needs.")] = "read"
    app: Annotated[str | None, Doc("Its app, which has all addresses below the path; null: the core.")] = None
    is_on: Annotated[bool, Doc("False: its app is off here, and the screen says how to turn it on.")] = True


class PanelEntry(Struct, frozen=True):
    """A panel that a plug-in adds to the page of a job."""

    title: str
    script: Annotated[str, Doc("Its module, below the static files.")]
    tasks: Annotated[tuple[str, ...], Doc("The tasks whose jobs have it.")]


class Dashboard(Struct, frozen=True):
    version: str
    screens: Annotated[list[ScreenEntry], Doc("Those of the core and of plug-ins that you may use.")]
    panels: Annotated[list[PanelEntry], Doc("Those of plug-ins, on the pages of jobs.")]
    trace_url: Annotated[str | None, Doc("Where a trace is looked at, with {trace_id} for its id.")]
    pending: Annotated[bool, Doc("Whether there is a list of pending rows of all jobs.")]


def _core(
    path: str, title: str, script: str, group: str | None = None, key: str | None = None, **more: Any
) -> ScreenEntry:
    return ScreenEntry(path=path, title=title, script=f"js/screens/{script}.js", group=group, key=key, **more)


# Screens of the core, in the order of the navigation; those of plug-ins stand between the two parts.
WORK = (
    _core("/", "Now", "now", "Work", "n"),
    _core("/items", "Items", "items", "Work", "i"),
    _core("/items/{id}", "Item", "item", within="/items"),
    _core("/pending", "Pending", "pending", "Work", "p"),
    _core("/jobs", "Jobs", "jobs", "Work", "j"),
    _core("/jobs/{id}", "Job", "job", within="/jobs"),
    _core("/schedules", "Schedules", "schedules", "Work", "s"),
    _core("/schedules/{id}", "Schedule", "schedule", within="/schedules"),
    _core("/review", "Review", "review", "Work", "r"),
    _core("/review/{id}", "Group of failures", "group", within="/review"),
)
SERVICE = (
    _core("/queues", "Queues and limits", "queues", "Run", "q", scope="admin"),
    _core("/workers", "Workers", "queues", within="/queues", scope="admin"),
    _core("/simulate", "Simulate", "simulate", "Run", "m", scope="admin"),
    _core("/users", "Users", "users", "People", "u", scope="admin"),
    _core("/keys", "API keys", "keys", "People", "k"),
    _core("/audit", "Audit log", "audit", "People", "a", scope="admin"),
    _core("/api/docs", "API", "api_docs", "People", "d"),
)
SIGN_IN = _core("/sign-in", "Sign in", "sign_in")


def screens(plugins: Iterable[Plugin[Any, Any]]) -> tuple[ScreenEntry, ...]:
    """The screens of the core and of these plug-ins, in the order of the navigation."""
    return (*WORK, *(_entry(plugin, screen) for plugin in plugins for screen in plugin.screens), *SERVICE)


def _entry(plugin: Plugin[Any, Any], screen: Screen) -> ScreenEntry:
    return ScreenEntry(
        path=f"/{screen.path}", title=screen.title, script=f"apps/{plugin.name}/{screen.script}", group="Apps",
        scope=screen.scope, app=plugin.name,
    )  # fmt: skip
