"""Where the values of settings come from: the core's own and those of the apps. Nothing else reads the environment.

A value comes from, in this order: the command line, an argument in code, `DULY_<NAME>` in the environment, an alias in
the environment, `duly.toml` in the working directory (or the file that DULY_CONFIG names), the default.

The core has no aliases. An app may name variables without DULY_ for its own settings, and for settings of the core;
those for the core count inside `aliased` only, which is how apps of duly are run by themselves.
"""

from __future__ import annotations

import json
import logging
import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import Field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

from duly.core.errors import ConfigError
from duly.core.section import Section
from duly.core.settings import JobSettings, Settings
from duly.plugins import Plugin, installed, plugins

# The options of the command line, as JSON: in the environment, so that a worker's child processes see the same.
COMMAND_LINE = "DULY_COMMAND_LINE"
# Variables that are not settings: where the settings are, and those behind options of the command line.
_OTHERS = frozenset((COMMAND_LINE, "DULY_CONFIG", "DULY_APP", "DULY_URL", "DULY_API_KEY"))
# Variables that Kubernetes sets in every pod for services called `duly` or `duly-service`, and those of tests.
_FOREIGN = ("DULY_SERVICE_", "DULY_PORT", "DULY_TEST_")
_REPORTED: set[str] = set()  # the unknown variables that were reported in this process
# Variables that count for settings of the core here, each with the name of its setting.
_ALIASES: ContextVar[Mapping[str, str]] = ContextVar("aliases")

log = logging.getLogger("duly.config")


S = TypeVar("S", bound=Section)


def load(env: Mapping[str, str] | None = None, **given: Any) -> Settings:
    """The core's settings in force; arguments that are None count as not given."""
    for name, near in unknown_variables(os.environ if env is None else env):
        if name not in _REPORTED:
            _REPORTED.add(name)
            log.warning("%s is not a setting and has no effect%s", name, f"; did you mean {near}?" if near else "")
    return section(Settings, given, env)


def unknown_variables(env: Mapping[str, str]) -> list[tuple[str, str | None]]:
    """Variables that look like settings and are none, each with the most similar name, if one is similar."""
    strange = [name for name in env if name.startswith("DULY_") and not name.startswith(_FOREIGN)]
    strange = [name for name in strange if name not in _OTHERS and name[5:].lower() not in Settings.known()]
    if not strange:  # the usual case, for which no app is loaded
        return []
    if installed().broken:  # the settings of that app are not known; the error is raised when it runs
        return []
    known = {*_OTHERS, *(f"DULY_{name.upper()}" for kind in sections() for name in kind.known())}
    return [(name, next(iter(get_close_matches(name, known, 1)), None)) for name in strange if name not in known]


def section(kind: type[S], given: Mapping[str, Any] | None = None, env: Mapping[str, str] | None = None) -> S:
    """The settings of this kind that are in force. Values for other kinds, and None, count as not given."""
    env = os.environ if env is None else env
    fields = kind.known()
    values = {name: _parsed(fields[name], text, label) for name, text, label, _ in _texts(kind, env)}
    arguments = {name: value for name, value in (given or {}).items() if value is not None}
    values.update(arguments)
    values.update(_imposed(env))
    try:
        return kind(**{each.name: values[name] for name, each in fields.items() if name in values})
    except ConfigError as error:
        name, _, problem = str(error).partition(": ")
        where = {**sources(env, kind), **dict.fromkeys(arguments, ""), **dict.fromkeys(_imposed(env), "command line")}
        raise ConfigError(f"{_written(name, where.get(name, ''))}: {problem}") from None


def _written(name: str, source: str) -> str:
    """A setting as it was written: its variable, or its name and the place of that."""
    is_variable = source.isupper()
    return source if is_variable else f"{source}: {name}" if source else name


def sections() -> list[type[Section]]:
    """The core's settings, those of jobs, and those of all apps that are installed."""
    return [Settings, JobSettings, *(plugin.settings for plugin in plugins().values())]


def check_names(names: Iterable[str], source: str) -> None:
    """Reject a name that is not a setting of the core or of an installed app."""
    strange = [name for name in names if name not in Settings.known()]
    if not strange:
        return
    known = {name for kind in sections() for name in kind.known()}
    for name in strange:
        if name not in known:
            near = "".join(f"; did you mean {each}?" for each in get_close_matches(name, known, 1))
            if not near and installed().broken:  # it may be a setting of an app that cannot be loaded
                continue
            raise ConfigError(f"{source}: {name!r} is not a setting{near or '; `duly settings` lists all of them'}")


def sources(env: Mapping[str, str] | None = None, kind: type[Section] = Settings) -> dict[str, str]:
    """Where each value comes from that is not a default: the name of a variable, a file, or the command line."""
    env = os.environ if env is None else env
    # Not parsed, because an app that is off may have values that are wrong.
    named = {name: source for name, _, _, source in _texts(kind, env)}
    return {**named, **{name: "command line" for name in _imposed(env) if name in kind.known()}}


@contextmanager
def aliased(plugins: Iterable[Plugin[Any, Any]]) -> Iterator[None]:
    """Until the end of the block, let the aliases that these plug-ins have for settings of the core count."""
    token = _ALIASES.set({variable: name for plugin in plugins for variable, name in plugin.aliases.items()})
    try:
        yield
    finally:
        _ALIASES.reset(token)


@contextmanager
def imposed(**options: Any) -> Iterator[None]:
    """Let these values take precedence until the end of the block, here and in child processes; None is no value."""
    before = os.environ.get(COMMAND_LINE)
    values = {**_imposed(os.environ), **{name: value for name, value in options.items() if value is not None}}
    os.environ[COMMAND_LINE] = json.dumps(values)
    try:
        yield
    finally:
        if before is None:
            del os.environ[COMMAND_LINE]
        else:
            os.environ[COMMAND_LINE] = before


def _imposed(env: Mapping[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(env.get(COMMAND_LINE) or "{}")
    return values


def _texts(kind: type[Section], env: Mapping[str, str]) -> Iterator[tuple[str, str, str, str]]:
    """Settings in the file and the environment, the strongest last: name, text, how errors call it, source."""
    path = Path(env.get("DULY_CONFIG") or "duly.toml")
    table = _from_file(path, env)
    for name, each in kind.known().items():
        if name in table:
            yield name, str(table[name]), f"{path}: {name}", str(path)
        aliases = [variable for variable, target in _ALIASES.get({}).items() if target == name]
        for variable in (*aliases, each.metadata["alias"], f"DULY_{name.upper()}"):
            if variable and env.get(variable):
                yield name, env[variable], variable, variable


def _from_file(path: Path, env: Mapping[str, str]) -> dict[str, Any]:
    if not path.exists():
        if env.get("DULY_CONFIG"):
            raise ConfigError(f"DULY_CONFIG: there is no file {path}")
        return {}
    try:
        table = tomllib.loads(path.read_text(encoding="utf8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from error
    check_names(table, str(path))
    return table


def _parsed(each: Field[Any], text: str, source: str) -> Any:
    kind: type[Any] = type(each.default)
    if kind is bool:
        if text.lower() in ("1", "true", "yes", "on"):
            return True
        if text.lower() in ("0", "false", "no", "off"):
            return False
        raise ConfigError(f"{source}: must be true or false, got {text!r}")
    try:
        return kind(text)
    except ValueError:
        noun = {"int": "a whole number", "float": "a number"}[kind.__name__]
        raise ConfigError(f"{source}: must be {noun}, got {text!r}") from None
