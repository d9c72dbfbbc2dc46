"""Two plug-ins with something of the same name: a ConfigError names both, for every kind of thing that one brings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any, ClassVar

import click
import pytest
from fastapi import APIRouter
from prometheus_client import CollectorRegistry, Gauge

from duly import Duly
from duly.core.errors import ConfigError
from duly.plugin import FileSource, Plugin, Router, Screen, Section, chosen, repeatable, setting
from duly.plugins import GROUP, installed
from duly.web.api import build
from tests.cli.conftest import call


@dataclass(frozen=True, kw_only=True)
class Same(Section):
    PREFIX: ClassVar[str] = "same_"

    minutes: int = setting(3, "How long.")


@dataclass(frozen=True, kw_only=True)
class Aliased(Section):
    PREFIX: ClassVar[str] = "aliased_"

    minutes: int = setting(3, "How long.", "SAME_MINUTES")


@dataclass(frozen=True, kw_only=True)
class AliasedToo(Aliased):
    PREFIX: ClassVar[str] = "too_"


def made(name: str, **brings: Any) -> Plugin[Any, Any]:
    return Plugin(**{"name": name, "doc": "", "settings": Section, "install": lambda _, __: None, **brings})


def router(path: str, kind: type[APIRouter] = Router, prefix: str = "") -> Callable[[], APIRouter]:
    def routes() -> APIRouter:
        made = kind(prefix=prefix)

        @made.get(path)
        def look() -> dict[str, int]:
            return {}

        return made

    return routes


def installs(register: Callable[[Duly], object]) -> dict[str, Any]:
    return {"install": lambda app, _: register(app)}


def task(app: Duly) -> Any:
    return app.task(name="same.task")(lambda: None)


@pytest.fixture
def announce(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    def announce(first: Plugin[Any, Any], second: Plugin[Any, Any]) -> None:
        for name, plugin in (("FIRST", first), ("SECOND", second)):
            monkeypatch.setattr(f"{__name__}.{name}", plugin, raising=False)
        points = EntryPoints(EntryPoint(name, f"{__name__}:{name}", GROUP) for name in ("FIRST", "SECOND"))
        monkeypatch.setattr("importlib.metadata.entry_points", lambda group: points)
        installed.cache_clear()

    yield announce
    installed.cache_clear()


def screens(folder: Path) -> dict[str, Any]:
    (folder / "same.js").touch()
    return {"screens": (Screen(path="same", title="Same", script="same.js"),), "static": folder}


def test_what_is_known_when_packages_are_loaded(announce: Any, tmp_path: Path) -> None:
    for kind, first, second in (
        ("name 'one'", made("one"), made("one")),
        ("setting 'same_minutes'", made("one", settings=Same), made("two", settings=Same)),
        ("environment variable 'SAME_MINUTES'", made("one", settings=Aliased), made("two", settings=AliasedToo)),
        ("screen 'same'", made("one", **screens(tmp_path)), made("two", **screens(tmp_path))),
    ):
        announce(first, second)
        with pytest.raises(ConfigError, match=rf":FIRST and .*:SECOND both have the {kind}"):
            chosen("")


def test_commands(announce: Any) -> None:
    brings = {"commands": lambda: (click.Command("same"),)}
    announce(made("one", **brings), made("two", **brings))
    refused = call("two")
    assert (refused.exit_code, "one and two both have the command 'same'" in refused.stderr) == (2, True)
    announce(made("one", commands=lambda: (click.Command("items"),)), made("two", **brings))
    assert "duly and one both have the command 'items'" in call("one").stderr
    assert call("same").exit_code == 0, "the other keeps its command"


@pytest.mark.parametrize(
    ("kind", "brings"),
    [
        ("task 'same.task'", installs(task)),
        ("type of jobs 'same'", installs(lambda app: app.job_type("same", app.tasks.get("own") or own(app)))),
        ("source of files 'same'", {"sources": lambda _: (FileSource(scheme="same", open=lambda *_: None),)}),  # type: ignore[arg-type,return-value]
    ],
)
def test_what_is_registered_on_an_app(kind: str, brings: dict[str, Any], tmp_path: Path) -> None:
    app = Duly(f"sqlite:///{tmp_path}/duly.db")
    made("one", **brings).on(app)
    with pytest.raises(ConfigError, match=f"one and two both have the {kind}"):
        made("two", **brings).on(app)
    assert "two" not in app.internals.plugins


def own(app: Duly) -> Any:
    return app.task(name="own")(lambda: None)


def test_a_task_of_the_app_itself(tmp_path: Path) -> None:
    app = Duly(f"sqlite:///{tmp_path}/duly.db")
    task(app)
    with pytest.raises(ConfigError, match=r"this app and one both have the task 'same.task'"):
        made("one", **installs(task)).on(app)


def test_metrics(tmp_path: Path) -> None:
    app = Duly(f"sqlite:///{tmp_path}/duly.db")
    brings = {"metrics": lambda _: (Gauge("same", "Same.", registry=CollectorRegistry()),)}
    made("one", **brings).on(app)
    with pytest.raises(ConfigError, match="one and two both have the metric 'same'"):
        made("two", **brings).on(app)


@pytest.mark.parametrize(
    ("complaint", "first", "second"),
    [
        ("prefix of routes '/api/same'", router("/a", prefix="/api/same"), router("/b", prefix="/api/same")),
        ("route 'GET /api/same/{}'", router("/api/same/{id}"), router("/api/same/{name}")),
    ],
)
def test_routes(complaint: str, first: Any, second: Any) -> None:
    with pytest.raises(ConfigError, match=f"one and two both have the {complaint}"):
        build(True, (made("one", router=first), made("two", router=second)))
    with pytest.raises(ConfigError, match="duly and one both have the route 'GET /api/items'"):
        build(True, (made("one", router=router("/api/items")),))


def test_a_screen_of_the_dashboard_itself(tmp_path: Path) -> None:
    (tmp_path / "same.js").touch()
    mine = made("one", screens=(Screen(path="queues", title="Mine", script="same.js"),), static=tmp_path)
    with pytest.raises(ConfigError, match="both have the screen '/queues'"):
        build(True, (mine,))


def test_a_post_of_a_plain_router_is_refused_with_the_router_to_use() -> None:
    def posting(kind: type[APIRouter]) -> Callable[[], APIRouter]:
        def routes() -> APIRouter:
            made = kind(prefix="/api/mine")

            @made.post("/act")
            @repeatable("it does nothing")
            def act() -> dict[str, int]:
                return {}

            return made

        return routes

    with pytest.raises(ConfigError, match=r"one has POST /api/mine/act on a plain APIRouter.*duly\.plugin\.Router"):
        build(True, (made("one", router=posting(APIRouter)),))
    build(True, (made("one", router=posting(Router)), made("two", router=router("/api/two", APIRouter))))


# What a plug-in brings, and why two of them cannot, or may, have the same.
CHECKED = {"name", "settings", "screens", "commands", "install", "sources", "metrics", "router"}
FREE = {
    "doc": "a text",
    "checks": "findings name their subject",
    "migrations": "recorded under the name of the plug-in",
    "alerts": "their names begin with that of the plug-in",
    "simulation": "chosen by the name of the plug-in; options of the same name are shared",
    "panels": "a job may have several",
    "static": "served under the name of the plug-in",
    "needs": "a text",
    "aliases": "two variables may set one setting, and one may be read for several",
    "is_default": "a question",
}


def test_every_field_of_a_plugin_is_considered() -> None:
    assert {each.name for each in fields(Plugin)} == CHECKED | FREE.keys()
