"""Options that many commands share, and the app that a command works on."""

from __future__ import annotations

import getpass
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from functools import reduce, wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click

from duly import Duly
from duly.config import imposed, sources
from duly.core.errors import ConfigError, InputError
from duly.core.model import STATES
from duly.tasks.checks import when
from duly.verbs import Principal, local

if TYPE_CHECKING:
    from duly.client import Client

F = TypeVar("F", bound=Callable[..., Any])

# Seconds that a command waits for an unreachable database, unless a setting has another value.
PATIENCE = 10.0

ID = click.IntRange(0, 2**63 - 1)
DATES = ("created", "due", "started", "finished")


def _impose(ctx: click.Context, option: click.Parameter, value: Any) -> None:
    ctx.with_resource(imposed(**{str(option.name): value}))


def setting(flag: str, doc: str, **more: Any) -> Callable[[F], F]:
    """An option that overrides the setting of its name; the command itself is not given it."""
    return click.option(flag, help=doc, callback=_impose, expose_value=False, **more)


database_url = setting("--database-url", "The database, in place of DULY_DATABASE_URL.", metavar="URL")
log_level = setting("--log-level", "DEBUG, INFO, WARNING or ERROR.", metavar="LEVEL")
log_format = setting("--log-format", "json, text, or auto: text on a terminal.", metavar="FORM")
http_port = setting("--http-port", "Where /metrics, /healthz and /readyz listen; 0: nowhere.", type=int, metavar="N")
http_host = setting("--http-host", "The address that the service listens on.", metavar="HOST")
service_port = setting("--http-port", "The port of the service; 0: none.", type=int, metavar="N")
concurrency = setting("--concurrency", "Items of each kind to run at once.", type=int, metavar="N")

as_json = click.option("--json", "as_json", is_flag=True, help="JSON on standard output, and nothing else.")
in_utc = click.option("--utc", "in_utc", is_flag=True, help="Show times in UTC, not in the local zone.")


def _keep(ctx: click.Context, option: click.Parameter, value: str | None) -> None:
    """An option of a group holds for its commands too, unless they have it themselves; a variable counts least."""
    is_said = ctx.get_parameter_source(str(option.name)) is click.core.ParameterSource.COMMANDLINE
    kept = ctx.meta.setdefault("duly.service", {})
    if value and (is_said or option.name not in kept):
        kept[option.name] = value
        kept["is_said"] = kept.get("is_said", False) or is_said


def together(*adds: Callable[[Any], Any]) -> Callable[[F], F]:
    """Several options as one decorator. They are shown in this order."""
    return lambda command: reduce(lambda made, add: add(made), reversed(adds), command)


def _service_option(flag: str, variable: str, doc: str) -> Callable[[F], F]:
    metavar = flag[-3:].upper()
    return click.option(flag, help=doc, envvar=variable, callback=_keep, expose_value=False, metavar=metavar)


# Work through a service in place of a database; see `remote`.
service = together(
    _service_option("--url", "DULY_URL", "Work through this service, in place of a database; or DULY_URL."),
    _service_option(
        "--api-key", "DULY_API_KEY", "The key for --url; better in DULY_API_KEY, where no process list shows it."
    ),
)
# Where a command works: `--database-url` names a database, `--url` a service.
side = together(database_url, service)


def listing(short_help: str) -> Callable[[Callable[..., None]], click.Group]:
    """A group of commands that lists something when none of its commands is named."""

    def made(list_all: Callable[..., None]) -> click.Group:
        @click.pass_context
        @wraps(list_all)
        def unless_named(ctx: click.Context, /, **given: Any) -> None:
            if ctx.invoked_subcommand is None:
                list_all(**given)

        return click.group(short_help=short_help, invoke_without_command=True)(unless_named)

    return made


def moment_option(flag: str, name: str, help: str) -> Callable[[F], F]:
    """An option with a time, which the command gets as a datetime."""
    field = flag.removeprefix("--")
    return click.option(flag, name, callback=lambda _, __, text: moment(text, field), metavar="TIME", help=help)


def span_option(flag: str, **more: Any) -> Callable[[F], F]:
    """An option with a length of time, such as 90s or 1h30m, which the command gets in seconds."""
    field = flag.removeprefix("--").replace("-", "_")
    return click.option(flag, callback=lambda _, __, text: span(text, field), metavar="TIME", **more)


