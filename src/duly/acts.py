"""One act on all rows that fit a filter, as durable work: it goes on where it stood, whoever died over it.

The act is a row (`duly_bulk`) and an item that walks through the rows it means, by id, up to the newest when it was
ordered. A portion's changes and the place where it stands commit together, so nothing is done or counted twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from duly import codec
from duly.attempt import Attempt
from duly.decide import UNKNOWN, Rules, decide
from duly.errors import ItemNotFound, WrongState
from duly.model import Cancel, Change, Discarded, Item, Outcome, Revived
from duly.policy.retry import Backoff
from duly.shown import Act, Action
from duly.store.borrow import put_borrowed
from duly.store.records import Record, reader
from duly.task import Task
from duly.verbs import local

if TYPE_CHECKING:
    from duly.app import Duly

TASK = "duly.acts"
PORTION = 500
COUNTED = 1_000_000

# What an act can be about; the rest of a filter is narrower still.
STATES: dict[str, tuple[str, ...]] = {
    "cancel": ("waiting", "running"),
    "retry": ("failed", "cancelled", "waiting"),
    "discard": ("failed",),
}


class Acts:
    def __init__(self, app: Duly) -> None:
        self._app = app

    def count(self, owner: str | None, filter: dict[str, Any]) -> tuple[int, int]:
        """How many rows a filter means now, up to a million, and the newest row of all."""
        given = {"owner": owner, **_filter(filter), "most": COUNTED}
        count, newest = self._app.store.read("bulk_count", given)[0]
        return count, newest

    def order(
        self,
        owner: str | None,
        author: str,
        action: Action,
        filter: dict[str, Any],
        options: dict[str, Any],
        connection: Any = None,
    ) -> int:
        """Have it done; returns its id. The row and the item that does it commit together."""
        total, newest = self.count(owner, filter)
        row = {
            "owner": owner, "author": author, "action": action, "filter": codec.encode(_filter(filter)).decode(),
            "options": codec.encode(options).decode(), "total": total, "until": newest, "now": self._app.clock.now(),
        }  # fmt: skip
        with self._app.verbs.ground.joining(connection) as connection:
            return self._order(connection, row)

    def _order(self, connection: Any, row: dict[str, Any]) -> int:
        store = self._app.store
        act_id: int = store.run(connection, "bulk_create", row)[0][0]
        task = self._app.task_named(TASK)
        put_borrowed(connection, task.new({"act_id": act_id, "key": f"act-{act_id}"}))
        details = {"action": row["action"], "filter": codec.decode(row["filter"]), "total": row["total"]}
        note = {"actor": row["author"], "action": "bulk.ordered", "subject": f"bulk:{act_id}"}
        store.run(connection, "write_note", {**note, "now": row["now"], "details": codec.encode(details).decode()})
        return act_id

    def get(self, act_id: int, owner: str | None = None, connection: Any = None) -> Act:
        rows = self._app.store.read("bulk", {"id": act_id, "owner": owner}, connection)
        if not rows:
            raise ItemNotFound(f"there is no bulk action {act_id}")
        return _act(rows[0])

    def page(self, owner: str | None, before: int | None, most: int) -> list[Act]:
        rows = self._app.store.read("bulks", {"owner": owner, "before": before or 2**63 - 1, "most": most})
        return [_act(row) for row in rows]

    def cancel(self, act_id: int, actor: str, owner: str | None = None, connection: Any = None) -> None:
        """Stop where it stands; what was done stays done."""
        self.get(act_id, owner)
        given = {"id": act_id, "owner": owner, "now": self._app.clock.now()}
        with self._app.verbs.ground.joining(connection) as connection:
            if not self._app.store.run(connection, "bulk_cancel", given):
                raise WrongState(f"bulk action {act_id} is over")
            self._app.verbs.audit.note(local(actor), "bulk.cancelled", f"bulk:{act_id}", {}, connection)


def acts_on(app: Duly) -> Task[..., Any]:
    """The task that does it, for every worker."""

    def carry_out(act_id: int, attempt: Attempt) -> dict[str, int]:
        for act in _portions(app, act_id):
            attempt.progress(act.seen, act.total)
        done = Acts(app).get(act_id)
        return {"seen": done.seen, "changed": done.changed}

    rules = Rules(retry=Backoff(base=10, tries=100), is_trusted=True)
    return Task(
        app, carry_out, name=TASK, queue=TASK, rules=rules, deadline=6 * 3600.0, cpu=False, batch=None, rank=0,
        label=None,
    )  # fmt: skip


def _portions(app: Duly, act_id: int) -> Iterator[Act]:
    """Do it portion by portion, from where it stands; yields it after each."""
    acts = Acts(app)
    most = PORTION
    while (act := acts.get(act_id)).state == "running":
        if "from" not in act.options:  # a rate counts from when it really begins
            options = codec.encode({**act.options, "from": app.clock.now()}).decode()
            app.store.write("bulk_begin", {"id": act_id, "options": options})
            continue
        given = {**act.filter, "owner": act.owner, "place": act.place, "until": act.until, "most": most}
        ids = [row[0] for row in app.store.read("bulk_page", given)]
        if not ids:
            app.store.write("bulk_finish", {"id": act_id, "now": app.clock.now()})
            return
        changes = list(_changes(app, act, app.store.fetch(ids)))
        try:
            _apply(app, act, ids, changes)
        except _Outrun:
            continue  # cancelled meanwhile, or another try was faster: nothing of this counts
        except WrongState:
            # One of them cannot be, such as a second live item with the same key: alone, so that it stops no other.
            if most > 1:
                most = 1
                continue
            _apply(app, act, ids, ())
        most = PORTION
        yield acts.get(act_id)


def _apply(app: Duly, act: Act, ids: Sequence[int], changes: Sequence[Change]) -> None:
    """Make these changes and note where it stands: both or none."""
    with app.store.transaction() as connection:
        refused = app.store.settle(changes, (), connection)
        moved = {
            "id": act.id, "was": act.place, "seen": len(ids), "changed": len(changes) - len(refused), "place": ids[-1],
        }  # fmt: skip
        if not app.store.run(connection, "bulk_move", moved):
            raise _Outrun


def _changes(app: Duly, act: Act, items: list[Item]) -> Iterator[Change]:
    now, rate = app.clock.now(), act.options.get("rate")
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
                # At a rate: each is due a little after the one before, so nobody has to wait here.
                outcome = Revived(begun + timedelta(seconds=place / rate) if rate else now)
        task = app.tasks.get(item.task)
        yield decide(item, outcome, now, task.rules if task else UNKNOWN)
        place += 1


def _filter(filter: dict[str, Any]) -> dict[str, Any]:
    return {name: filter.get(name) for name in ("state", "task", "queue", "error_group")}


_act = reader(Record(Act), {object: codec.decode})


class _Outrun(Exception):
    pass
