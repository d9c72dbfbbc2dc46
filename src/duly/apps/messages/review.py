"""Actions of a person on a message: send, change or cancel it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict, Unpack

import msgspec
from msgspec.structs import replace

from duly import Duly, InputError
from duly.apps.messages.rows import TASK, TASK_RANK, Rows
from duly.apps.messages.settings import MessagesSettings
from duly.bridge.message import Message, changed
from duly.core import codec
from duly.core.errors import DoesNotExist, WrongState
from duly.core.shown import Row
from duly.verbs import LOCAL, Principal


class Other(TypedDict, total=False):
    """What becomes of a message: another queue, payload or headers; None leaves what there is."""

    queue: str | None
    payload: bytes | None
    headers: Mapping[str, str] | None


class Review:
    """The actions of a person on one message. They are the actions on any item, with the names that messages use."""

    def __init__(self, app: Duly, settings: MessagesSettings, rows: Rows) -> None:
        self._items = app.internals.verbs.items
        self._settings = settings
        self._rows = rows

    def find(self, who: Principal, item_id: int, connection: Any = None) -> Row:
        """The item of a message, if they reach it."""
        row = self._items.find(who, item_id, connection)
        if row.task != TASK:
            raise DoesNotExist(f"there is no message {item_id}")
        return row

    def resend(
        self,
        item_id: int,
        *,
        replay: bool = False,
        who: Principal = LOCAL,
        connection: Any = None,
        **other: Unpack[Other],
    ) -> int:
        """Publish this message now, whatever its number of retries: to its queue or another, as it is or changed.

        With `replay`, one that was published or cancelled already is published again by a row of its own, whose id is
        returned. Without, that is refused, because it may have been published since the caller looked.
        """
        row = self.find(who, item_id, connection)
        if row.state in ("done", "cancelled"):
            if not replay:
                ended = "was published" if row.state == "done" else "is cancelled"
                raise WrongState(f"message {item_id} {ended}; ask for a replay to publish it again")
            return self._replay(who, row, other, connection)
        self._change(who, item_id, other, is_sent=True, connection=connection)
        return item_id

    def _replay(self, who: Principal, row: Row, other: Other, connection: Any) -> int:
        known = msgspec.convert(row.args, Message)
        message = replace(self._changed(known, other, is_sent=True), is_undecided=False, replay_of=row.id)
        return self._items.put(who, self._rows.replay(message), connection).id

    def edit(self, item_id: int, *, who: Principal = LOCAL, connection: Any = None, **other: Unpack[Other]) -> None:
        """Change a message that waits or is in review."""
        self._change(who, item_id, other, is_sent=False, connection=connection)

    def _change(self, who: Principal, item_id: int, other: Other, *, is_sent: bool, connection: Any) -> None:
        row = self.find(who, item_id, connection)
        known = msgspec.convert(row.args, Message)
        message = self._changed(known, other, is_sent)
        payload = other.get("payload")
        self._items.edit(
            who,
            item_id,
            args=lambda row: codec.encode(self._changed(msgspec.convert(row.args, Message), other, is_sent)),
            # Each queue of the broker has a line of its own here, by which it is paused, filtered and served.
            queue=None if message.queue == known.queue else self._rows.queue_for(message.queue),
            rank=TASK_RANK,
            is_retried=is_sent,
            action="message.sent" if is_sent else "item.edited",
            details={
                "queue": other.get("queue"),
                "payloadBytes": None if payload is None else len(payload),
                "headers": [*(other.get("headers") or ())],
            },
            connection=connection,
        )

    def _changed(self, known: Message, other: Other, is_sent: bool) -> Message:
        payload = other.get("payload")
        message = changed(known, other.get("queue"), payload, other.get("headers"))
        if is_sent:
            message = replace(message, is_sent_back=True)
            if not message.queue:
                raise InputError("queue", "name a queue: this message came without one")
        if message.queue == self._settings.retry_queue:
            raise InputError("queue", "is the retry queue itself")
        if payload is not None and len(payload) > self._settings.message_max_bytes:
            raise InputError("payload", "is larger than a message may be")
        return message
