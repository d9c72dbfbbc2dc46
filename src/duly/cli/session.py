"""What a command gets: the database or the service that it works on, and how it prints what it found.

A command is written once, as a function whose first argument is a `Session`:

    @click.command()
    @click.argument("job_id", type=options.ID)
    @printing
    def show(session: Session, job_id: int) -> None:
        job = session.api.job(job_id)
        session.print_one(job, f"job {job.id}: {job.queue_state}")
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

import click

from duly import Duly
from duly.cli import options, words
from duly.facade.loading import load_app

if TYPE_CHECKING:
    from duly.client import Client
    from duly.facade.local import Local

T = TypeVar("T")
Command: TypeAlias = Callable[..., None]

BUILT_IN = "duly.apps.builtin:app"


@dataclass(kw_only=True)
class Session:
    """One call of a command. The database or the service is opened when it is first needed.

    On a database, `with_tasks` needs an app that has its tasks, `with_types` one that has types of jobs (the installed
    apps if none is named), and `makes` allows the database to be created.
    """

    spec: str | None = None
    as_json: bool = False
    in_utc: bool = False
    with_tasks: bool = False
    with_types: bool = False
    makes: bool = False

    @cached_property
    def api(self) -> Client:
        """The service, or the database behind the same methods."""
        context = click.get_current_context()
        if (client := options.remote()) is not None:
            return context.with_resource(client)
        from duly.facade.local import Local

        return cast("Client", Local(context.with_resource(self._opened()), options.who()))

    def _opened(self) -> AbstractContextManager[Duly]:
        if not self.with_tasks and not self.with_types:
            return options.opened(self.makes)
        app = load_app((self.spec or BUILT_IN) if self.with_types else options.app_spec(self.spec))
        if self.with_types and not app.internals.job_types:
            options.app_spec(self.spec)  # no installed app has types of jobs, so one has to be named
        return closing(app)

    def either(self, local: Callable[[Duly], T], remote: Callable[[Client], T]) -> T:
        """For commands of apps: what is done on a database, or asked of a service."""
        local_api = cast("Local | Client", self.api)
        return local(local_api.app) if hasattr(local_api, "app") else remote(local_api)

    @cached_property
    def now(self) -> datetime:
        """The current time by the clock of the database, if there is one here."""
        return self.either(lambda app: app.clock.now(), lambda _: datetime.now(UTC))

    # -- printing

    def short(self, time: datetime | None) -> str:
        """A time for tables."""
        return "" if time is None else words.short(time, self.now, self.in_utc)

    def full(self, time: datetime | None) -> str:
        return words.full(time, self.now, self.in_utc)

    def relative(self, time: datetime | None) -> str:
        return "" if time is None else words.relative(time, self.now)

    def print_one(self, value: Any, text: str | list[str] | Callable[[], None]) -> None:
        """Print one value: as JSON, or as this text or these lines, or by calling a function that prints it."""
        if self.as_json:
            words.print_json(value)
        elif callable(text):
            text()
        else:
            click.echo(text if isinstance(text, str) else "\n".join(text))

    def is_printed(self, found: Sequence[Any], nothing: str) -> bool:
        """Print a list as JSON, or the sentence for an empty one; False if there are rows to be shown."""
        if self.as_json:
            words.print_json(found)
        elif not found:
            click.echo(nothing)
        return self.as_json or not found

    def print_lines(self, found: Sequence[T], nothing: str, line: Callable[[T], str]) -> None:
        """Print a list: as JSON, or in a line for each."""
        if not self.is_printed(found, nothing):
            for each in found:
                click.echo(line(each))

    def print_table(
        self, found: Sequence[T], nothing: str, titles: Sequence[str], row: Callable[[T], Sequence[Any]], **more: Any
    ) -> None:
        """Print a list: as JSON, or as a table with these titles; see `words.table`."""
        if not self.is_printed(found, nothing):
            words.console().print(words.table(*titles, rows=map(row, found), **more))


def session(*flags: Callable[[Command], Command], **needs: bool) -> Callable[[Command], Command]:
    """Give a command its `Session`, with the options for the database or service, and these flags.

    A command that needs an app with tasks or types of jobs has the option --app too.
    """

    def made(command: Command) -> Command:
        @wraps(command)
        def run(*, as_json: bool = False, in_utc: bool = False, spec: str | None = None, **given: Any) -> None:
            command(Session(spec=spec, as_json=as_json, in_utc=in_utc, **needs), **given)

        names_app = [options.app] if {"with_tasks", "with_types"} & needs.keys() else []
        return options.together(*names_app, options.side, *flags)(run)

    return made


acting = session()
printing = session(options.as_json)
printing_times = session(options.as_json, options.in_utc)
