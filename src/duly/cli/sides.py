"""Where a command does its work: on the database itself (`Here`), or through a service that has it (`There`).

Both take and give the same values, so that a command is written once and its output is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from duly.cli import options
from duly.cli.here import Here
from duly.cli.there import There, camel, read_as, snake, translated

if TYPE_CHECKING:
    from duly import Duly
    from duly.client import Client

T = TypeVar("T")

__all__ = ["Here", "There", "camel", "chosen", "read_as", "side", "snake"]


@contextmanager
def side(spec: str | None = None, *, with_tasks: bool = False, makes: bool = False) -> Iterator[Here | There]:
    """The side that the command line chose.

    On a database, `with_tasks` needs an app that has its tasks, and `makes` allows the database to be created.
    """
    client = options.remote()
    if client is not None:
        with client, translating():
            yield There(client)
    elif with_tasks:
        from duly.facade.loading import load_app

        app = load_app(options.app_spec(spec))
        try:
            yield Here(app)
        finally:
            app.close()
    else:
        with options.opened(makes) as app:
            yield Here(app)


@contextmanager
def chosen(here: Callable[[Duly], T], there: Callable[[Client], T]) -> Iterator[T]:
    """For commands of apps: what `here` makes of a database, or `there` of a service, as the command line chose."""
    client = options.remote()
    if client is None:
        with options.opened() as app:
            yield here(app)
    else:
        with client, translating():
            yield there(client)


@contextmanager
def translating() -> Iterator[None]:
    """Raise errors of the service as the errors that the database itself would have raised."""
    from duly.client import ServiceError

    try:
        yield
    except ServiceError as error:
        raise translated(error) from None
