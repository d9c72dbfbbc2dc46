"""Whose turn it is among very many ready lines, and how few of them a claim looks at."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from itertools import count

from duly import Duly
from duly.core.model import Head, Item, Line
from duly.engine.due_lines import DueLines
from duly.engine.later_heads import ALL, LaterHeads
from duly.engine.ready_lines import RANKS, ReadyLines, TurnLog
from duly.engine.rows import WorkRow, WorkRows
from duly.engine.work import Work
from tests.support import NOW, after

MANY = 10_000
ids = count(1)
app = Duly("sqlite:///unused.db")


@app.task
def ring() -> None: ...


class Slots:
    """The room of a pool of so many slots, which counts how often it is asked."""

    def __init__(self, size: int = 10) -> None:
        self.rows = WorkRows(size, has_one_queue=False)
        self.asked = 0

    def run(self, *lines: Line) -> list[WorkRow]:
        """Run an item of each of these lines."""
        self.rows.add(Work(ring, [item_of(line)]) for line in lines)
        begun: list[WorkRow] = []
        while (row := self.rows.enter(0.0)) is not None:
            row.works.popleft()
            begun.append(row)
        return begun

    def allowance(self, line: Line) -> int:
        self.asked += 1
        return max(self.rows.wanted(line.queue, line.owner or None, 1), 0)

    def allows_new(self, *, queue: str | None = None, owner: str | None = None) -> int:
        self.asked += 1
        return max(self.rows.wanted_new(queue, owner, 1), 0)

    def busy_queues(self, owner: str) -> list[str]:
        return self.rows.queues_in_use(owner or None)

    def busy_owners(self) -> list[str]:
        return [owner or "" for owner in self.rows.owners_in_use()]


def item_of(line: Line) -> Item:
    return Item(
        next(ids), "ring", line.queue, "main", 0, "running", NOW, NOW, None, "k", b"{}", 1, None, 0, 0, 0, 1, "w", NOW,
        None, owner=line.owner or None,
    )  # fmt: skip


def line(queue: str, owner: str = "") -> Line:
    return Line(queue, "ring", owner)


def head_of(at: Line, rank: int = 0, seconds: float = 0.0) -> Head:
    return Head(at, "main", rank, after(seconds))


def ready(*lines: Line) -> ReadyLines:
    found = ReadyLines(TurnLog())
    for each in lines:
        found.add(head_of(each))
    return found


def queues_of(owner: str, many: int = MANY, prefix: str = "") -> list[Line]:
    return [line(f"{prefix or owner}/{n}", owner) for n in range(many)]


def chosen(lines: ReadyLines, most: int, room: Slots) -> list[Line]:
    return [each for queues in lines.choose(most, room) for queue in queues for each, _ in queue]


def test_nobody_waits_behind_the_queues_of_an_owner_whose_share_is_used_up() -> None:
    slots = Slots(10)
    assert len(slots.run(*queues_of("ann", 20))) == 9
    lines = ready(*queues_of("ann"), line("mail", "bob"))
    slots.asked = 0
    assert chosen(lines, 10, slots) == [line("mail", "bob")]
    assert slots.asked < 40, "however many lines of ann are ready"


def test_owners_take_turns_whatever_number_of_queues_each_has() -> None:
    lines = ready(*queues_of("ann", MANY // 2), *queues_of("bob", MANY // 2), line("mail", "cleo"))
    found = chosen(lines, 9, Slots(100))
    assert Counter(each.owner for each in found) == {"ann": 4, "bob": 4, "cleo": 1}
    for each in found:
        lines.served(each)
    lines.add(head_of(line("post", "dora")))
    assert "dora" in {each.owner for each in chosen(lines, 9, Slots(100))}


def test_everybody_has_one_turn_of_one_call_each() -> None:
    lines = ready(*queues_of("ann", 1_000), *queues_of("bob", 10), line("mail", "cleo"))
    turns = []
    for _ in range(9):
        (one,) = chosen(lines, 1, Slots(100))
        lines.served(one)
        turns.append(one.owner)
    assert turns == ["ann", "bob", "cleo"] * 3


def test_items_without_an_owner_have_one_turn_together() -> None:
    due = DueLines(timedelta(seconds=5), timedelta(seconds=60), TurnLog())
    for each in (*queues_of("", 100, "q"), line("mail", "ann")):
        due.add(head_of(each), NOW)
    shares = due.shares(20, 1, NOW, Slots(100))
    assert sum(share.limit for share in shares if share.line.owner == "ann") == 10
    assert sum(share.limit for share in shares) == 20


def test_owners_without_end_in_a_queue_whose_share_is_used_up_hide_nobody() -> None:
    slots = Slots(10)
    begun = slots.run(*(line("http", f"o{n}") for n in range(9)))
    assert len(begun) == 9
    lines = ready(*(line("http", f"p{n}") for n in range(MANY)), line("mail", "bob"))
    assert chosen(lines, 10, slots) == [line("mail", "bob")]
    slots.asked = 0
    lines.add(head_of(line("http", "zoe")))
    assert chosen(lines, 10, slots) == [line("mail", "bob")]
    assert slots.asked < 40, "lines of a queue without room are set aside"
    slots.rows.leave(begun[0])
    slots.asked = 0
    assert chosen(lines, 10, slots) == [line("mail", "bob"), line("http", "p0")]
    assert slots.asked < 30


def test_what_is_set_aside_can_be_dropped_and_comes_back_when_the_queue_has_room() -> None:
    slots = Slots(2)
    begun = slots.run(line("http", "ann"))
    lines = ready(line("http", "bob"), line("http", "cleo"))
    assert chosen(lines, 5, slots) == []
    lines.drop(line("http", "bob"), "main", 0)
    lines.drop(line("http", "bob"), "main", 0)
    assert len(lines) == 1
    slots.rows.leave(begun[0])
    assert chosen(lines, 5, slots) == [line("http", "cleo")]
    lines.drop(line("http", "cleo"), "main", 0)
    assert (len(lines), chosen(lines, 5, slots)) == (0, [])


def test_a_pool_without_room_for_anybody_new_is_asked_only_about_what_it_has() -> None:
    slots = Slots(1)
    slots.run(line("http", "ann"))
    lines = ready(*queues_of("ann"), *(line("mail", f"o{n}") for n in range(MANY)))
    slots.asked = 0
    assert chosen(lines, 10, slots) == []
    assert slots.asked < 10


def test_a_line_with_any_number_of_ranks_is_asked_for_its_best_ones() -> None:
    due = DueLines(timedelta(seconds=5), timedelta(seconds=60), TurnLog())
    mine = line("mail", "ann")
    for rank in range(3_000, -3_000, -1):
        due.add(head_of(mine, rank), NOW)
    due.add(Head(mine, "retry", 7, NOW), NOW)
    main, retry = due.shares(4, 1, NOW, Slots(10))
    assert main.ranks == tuple(range(-2_999, -2_999 + RANKS))
    assert retry.ranks == (7,)
    due.exhausted(main, got_any=True, now=NOW)
    due.add(head_of(mine, 20_000), NOW)
    assert {share.ranks for share in due.shares(4, 1, NOW, Slots(10))} == {(20_000,), (7,)}


def test_what_falls_due_together_is_taken_in_portions_with_everybody_in_each() -> None:
    later = LaterHeads()
    for each in queues_of("ann"):
        later.push(NOW, head_of(each))
    later.push(NOW, head_of(line("mail", "bob")))
    later.push(after(5), head_of(line("mail", "cleo")))
    first = later.pop(NOW)
    assert len(first) <= ALL
    assert {head.line.owner for head in first} == {"ann", "bob"}
    assert later.next_at() == NOW, "there is more"
    taken = len(first)
    while (at := later.next_at()) is not None and at <= NOW:
        taken += len(later.pop(NOW))
    assert (taken, later.next_at()) == (MANY + 1, after(5))


def test_what_is_to_be_looked_at_earlier_comes_earlier() -> None:
    later = LaterHeads()
    for seconds in (9, 3, 6, 3):
        later.push(after(seconds), head_of(line("mail", "ann"), seconds=seconds))
    later.push(after(4), head_of(line("mail", "bob")))
    assert later.next_at() == after(3)
    assert [head.due_at for head in later.pop(after(3))] == [after(3)], "the same head is kept once"
    assert later.next_at() == after(4)
    assert [head.line.owner for head in later.pop(after(6))] == ["bob", "ann"]
    assert later.next_at() == after(9)


def test_owners_take_turns_at_the_slots_too() -> None:
    slots = Slots(100)
    slots.rows.add(Work(ring, [item_of(each)]) for each in (*queues_of("ann", 200), line("mail", "bob")))
    owners = []
    for _ in range(4):
        row = slots.rows.enter(0.0)
        assert row is not None
        row.works.popleft()
        owners.append(row.owner_name)
    assert owners == ["ann", "bob", "ann", "ann"]


def test_queues_without_an_owner_count_as_one_owner_beside_people() -> None:
    slots = Slots(10)
    assert len(slots.run(*queues_of("", 20, "q"))) == 10, "they have all slots while nobody has a name"
    slots = Slots(10)
    slots.run(line("mail", "ann"))
    assert len(slots.run(*queues_of("", 20, "q"))) == 8, "one is left for somebody else"
    assert len(slots.run(line("mail", "bob"))) == 0
    assert len(slots.run(line("post", "cleo"))) == 1
