"""`duly put`: puts an item with the same checks as in code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from duly.cli import options
from duly.cli.items import key, print_placed
from duly.cli.session import Session, session
from duly.core.errors import InputError

T = TypeVar("T")


@click.command(short_help="Put an item: now or later.")
@click.argument("task")
@options.arguments("The arguments as one JSON object")
@options.at
@options.delay
@key
@options.rank
@click.option("--tries", type=int, metavar="N", help="Tries in all, in place of the task's own.")
@session(options.as_json, options.in_utc, with_tasks=True)
def put(session: Session, task: str, pairs: tuple[str, ...], text: str | None, **given: Any) -> None:
    """Put an item: now, or --at a time, or after a --delay.

    A VALUE is read as JSON where that fits the task's argument, else as text: n=3, ok=true, 'rows=[1,2]', name=Ann.
    """
    args = json_object(text)
    placed = fitting(lambda **read: session.api.put(task, {**args, **read}, **given), named_pairs(pairs))
    print_placed(session, placed, task)


def fitting(act: Callable[..., T], pairs: dict[str, str]) -> T:
    """Call `act` with values from a shell: each as JSON if it can be read so and fits the argument, else as text."""
    read = {name: _value(text) for name, text in pairs.items()}
    refused: dict[str, InputError] = {}
    while True:
        try:
            return act(**read)
        except InputError as error:
            name = error.field  # an error inside a value has a longer name
            if name in refused:  # neither as JSON nor as text: the first error is more precise
                raise refused[name] from None
            if name not in read or read[name] == pairs[name]:
                raise
            refused[name] = error
            read[name] = pairs[name]


def named_pairs(pairs: tuple[str, ...]) -> dict[str, str]:
    texts: dict[str, str] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise InputError(pair, "must be NAME=VALUE")
        texts[name] = text
    return texts


def json_object(text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    value = _value(text)
    if not isinstance(value, dict):
        raise InputError("args", f"must be one JSON object, such as '{{\"n\": 3}}', got {text!r:.80}")
    return value


def _value(text: str) -> Any:
    import msgspec

    from duly.core import codec

    try:
        return codec.decode(text)
    except msgspec.DecodeError:
        return text
