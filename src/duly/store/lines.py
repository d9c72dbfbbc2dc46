"""Lines of waiting items and the queues that they stand in, as every store reads them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any

from duly.core.model import Head, Item, Line, Share
from duly.store.contract import Place

# The order in which items start.
in_order = attrgetter("rank", "due_at", "id")


@lru_cache(20_000)
def family(queue: str) -> tuple[str, ...]:
    """`a`, `a/b` and `a/b/c` for `a/b/c`: a pause holds for all queues below."""
    parts = queue.split("/")
    return tuple("/".join(parts[: n + 1]) for n in range(len(parts)))


def families(shares: Iterable[Share]) -> set[str]:
    """The names of queues whose pause holds for these: their own, and those that they are below."""
    return {name for queue in {share.line.queue for share in shares} for name in family(queue)}


def are_open(queues: set[str], paused: set[str]) -> set[str]:
    """Without the paused ones and those below them."""
    return {queue for queue in queues if paused.isdisjoint(family(queue))} if paused else queues


def heads_of(rows: Iterable[tuple[Any, ...]]) -> list[Head]:
    return [Head(Line(queue, task, owner), lane, rank, due_at) for queue, task, owner, lane, rank, due_at in rows]


def place_of(heads: Sequence[Head], most: int) -> Place | None:
    """Where a survey that looked at so many goes on."""
    if len(heads) < most:
        return None
    last = heads[-1]
    return (last.line.queue, last.lane, last.rank, last.line.task, last.line.owner)


def items_under(
    rows: Iterable[Sequence[Any]], item_of: Callable[[Sequence[Any]], Item]
) -> tuple[list[Item], list[int]]:
    """Items from the rows of `under`, each behind the fence of its lease, and the fences that have none left."""
    items: list[Item] = []
    fences: set[int] = set()
    for fence, *row in rows:
        fences.add(fence)
        if row[0] is not None:
            items.append(item_of(row))
    return items, sorted(fences - {item.fence for item in items})
