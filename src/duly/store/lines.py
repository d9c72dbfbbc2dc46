"""Lines of waiting items and the queues that they are in: what both stores do in the same way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any

from duly.core.model import Head, Item, Line, Share
from duly.store.contract import SurveyPlace

# The order in which items start.
in_order = attrgetter("rank", "due_at", "id")


@lru_cache(20_000)
def family(queue: str) -> tuple[str, ...]:
    """The queues whose pause holds for this one: `a`, `a/b` and `a/b/c` for `a/b/c`."""
    parts = queue.split("/")
    return tuple("/".join(parts[: n + 1]) for n in range(len(parts)))


def families(shares: Iterable[Share]) -> set[str]:
    """The queues whose pause holds for any of these shares."""
    return {name for queue in {share.line.queue for share in shares} for name in family(queue)}


def are_open(queues: set[str], paused: set[str]) -> set[str]:
    """These queues without the paused ones and those below them."""
    return {queue for queue in queues if paused.isdisjoint(family(queue))} if paused else queues


def heads_of(rows: Iterable[tuple[Any, ...]]) -> list[Head]:
    return [Head(Line(queue, task, owner), lane, rank, due_at) for queue, task, owner, lane, rank, due_at in rows]


def place_of(heads: Sequence[Head], most: int) -> SurveyPlace | None:
    """The place where a survey of `most` heads goes on; None when there were fewer."""
    if len(heads) < most:
        return None
    last = heads[-1]
    return (last.line.queue, last.lane, last.rank, last.line.task, last.line.owner)


def items_under(
    rows: Iterable[Sequence[Any]], item_of: Callable[[Sequence[Any]], Item]
) -> tuple[list[Item], list[int]]:
    """The items in the rows of `under`, which begin with a fence each, and the fences of leases without items."""
    items: list[Item] = []
    fences: set[int] = set()
    for fence, *row in rows:
        fences.add(fence)
        if row[0] is not None:
            items.append(item_of(row))
    return items, sorted(fences - {item.fence for item in items})
