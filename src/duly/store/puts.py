"""Puts on every database: what happens when a key is taken, and how rows that keep their key are armed again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from msgspec.structs import replace

from duly.core.errors import KeyConflict
from duly.core.model import Armed, NewItem, Placed
from duly.store.records import NEW_ITEM
from duly.store.statements import C, Merge, Statements


class Puts(Statements[C]):
    def put(self, new: Sequence[NewItem]) -> list[Placed[Any]]:
        """Insert items, all or none. If a live item has the key and the same content, the answer is that item."""
        placed = self._whole(lambda connection: self._put_many(connection, new))
        self._announce(new)
        return placed

    def _put_many(self, connection: C, new: Sequence[NewItem]) -> list[Placed[Any]]:
        raise NotImplementedError

    def _announce(self, new: Iterable[NewItem] | None, connection: C | None = None) -> None:
        """Notify workers of new items, or with None that something changed, unless they see every commit anyway."""

    def finish_loads(self) -> bool:
        """Finish or undo some of what processes left that died while they loaded items; whether there may be more.

        Nothing can be left where a load is a single transaction.
        """
        return False

    def holder(self, item: NewItem, connection: C | None) -> Placed[Any] | None:
        """The live item that has this key; None if it has ended in the meantime. Other content is an error."""
        for item_id, execution_key, args, planned_at in self._run("live", key_parameters(item), connection):
            if refusal := conflict(item, item_id, args.encode(), planned_at):
                raise refusal
            return Placed(id=item_id, execution_key=execution_key, fresh=False)
        return None

    def arm(self, new: Sequence[NewItem], merge: Merge) -> list[Armed]:
        """Put items of one task whose rows keep their keys permanently; all or none.

        A higher version of a key starts its row again in whatever state it is, as what `merge` makes of the old
        arguments and the newer item. An equal or lower version changes nothing, unless the row is done: then the row
        starts again with the next version. An item without a version is put as usual.
        """
        if not new:
            return []
        armed = self._whole(lambda connection: self._arm(connection, new, merge))
        self._announce(item for item, answer in zip(new, armed, strict=True) if answer.how != "known")
        return armed

    def _arm(self, connection: C, new: Sequence[NewItem], merge: Merge) -> list[Armed]:
        task, arming = new[0].task, Arming(new, merge)
        for _ in range(3):  # again only if another transaction inserts the same keys at the same time
            found = self._run("arm_find", {"task": task, "keys": arming.keys}, connection) if arming.keys else []
            if again := arming.again(found):
                ids = [item_id for item_id, _ in again]
                # Without turns, the statement reads the clock itself.
                self._run("arm_leave", {"ids": ids, "now": self.now() if self.takes_turns else None}, connection)
                self._run_many("arm_again", connection, NEW_ITEM, [item for _, item in again], id=ids)
            if fresh := arming.fresh():
                arming.inserted(self._run_many("arm_new", connection, NEW_ITEM, fresh))
            if not arming.keys:
                return arming.answers()
        raise KeyConflict(f"{arming.keys[0]!r} of {task} belongs to a live item that was put without a version", 0)


def key_parameters(item: NewItem) -> dict[str, Any]:
    return {"task": item.task, "key": item.key}


def conflict(new: NewItem, item_id: int, args: bytes, planned_at: datetime) -> KeyConflict | None:
    """Why a put with a live key is rejected; None when it has the same content."""
    if args != new.args:
        return KeyConflict(
            f"{new.key!r} belongs to item {item_id} of {new.task} with other arguments; "
            "cancel that item, wait until it ends, or choose another key",
            item_id,
        )
    # In UTC, because in an hour that clocks repeat Python treats equal times of different zones as unequal.
    planned_at = planned_at.astimezone(UTC)
    if new.due_at is not None and not new.is_relative and new.due_at != planned_at:
        return KeyConflict(
            f"{new.key!r} belongs to item {item_id} of {new.task}, planned for {planned_at.isoformat()}, "
            f"not {new.due_at.isoformat()}; cancel that item or choose another key",
            item_id,
        )
    return None


class Arming:
    """Decides for items with versions which rows are inserted, which are armed again and which stay as they are.

    Of several items with the same key, the one with the highest version counts.
    """

    def __init__(self, new: Sequence[NewItem], merge: Merge) -> None:
        self._new = new
        self._merge = merge
        self._answers: list[Armed | None] = [None] * len(new)
        self._open: dict[str, int] = {}  # for each key, the place of the item with the highest version
        self._without = [place for place, item in enumerate(new) if item.version is None]
        for place, item in enumerate(new):
            if item.version is not None:
                assert item.key is not None
                held = self._open.setdefault(item.key, place)
                if item.version > (new[held].version or 0):
                    self._open[item.key] = place
        self._winners = dict(self._open)

    @property
    def keys(self) -> list[str]:
        """The keys for which nothing has been decided yet."""
        return list(self._open)

    def again(self, found: Iterable[tuple[int, str, int, bytes, str, bool]]) -> list[tuple[int, NewItem]]:
        """Which of these rows (id, key, version, args, state, is_begun) are armed again; the others do not change."""
        armed = []
        for item_id, key, version, args, state, is_begun in found:
            place = self._open.pop(key)
            item = self._new[place]
            assert item.version is not None
            if item.version > version or state == "done":
                newer = replace(item, version=max(item.version, version + 1))
                armed.append((item_id, self._merge(args, newer)))
                self._answers[place] = Armed(item_id, "again")
            else:
                self._answers[place] = Armed(item_id, "known", bool(is_begun))
        return armed

    def fresh(self) -> list[NewItem]:
        """The items to insert, in this order; those without a version come first."""
        keyed = (place for _, place in sorted(self._open.items()))  # always in the same order, against deadlocks
        return [self._new[place] for place in (*self._without, *keyed)]

    def inserted(self, rows: Iterable[tuple[int, str | None]]) -> None:
        """Note what was inserted, as pairs of id and key; another transaction took the missing keys meanwhile."""
        for item_id, key in rows:
            place = self._without.pop(0) if key is None or key not in self._open else self._open.pop(key)
            self._answers[place] = Armed(item_id, "new")

    def answers(self) -> list[Armed]:
        return [answer or self._beaten(item) for answer, item in zip(self._answers, self._new, strict=True)]

    def _beaten(self, item: NewItem) -> Armed:
        """The answer for an item of whose key another one of the same call has a higher version."""
        assert item.key is not None
        winner = self._answers[self._winners[item.key]]
        assert winner is not None
        return Armed(winner.id, "known")


def chunks(rows: Iterable[NewItem], size: int) -> Iterator[list[NewItem]]:
    left = iter(rows)
    while chunk := list(islice(left, size)):
        yield chunk
