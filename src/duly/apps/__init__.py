"""The apps that come with duly. Each is a package with a `plugin`, like any other plug-in; docs/apps.md builds one."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from duly import Duly
from duly.config import aliased
from duly.plugin import Plugin, Section

S = TypeVar("S", bound=Section)
T = TypeVar("T")


def shipped(package: str, doc: str, settings: type[S], install: Callable[[Any, S], T], **more: Any) -> Plugin[S, T]:
    """The plug-in of a package that is laid out as those here are; `more` are further fields of `Plugin`.

    It has the name of its package. Its routes are the `router` of the module `routes`, and its commands the `COMMANDS`
    of the module `commands`; both modules are loaded when they are needed. Its screens are in the folder `static`,
    its tables and views in the folder `migrations`.
    """
    name = package.rpartition(".")[2]
    static, migrations = (Path(__file__).parent / name / folder for folder in ("static", "migrations"))
    return Plugin(
        name=name, doc=doc, settings=settings, install=install,
        static=static if static.is_dir() else None,
        migrations=migrations if migrations.is_dir() else None,
        router=lambda: import_module(f"{package}.routes").router,
        commands=lambda: import_module(f"{package}.commands").COMMANDS,
        **more,
    )  # fmt: skip


def alone(module: dict[str, Any], plugin: Plugin[Any, T], **names: Callable[[T], Any]) -> Callable[[str], Any]:
    """The `__getattr__` of a package: it makes `app`, which has nothing but this plug-in on it, and `names` of that.

    They are made when someone first asks, as `duly worker duly.apps.catalog:app` does, and kept among the names of the
    module, where other processes find them too.
    """

    def attribute(name: str) -> Any:
        if name != "app" and name not in names:
            raise AttributeError(f"module {module['__name__']!r} has no attribute {name!r}")
        app = app_with(plugin)
        made = plugin.of(app)
        module.update(app=app, **{each: pick(made) for each, pick in names.items()})
        return module[name]

    return attribute


def app_with(*plugins: Plugin[Any, Any]) -> Duly:
    """An app with these plug-ins on it, which reads their aliases for settings of the core."""
    with aliased(plugins):
        app = Duly()
    for plugin in plugins:
        plugin.on(app)
    return app
