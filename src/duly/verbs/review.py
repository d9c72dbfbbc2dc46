"""Review: items that failed alike are a group. People write notes about a group, retry one of it, and then all."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from msgspec.structs import asdict

from duly.core import codec
from duly.core.errors import ItemNotFound
from duly.core.shown import Act, Group, ReviewNote, ReviewTotals, ShownGroup
from duly.verbs.acts import Acts
from duly.verbs.audit import Audit
from duly.verbs.ground import Ground
from duly.verbs.items import Items
from duly.verbs.read import Read
from duly.verbs.who import Principal

HOURS = 24  # of a trend
LOOKED_AT = 20_000  # items that the trends of one page look at, at most
COUNTED = 100_000


class Review:
    def __init__(self, ground: Ground, audit: Audit, items: Items, acts: Acts) -> None:
        self._ground = ground
        self._audit = audit
        self._items = items
        self._acts = acts

    def groups(
        self, who: Principal, whose: str | None = None, most: int = 100, after: tuple[int, str] | None = None
    ) -> list[ShownGroup]:
        """The largest groups first; `after` is the size and the id of the last one of the page before."""
        owner = who.among(whose)
        return self._shown(self._read.groups(owner, most, after), owner)

    def group(self, who: Principal, group_id: str) -> ShownGroup:
        group = self._read.group(group_id, who.reach)
        if group is None:
            raise ItemNotFound(f"there is no group {group_id}")
        return self._shown([group], who.reach)[0]

    def totals(self, who: Principal, whose: str | None = None) -> ReviewTotals:
        """How many items are in review and in how many groups, counted up to a hundred thousand.

        Of one owner, so many of the newest items are looked at, whatever state they are in.
        """
        owner = who.among(whose)
        section = "review_totals" if owner is None else "own_review_totals"
        items, groups, looked = self._ground.store.read(section, {"owner": owner, "most": COUNTED + 1})[0]
        return ReviewTotals(min(items, COUNTED), groups, looked > COUNTED)

    def _shown(self, groups: Sequence[Group], owner: str | None) -> list[ShownGroup]:
        """These groups with the message of a sample and how many were given up lately."""
        if not groups:
            return []
        store, now = self._ground.store, self._ground.now()
        since = now - timedelta(hours=HOURS)
        asked = {
            "groups": codec.encode([group.id for group in groups]).decode(), "owner": owner, "since": since,
            "most": max(LOOKED_AT // len(groups), 10),
        }  # fmt: skip
        trends = {group.id: [0] * HOURS for group in groups}
        for group_id, hour, count in store.read("group_trends", asked):
            trends[group_id][min(hour, HOURS - 1)] += count
        samples = codec.encode([group.sample for group in groups]).decode()
        errors = dict(store.read("last_errors", {"ids": samples, "owner": owner}))
        return [
            ShownGroup(
                **asdict(group),
                message=(errors.get(group.sample) or "").partition("\n")[0] or None,
                trend=tuple(trends[group.id]),
            )
            for group in groups
        ]

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

    def retry(
        self,
        who: Principal,
        group_id: str,
        rate: float | None = None,
        queue: str | None = None,
        connection: Any = None,
    ) -> Act:
        """Try all of the group again: so many a second, or all at once without a `rate`; in this queue, if given."""
        self.group(who, group_id)
        return self._acts.order(who, "retry", _all_of(group_id), rate=rate, queue=queue, connection=connection)

    def discard(self, who: Principal, group_id: str, reason: str = "", connection: Any = None) -> Act:
        """Take all of the group out of review for good."""
        self.group(who, group_id)
        return self._acts.order(who, "discard", _all_of(group_id), reason=reason, connection=connection)

    @property
    def _read(self) -> Read:
        return Read(self._ground.store, self._ground.clock)


def _all_of(group_id: str) -> dict[str, Any]:
    return {"state": "failed", "error_group": group_id}
