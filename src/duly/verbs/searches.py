"""Questions to providers on behalf of items: written down by the task that asks, and read by people.

They belong to their item, and go when it goes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from duly.core.model import Item
from duly.core.shown import SearchEvent
from duly.verbs.context import VerbGroup
from duly.verbs.who import Principal


class Question(Struct, frozen=True):
    """A question that was answered, or was not: in which words, at whom, how it ended, and how long that took."""

    variant: str
    retailer: str
    status: str
    milliseconds: int


class Searches(VerbGroup):
    def page(self, who: Principal, job_id: int, after: int = 0, most: int = 100) -> list[SearchEvent]:
        """What was asked for rows of a job, in the order in which it was told; `after` is the last id before."""
        self._peers.jobs.get(who, job_id)
        given = {"job_id": job_id, "after": after, "most": most}
        return self._read.all(SearchEvent, "searches_of_job", given)

    # What tasks do about their own items. It is nobody's act, so nobody is asked who they are.

    def of(self, item: Item) -> list[SearchEvent]:
        """What was asked for this item in all its tries."""
        return self._read.all(SearchEvent, "searches_of_item", {"item_id": item.id})

    def note(self, item: Item, round: int, questions: Sequence[Question], connection: Any = None) -> None:
        """Write down what this try has asked, each question once; with a connection, as a part of its transaction."""
        subject = {"item_id": item.id, "job_id": item.job_id, "attempt": item.attempt, "fence": item.fence}
        with self._context.joining(connection) as connection:
            for each in questions:
                given = {**subject, **asdict(each), "round": round, "now": self._now()}
                self._store.write("note_search", given, connection)
