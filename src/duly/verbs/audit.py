"""The audit log: who did what to what. Each verb that changes something writes its line in its own transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from duly.core import codec
from duly.core.shown import AuditLine
from duly.store import Store
from duly.verbs.context import Principal, VerbGroup
from duly.verbs.read import rows_as

MOST = 500  # how many lines one look gives, and how many gaps are waited for
PORTIONS = 10  # the most portions that one look reads; the next look continues
BEHIND = 200  # how many ids before the beginning may be gaps


class Audit(VerbGroup):
    def note(
        self, who: Principal, action: str, subject: str, details: Mapping[str, Any], connection: Any = None
    ) -> None:
        """Write a line; with a connection, as a part of its transaction."""
        self.note_each(who, action, [subject], details, connection)

    def note_each(
        self, who: Principal, action: str, subjects: Sequence[str], details: Mapping[str, Any], connection: Any = None
    ) -> None:
        """Write the same line for each of these subjects."""
        given = {"now": self._now(), "actor": who.user_id, "action": action}
        given |= {"subjects": codec.text(subjects), "details": codec.text(details)}
        self._store.write("note_each", given, connection)

    def page(self, subject: str | None = None, before: int | None = None, most: int = 100) -> list[AuditLine]:
        """What was done to this subject, or to all, newest first; `before` is the last id of the page before."""
        return self._read.all(AuditLine, "audit", {"subject": subject, "before": before, "most": most})


class Tail:
    """Follows the audit log: gives each new line once, though lines need not commit in the order of their ids.

    A line with a lower id than one that was given already may still come, as long as the transaction that took that id
    is open. Such an id is a gap. It is closed when its line is there, or when no open transaction can bring it any
    more. On PostgreSQL, a transaction has its number before it takes an id, so after a gap was noticed, only
    transactions below the next number can fill it. On SQLite lines commit in the order of their ids, and there are no
    gaps.
    """

    def __init__(self, store: Store, actor: str | None, after: int | None) -> None:
        """Give lines after this id, or from now on if it is None, of this actor, or of all if it is None."""
        self._store = store
        self._actor = actor
        self._top = 0 if after is None else after
        # For each gap, the transaction number below which transactions could fill it; None: not known yet.
        self._gaps: dict[int, int | None] = {}
        self.is_cut = False  # the last look ended before all lines were given
        if after is None:
            # Lines of transactions that are open now are to be given when they commit.
            last = int(store.read("audit_last", {})[0][0])
            self._top = max(last - BEHIND, 0)
            self._next()
            self._over()
            self._next()

    @property
    def place(self) -> int:
        """An id to continue from later: no line is missed, though some may come twice."""
        return min(self._gaps) - 1 if self._gaps else self._top

    @property
    def is_waiting(self) -> bool:
        """Whether lines below one that was given may still come."""
        return bool(self._gaps)

    def look(self) -> list[tuple[int, AuditLine]]:
        """The lines since the last look, each with the id to continue from after it."""
        lines: list[AuditLine] = []
        self.is_cut = True
        for _ in range(PORTIONS):
            if not (ids := self._next()):
                self.is_cut = False
                break
            given = {"ids": codec.text(ids), "actor": self._actor}
            lines += rows_as(AuditLine, self._store.read("audit_lines", given))
        placed, place = [], self.place
        for line in reversed(lines):
            placed.append((place, line))
            place = min(place, line.id - 1)
        return placed[::-1]

    def _next(self) -> list[int]:
        """The ids of new lines, the lowest first."""
        over = self._over()
        given = {"after": self._top, "gaps": codec.text(sorted(self._gaps)), "most": MOST}
        ids = [row[0] for row in self._store.read("audit_ids", given)]
        here, top = set(ids), max([self._top, *ids])
        missing = range(max(self._top, top - MOST) + 1, top)
        gaps = {**self._gaps, **dict.fromkeys(missing)}
        left = [id for id in sorted(gaps) if id not in here and id not in over]
        self._gaps = {id: gaps[id] for id in left[-MOST:]}
        self._top = top
        return ids

    def _over(self) -> set[int]:
        """The gaps that no open transaction can fill; their lines exist by now, or never will."""
        if not self._gaps:
            return set()
        oldest, upcoming = self._store.read("audit_horizon", {})[0]
        over = {id for id, until in self._gaps.items() if until is not None and oldest >= until}
        self._gaps = {id: upcoming if until is None else until for id, until in self._gaps.items()}
        return over
