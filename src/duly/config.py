"""Every setting: its name, default, alias and meaning. Nothing else in the package reads the environment.

A value comes from, in this order: the command line, an argument in code, `DULY_<NAME>` in the environment, the alias in
the environment, `duly.toml` in the working directory (or the file that DULY_CONFIG names), the default.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from duly.errors import ConfigError

# What the command line said, as JSON: in the environment, so that a worker's child processes see the same.
COMMAND_LINE = "DULY_COMMAND_LINE"


def _setting(default: Any, doc: str, alias: str | None = None, secret: bool = False, least: float | None = None) -> Any:
    return field(default=default, metadata={"doc": doc, "alias": alias, "secret": secret, "least": least})


@dataclass(frozen=True, kw_only=True)
class Settings:
    database_url: str = _setting(
        "sqlite:///duly.db", "Where due work is kept: sqlite:///file.db or postgresql://user@host/name.", secret=True
    )
    concurrency: int = _setting(
        10,
        "Items of each kind (async, thread) that a worker runs at once; one of several queues leaves a quarter free.",
        "SCHEDULER_BATCH_SIZE",
        least=1,
    )
    cpu_slots: int = _setting(
        os.cpu_count() or 1, "Processes that a worker keeps for cpu=True tasks; default: one per core.", least=1
    )
    claim_most: int = _setting(1_000, "The largest number of items taken in one claim.", least=1)
    poll_seconds: float = _setting(
        60.0,
        "The longest sleep of an idle claimer. It wakes at due times and for new work anyway; this is the safety net.",
        "SCHEDULER_POLL_INTERVAL_SECONDS",
        least=0.01,
    )
    sweep_seconds: float = _setting(
        5.0,
        "How often each worker looks for due work that nobody announced and for dead leases; "
        "for those at least every 0.4 leases.",
        least=0.05,
    )
    lease_seconds: float = _setting(
        20.0, "How long a claim holds without a heartbeat; the same for all workers of a database.", least=0.5
    )
    beat_seconds: float = _setting(5.0, "How often leases are prolonged.", least=0.05)
    deadline_seconds: float = _setting(
        1_800.0, "Hard deadline of a try, for tasks that set none: a handler that hangs is stopped then.", least=0.01
    )
    drain_seconds: float = _setting(
        30.0, "How long a stopping worker waits for running handlers before it gives their attempts back.", least=0
    )
    crash_limit: int = _setting(3, "Crashes after which an item goes to review.", least=1)
    retry_tries: int = _setting(3, "Tries in all, for tasks that set no retry policy.", "RETRY_MAX_ATTEMPTS", least=1)
    retry_base_seconds: float = _setting(
        60.0, "First delay of the doubling backoff, for tasks that set no retry policy.", "RETRY_BASE_DELAY_SECONDS",
        least=0,
    )  # fmt: skip
    late_seconds: float = _setting(3_600.0, "Lateness from which a start is logged as a recovery.", least=0)
    alert_late_seconds: float = _setting(300.0, "How late a due item is before it counts for an alert.", least=1)
    alert_late_items: int = _setting(10, "An alert is raised when more items than this are late.", least=0)
    alert_oldest_seconds: float = _setting(
        3_600.0, "An alert is raised when the oldest due item is older than this; 0: never.", least=0
    )
    alert_silence_seconds: float = _setting(
        300.0, "An alert is raised when no worker has given a sign of life for longer than this.", least=60
    )
    alert_webhook_url: str = _setting("", "Where alerts are posted as JSON; nowhere when empty.", "ALERT_WEBHOOK_URL")
    keep_seconds: float = _setting(
        7 * 86_400.0, "How long done and cancelled items are kept; 0 keeps them for ever. Review is never pruned.",
        least=0,
    )  # fmt: skip
    audit_keep_seconds: float = _setting(
        365 * 86_400.0, "How long lines of the audit log are kept; 0 keeps them for ever.", least=0
    )
    max_args_bytes: int = _setting(
        1_048_576, "The largest arguments of one item, as JSON text; also at most 100 levels deep.", least=2
    )
    max_result_bytes: int = _setting(
        1_048_576, "The largest result of one item, as JSON text; also at most 100 levels deep.", least=2
    )
    pool_size: int = _setting(10, "PostgreSQL connections that one process keeps for its puts and reads.", least=1)
    store_timeout_seconds: float = _setting(
        30.0, "How long a call waits for a busy or absent database, and a statement for its answer.", least=0.1
    )
    listen: bool = _setting(
        True,
        "Use LISTEN on PostgreSQL to wake at once; behind a transaction pooler turn it off, and sweeps find new work.",
    )
    masked: str = _setting(
        "password,secret,token,authorization,api_key,apikey",
        "Parts of names, comma-separated: values of arguments and results under such names are masked in lists.",
    )
    http_host: str = _setting("127.0.0.1", "Address of the service, or of a worker's /metrics, /healthz and /readyz.")
    http_port: int = _setting(8086, "Its port; 0 turns it off.", least=0)
    outbound_allow: str = _setting(
        "", "What the http task may call beside public addresses: networks, addresses and host names, by commas."
    )
    signing_secret: str = _setting("", "The key of Duly-Signature on what the http task sends.", secret=True)
    log_level: str = _setting("INFO", "DEBUG, INFO, WARNING or ERROR.")
    log_format: str = _setting("auto", "json, text, or auto: text on a terminal, JSON elsewhere.")
    vapi_base_url: str = _setting("https://api.vapi.ai", "Where the reminders app places its calls.", "VAPI_BASE_URL")
    vapi_api_key: str = _setting("", "The reminders app's key for it.", "VAPI_API_KEY", secret=True)
    vapi_assistant_id: str = _setting("", "The assistant that speaks.", "VAPI_ASSISTANT_ID")
    vapi_phone_number_id: str = _setting("", "The number that calls.", "VAPI_PHONE_NUMBER_ID")
    vapi_timeout_seconds: float = _setting(30.0, "How long a call request may take.", least=0.01)
    birthdays_webhook_url: str = _setting("", "Where the birthdays app sends its messages.", "WEBHOOK_URL")
    birthdays_timeout_seconds: float = _setting(30.0, "How long the webhook may take.", least=0.01)
    birthdays_at: str = _setting("09:00", "When, by the clock of the person's zone.")
    catalog_base_url: str = _setting("http://127.0.0.1:8087", "Where the catalog app asks for products.")
    catalog_api_key: str = _setting("", "The catalog app's key for it.", secret=True)
    catalog_timeout_seconds: float = _setting(30.0, "How long an answer may take.", least=0.01)
    catalog_hour_buckets: int = _setting(24, "Even slots of a day.", least=1)
    catalog_retry_windows: str = _setting("30 2-22/4 * * *", "When failed products are tried again, as a cron in UTC.")
    catalog_retry_limit: int = _setting(50, "How many of them at most in one window.", least=1)
    catalog_max_consecutive_failures: int = _setting(
        5, "Failures in a row after which a product is deactivated.", least=1
    )
    catalog_stuck_threshold_seconds: float = _setting(1_800.0, "How long a sync may hang.", least=0.01)
    catalog_batch_size: int = _setting(10, "SKUs that one call may ask for.", least=1)
    catalog_calls_per_minute: int = _setting(2, "Calls in any minute, over all workers.", least=1)

    service_name: str = _setting("retry-scheduler", "How the retry service calls itself at the broker.", "SERVICE_NAME")
    rabbitmq_url: str = _setting(
        "amqp://localhost:5672", "The broker of the retry service.", "RABBITMQ_URL", secret=True
    )
    retry_queue: str = _setting("retry.scheduled", "The queue that it consumes.", "RETRY_QUEUE")
    manual_review_queue: str = _setting(
        "manual-review.pending", "Where messages go that nobody but a person can help.", "MANUAL_REVIEW_QUEUE"
    )
    message_max_retries: int = _setting(
        3, "Retries of a message that does not say how many it may have.", "DEFAULT_MAX_RETRIES", least=0
    )
    message_base_delay_ms: int = _setting(2_000, "Delay of a first retry; it doubles.", "BASE_DELAY_MS", least=0)
    message_max_delay_ms: int = _setting(60_000, "The longest delay of a retry.", "MAX_DELAY_MS", least=0)
    message_descriptors: str = _setting("", "A file with a protobuf FileDescriptorSet, to show what messages hold.")
    message_types: str = _setting(
        "", "Which of its types a queue holds, such as orders=shop.Order,*=shop.Event; several by commas."
    )
    message_max_bytes: int = _setting(
        1_048_576, "The largest message that is kept; a larger one goes to manual review at once, whole.", least=1
    )
    message_prefetch: int = _setting(
        500, "Messages that the broker sends ahead of their acknowledgement; fewer where they are large.", least=1
    )

    def __post_init__(self) -> None:
        if self.beat_seconds * 2 > self.lease_seconds:
            raise ConfigError("beat_seconds: must be at most half of lease_seconds, or leases end between heartbeats")
        if self.log_level.upper() not in ("DEBUG", "INFO", "WARNING", "ERROR"):
            raise ConfigError(f"log_level: {self.log_level!r} is none of DEBUG, INFO, WARNING, ERROR")
        if self.log_format not in ("json", "text", "auto"):
            raise ConfigError(f"log_format: {self.log_format!r} is none of json, text, auto")
        for each in fields(self):
            least = each.metadata["least"]
            if least is not None and not getattr(self, each.name) >= least:
                raise ConfigError(f"{each.name}: must be at least {least}, got {getattr(self, each.name)}")

    def shown(self) -> dict[str, Any]:
        """All values with secrets masked, for people and logs."""
        return {each.name: _masked(each, getattr(self, each.name)) for each in fields(self)}


def load(env: Mapping[str, str] | None = None, **given: Any) -> Settings:
    """The settings in force; arguments that are None count as not given."""
    env = os.environ if env is None else env
    values = {name: value for name, (value, _) in _found(env).items()}
    values.update({name: value for name, value in given.items() if value is not None})
    values.update(_imposed(env))
    return Settings(**values)


def sources(env: Mapping[str, str] | None = None) -> dict[str, str]:
    """Where each value comes from that is not a default: the name of a variable, a file, or the command line."""
    env = os.environ if env is None else env
    named = {name: source for name, (_, source) in _found(env).items()}
    return {**named, **dict.fromkeys(_imposed(env), "command line")}


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


def _found(env: Mapping[str, str]) -> dict[str, tuple[Any, str]]:
    """Values from the file and the environment, each with where it was found."""
    path = Path(env.get("DULY_CONFIG") or "duly.toml")
    found = {name: (value, str(path)) for name, value in _from_file(path, env).items()}
    for each in fields(Settings):
        for name in (each.metadata["alias"], f"DULY_{each.name.upper()}"):
            if name and env.get(name):
                found[each.name] = (_parsed(each, env[name], name), name)
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
    known = {each.name: each for each in fields(Settings)}
    for name in table:
        if name not in known:
            raise ConfigError(f"{path}: {name!r} is not a setting; known are {', '.join(sorted(known))}")
    return {name: _parsed(known[name], str(value), f"{path}: {name}") for name, value in table.items()}


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


def _masked(each: Field[Any], value: Any) -> Any:
    if not each.metadata["secret"] or not value:
        return value
    return without_password(value) if "://" in value else "***"


def without_password(url: str) -> str:
    parts = urlsplit(url)
    if parts.password is None:
        return url
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{parts.username or ''}:***@{host}"))
