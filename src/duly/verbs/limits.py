"""Limits: people change them while everything runs."""

from __future__ import annotations

from typing import Any

from duly.core.errors import InputError
from duly.core.policy.limits import parse_limit
from duly.tasks.checks import checked_name
from duly.verbs.context import VerbGroup
from duly.verbs.who import Principal


class Limits(VerbGroup):
    def set(self, who: Principal, name: str, limit: str | None, connection: Any = None) -> None:
        """Allow so much from now on, over the whole fleet: `2/1m`, `4`, or None for what the code says."""
        try:
            most, per = (None, None) if limit is None else parse_limit(limit)
        except ValueError as error:
            raise InputError("limit", str(error)) from None
        given = {"name": checked_name("limit", name), "most": most, "per": per}
        with self._context.joining(connection) as connection:
            self._store.write("set_meter", given, connection)
            self._audit.note(who, "limit.set", f"limit:{name}", {"limit": limit}, connection)
