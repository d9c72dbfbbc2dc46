"""The try that is under way. A handler that has a parameter `attempt: Attempt` is given it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from duly.core.codec import encode
from duly.core.errors import DulyError, InputError
from duly.core.model import Item, cut

NOTE_LIMIT = 500
BIG = 2**63 - 1


@dataclass(slots=True, eq=False, repr=False)
class Attempt:
    """One try of one item. Send its `key` along, which is the same for every try, so that retries are recognized."""

    item: Item
    tries: int
    _report: Callable[[Item, bytes], None]
    _open: Callable[[], AbstractContextManager[Any]] | None  # opens a transaction
    _opened: tuple[ExitStack, Any] | None = field(default=None, init=False)

    @property
    def id(self) -> int:
        return self.item.id

    @property
    def key(self) -> str:
        """The execution key, to be sent as `Idempotency-Key`."""
        return self.item.execution_key

    @property
    def attempt_key(self) -> str:
        """`{item}-{attempt}-{suffix}`: another for every try, for audit trails."""
        return self.item.attempt_key

    @property
    def number(self) -> int:
        """1 for the first try; to be sent as `Duly-Attempt`."""
        return self.item.attempt

    @property
    def due_at(self) -> datetime:
        """When this try was due."""
        return self.item.due_at.astimezone(UTC)

    @property
    def planned_at(self) -> datetime:
        """When the item was first due: the same for every try."""
        return self.item.planned_at.astimezone(UTC)

    @property
    def schedule_id(self) -> int | None:
        """The schedule that made this item, if one did."""
        return self.item.schedule_id

    @property
    def fingerprint(self) -> str | None:
        """The fingerprint that its schedule had when it made the item, for handlers that return a `Fingerprint`."""
        return self.item.fingerprint

    @property
    def revivals(self) -> int:
        """How often a person had this item tried again after it had ended."""
        return self.item.revivals

    @property
    def lateness(self) -> timedelta:
        """How long after `due_at` it was started."""
        started_at = self.item.started_at or self.item.due_at
        return max(started_at - self.item.due_at, timedelta())

    def progress(self, done: float, total: float | None = None, note: str = "") -> None:
        """Show how far this try is; cheap to call often, written about once a second."""
        for name, value in (("done", done), ("total", total)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
                raise InputError(name, f"must be a number, got {value!r:.80}")
        said = {"done": _bounded(done), "total": _bounded(total), "note": cut(str(note), NOTE_LIMIT)}
        self._report(self.item, encode(said))

    @property
    def connection(self) -> Any:
        """A driver connection in the transaction that will settle this item.

        What the handler writes on it and the item's success commit together, or not at all: exactly once. Plain and
        cpu handlers only; keep it short on SQLite, where everybody else waits.
        """
        if self._open is None:
            raise DulyError(
                "attempt.connection: only plain (def) and cpu handlers have one; an async handler would hold a "
                "transaction across awaits"
            )
        if self._opened is None:
            stack = ExitStack()
            self._opened = (stack, stack.enter_context(self._open()))
        return self._opened[1]

    @property
    def transaction(self) -> tuple[ExitStack, Any] | None:
        """The open transaction in which the item will be settled; None if the handler did not use a connection."""
        return self._opened


def _bounded(number: float | None) -> float | None:
    """The number, within the 64 bits that whole numbers may have in our JSON."""
    return max(min(number, BIG), -BIG) if isinstance(number, int) else number
