"""Who gets how much of a claim: fair between queues, fresh work before retries, better ranks first. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from duly.model import Head, Lane, Share

# Of a queue's share, at least one part in this many is for retries that are due beside fresh work.
RETRY_PART = 4


def share_out(due: Iterable[Head], room: int, turn: int = 0) -> list[Share]:
    """Split `room` evenly over the queues that have due heads.

    Fresh work takes most of a queue's share and retries a quarter; either takes all of it when the other has nothing
    due. When there are more queues than room, `turn` moves who is served, so that everybody is, in turn.
    """
    ranks: dict[tuple[str, Lane], list[int]] = defaultdict(list)
    for head in due:
        ranks[head.queue, head.lane].append(head.rank)
    queues = sorted({queue for queue, _ in ranks})
    if not queues or room <= 0:
        return []
    start = turn % len(queues)
    queues = (queues[start:] + queues[:start])[:room]
    base, extra = divmod(room, len(queues))
    shares = []
    for place, queue in enumerate(queues):
        quota = base + (place < extra)
        fresh, retries = ranks.get((queue, "main")), ranks.get((queue, "retry"))
        for_retries = quota
        if fresh and retries:
            # With room for one only, the turn decides between the lanes.
            for_retries = max(quota // RETRY_PART, 1) if quota > 1 else int(turn % RETRY_PART == 0)
        if fresh and (quota > for_retries or not retries):
            limit = quota - for_retries if retries else quota
            shares.append(Share(queue, "main", tuple(sorted(fresh)), limit))
        if retries and for_retries:
            shares.append(Share(queue, "retry", tuple(sorted(retries)), for_retries))
    return shares
