"""The audit log: who did what to what. Each verb that changes something writes its line in its own transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import asdict

from duly.core import codec
from duly.core.shown import AuditLine, ShownAuditLine
from duly.verbs.context import VerbGroup
from duly.verbs.who import Principal


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


def line_shown(line: AuditLine) -> ShownAuditLine:
    """The line with its details decoded."""
    return ShownAuditLine(**{**asdict(line), "details": codec.shown(line.details)})
