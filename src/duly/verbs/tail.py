"""The audit log as it grows: each line once, though lines need not commit in the order of their ids.

A line whose id is lower than one that was told already may still come, for as long as the transaction that took the id
is under way. Such an id is a gap. It is closed when its line is there, or when every transaction that could bring it is
over: on PostgreSQL an id is taken by transactions that have their number already, so those are the ones below the next
number at a moment after the gap was noticed. On SQLite lines commit in order, and there are no gaps.
"""

from __future__ import annotations

import json

from duly.core.shown import AuditLine
from duly.store import Store

MOST = 500  # lines at once, and gaps that are waited for: a count that jumped leaves more
BEHIND = 200  # ids before the beginning among which there may be gaps


class Tail:
    def __init__(self, store: Store, actor: str | None, after: int | None) -> None:
        """From the line after this one; None: from now on. Lines of one actor; None: of all."""
        self._store = store
        self._actor = actor
        self._top = 0 if after is None else after
        # Each gap with the transaction number from which on nobody can fill it; None: not known yet.
        self._gaps: dict[int, int | None] = {}
        if after is None:
            # What was begun but not done by now is news when it comes.
            last = int(store.read("audit_last", {})[0][0])
            self._top = max(last - BEHIND, 0)
            self._next()
            self._over()
            self._next()

    @property
    def place(self) -> int:
        """Whoever goes on from here misses nothing, and may be told again what came after it."""
        return min(self._gaps) - 1 if self._gaps else self._top

    def look(self) -> list[tuple[int, AuditLine]]:
        """What came since the last look, each line with the place to go on from once it was heard."""
        lines: list[AuditLine] = []
        while ids := self._next():
            given = {"ids": json.dumps(ids), "actor": self._actor}
            lines += [AuditLine(*row) for row in self._store.read("audit_lines", given)]
        told, place = [], self.place
        for line in reversed(lines):
            told.append((place, line))
            place = min(place, line.id - 1)
        return told[::-1]

    def _next(self) -> list[int]:
        """The ids of lines that were not there before, the lowest first."""
        over = self._over()
        given = {"after": self._top, "gaps": json.dumps(sorted(self._gaps)), "most": MOST}
        ids = [row[0] for row in self._store.read("audit_ids", given)]
        here, top = set(ids), max([self._top, *ids])
        missing = range(max(self._top, top - MOST) + 1, top)
        gaps = {**self._gaps, **dict.fromkeys(missing)}
        left = [id for id in sorted(gaps) if id not in here and id not in over]
        self._gaps = {id: gaps[id] for id in left[-MOST:]}
        self._top = top
        return ids

    def _over(self) -> set[int]:
        """Gaps that nobody can fill any more; their lines are there by now, or never will be."""
        if not self._gaps:
            return set()
        oldest, upcoming = self._store.read("audit_horizon", {})[0]
        over = {id for id, until in self._gaps.items() if until is not None and oldest >= until}
        self._gaps = {id: upcoming if until is None else until for id, until in self._gaps.items()}
        return over
