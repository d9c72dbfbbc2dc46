"""Settings: the core's own, and how an app declares those of its own. Nothing else reads the environment.

A value comes from, in this order: the command line, an argument in code, `DULY_<NAME>` in the environment, the alias in
the environment, `duly.toml` in the working directory (or the file that DULY_CONFIG names), the default.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import Field, dataclass
from pathlib import Path
from typing import Any, TypeVar

from duly.core.errors import ConfigError
from duly.core.section import Section, setting
from duly.plugin import plugins

# What the command line said, as JSON: in the environment, so that a worker's child processes see the same.
COMMAND_LINE = "DULY_COMMAND_LINE"


S = TypeVar("S", bound=Section)


@dataclass(frozen=True, kw_only=True)
class Settings(Section):
    """The settings of the core."""

    database_url: str = setting(
        "sqlite:///duly.db", "Where due work is kept: sqlite:///file.db or postgresql://user@host/name.", secret=True
    )
    apps: str = setting(
        "",
        "The apps that `duly up` and `duly serve` run when they are given no app of yours, by commas; "
        "empty: all that are installed, but for those that need something which nobody has named.",
    )
    concurrency: int = setting(
        10,
        "Items of each kind (async, thread) that a worker runs at once; one of several queues leaves a quarter free.",
        "SCHEDULER_BATCH_SIZE",
        least=1,
    )
    cpu_slots: int = setting(
        os.cpu_count() or 1, "Processes that a worker keeps for cpu=True tasks; default: one per core.", least=1
    )
    claim_most: int = setting(1_000, "The largest number of items taken in one claim.", least=1)
    poll_seconds: float = setting(
        60.0,
        "The longest sleep of an idle claimer. It wakes at due times and for new work anyway; this is the safety net.",
        "SCHEDULER_POLL_INTERVAL_SECONDS",
        least=0.01,
    )
    sweep_seconds: float = setting(
        5.0,
        "How often each worker looks for due work that nobody announced and for dead leases; "
        "for those at least every 0.4 leases.",
        least=0.05,
    )
    lease_seconds: float = setting(
        20.0, "How long a claim holds without a heartbeat; the same for all workers of a database.", least=0.5
    )
    beat_seconds: float = setting(5.0, "How often leases are prolonged.", least=0.05)
    deadline_seconds: float = setting(
        1_800.0, "Hard deadline of a try, for tasks that set none: a handler that hangs is stopped then.", least=0.01
    )
    drain_seconds: float = setting(
        30.0, "How long a stopping worker waits for running handlers before it gives their attempts back.", least=0
    )
    crash_limit: int = setting(3, "Crashes after which an item goes to review.", least=1)
    retry_tries: int = setting(3, "Tries in all, for tasks that set no retry policy.", "RETRY_MAX_ATTEMPTS", least=1)
    retry_base_seconds: float = setting(
        60.0, "First delay of the doubling backoff, for tasks that set no retry policy.", "RETRY_BASE_DELAY_SECONDS",
        least=0,
    )  # fmt: skip
    late_seconds: float = setting(3_600.0, "Lateness from which a start is logged as a recovery.", least=0)
    alert_late_seconds: float = setting(300.0, "How late a due item is before it counts for an alert.", least=1)
    alert_late_items: int = setting(10, "An alert is raised when more items than this are late.", least=0)
    alert_oldest_seconds: float = setting(
        3_600.0, "An alert is raised when the oldest due item is older than this; 0: never.", least=0
    )
    alert_silence_seconds: float = setting(
        300.0, "An alert is raised when no worker has given a sign of life for longer than this.", least=60
    )
    alert_webhook_url: str = setting("", "Where alerts are posted as JSON; nowhere when empty.", "ALERT_WEBHOOK_URL")
    keep_seconds: float = setting(
        7 * 86_400.0, "How long done and cancelled items are kept; 0 keeps them for ever. Review is never pruned.",
        least=0,
    )  # fmt: skip
    audit_keep_seconds: float = setting(
        365 * 86_400.0, "How long lines of the audit log are kept; 0 keeps them for ever.", least=0
    )
    max_args_bytes: int = setting(
        1_048_576, "The largest arguments of one item, as JSON text; also at most 100 levels deep.", least=2
    )
    max_result_bytes: int = setting(
        1_048_576, "The largest result of one item, as JSON text; also at most 100 levels deep.", least=2
    )
    pool_size: int = setting(10, "PostgreSQL connections that one process keeps for its puts and reads.", least=1)
    store_timeout_seconds: float = setting(
        30.0, "How long a call waits for a busy or absent database, and a statement for its answer.", least=0.1
    )
    listen: bool = setting(
        True,
        "Use LISTEN on PostgreSQL to wake at once; behind a transaction pooler turn it off, and sweeps find new work.",
    )
    masked: str = setting(
        "password,secret,token,authorization,api_key,apikey",
        "Parts of names, comma-separated: values of arguments and results under such names are masked in lists.",
    )
    http_host: str = setting("127.0.0.1", "Address of the service, or of a worker's /metrics, /healthz and /readyz.")
    http_port: int = setting(8086, "Its port; 0 turns it off.", least=0)
    log_level: str = setting("INFO", "DEBUG, INFO, WARNING or ERROR.")
    log_format: str = setting("auto", "json, text, or auto: text on a terminal, JSON elsewhere.")

    def __post_init__(self) -> None:
        if self.beat_seconds * 2 > self.lease_seconds:
            raise ConfigError("beat_seconds: must be at most half of lease_seconds, or leases end between heartbeats")
        if self.log_level.upper() not in ("DEBUG", "INFO", "WARNING", "ERROR"):
            raise ConfigError(f"log_level: {self.log_level!r} is none of DEBUG, INFO, WARNING, ERROR")
        if self.log_format not in ("json", "text", "auto"):
            raise ConfigError(f"log_format: {self.log_format!r} is none of json, text, auto")
        super().__post_init__()


def load(env: Mapping[str, str] | None = None, **given: Any) -> Settings:
    """The core's settings in force; arguments that are None count as not given."""
    return section(Settings, given, env)


