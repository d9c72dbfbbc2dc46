"""A plug-in: an app as one value, which has everything that the rest of duly has to know about it.

    plugin = Plugin(name="sms", doc="…", settings=Settings, install=install, router=router, …)

A package announces its plug-in in the entry-point group `duly.apps`, as duly's own apps do. The setting `apps` chooses
which of them `duly up` and `duly serve` run, and `plugin.on(app)` puts one on an app of your own. Nothing outside a
plug-in's package knows its name. docs/apps.md builds one from nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar

from msgspec import Struct

from duly.core.errors import ConfigError, DoesNotExist
from duly.core.section import Section
from duly.core.settings import JobSettings, Settings
from duly.core.shown import NewAlert, Scope

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    import click
    from fastapi import APIRouter
    from prometheus_client.registry import Collector, CollectorRegistry

    from duly.bulk.sources import FileSource

GROUP = "duly.apps"

K = TypeVar("K", bound=Section)  # any settings
S = TypeVar("S", bound=Section)  # the plug-in's own settings
T = TypeVar("T")  # what it is on an app: the object that its routes, its commands and other code work with


class Finding(Struct, frozen=True):
    """A finding of `duly doctor`."""

    level: Literal["ok", "warn", "bad"]  # bad: it keeps work from being done or kept; warn: it may surprise
    subject: str
    text: str
    advice: str = ""


class Host(Protocol):
    """What a plug-in is installed on, as far as it has to be known here: a `Duly` app."""

    @property
    def internals(self) -> Any: ...

    @property
    def registry(self) -> CollectorRegistry: ...

    def section(self, kind: type[K]) -> K: ...


@dataclass(frozen=True, kw_only=True)
class Screen:
    """A screen that a plug-in adds to the dashboard."""

    path: str  # the first part of its address, such as `sms`; addresses below it are its own too
    title: str  # what the navigation calls it
    script: str  # an ES module in the plug-in's static files, whose default export is a component
    scope: Scope = "read"  # who may use it


@dataclass(frozen=True, kw_only=True)
class Panel:
    """A panel that a plug-in adds to the page of jobs of its tasks."""

    title: str  # its heading
    script: str  # an ES module in the plug-in's static files, whose default export is a component; it gets `job`
    tasks: tuple[str, ...]  # the tasks whose jobs have it


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """A whole number that a simulation takes: an option of `duly simulate`, and a field of the Simulate screen."""

    name: str  # `products` is the option --products
    label: str  # what the field is called
    default: int  # the option's default
    most: int = 10_000  # the largest value on the screen, where a simulation may take 25 seconds
    shown: int = 1_000  # what the field is set to at first


@dataclass(frozen=True, kw_only=True)
class Simulated(Generic[T]):
    """How `duly simulate NAME` and the Simulate screen fill a virtual world for a plug-in."""

    parameters: tuple[Parameter, ...]
    fill: Callable[..., None]  # called with the installed object, a `Simulation`, and the parameters by their names
    late_after: float = 60.0  # seconds after its time from which an item counts as late


@dataclass(frozen=True, kw_only=True, eq=False)
class Plugin(Generic[S, T]):
    """An app that others can install, with everything that it adds.

    The functions import what they need when they are called: a plug-in must be cheap to load, for the command line
    loads all of them to know their commands, and what they need may not be installed (a web server, a broker's client).
    """

    # What people write in `apps`.
    name: str
    # One sentence about what it is for.
    doc: str
    # Its settings: a subclass of `Section`, whose names begin with a prefix of its own.
    settings: type[S]
    # Registers its tasks on a `Duly` app, and returns the object that the rest of the plug-in works with.
    install: Callable[[Any, S], T]
    # Its HTTP routes: a FastAPI router. `serving(plugin)` gives a route the installed object.
    router: Callable[[], APIRouter] | None = None
    # Its commands, which become commands of `duly`.
    commands: Callable[[], Sequence[click.Command]] = tuple
    # Its metrics: collectors for the registry of the app that it was installed on.
    metrics: Callable[[T], Iterable[Collector]] = lambda _: ()
    # What `duly doctor` finds: it is given the settings, and how many items wait in each queue.
    checks: Callable[[S, Mapping[str, int]], Iterable[Finding]] = lambda _, __: ()
    # Its tables and views: a folder with the folders `sqlite` and `postgres`, which have files 0001_name.sql, 0002_….
    migrations: Path | None = None
    # Sources of files for jobs, each with its own scheme. It receives the settings.
    sources: Callable[[S], Iterable[FileSource]] = lambda _: ()
    # Finds the alerts that have a reason now. Every worker calls it every 30 seconds, with the installed object. Alerts
    # are reported, repeated and cleared as the core's own are. Their names begin with that of the plug-in: `sms.idle`.
    alerts: Callable[[T], Iterable[NewAlert]] | None = None
    # How it is simulated: `duly simulate NAME`, and the Simulate screen.
    simulation: Simulated[T] | None = None
    # Its screens on the dashboard, and its panels on the pages of jobs.
    screens: tuple[Screen, ...] = ()
    panels: tuple[Panel, ...] = ()
    # The folder with its static files: the modules of its screens, and what they load.
    static: Path | None = None
    # What to install where something that it imports is missing, such as duly[rabbitmq].
    needs: str = ""
    # Environment variables without DULY_ that set settings of the core where this app is run by `duly up`, or by
    # itself: each with the name of its setting.
    aliases: Mapping[str, str] = field(default_factory=dict)
    # Whether it is on where the setting `apps` names none.
    is_default: Callable[[], bool] = lambda: True

    def on(self, duly: Host) -> T:
        """Install it on this app, with the settings in force."""
        return self.adopt(duly, lambda: self.install(duly, duly.section(self.settings)))

    def adopt(self, duly: Host, install: Callable[[], T]) -> T:
        """Install it on this app with this function, for the service and its metrics too."""
        inside = duly.internals
        if self.name in inside.plugins:
            raise ConfigError(f"apps: {self.name} is installed on this app already")
        self.check()
        with inside.owned_by(self.name):
            made = install()
        for collector in self.metrics(made):
            for metric in getattr(collector, "describe", tuple)():
                claim(inside.owners, self.name, "metric", metric.name)
            duly.registry.register(collector)
        for source in self.sources(duly.section(self.settings)):
            claim(inside.owners, self.name, "source of files", source.scheme)
            inside.sources.append(source)
        inside.plugins[self.name] = self
        inside.apps[self.name] = made
        inside.database.migrate_embedded()
        return made

    def check(self) -> None:
        """Refuse a plug-in whose folders are not there."""
        scripts = [*(each.script for each in self.screens), *(each.script for each in self.panels)]
        if scripts and self.static is None:
            raise ConfigError(f"apps: {self.name} has screens or panels: set `static` to the folder of their modules")
        needed = [self.migrations, self.static, *(self.static / each for each in scripts if self.static)]
        for path in needed:
            if path is not None and not path.exists():
                raise ConfigError(
                    f"apps: {self.name} has no {path}: create it; if its source has it, build the package with a "
                    "backend that packs more than modules, such as hatchling, and install it again"
                )

    def of(self, duly: Host) -> T:
        """What it is on this app."""
        if duly.internals.plugins.get(self.name) is not self:
            raise DoesNotExist(f"this service does not have {self.name}")
        made: T = duly.internals.apps[self.name]
        return made


def query(
    duly: Host, sql: str, parameters: Mapping[str, Any] | None = None, connection: Any = None
) -> list[tuple[Any, ...]]:
    """Run a statement on the tables of a plug-in, and return its rows.

    Parameters are written `:name`, on both databases. With the connection of an attempt, the statement is a part of
    the transaction that settles the item; without one it is a transaction of its own.
    """
    rows: list[tuple[Any, ...]] = duly.internals.store.query(sql, parameters or {}, connection)
    return rows


def claim(owners: dict[tuple[str, str], str], owner: str, kind: str, name: str) -> None:
    """Note who brings the thing of this kind and name; ConfigError if another does already."""
    other = owners.setdefault((kind, name), owner)
    if other != owner:
        raise ConfigError(
            f"apps: {other} and {owner} both have the {kind} {name!r}; rename it in one of them, or use only one"
        )


class Installed(Struct):
    """What the installed packages announce."""

    plugins: dict[str, Plugin[Any, Any]]  # by name
    broken: dict[str, str]  # by name, why each of these cannot be used


@cache
def installed() -> Installed:
    """The plug-ins of all installed packages. One that is broken leaves the others alone."""
    from importlib.metadata import entry_points  # slow to import, and most commands do without

    found = Installed({}, {})
    owners = {("setting", name): "duly" for kind in (Settings, JobSettings) for name in kind.known()}
    for entry in entry_points(group=GROUP):
        name = entry.name
        try:
            plugin = _loaded(entry)
            name = plugin.name
            if found.plugins.get(name) is not plugin:  # the same package may be found twice
                _claim_all(owners, plugin, _said(entry))
            found.plugins[name] = plugin
        except ConfigError as error:
            found.broken[name] = str(error)
    return found


def _claim_all(owners: dict[tuple[str, str], str], plugin: Plugin[Any, Any], said: str) -> None:
    """Check a plug-in, and that no other has anything of the same name. The rest is known once it is on an app."""
    claim(owners, said, "name", plugin.name)
    plugin.check()
    for name, each in plugin.settings.known().items():
        claim(owners, said, "setting", name)
        if each.metadata["alias"]:
            claim(owners, said, "environment variable", each.metadata["alias"])
    for screen in plugin.screens:
        claim(owners, said, "screen", screen.path)


def plugins() -> dict[str, Plugin[Any, Any]]:
    """The plug-ins of all installed packages that can be used, by name."""
    return installed().plugins


def simulations() -> dict[str, Simulated[Any]]:
    """How the installed apps that can be simulated are."""
    return {name: plugin.simulation for name, plugin in plugins().items() if plugin.simulation is not None}


def chosen(names: str, lost: dict[str, str] | None = None) -> list[Plugin[Any, Any]]:
    """The plug-ins that the setting `apps` means: those that it names; if none, those that are on by default.

    One of them that is broken is a ConfigError. With `lost` it is left out, and put there with the reason.
    """
    known, broken = installed().plugins, installed().broken
    wanted = list(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))
    for name in wanted or broken:
        if name in broken and lost is None:
            raise ConfigError(f"{broken[name]}; correct or uninstall the package, or leave it out of DULY_APPS")
        if name not in known and name not in broken:
            raise ConfigError(f"apps: there is no app {name!r} here; known: {', '.join(sorted(known)) or 'none'}")
        if lost is not None and name in broken:
            lost[name] = broken[name]
    if wanted:
        return [known[name] for name in wanted if name not in broken]
    return [plugin for name, plugin in known.items() if name not in broken and plugin.is_default()]


def _loaded(entry: EntryPoint) -> Plugin[Any, Any]:
    try:
        plugin = entry.load()
    except Exception as error:  # report any error in a third-party package with the name of that package
        raise ConfigError(f"apps: {_said(entry)} cannot be loaded: {type(error).__name__}: {error}") from error
    if not isinstance(plugin, Plugin):
        raise ConfigError(f"apps: {_said(entry)} is not a duly.plugin.Plugin")
    return plugin


def _said(entry: EntryPoint) -> str:
    package = f" of the package {entry.dist.name}" if entry.dist is not None else ""
    return f"{entry.value}{package}"
