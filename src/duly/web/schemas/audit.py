"""Lines of the audit log."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from duly.web.schemas import Out


class NoteOut(Out):
    """A line of the audit log."""

    id: int
    at: datetime
    actor: str
    action: str
    subject: str
    details: Any
