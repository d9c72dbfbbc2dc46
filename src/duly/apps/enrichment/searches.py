"""Questions to the provider: written by the task that asks, and read by people. They are deleted with their item."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from datetime import datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from duly import Duly
from duly.core.filters import checked_most
from duly.core.model import Item
from duly.verbs import Principal


class Question(Struct, frozen=True):
    """One question to the provider, and its result."""

    variant: str  # the form of the query
    retailer: str  # the retailer that was asked for; empty: any
    status: str  # found, not_found, or the kind of trouble
    milliseconds: int


class SearchEvent(Struct, frozen=True):
    """A question as it is kept."""

    id: int
    item_id: int
    job_id: int | None  # the job that the item is a row of
    attempt: int  # the number of the try that asked
    round: int  # how many rounds of questions had found nothing before
    variant: str
    retailer: str
    status: str
    milliseconds: int
    created_at: datetime


_SELECT = f"select {', '.join(SearchEvent.__struct_fields__)} from duly_search_event"  # noqa: S608 - our own names
_INSERT = """
insert into duly_search_event
       (item_id, job_id, attempt, fence, round, variant, retailer, status, milliseconds, created_at)
values (:item_id, :job_id, :attempt, :fence, :round, :variant, :retailer, :status, :milliseconds, :now)
    on conflict (item_id, fence, variant, retailer) do nothing
"""


class Searches:
    def __init__(self, app: Duly) -> None:
        self._app = app

    def page(self, who: Principal, job_id: int, after: int = 0, most: int = 100) -> list[SearchEvent]:
        """The questions for rows of a job, oldest first; `after` is the id of the last one before."""
        self._app.internals.verbs.jobs.get(who, job_id)
        checked_most(most)
        where = "where job_id = :job_id and id > :after order by id limit :most"
        return self._read(where, {"job_id": job_id, "after": after, "most": most})

    def of(self, item: Item) -> list[SearchEvent]:
        """The questions of all tries of this item."""
        return self._read("where item_id = :item_id order by id", {"item_id": item.id})

    def note(self, item: Item, round: int, questions: Sequence[Question], connection: Any = None) -> None:
        """Write the questions of this try, each once.

        With the connection of the attempt, that is a part of the transaction that settles the item: all of it happens,
        or nothing does. Without, they are written at once, because an exception would undo what the handler wrote.
        """
        subject = {"item_id": item.id, "job_id": item.job_id, "attempt": item.attempt, "fence": item.fence}
        with self._app.internals.store.transaction() if connection is None else nullcontext(connection) as own:
            for each in questions:
                given = {**subject, **asdict(each), "round": round, "now": self._app.clock.now()}
                self._app.internals.store.query(_INSERT, given, own)

    def _read(self, where: str, given: Mapping[str, Any]) -> list[SearchEvent]:
        return [SearchEvent(*row) for row in self._app.internals.store.query(f"{_SELECT} {where}", given)]
