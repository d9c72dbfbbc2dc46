"""Finds out what happened to items by comparing them with the last look."""

from __future__ import annotations

import re
from collections import Counter
from datetime import datetime
from typing import Literal

from msgspec import Struct

from duly.cli.words import cut, span
from duly.core.model import Tried
from duly.core.shown import Row
from duly.verbs.read import Read

EventKind = Literal["fired", "failed", "in review", "busy", "cancelled"]

_ANSWER = re.compile(r"answered (?P<status>\d+): .*\"message\": \"(?P<message>[^\"]*)\"")

LOOK = 500  # items per look; older ones have come to their end
# Tasks whose items are not shown one by one.
HIDDEN = ("duly.", "enrichment.", "catalog.", "birthday")


class DemoEvent(Struct, frozen=True):
    time: datetime
    kind: EventKind
    row: Row
    text: str


class EventLog:
    def __init__(self, read: Read) -> None:
        self._read = read
        self._rows: dict[int, Row] = {}
        self._shown: Counter[int] = Counter()  # the number of attempts that were shown, by item

    def look(self) -> list[DemoEvent]:
        """What happened since the last look, in order."""
        events: list[DemoEvent] = []
        for row in reversed(self._read.page(most=LOOK)):
            if row.task.startswith(HIDDEN):
                continue
            before = self._rows.get(row.id)
            self._rows[row.id] = row
            if before is None or (before.fence, before.state, before.attempt) != (row.fence, row.state, row.attempt):
                events.extend(self._news(row))
        return sorted(events, key=lambda event: event.time)

    def counts(self) -> Counter[str]:
        return Counter(row.state for row in self._rows.values())

    def upcoming(self) -> list[Row]:
        return sorted((row for row in self._rows.values() if row.state == "waiting"), key=lambda row: row.due_at)

    def _news(self, row: Row) -> list[DemoEvent]:
        news = [self._failure(row, tried, is_last) for tried, is_last in self._new_tries(row)]
        if row.state == "done" and row.finished_at:
            news.append(DemoEvent(row.finished_at, "fired", row, _how(row)))
        elif row.state == "waiting" and row.outcome == "throttled" and row.started_at:
            wait = span((row.due_at - row.started_at).total_seconds())
            news.append(DemoEvent(row.started_at, "busy", row, f"asked to come again in {wait}"))
        elif row.state == "cancelled" and row.finished_at:
            news.append(DemoEvent(row.finished_at, "cancelled", row, row.last_error or ""))
        return news

    def _new_tries(self, row: Row) -> list[tuple[Tried, bool]]:
        if not row.failures + row.crashes + row.losses:
            return []
        tries = self._read.story(row.id).tries
        shown, self._shown[row.id] = self._shown[row.id], len(tries)
        return [(tried, place == len(tries) - 1) for place, tried in enumerate(tries)][shown:]

    def _failure(self, row: Row, tried: Tried, is_last: bool) -> DemoEvent:
        error = _reason(tried.error)
        if is_last and row.state == "failed":
            return DemoEvent(tried.ended_at, "in review", row, error)
        wait = span((row.due_at - tried.ended_at).total_seconds())
        again = f"retry in {wait}" if is_last and row.state == "waiting" else "retried"
        return DemoEvent(tried.ended_at, "failed", row, f"{again}: {error}")


def _how(row: Row) -> str:
    late = (row.started_at - row.due_at).total_seconds() if row.started_at else 0.0
    words = [f"try {row.attempt}"] if row.attempt > 1 else []
    words += [f"{span(late)} late"] if late >= 1 else []
    return ", ".join(words)


def _reason(error: str | None) -> str:
    """The status and message of the provider, if the error has them; else the first line of the error."""
    line = cut(error, 500)
    match = _ANSWER.search(line)
    return f"{match['status']} {match['message']}" if match else line
