"""Review: items that failed alike are a group. People write notes about a group, retry one of it, and then all."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from msgspec.structs import asdict

from duly.core import codec
from duly.core.shown import Act, Group, GroupStory, ReviewNote, ReviewTotals, ShownGroup
from duly.tasks.checks import checked_group
from duly.verbs.context import Principal, VerbGroup

HOURS = 24  # of a trend
LOOKED_AT = 20_000  # items that the trends of one page look at, at most
COUNTED = 100_000
NOTES = 100


class Review(VerbGroup):
    def groups(
        self, who: Principal, owner: str | None = None, most: int = 100, after: tuple[int, str] | None = None
    ) -> list[ShownGroup]:
        """The largest groups first; `after` is the size and the id of the last one of the page before."""
        owner, (size, last) = who.among(owner), after or (None, None)
        given = {"owner": owner, "most": most, "size": size, "after": last}
        return self._shown(self._read.all(Group, "groups", given), owner)

    def group(self, who: Principal, group_id: str) -> ShownGroup:
        given = {"error_group": checked_group(group_id), "owner": who.reach}
        return self._shown([self._read.found(f"group {group_id}", Group, "group", given)], who.reach)[0]

    def story(self, who: Principal, group_id: str) -> GroupStory:
        """The group with the last error of its sample, and what people wrote about it."""
        group = self.group(who, group_id)
        error = self._peers.items.find(who, group.sample).last_error
        return GroupStory(**asdict(group), error=error, notes=self.notes(who, group_id))

    def totals(self, who: Principal, owner: str | None = None) -> ReviewTotals:
        """How many items are in review and in how many groups, counted up to a hundred thousand.

        For one owner, the newest hundred thousand items are looked at, whatever their state.
        """
        owner = who.among(owner)
        section = "review_totals" if owner is None else "own_review_totals"
        items, groups, looked = self._store.read(section, {"owner": owner, "most": COUNTED + 1})[0]
        return ReviewTotals(min(items, COUNTED), groups, looked > COUNTED)

    def _shown(self, groups: Sequence[Group], owner: str | None) -> list[ShownGroup]:
        """These groups with the message of a sample and how many were given up recently."""
        if not groups:
            return []
        store, now = self._store, self._now()
        since = now - timedelta(hours=HOURS)
        ids, most = [group.id for group in groups], max(LOOKED_AT // len(groups), 10)
        asked = {"groups": codec.text(ids), "owner": owner, "since": since, "most": most}
        trends = {group.id: [0] * HOURS for group in groups}
        for group_id, hour, count in store.read("group_trends", asked):
            trends[group_id][min(hour, HOURS - 1)] += count
        samples = codec.text([group.sample for group in groups])
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
        return self._read.all(ReviewNote, "review_notes", {"error_group": group_id, "owner": who.reach, "most": NOTES})

    def write_note(self, who: Principal, group_id: str, text: str, connection: Any = None) -> ReviewNote:
        """Write something down about a group."""
        self.group(who, group_id)
        now = self._now()
        row = {"owner": who.reach, "error_group": group_id, "author": who.user_id, "text": text, "now": now}
        with self._context.joining(connection) as connection:
            made: int = self._store.write("write_review_note", row, connection)[0][0]
            self._audit.note(who, "review.noted", f"group:{group_id}", {"note": made}, connection)
        return ReviewNote(made, who.user_id, text, now)

    def canary(self, who: Principal, group_id: str, connection: Any = None) -> int:
        """Try one of the group again, to see whether the cause is gone; returns which."""
        sample = self.group(who, group_id).sample
        details = {"group": group_id}
        self._peers.items.retry(who, sample, action="review.canary", details=details, connection=connection)
        return sample

    def retry(
        self, who: Principal, group_id: str, rate: float | None = None, queue: str | None = None, connection: Any = None
    ) -> Act:
        """Retry all items of the group: `rate` per second, or all at once without it; in `queue`, if given."""
        self.group(who, group_id)
        return self._peers.acts.order(who, "retry", _all_of(group_id), rate=rate, queue=queue, connection=connection)

    def discard(self, who: Principal, group_id: str, reason: str = "", connection: Any = None) -> Act:
        """Take all of the group out of review for good."""
        self.group(who, group_id)
        return self._peers.acts.order(who, "discard", _all_of(group_id), reason=reason, connection=connection)


def _all_of(group_id: str) -> dict[str, Any]:
    return {"state": "failed", "error_group": group_id}
