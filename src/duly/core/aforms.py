"""Async forms of methods that use the database: the same call in a thread, while the event loop goes on.

A class writes `acancel = in_thread(cancel)`. The name of the form is that of the method with an `a` in front, and type
checkers see the same parameters and results.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import wraps
from itertools import islice
from typing import Any, Concatenate, ParamSpec, TypeVar

from duly.core.errors import InputError

S = TypeVar("S")
P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])

# Rows that a stream reads at a time.
PORTION = 500


def in_thread(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], Coroutine[Any, Any, R]]:
    """The async form of a method."""

    @wraps(method)
    async def form(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        _refuse_connection(method, kwargs)
        return await asyncio.to_thread(method, self, *args, **kwargs)

    return _named(form, method)


def streamed(method: Callable[Concatenate[S, P], Iterator[R]]) -> Callable[Concatenate[S, P], AsyncIterator[R]]:
    """The async form of a method that returns an iterator: `async for`. It reads some rows at a time."""

    @wraps(method)
    async def form(self: S, /, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[R]:
        rows = await asyncio.to_thread(method, self, *args, **kwargs)
        while portion := await asyncio.to_thread(lambda: list(islice(rows, PORTION))):
            for row in portion:
                yield row

    return _named(form, method)


def _refuse_connection(method: Callable[..., Any], given: dict[str, Any]) -> None:
    """A connection belongs to the thread of its caller, who has a transaction on it."""
    if given.get("connection") is not None:
        name = method.__name__
        raise InputError("connection", f"a{name} has a transaction of its own; on your own connection call {name}")


def _named(form: F, method: Callable[..., Any]) -> F:
    """The form with a name and a docstring of its own."""
    name = method.__name__
    form.__name__ = f"a{name}"
    form.__qualname__ = f"{method.__qualname__.removesuffix(name)}a{name}"
    form.__doc__ = f"`{name}` for async callers."
    return form
