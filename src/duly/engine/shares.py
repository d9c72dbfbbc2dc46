"""Who gets how much of a claim: fair between queues, fresh work before retries, better ranks first. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime
from operator import attrgetter

from duly.clock import EPOCH
from duly.model import Head, Lane, Share

# Of a queue's share, at least one part in this many is for retries that are due beside fresh work.
RETRY_PART = 4
# Of a queue that has a backlog, one part in this many is for what has just become due.
FRESH_PART = 4


def share_out(
    due: Iterable[Head], room: int, turn: int = 0, fresh_since: datetime = EPOCH, batch: int = 1
) -> list[Share]:
    """Split `room` evenly over the queues that have due heads, in whole batches where there is room for more than one.

    Fresh work takes most of a queue's share and retries a quarter; either takes all of it when the other has nothing
    due. When there are more queues than room, `turn` moves who is served, so that everybody is, in turn. A queue whose
    oldest item is older than `fresh_since` has a backlog: some of its share is for what is younger, and if the share is
    for one call only, both are asked for, as there may be nothing young.
    """
    heads: dict[tuple[str, Lane], list[Head]] = defaultdict(list)
    for head in sorted(due, key=attrgetter("rank", "due_at")):
        heads[head.queue, head.lane].append(head)
    queues = sorted({queue for queue, _ in heads})
    if not queues or room <= 0:
        return []
    start = turn % len(queues)
    queues = (queues[start:] + queues[:start])[:room]
    base, extra = divmod(room, len(queues))
    shares = []
    for place, queue in enumerate(queues):
        quota = base + (place < extra)
        fresh, retries = heads.get((queue, "main")), heads.get((queue, "retry"))
        for_retries = quota
        if fresh and retries:
            # With room for one call only, the turn decides between the lanes.
            for_retries = _part(quota, RETRY_PART, batch) if quota > batch else quota * (turn % RETRY_PART == 0)
        if fresh and (quota > for_retries or not retries):
            limit = quota - for_retries if retries else quota
            shares.extend(_with_fresh(_share(fresh, limit), fresh_since, batch))
        if retries and for_retries:
            shares.append(_share(retries, for_retries))
    return shares


def _share(heads: list[Head], limit: int) -> Share:
    ranks, floors = tuple(head.rank for head in heads), tuple(head.due_at for head in heads)
    return Share(heads[0].queue, heads[0].lane, ranks, limit, floors)


def _part(quota: int, parts: int, batch: int) -> int:
    """One part of this many, in whole batches."""
    return max(quota // parts // batch * batch, batch)


def _with_fresh(share: Share, fresh_since: datetime, batch: int) -> list[Share]:
    if min(share.floors) >= fresh_since:
        return [share]
    part = _part(share.limit, FRESH_PART, batch)
    floors = tuple(max(floor, fresh_since) for floor in share.floors)
    fresh = Share(share.queue, share.lane, share.ranks, min(part, share.limit), floors, is_fresh=True)
    left = share.limit - part if share.limit > batch else share.limit
    return [fresh, Share(share.queue, share.lane, share.ranks, left, share.floors)]
