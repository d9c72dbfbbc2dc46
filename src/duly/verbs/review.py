"""Review: items that failed alike are a group. People write notes about a group, retry one of it, and then all."""

from __future__ import annotations

from typing import Any

from duly.core.errors import ItemNotFound
from duly.core.shown import Act, Group, ReviewNote
from duly.verbs.acts import Acts
from duly.verbs.audit import Audit
from duly.verbs.ground import Ground
from duly.verbs.items import Items
from duly.verbs.read import Read
from duly.verbs.who import Principal


class Review:
    def __init__(self, ground: Ground, audit: Audit, items: Items, acts: Acts) -> None:
        self._ground = ground
        self._audit = audit
        self._items = items
        self._acts = acts

    def groups(
        self, who: Principal, whose: str | None = None, most: int = 100, after: tuple[int, str] | None = None
    ) -> list[Group]:
        """The largest groups first; `after` is the size and the id of the last one of the page before."""
        return self._read.groups(who.among(whose), most, after)

    def group(self, who: Principal, group_id: str) -> Group:
        group = self._read.group(group_id, who.reach)
        if group is None:
            raise ItemNotFound(f"there is no group {group_id}")
        return group

    def notes(self, who: Principal, group_id: str) -> list[ReviewNote]:
        """What people wrote about a group, newest first."""
        return self._read.review_notes(group_id, who.reach)

    def write_note(self, who: Principal, group_id: str, text: str, connection: Any = None) -> ReviewNote:
        """Write something down about a group."""
        self.group(who, group_id)
        now = self._ground.now()
        row = {"owner": who.reach, "error_group": group_id, "author": who.user_id, "text": text, "now": now}
        with self._ground.joining(connection) as connection:
            made: int = self._ground.store.run(connection, "write_review_note", row)[0][0]
            self._audit.note(who, "review.noted", f"group:{group_id}", {"note": made}, connection)
        return ReviewNote(made, who.user_id, text, now)

    def canary(self, who: Principal, group_id: str, connection: Any = None) -> int:
        """Try one of the group again, to see whether the cause is gone; returns which."""
        sample = self.group(who, group_id).sample
        about = {"group": group_id}
        self._items.retry(who, sample, action="review.canary", details=about, connection=connection)
        return sample

    def retry(self, who: Principal, group_id: str, rate: float | None = None, connection: Any = None) -> Act:
        """Try all of the group again: so many a second, or all at once without a `rate`."""
        self.group(who, group_id)
        return self._acts.order(who, "retry", _all_of(group_id), rate=rate, connection=connection)

    def discard(self, who: Principal, group_id: str, reason: str = "", connection: Any = None) -> Act:
        """Take all of the group out of review for good."""
        self.group(who, group_id)
        return self._acts.order(who, "discard", _all_of(group_id), reason=reason, connection=connection)

    @property
    def _read(self) -> Read:
        return Read(self._ground.store, self._ground.clock)


def _all_of(group_id: str) -> dict[str, Any]:
    return {"state": "failed", "error_group": group_id}
