"""What the HTTP service keeps for itself: its own secrets, and answers that it may have to repeat."""

from __future__ import annotations

import secrets
from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct

from duly.verbs.context import VerbGroup

KEPT = timedelta(days=1)  # how long an answer can be repeated
PRUNED_EVERY = timedelta(minutes=10)


class StoredReply(Struct, frozen=True):
    """An answer that was given before, under an Idempotency-Key."""

    request: str  # a hash of the request, to notice when another one has the same key
    status: int
    answer: str


class ServiceState(VerbGroup):
    _pruned_at: datetime | None = None

    def secret(self, name: str) -> str:
        """The secret of this name, which all services on this database share; it is made at the first call."""
        return str(self._store.write("secret", {"name": name, "value": secrets.token_urlsafe(32)})[0][0])

    def reply(self, owner: str, key: str) -> StoredReply | None:
        """What this user was answered under this key."""
        self._prune()
        return self._read.one(StoredReply, "reply", {"owner": owner, "key": key})

    def begin_reply(self, owner: str, key: str, request: str, connection: Any) -> bool:
        """Reserve this key; False if it is taken. Waits for another transaction that is about to take it."""
        given = {"owner": owner, "key": key, "request": request, "now": self._now()}
        return bool(self._store.write("reply_begin", given, connection))

    def end_reply(self, owner: str, key: str, status: int, answer: str, connection: Any) -> None:
        """Store this answer, in the transaction of the request."""
        given = {"owner": owner, "key": key, "status": status, "answer": answer}
        self._store.write("reply_end", given, connection)

    def _prune(self) -> None:
        now = self._now()
        if self._pruned_at is None or now - self._pruned_at >= PRUNED_EVERY:
            self._pruned_at = now
            self._store.write("replies_prune", {"before": now - KEPT})
