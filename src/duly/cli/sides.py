"""Where a command works: on a database (`Local`) or through a service (`Client`), which have the same methods."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from duly.cli import options

if TYPE_CHECKING:
    from duly import Duly
    from duly.cli.local import Local
    from duly.client import Client

    Side: TypeAlias = Client | Local

L = TypeVar("L")
C = TypeVar("C")

BUILT_IN = "duly.apps.builtin:app"


@contextmanager
def side(
    spec: str | None = None, *, with_tasks: bool = False, with_types: bool = False, makes: bool = False
) -> Iterator[Side]:
    """The database or the service that the command line chose.

    On a database, `with_tasks` needs an app that has its tasks, `with_types` one that has types of jobs (the installed
    apps if none is named), and `makes` allows the database to be created.
    """
    client = options.remote()
    if client is not None:
        with client:
            yield client
        return
    from duly.cli.local import Local

    if not with_tasks and not with_types:
        with options.opened(makes) as app:
            yield Local(app)
        return
    from duly.facade.loading import load_app

    app = load_app((spec or BUILT_IN) if with_types else options.app_spec(spec))
    try:
        if with_types and not app.job_types:
            options.app_spec(spec)  # no installed app has types of jobs, so one has to be named
        yield Local(app)
    finally:
        app.close()


@contextmanager
def chosen(local: Callable[[Duly], L], remote: Callable[[Client], C]) -> Iterator[L | C]:
    """For commands of apps: the app's object on a database, or its client of a service, which have the same methods."""
    client = options.remote()
    if client is None:
        with options.opened() as app:
            yield local(app)
    else:
        with client:
            yield remote(client)


def time_of(api: Side) -> datetime:
    """The current time by the clock of the database, if there is one here."""
    app: Duly | None = getattr(api, "app", None)
    return datetime.now(UTC) if app is None else app.clock.now()
