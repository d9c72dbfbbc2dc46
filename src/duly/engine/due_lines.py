"""The lines as one pool knows them: which have due items, and when to try the others again.

A line is asked as long as it is ready. If a line gave nothing, another worker was faster, and it is left alone for a
time that grows; if its meter has no room, until there is room. Such lines wait in a heap and cost nothing meanwhile, so
a claim costs as much as the lines that it asks, however many there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from operator import attrgetter

from duly.core.clock import EPOCH
from duly.core.model import Head, Item, Lane, Line, Share
from duly.engine.later_heads import LaterHeads
from duly.engine.ready_lines import REMEMBERED, Chosen, ReadyLines, Room, TurnLog
from duly.engine.shares import evenly, share_out
from duly.store.contract import FRESH

Group = tuple[Line, Lane, int]
_group = attrgetter("queue", "task", "owner", "lane", "rank")
_due_at = attrgetter("due_at")

# How long a line that looked due and gave nothing is left alone at first. It may just be due a moment later.
BARREN = timedelta(milliseconds=5)
# Up to this pause it is asked again by itself; after longer pauses only if a survey or news finds it again.
IMPATIENT = 8 * BARREN
# An item that was put to be due at once is looked for among those that became due in this time.
NEWEST = timedelta(seconds=60)
# How long a line with a backlog is not asked again for fresh items after there were none.
STALE = timedelta(milliseconds=100)
# How many queues one claim considers; the others wait for their turn. Under limits, `FEW` more than it has room for.
WINDOW = 500
FEW = 10
# How many calls a queue may get in one turn under limits, because each ask costs something.
TURN = 4
# The longest pause of a line whose backlog waits for its pace, so that its fresh items are found soon.
SOON = timedelta(milliseconds=500)


class DueLines:
    def __init__(self, longest: timedelta, horizon: timedelta, turn_log: TurnLog) -> None:
        self._longest = longest
        self.horizon = horizon  # heads due later than this are not kept: a survey sees them again in time
        self._turn_log = turn_log
        self.ready = ReadyLines(turn_log)
        self._later = LaterHeads()
        self._surplus = 1  # under limits, how many times more lines to ask than there is room for
        self._barren: dict[Group, tuple[datetime, timedelta]] = {}
        # The lanes and ranks of a line whose meter has no room: until when, and from which due time on to look then.
        self.held: dict[Line, dict[tuple[Lane, int], tuple[datetime, datetime]]] = {}
        self._held_of: Counter[str] = Counter()  # how many of them each owner has
        self._paced: dict[Line, datetime] = {}  # until when the backlog of a line has no room
        self._stale: dict[Line, datetime] = {}  # until when a line is not asked for fresh items
        self._whole: dict[Line, datetime] = {}  # until when a line is not asked for given-back items
        self._bound = REMEMBERED  # of these together, before those that no longer matter are dropped

    # -- what there is

    def add(self, head: Head, now: datetime) -> None:
        group = (head.line, head.lane, head.rank)
        at = max(head.due_at, self._barren.get(group, (EPOCH, BARREN))[0], self._held_until(group))
        if at <= now:
            self.ready.add(head)
        elif head.due_at <= now + self.horizon:
            self._later.push(at, head)

    def hear(self, head: Head, now: datetime) -> None:
        """An item was put there, so the line may be asked again at once."""
        self._barren.pop((head.line, head.lane, head.rank), None)
        self._stale.pop(head.line, None)
        self.add(Head(head.line, head.lane, head.rank, now - NEWEST) if head.due_at == EPOCH else head, now)

    def freed(self, line: Line, now: datetime) -> None:
        """A call of this line ended here, so items that waited for that are ready again."""
        if line in self.held:
            places = self.held.pop(line)
            self._held_of[line.owner] -= 1
            for (lane, rank), (_, floor) in places.items():
                self.add(Head(line, lane, rank, floor), now)

    def wake(self, now: datetime) -> None:
        """Make ready what was to wait until now: a portion of it, if that is much."""
        for head in self._later.pop(now):
            group = (head.line, head.lane, head.rank)
            if self._held_until(group) <= now:
                self._let_go(group)
            self.add(head, now)
        if len(self._barren) + len(self._stale) + len(self._paced) + len(self._whole) > self._bound:
            self._forget(now)

    def next_at(self) -> datetime | None:
        return self._later.next_at()

    def held_of(self, owner: str) -> int:
        """How many lines of this owner wait for a meter."""
        return self._held_of[owner]

    def held_until(self, now: datetime) -> datetime | None:
        held = (until for places in self.held.values() for until, _ in places.values())
        return min((until for until in (*held, *self._paced.values()) if until > now), default=None)

    def _held_until(self, group: Group) -> datetime:
        line, lane, rank = group
        return self.held.get(line, {}).get((lane, rank), (EPOCH, EPOCH))[0]

    def _let_go(self, group: Group) -> None:
        line, lane, rank = group
        if places := self.held.get(line):
            places.pop((lane, rank), None)
            if not places:
                del self.held[line]
                self._held_of[line.owner] -= 1

    def _forget(self, now: datetime) -> None:
        """Drop what has not mattered for a while."""
        before = now - self._longest
        self._barren = {group: wait for group, wait in self._barren.items() if wait[0] > before}
        self._stale = {line: until for line, until in self._stale.items() if until > now}
        self._paced = {line: until for line, until in self._paced.items() if until > now}
        self._whole = {line: until for line, until in self._whole.items() if until > now}
        self._held_of = +self._held_of
        kept = len(self._barren) + len(self._stale) + len(self._paced) + len(self._whole)
        self._bound = max(REMEMBERED, 2 * kept)  # so that this is not done again for few more

    # -- what to claim

    def shares(self, room: int, batch: int, now: datetime, of: Room, is_metered: bool = False) -> list[Share]:
        """The shares of the next claim: owners and queues take turns, and each line gets no more than the pool allows.

        Under limits more lines are asked than there is room for, because some of them may be exhausted.
        """
        calls = -(-room // batch)
        width = min(-(-calls // TURN) * self._surplus + FEW, WINDOW) if is_metered else min(calls, WINDOW)
        owners = self.ready.choose(width, of)
        shares: list[Share] = []
        for queues, part in zip(owners, evenly(calls, len(owners)) if owners else (), strict=True):
            for lines, quota in zip(queues, evenly(part, len(queues)), strict=True):
                if quota or is_metered:
                    shares.extend(self._of_queue(lines, max(quota, 1), batch, now))
        return shares

    def refused(self, count: int, asked: int) -> None:
        """How many of the shares were exhausted; if more than half were, the next claim asks for more shares."""
        self._surplus = min(self._surplus * 4, WINDOW) if count > asked // 2 else 1

    def _of_queue(self, lines: Chosen, calls: int, batch: int, now: datetime) -> Iterator[Share]:
        chosen = lines[:calls]
        for (line, room), quota in zip(chosen, evenly(calls, len(chosen)), strict=True):
            yield from share_out(
                self._heads(line, now),
                min(quota * batch, room),
                self._turn_log.turns(line),
                EPOCH if self._stale.get(line, EPOCH) > now else now - FRESH,
                batch,
            )

    def _heads(self, line: Line, now: datetime) -> Iterator[Head]:
        is_paced = self._paced.get(line, EPOCH) > now
        for (lane, rank), floor in self.ready.places(line).items():
            # While the backlog waits for its pace, only fresh items are asked for.
            yield Head(line, lane, rank, max(floor, now - FRESH) if is_paced and lane == "main" else floor)

    def asked(self, shares: Iterable[Share]) -> None:
        """These lines had their turn, so the others come first now."""
        for line in dict.fromkeys(share.line for share in shares):
            self.ready.served(line)

    def may_be_torn(self, line: Line, now: datetime) -> bool:
        """Whether to look for items that were started in a window and released, which the window has counted."""
        return self._whole.get(line, EPOCH) <= now

    # -- what came of it

    def claimed(self, items: Sequence[Item], fresh_since: datetime) -> None:
        """Remember how far each line, lane and rank was claimed: what is left of it is due no earlier than that.

        Where there is a backlog, only its own items count, for the fresh ones were claimed ahead of the rest.
        """
        late = _lasts([item for item in items if item.due_at < fresh_since])
        for group, last in _lasts(items).items():
            queue, task, owner, lane, rank = group
            line = Line(queue, task, owner or "")
            floor = self.ready.places(line).get((lane, rank))
            if floor is not None and (due_at := last if floor >= fresh_since else late.get(group)) is not None:
                self.ready.move_on(line, lane, rank, due_at)

    def found(self, share: Share) -> None:
        """There were items, so forget the pauses of this share."""
        for rank in share.ranks:
            self._barren.pop((share.line, share.lane, rank), None)

    def exhausted(self, share: Share, got_any: bool, now: datetime, took: float = 0.0) -> None:
        """There is nothing left in this share that the pool could have now; to learn that took so many seconds."""
        if share.started_since is not None:
            self._whole[share.line] = now + self._longest
            return
        if share.is_fresh:
            # Longer than the next claims take, of which the calls are for the backlog then.
            self._stale[share.line] = now + max(STALE, timedelta(seconds=4 * took))
            return
        for rank, floor in zip(share.ranks, share.floors, strict=True):
            group = (share.line, share.lane, rank)
            self.ready.drop(*group)
            if got_any:
                self._barren.pop(group, None)
            else:
                longest = min(self._longest, SOON) if share.line in self._paced else self._longest
                pause = min(self._barren.get(group, (now, BARREN / 2))[1] * 2, longest)
                self._barren[group] = (now + pause, pause)
                if pause <= IMPATIENT:
                    self._later.push(now + pause, Head(share.line, share.lane, rank, floor))

    def hold(self, share: Share, until: datetime, *, is_pace: bool = False) -> None:
        """A meter has no room for this share until then; with `is_pace`, no room for its backlog."""
        if is_pace:
            self._paced[share.line] = until
            self._later.push(until, Head(share.line, share.lane, share.ranks[0], share.floors[0]))
            return
        for rank, floor in zip(share.ranks, share.floors, strict=True):
            group = (share.line, share.lane, rank)
            self.ready.drop(*group)
            if share.line not in self.held:
                self.held[share.line] = {}
                self._held_of[share.line.owner] += 1
            self.held[share.line][share.lane, rank] = (until, floor)
            self._later.push(until, Head(share.line, share.lane, rank, floor))

    def hasten(self, share: Share, until: datetime) -> None:
        """Some items of this share may have room earlier than those for which its line is held."""
        places = self.held.get(share.line, {})
        for rank in share.ranks:
            held_until, floor = places.get((share.lane, rank), (EPOCH, EPOCH))
            if until < held_until:
                places[share.lane, rank] = (until, floor)
                self._later.push(until, Head(share.line, share.lane, rank, floor))


def _lasts(items: Sequence[Item]) -> dict[tuple[str, str, str | None, Lane, int], datetime]:
    """The due time of the last item of each group, for items in the order of their due times."""
    return dict(zip(map(_group, items), map(_due_at, items), strict=True))
