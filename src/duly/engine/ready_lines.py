"""The lines that have due items, in the order of their turns, and which of them the next claim asks.

Owners take turns, then the queues of an owner, then the lines of a queue. Items without an owner count as one owner's.
So nobody gets more by using more queues, tasks or ranks.

What the pool does not take now is not looked at: an owner whose share of the slots is used up is passed over, and lines
of a queue whose share is used up are set aside until it has room again. Shares are used up only by works in the pool,
so a claim looks at few more lines than it asks, however many are ready.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator
from datetime import datetime
from itertools import islice
from typing import Protocol

from duly.core.model import Head, Lane, Line
from duly.engine.shares import LineTurns

# The lanes and ranks in which items of a line wait, and from which due time on.
Places = dict[tuple[Lane, int], datetime]
# The lines of a queue that a claim may ask, and how many items of each the pool takes.
Chosen = list[tuple[Line, int]]
# The queues of each owner, and their lines, in the order of their turns.
Rotation = OrderedDict[str, OrderedDict[str, dict[Line, None]]]

# How many ranks of a line and lane are kept: the best ones. The others are found again when these are empty.
RANKS = 100
# How many lines, queues and owners are remembered besides those that are ready.
REMEMBERED = 20_000


class Room(Protocol):
    """What a pool takes now, and of whom."""

    def allowance(self, line: Line) -> int:
        """How many more items of this line."""

    def allows_new(self, *, queue: str | None = None, owner: str | None = None) -> int:
        """How many more items of this queue for a new owner, of this owner in a new queue, or of both new.

        A queue or owner is new if it has no works here.
        """

    def busy_queues(self, owner: str) -> Collection[str]:
        """The queues in which this owner has works here."""

    def busy_owners(self) -> Iterable[str]:
        """The owners that have works here."""


class TurnLog:
    """Remembers when each owner, queue and line was served, so that each gets its turn."""

    def __init__(self) -> None:
        self._turns: dict[Line, LineTurns] = {}
        self._owners: OrderedDict[str, int] = OrderedDict()
        self._queues: OrderedDict[tuple[str, str], int] = OrderedDict()
        self._count = 0

    def turns(self, line: Line) -> LineTurns:
        turns = self._turns.get(line)
        if turns is None:
            turns = self._turns[line] = LineTurns()
            if len(self._turns) > REMEMBERED:
                del self._turns[next(iter(self._turns))]
        return turns

    def serve(self, line: Line) -> None:
        self._count += 1
        queue = (line.owner, line.queue)
        self._owners[line.owner] = self._queues[queue] = self._count
        self._owners.move_to_end(line.owner)
        self._queues.move_to_end(queue)
        if len(self._queues) > REMEMBERED:
            self._queues.popitem(last=False)
        if len(self._owners) > REMEMBERED:
            self._owners.popitem(last=False)

    def last(self, owner: str) -> int:
        return self._owners.get(owner, 0)

    def last_of(self, owner: str, queue: str) -> int:
        return self._queues.get((owner, queue), 0)


class ReadyLines:
    def __init__(self, turn_log: TurnLog) -> None:
        self._turn_log = turn_log
        self._places: dict[Line, Places] = {}
        self._rotation: Rotation = OrderedDict()
        self._aside: dict[str, OrderedDict[Line, None]] = {}  # by queue

    def __len__(self) -> int:
        return len(self._places)

    def places(self, line: Line) -> Places:
        return self._places.get(line, {})

    def add(self, head: Head) -> None:
        places = self._places.get(head.line)
        if places is None:
            places = self._places[head.line] = {}
            if head.line.queue in self._aside:
                self._aside[head.line.queue][head.line] = None
            else:
                self._enter(head.line)
        place = (head.lane, head.rank)
        if place in places:
            places[place] = min(head.due_at, places[place])
        elif len(places) < RANKS or _make_room(places, head):
            places[place] = head.due_at

    def move_on(self, line: Line, lane: Lane, rank: int, due_at: datetime) -> None:
        """What is left in this lane and rank is due no earlier than then."""
        if (lane, rank) in (places := self.places(line)):
            places[lane, rank] = due_at

    def drop(self, line: Line, lane: Lane, rank: int) -> None:
        """There is nothing in this lane and rank, or nothing that can be had now."""
        places = self.places(line)
        places.pop((lane, rank), None)
        if places or self._places.pop(line, None) is None:
            return
        aside = self._aside.get(line.queue)
        if aside is not None and line in aside:
            del aside[line]
            if not aside:
                del self._aside[line.queue]
        else:
            self._leave(line)

    def served(self, line: Line) -> None:
        """This line had its turn, so it goes behind the others, and so do its queue and owner."""
        self._turn_log.serve(line)
        queues = self._rotation.get(line.owner)
        if queues is not None and line in (lines := queues.get(line.queue, {})):
            lines[line] = lines.pop(line)
            queues.move_to_end(line.queue)
            self._rotation.move_to_end(line.owner)

    # -- whose turn it is

    def choose(self, most: int, room: Room) -> list[list[Chosen]]:
        """At most this many queues, by owner; owners and queues that were served least recently come first."""
        self._take_back(most, room)
        full: dict[str, list[Line]] = {}
        chosen: dict[str, list[Chosen]] = {}
        for owner, lines in islice(self._in_turn(room, full), most):
            chosen.setdefault(owner, []).append(lines)
        for queue, lines_of in full.items():
            for line in lines_of:
                self._leave(line)
            self._aside.setdefault(queue, OrderedDict()).update(dict.fromkeys(lines_of))
        last = self._turn_log.last_of
        for owner, queues in chosen.items():
            if len(queues) > 1:
                queues.sort(key=lambda lines, owner=owner: last(owner, lines[0][0].queue))  # type: ignore[misc]
        return [chosen[owner] for owner in sorted(chosen, key=self._turn_log.last)]

    def _in_turn(self, room: Room, full: dict[str, list[Line]]) -> Iterator[tuple[str, Chosen]]:
        """A queue of each owner, then another one of each, and so on."""
        owners: Iterable[str] = self._rotation
        if room.allows_new() <= 0:
            owners = [owner for owner in room.busy_owners() if owner in self._rotation]
        goes_on: Iterable[tuple[str, Iterator[Chosen]]]
        goes_on = ((owner, self._of_owner(owner, room, full)) for owner in owners)
        while True:
            again = []
            for owner, queues in goes_on:
                if (lines := next(queues, None)) is not None:
                    yield owner, lines
                    again.append((owner, queues))
            if not again:
                return
            goes_on = again

    def _of_owner(self, owner: str, room: Room, full: dict[str, list[Line]]) -> Iterator[Chosen]:
        """The queues of which the pool takes items of this owner; lines of queues that have no room go into `full`."""
        queues = self._rotation[owner]
        seen: set[str] = set()
        busy: Collection[str] | None = None  # looked up when something is refused, which is rare
        for queue in queues:
            seen.add(queue)
            if queue not in full and (lines := self._allowed(queues[queue], room)):
                yield lines
                continue
            if busy is None:
                busy = room.busy_queues(owner)
                if room.allows_new(owner=owner) <= 0:
                    break
            if queue not in full and queue not in busy and room.allows_new(queue=queue) <= 0:
                full[queue] = []
            if queue in full and queue not in busy:
                full[queue].extend(queues[queue])
            elif queue in full and (lines := self._allowed(queues[queue], room)):
                yield lines
        else:
            return
        for queue in busy:  # of an owner whose share is used up, only what has works here may go on
            if queue in queues and queue not in seen and (lines := self._allowed(queues[queue], room)):
                yield lines

    def _allowed(self, lines: Iterable[Line], room: Room) -> Chosen:
        return [(line, allowance) for line in lines if (allowance := room.allowance(line)) > 0]

    def _take_back(self, most: int, room: Room) -> None:
        """Let lines that were set aside take turns again, as many as their queue has room for."""
        for queue in list(self._aside):
            lines = self._aside[queue]
            for line in list(islice(lines, max(min(most, room.allows_new(queue=queue)), 0))):
                del lines[line]
                self._enter(line)
            if not lines:
                del self._aside[queue]

    def _enter(self, line: Line) -> None:
        self._rotation.setdefault(line.owner, OrderedDict()).setdefault(line.queue, {})[line] = None

    def _leave(self, line: Line) -> None:
        queues = self._rotation[line.owner]
        del queues[line.queue][line]
        if not queues[line.queue]:
            del queues[line.queue]
        if not queues:
            del self._rotation[line.owner]


def _make_room(places: Places, head: Head) -> bool:
    """Whether there is a place for this head: if its lane has too many ranks, only in place of a worse one."""
    ranks = [rank for lane, rank in places if lane == head.lane]
    if len(ranks) < RANKS:
        return True
    if head.rank > (worst := max(ranks)):
        return False
    del places[head.lane, worst]
    return True