# Which items a list or an act on many items means.
item_filter = together(
    click.option(
        "--state",
        "states",
        type=click.Choice(STATES),
        multiple=True,
        callback=lambda _, __, given: given or None,
        help="failed: in review. Repeatable.",
    ),
    click.option("--task"),
    click.option("--queue"),
    click.option("--key"),
    click.option("--error", metavar="TEXT", help="A part of the last error, in upper or lower case."),
    click.option("--error-group", "--group", metavar="ID", help="Items of this group of `duly review`."),
    click.option("--schedule", "schedule_id", type=ID, metavar="ID", help="Items of this schedule."),
    click.option("--job", "job_id", type=ID, metavar="ID", help="Rows of this job."),
    click.option("--min-tries", type=click.IntRange(1), metavar="N", help="Tried at least N times."),
    click.option("--date", "date_field", type=click.Choice(DATES), help="Which time --from and --to mean."),
    moment_option("--from", "since", help="At or after this time, such as 2026-12-01T09:00+01:00."),
    moment_option("--to", "until", help="Before this time."),
    click.option("--where", multiple=True, metavar="NAME=VALUE", help="Argument, or result.NAME=VALUE. Repeatable."),
)


def given_any(fields: Mapping[str, Any], command: str) -> dict[str, Any]:
    """The fields that a command is to change. It is rejected if it was given none."""
    given = {name: value for name, value in fields.items() if value is not None}
    if not given:
        *flags, last = (f"--{name.replace('_', '-')}" for name in fields)
        raise InputError(command, f"nothing to change; give {', '.join(flags)} or {last}")
    return given


def most(ceiling: int = 1_000, default: int = 20) -> Callable[[F], F]:
    """`--limit`: how many a list shows."""
    return click.option("--limit", "most", type=click.IntRange(1, ceiling), default=default, show_default=True)


def remote() -> Client | None:
    """The service that the command works through; None: a database. A database on the command line beats a variable."""
    from duly.client import Client

    kept = click.get_current_context().meta.get("duly.service", {})
    if "url" not in kept:
        return None
    if sources().get("database_url") == "command line":
        if kept["is_said"]:
            raise ConfigError("url: either --url or --database-url, not both")
        return None
    return Client(kept["url"], kept.get("api_key"))


at = click.option("--at", metavar="TIME", help="When, such as 2026-12-01T09:00+01:00.")
delay = span_option("--delay", help="How long from now: seconds, or such as 90s, 5m, 1h30m, 2d.")
rank = click.option("--rank", type=int, metavar="N", help="From -100, runs first, to 100.")


def arguments(doc: str) -> Callable[[F], F]:
    """The arguments of a task: as pairs, or all of them as JSON."""
    return together(
        click.argument("pairs", nargs=-1, metavar="[NAME=VALUE]..."),
        click.option("--args", "text", metavar="JSON", help=f"{doc}, in place of NAME=VALUE."),
    )


app = click.option(
    "--app", "spec", envvar="DULY_APP", metavar="MODULE:APP", help="The app that has the task; or DULY_APP."
)


def who() -> Principal:
    """Who acts on a database: the user of this machine."""
    with suppress(OSError, KeyError):
        return local(f"cli:{getpass.getuser()}")
    return local("cli")


def app_spec(spec: str | None) -> str:
    if not spec:
        raise ConfigError("app: which app has this task? Use --app MODULE:APP (or file.py:app), or set DULY_APP")
    return spec


@contextmanager
def opened(makes: bool = False) -> Iterator[Duly]:
    """An app without tasks on the database that the settings name, for looking after items.

    Only a command that `makes` a database may find none: the others report that and leave no empty file behind.
    """
    from duly.cli.checkup import knock, missing_file

    quiet()
    app = Duly(store_timeout_seconds=None if "store_timeout_seconds" in sources() else PATIENCE)
    url = app.settings.database_url
    if url.startswith("postgres"):
        knock(url)
    elif not makes and (path := missing_file(url)):
        raise ConfigError(
            f"database_url: there is no database at {path} yet; `duly migrate` or `duly up` creates it, "
            "--database-url or DULY_DATABASE_URL names another"
        )
    with closing(app):
        yield app


def quiet() -> None:
    """Silence log lines of a driver about an unreachable database, because our own error reports it already."""
    logging.getLogger("psycopg").addHandler(logging.NullHandler())
    logging.getLogger("psycopg").propagate = False


def moment(text: str | None, field: str) -> datetime | None:
    """The time that an option gives, such as `--from`."""
    try:
        return None if text is None else when(text, None, lambda: datetime.now(UTC))
    except InputError as error:
        raise InputError(field, error.problem) from None


_PARTS = re.compile(r"(?:(\d+(?:\.\d+)?)d)?(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?")
_SECONDS = (86_400, 3_600, 60, 1)


def span(text: str | None, field: str) -> float | None:
    """The seconds that an option such as `--delay` gives."""
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        match = _PARTS.fullmatch(text.replace(" ", ""))
        if not match or not any(match.groups()):
            raise InputError(field, f"must be seconds or such as 90s, 5m, 1h30m or 2d, got {text!r}") from None
        seconds = sum(float(part or 0) * length for part, length in zip(match.groups(), _SECONDS, strict=True))
    if not 0 <= seconds < 3.2e9:
        raise InputError(field, f"must be a number of seconds that is not negative, got {text!r}")
    return seconds
