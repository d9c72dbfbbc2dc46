"""Acts: one action on all items that fit a filter, as durable work that goes on after a crash where it stood.

An act is a row (`duly_act`) and an item, whose handler walks through the rows that fit, by id, up to the newest at the
time of the order. The changes of a portion and the place where the act stands commit together, so nothing is done or
counted twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from duly.core import codec
from duly.core.decide import decide
from duly.core.errors import ItemNotFound, WrongState
from duly.core.model import Cancel, Change, Discarded, Item, Outcome, Revived
from duly.core.shown import Act, Action
from duly.store.borrow import put_borrowed
from duly.store.records import Record, reader
from duly.verbs.audit import Audit
from duly.verbs.ground import Ground
from duly.verbs.items import STATES
from duly.verbs.who import Principal

TASK = "duly.acts"
PORTION = 500
COUNTED = 1_000_000


class Acts:
    def __init__(self, ground: Ground, audit: Audit) -> None:
        self._ground = ground
        self._audit = audit

    def count(self, who: Principal, filter: Mapping[str, Any], whose: str | None = None) -> tuple[int, int]:
        """How many rows fit a filter now, counted up to a million, and the id of the newest row of all."""
        given = {"owner": who.among(whose), **_filter(filter), "most": COUNTED}
        count, newest = self._ground.store.read("act_count", given)[0]
        return count, newest

    def order(
        self,
        who: Principal,
        action: Action,
        filter: Mapping[str, Any],
        *,
        rate: float | None = None,
        reason: str = "",
        whose: str | None = None,
        connection: Any = None,
    ) -> Act:
        """Order an action on all rows that fit this filter. Retries are due at so many a second; without a `rate`, now.

        The act and the item that carries it out commit together.
        """
        total, newest = self.count(who, filter, whose)
        options = {"rate": rate, "reason": reason}
        row = {
            "owner": who.among(whose), "author": who.user_id, "action": action,
            "filter": codec.encode(_filter(filter)).decode(), "options": codec.encode(options).decode(),
            "total": total, "until": newest, "now": self._ground.now(),
        }  # fmt: skip
        with self._ground.joining(connection) as connection:
            act_id: int = self._ground.store.run(connection, "act_create", row)[0][0]
            new = self._ground.task_named(TASK).new({"act_id": act_id, "key": f"act-{act_id}"})
            put_borrowed(connection, new)
            details = {"action": action, "filter": _filter(filter), "total": total}
            self._audit.note(who, "act.ordered", f"act:{act_id}", details, connection)
            return self.get(who, act_id, connection)

    def get(self, who: Principal, act_id: int, connection: Any = None) -> Act:
        """An act, which says how far it is."""
        return _found(self._ground, act_id, who.reach, connection)

    def page(self, who: Principal, whose: str | None = None, before: int | None = None, most: int = 100) -> list[Act]:
        """Acts, newest first; `before` is the last id of the page before."""
        given = {"owner": who.among(whose), "before": before or 2**63 - 1, "most": most}
        return [_act(row) for row in self._ground.store.read("acts", given)]

    def cancel(self, who: Principal, act_id: int, connection: Any = None) -> Act:
        """Stop an act where it stands; what it has done stays done."""
        self.get(who, act_id)
        given = {"id": act_id, "owner": who.reach, "now": self._ground.now()}
        with self._ground.joining(connection) as connection:
            if not self._ground.store.run(connection, "act_cancel", given):
                raise WrongState(f"act {act_id} is over")
            self._audit.note(who, "act.cancelled", f"act:{act_id}", {}, connection)
            return self.get(who, act_id, connection)


def portions(ground: Ground, act_id: int) -> Iterator[Act]:
    """Carry out an act portion by portion, from where it stands; yields the act after each portion."""
    most = PORTION
    while (act := _found(ground, act_id)).state == "running":
        if "from" not in act.options:  # a rate is counted from the real beginning
            options = codec.encode({**act.options, "from": ground.now()}).decode()
            ground.store.write("act_begin", {"id": act_id, "options": options})
            continue
        given = {**act.filter, "owner": act.owner, "place": act.place, "until": act.until, "most": most}
        ids = [row[0] for row in ground.store.read("act_page", given)]
        if not ids:
            ground.store.write("act_finish", {"id": act_id, "now": ground.now()})
            return
        changes = list(_changes(ground, act, ground.store.fetch(ids)))
        try:
            _apply(ground, act, ids, changes)
        except _Outrun:
            continue  # it was cancelled, or another try was faster, and this portion was rolled back
        except WrongState:
            # A change was refused, such as to a second live item with the same key: go on one by one to find it.
            if most > 1:
                most = 1
                continue
            _apply(ground, act, ids, ())
        most = PORTION
        yield _found(ground, act_id)


def _apply(ground: Ground, act: Act, ids: Sequence[int], changes: Sequence[Change]) -> None:
    """Make these changes and write where the act stands: both or none."""
    with ground.store.transaction() as connection:
        refused = ground.store.settle(changes, (), connection)
        moved = {
            "id": act.id, "was": act.place, "seen": len(ids), "changed": len(changes) - len(refused), "place": ids[-1],
        }  # fmt: skip
        if not ground.store.run(connection, "act_move", moved):
            raise _Outrun


def _changes(ground: Ground, act: Act, items: list[Item]) -> Iterator[Change]:
    now, rate = ground.now(), act.options.get("rate")
    begun = datetime.fromisoformat(act.options["from"])
    place = act.changed
    for item in sorted(items, key=lambda each: each.id):
        if item.state not in STATES[act.action]:
            continue
        outcome: Outcome
        match act.action:
            case "cancel":
                outcome = Cancel(act.options.get("reason", ""))
            case "discard":
                outcome = Discarded()
            case _:
                # At a rate, each is due a little after the one before, so that nobody has to wait here.
                outcome = Revived(begun + timedelta(seconds=place / rate) if rate else now)
        yield decide(item, outcome, now, ground.rules_of(item.task))
        place += 1


def _filter(filter: Mapping[str, Any]) -> dict[str, Any]:
    return {name: filter.get(name) for name in ("state", "task", "queue", "error_group")}


def _found(ground: Ground, act_id: int, owner: str | None = None, connection: Any = None) -> Act:
    rows = ground.store.read("act", {"id": act_id, "owner": owner}, connection)
    if not rows:
        raise ItemNotFound(f"there is no act {act_id}")
    return _act(rows[0])


_act = reader(Record(Act), {object: codec.decode})


class _Outrun(Exception):
    pass
