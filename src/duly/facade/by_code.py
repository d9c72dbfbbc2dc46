"""Verbs as methods of the objects that user code works with. The code of this process is the principal."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any, Concatenate, ParamSpec, TypeVar

from duly.verbs import LOCAL, Principal

G = TypeVar("G")
P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")


def by_code(group: Callable[[S], G], verb: Callable[Concatenate[G, Principal, P], R]) -> Callable[Concatenate[S, P], R]:
    """A method that calls this verb of the group that `group` finds, without the argument `who`."""

    @wraps(verb)
    def act(self: S, /, *args: P.args, **options: P.kwargs) -> R:
        return verb(group(self), LOCAL, *args, **options)

    shown: Any = act  # help() must not show `who`
    parameters = signature(verb).parameters.values()
    shown.__signature__ = signature(verb).replace(parameters=[each for each in parameters if each.name != "who"])
    return act