def section(kind: type[S], given: Mapping[str, Any] | None = None, env: Mapping[str, str] | None = None) -> S:
    """The settings of this kind that are in force. What is given for other kinds, or is None, counts as not given."""
    env = os.environ if env is None else env
    values = {name: value for name, (value, _) in _found(kind, env).items()}
    values.update({name: value for name, value in (given or {}).items() if value is not None})
    values.update(_imposed(env))
    return kind(**{each.name: values[name] for name, each in kind.known().items() if name in values})


def sections() -> list[type[Section]]:
    """The core's settings, and those of all apps that are installed."""
    found: list[type[Section]] = [Settings]
    for plugin in plugins().values():
        if taken := {name for kind in found for name in kind.known()} & set(plugin.settings.known()):
            raise ConfigError(f"apps: {plugin.name} has a setting {min(taken)!r}, as something else has; use a PREFIX")
        found.append(plugin.settings)
    return found


def check_names(names: Iterable[str], source: str) -> None:
    """Refuse a name that is no setting of the core and of no app."""
    strange = [name for name in names if name not in Settings.known()]
    if not strange:
        return
    known = {name for kind in sections() for name in kind.known()}
    for name in strange:
        if name not in known:
            raise ConfigError(f"{source}: {name!r} is not a setting; known are {', '.join(sorted(known))}")


def sources(env: Mapping[str, str] | None = None, kind: type[Section] = Settings) -> dict[str, str]:
    """Where each value comes from that is not a default: the name of a variable, a file, or the command line."""
    env = os.environ if env is None else env
    named = {name: source for name, (_, source) in _found(kind, env).items()}
    return {**named, **{name: "command line" for name in _imposed(env) if name in kind.known()}}


@contextmanager
def imposed(**said: Any) -> Iterator[None]:
    """Let the command line have the last word until the end of the block, here and in child processes.

    A value of None is nothing said.
    """
    before = os.environ.get(COMMAND_LINE)
    words = {**_imposed(os.environ), **{name: value for name, value in said.items() if value is not None}}
    os.environ[COMMAND_LINE] = json.dumps(words)
    try:
        yield
    finally:
        if before is None:
            del os.environ[COMMAND_LINE]
        else:
            os.environ[COMMAND_LINE] = before


def _imposed(env: Mapping[str, str]) -> dict[str, Any]:
    words: dict[str, Any] = json.loads(env.get(COMMAND_LINE) or "{}")
    return words


def _found(kind: type[Section], env: Mapping[str, str]) -> dict[str, tuple[Any, str]]:
    """Values from the file and the environment, each with where it was found."""
    path = Path(env.get("DULY_CONFIG") or "duly.toml")
    table, found = _from_file(path, env), {}
    for name, each in kind.known().items():
        if name in table:
            found[name] = (_parsed(each, str(table[name]), f"{path}: {name}"), str(path))
        for variable in (each.metadata["alias"], f"DULY_{name.upper()}"):
            if variable and env.get(variable):
                found[name] = (_parsed(each, env[variable], variable), variable)
    return found


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
