"""What one pool may expect: the lines that have something due, and when to ask the others.

A line is asked while it is `ready`. One that gave nothing belongs to someone else at this moment and is left alone for
a growing while; one whose meter has no room is left alone until it has. Both wait in a heap and cost nothing meanwhile,
so the cost of a claim is that of the lines it asks, however many there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from heapq import heappop, heappush
from itertools import islice
from operator import attrgetter

from duly.core.clock import EPOCH
from duly.core.model import Head, Item, Lane, Line, Share
from duly.engine.shares import LineTurns, evenly, share_out
from duly.store.contract import FRESH

Group = tuple[Line, Lane, int]
_group = attrgetter("queue", "task", "owner", "lane", "rank")
_due_at = attrgetter("due_at")
# How many more items of a line a pool would take.
Allowance = Callable[[Line], int]

# How long a line that looked due and gave nothing is left alone at first: it may only be due a moment later.
BARREN = timedelta(milliseconds=5)
# Until it was left alone for so long it is asked again unprompted; from then on a look must find it.
IMPATIENT = 8 * BARREN
# A put that says "now" is looked for among what became due since then.
NEWEST = timedelta(seconds=60)
# How long nobody asks again for fresh work beside a backlog, when there was none.
STALE = timedelta(milliseconds=100)
# Queues that one claim considers: more than this wait for their turn. Under limits a few more than it has room for.
WINDOW = 500
FEW = 10
# Calls that a queue has at its turn where there is room for many: each ask under limits has a price of its own.
TURN = 4
# Where it is left to the pace of a backlog, how long nobody asks for what is fresh.
SOON = timedelta(milliseconds=500)
# Lines of whom something is remembered beyond what is ready.
REMEMBERED = 20_000


class Rota:
    """Who was served when, so that everybody has their turn."""

    def __init__(self) -> None:
        self._turns: dict[Line, LineTurns] = {}
        self._served: dict[str, int] = {}
        self._count = 0

    def turns(self, line: Line) -> LineTurns:
        turns = self._turns.get(line)
        if turns is None:
            turns = self._turns[line] = LineTurns()
            if len(self._turns) > REMEMBERED:
                del self._turns[next(iter(self._turns))]
        return turns

    def serve(self, queue: str) -> None:
        self._count += 1
        self._served.pop(queue, None)
        self._served[queue] = self._count
        if len(self._served) > REMEMBERED:
            del self._served[next(iter(self._served))]

    def last(self, queue: str) -> int:
        return self._served.get(queue, 0)


class Outlook:
    def __init__(self, longest: timedelta, horizon: timedelta, rota: Rota) -> None:
        self._longest = longest
        self._horizon = horizon  # what falls due later than this is seen again before it does
        self._rota = rota
        self._ready: dict[str, dict[Line, dict[tuple[Lane, int], datetime]]] = {}
        self._later: list[tuple[datetime, int, Head]] = []
        self._known: set[tuple[Group, datetime]] = set()  # what is in `_later`
        self._pushed = 0
        self._surplus = 1  # under limits, how many times more lines to ask than there is room for
        self._barren: dict[Group, tuple[datetime, timedelta]] = {}
        # A meter has no room for these groups of a line before then; with the head to go on from.
        self._held: dict[Line, dict[tuple[Lane, int], tuple[datetime, datetime]]] = {}
        self._paced: dict[Line, datetime] = {}  # the same for the backlog of a line alone
        self._stale: dict[Line, datetime] = {}  # beside its backlog nothing is fresh before then
        self._whole: dict[Line, datetime] = {}  # nothing that a window has counted was given back before then

    # -- what there is

    def add(self, head: Head, now: datetime) -> None:
        group = (head.line, head.lane, head.rank)
        at = max(head.due_at, self._free_at(group))
        if at > now:
            if head.due_at <= now + self._horizon:
                self._push(at, head)
            return
        ranks = self._ready.setdefault(head.line.queue, {}).setdefault(head.line, {})
        place = (head.lane, head.rank)
        ranks[place] = min(head.due_at, ranks.get(place, head.due_at))

    def hear(self, head: Head, now: datetime) -> None:
        """Something was put there, so it is no longer barren."""
        self._barren.pop((head.line, head.lane, head.rank), None)
        self._stale.pop(head.line, None)
        self.add(Head(head.line, head.lane, head.rank, now - NEWEST) if head.due_at == EPOCH else head, now)

    def freed(self, line: Line, now: datetime) -> None:
        """A call of this line ended here: what waited for that need not wait longer."""
        for (lane, rank), (_, floor) in self._held.pop(line, {}).items():
            self.add(Head(line, lane, rank, floor), now)

    def wake(self, now: datetime) -> None:
        """Whoever waited until now is ready."""
        while self._later and self._later[0][0] <= now:
            at, _, head = heappop(self._later)
            group = (head.line, head.lane, head.rank)
            self._known.discard((group, at))
            if self._held_until(group) <= now:
                self._let_go(group)
            self.add(head, now)
        if len(self._barren) + len(self._stale) + len(self._paced) + len(self._whole) > REMEMBERED:
            self._forget(now)

    def next_at(self) -> datetime | None:
        return self._later[0][0] if self._later else None

    def held_until(self, now: datetime) -> datetime | None:
        held = (until for places in self._held.values() for until, _ in places.values())
        return min((until for until in (*held, *self._paced.values()) if until > now), default=None)

    def has_ready(self) -> bool:
        return bool(self._ready)

    def _push(self, at: datetime, head: Head) -> None:
        known = ((head.line, head.lane, head.rank), at)
        if known not in self._known:
            self._known.add(known)
            self._pushed += 1
            heappush(self._later, (at, self._pushed, head))

    def _free_at(self, group: Group) -> datetime:
        barren = self._barren.get(group)
        return max(barren[0] if barren else EPOCH, self._held_until(group))

    def _held_until(self, group: Group) -> datetime:
        line, lane, rank = group
        return self._held.get(line, {}).get((lane, rank), (EPOCH, EPOCH))[0]

    def _let_go(self, group: Group) -> None:
        line, lane, rank = group
        if places := self._held.get(line):
            places.pop((lane, rank), None)
            if not places:
                del self._held[line]

    def _forget(self, now: datetime) -> None:
        """What has not mattered for a while."""
        before = now - self._longest
        self._barren = {group: wait for group, wait in self._barren.items() if wait[0] > before}
        self._stale = {line: until for line, until in self._stale.items() if until > now}
        self._paced = {line: until for line, until in self._paced.items() if until > now}
        self._whole = {line: until for line, until in self._whole.items() if until > now}

    # -- whom to ask

    def shares(
        self, room: int, batch: int, now: datetime, allowance: Allowance, is_metered: bool = False
    ) -> list[Share]:
        """Whom to ask for how much, in turn, within what the pool allows each of them.

        Under limits more are asked than there is room for, since some of them may be exhausted.
        """
        calls = -(-room // batch)
        width = min(-(-calls // TURN) * self._surplus + FEW, WINDOW) if is_metered else min(calls, WINDOW)
        queues = sorted(islice(self._allowed(allowance), width), key=lambda each: self._rota.last(each[0]))
        shares: list[Share] = []
        for (_, lines), quota in zip(queues, evenly(calls, len(queues)) if queues else (), strict=True):
            shares.extend(self._of_queue(lines, max(quota, 1), batch, now))
        return shares

    def _allowed(self, allowance: Allowance) -> Iterator[tuple[str, list[tuple[Line, int]]]]:
        """The queues of which the pool would take something, each with its lines and how much it would take of them."""
        for queue in islice(self._ready, 4 * WINDOW):
            lines = [(line, room) for line in islice(self._ready[queue], WINDOW) if (room := allowance(line)) > 0]
            if lines:
                yield queue, lines

    def refused(self, count: int, asked: int) -> None:
        """So many of those asked were exhausted: where nearly all are, more are asked at once."""
        self._surplus = min(self._surplus * 4, WINDOW) if count > asked // 2 else 1

    def _of_queue(self, lines: Sequence[tuple[Line, int]], calls: int, batch: int, now: datetime) -> Iterator[Share]:
        chosen = lines[:calls]
        for (line, room), quota in zip(chosen, evenly(calls, len(chosen)), strict=True):
            yield from share_out(
                self._heads(line, now),
                min(quota * batch, room),
                self._rota.turns(line),
                self._fresh_since(line, now),
                batch,
            )

    def _heads(self, line: Line, now: datetime) -> Iterator[Head]:
        is_paced = self._paced.get(line, EPOCH) > now
        for (lane, rank), floor in self._ready[line.queue][line].items():
            # A backlog that has had its pace leaves the room to what is fresh.
            yield Head(line, lane, rank, max(floor, now - FRESH) if is_paced and lane == "main" else floor)

    def _fresh_since(self, line: Line, now: datetime) -> datetime:
        return EPOCH if self._stale.get(line, EPOCH) > now else now - FRESH

    def asked(self, shares: Iterable[Share]) -> None:
        """These had their turn: whoever is ready beside them is next."""
        for line in dict.fromkeys(share.line for share in shares):
            self._rota.serve(line.queue)
            if lines := self._ready.pop(line.queue, None):
                self._ready[line.queue] = lines
                if ranks := lines.pop(line, None):
                    lines[line] = ranks

    def may_be_torn(self, line: Line, now: datetime) -> bool:
        """Whether to look for what was started in a window and given back, which the window has counted."""
        return self._whole.get(line, EPOCH) <= now

    # -- what came of it

    def claimed(self, items: Sequence[Item], fresh_since: datetime) -> None:
        """What is left of these items' groups is due no earlier than the last of them; a backlog, of its own last."""
        late = _lasts([item for item in items if item.due_at < fresh_since])
        for group, last in _lasts(items).items():
            queue, task, owner, lane, rank = group
            ranks = self._ready.get(queue, {}).get(Line(queue, task, owner or ""), {})
            floor = ranks.get((lane, rank))
            if floor is not None and (due_at := last if floor >= fresh_since else late.get(group)) is not None:
                ranks[lane, rank] = due_at

    def found(self, share: Share) -> None:
        """Something was there, however long there was nothing before."""
        for rank in share.ranks:
            self._barren.pop((share.line, share.lane, rank), None)

    def exhausted(self, share: Share, got_any: bool, now: datetime) -> None:
        """Nothing is left there that this pool could have now."""
        if share.started_since is not None:
            self._whole[share.line] = now + self._longest
            return
        if share.is_fresh:
            self._stale[share.line] = now + STALE
            return
        for rank, floor in zip(share.ranks, share.floors, strict=True):
            group = (share.line, share.lane, rank)
            self._drop(group)
            if got_any:
                self._barren.pop(group, None)
            else:
                longest = min(self._longest, SOON) if share.line in self._paced else self._longest
                pause = min(self._barren.get(group, (now, BARREN / 2))[1] * 2, longest)
                self._barren[group] = (now + pause, pause)
                if pause <= IMPATIENT:
                    self._push(now + pause, Head(share.line, share.lane, rank, floor))

    def hold(self, share: Share, until: datetime, *, is_pace: bool = False) -> None:
        """A meter has no room for these before then: for all of them, or for the backlog alone."""
        if is_pace:
            self._paced[share.line] = until
            self._push(until, Head(share.line, share.lane, share.ranks[0], share.floors[0]))
            return
        for rank, floor in zip(share.ranks, share.floors, strict=True):
            group = (share.line, share.lane, rank)
            self._drop(group)
            self._held.setdefault(share.line, {})[share.lane, rank] = (until, floor)
            self._push(until, Head(share.line, share.lane, rank, floor))

    def lines_held(self) -> int:
        return len(self._held)

    def _drop(self, group: Group) -> None:
        line, lane, rank = group
        lines = self._ready.get(line.queue, {})
        ranks = lines.get(line, {})
        ranks.pop((lane, rank), None)
        if not ranks:
            lines.pop(line, None)
        if not lines:
            self._ready.pop(line.queue, None)


def _lasts(items: Sequence[Item]) -> dict[tuple[str, str, str | None, Lane, int], datetime]:
    """When the last item of each group is due, of items in order."""
    return dict(zip(map(_group, items), map(_due_at, items), strict=True))
