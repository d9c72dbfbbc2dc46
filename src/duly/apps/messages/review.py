"""What a person does about a message: send it, or change it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from duly import Duly, InputError, codec
from duly.apps.messages.rows import TASK, TASK_RANK
from duly.apps.messages.settings import Settings
from duly.bridge.message import Message, changed
from duly.decide import decide
from duly.errors import ItemNotFound, WrongState
from duly.model import Revived
from duly.task import Task


class Review:
    """The acts of a person on one message, each with its line in the audit log."""

    def __init__(self, app: Duly, settings: Settings, task: Task[..., Any]) -> None:
        self._app = app
        self._settings = settings
        self._task = task

    def resend(
        self,
        item_id: int,
        *,
        queue: str | None = None,
        payload: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        actor: str = "local",
        connection: Any = None,
    ) -> None:
        """Publish this message now, whatever its count: to its queue or another, as it is or changed."""
        self._change(item_id, "message.sent", actor, connection, queue=queue, payload=payload, headers=headers)

    def edit(
        self,
        item_id: int,
        *,
        queue: str | None = None,
        payload: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        actor: str = "local",
        connection: Any = None,
    ) -> None:
        """Change a message that waits or is in review."""
        self._change(item_id, "message.edited", actor, connection, queue=queue, payload=payload, headers=headers)

    def _change(
        self,
        item_id: int,
        action: str,
        actor: str,
        connection: Any,
        *,
        queue: str | None,
        payload: bytes | None,
        headers: Mapping[str, str] | None,
    ) -> None:
        store, now = self._app.store, self._app.clock.now()
        if connection is None:
            with store.transaction() as own:
                self._change(item_id, action, actor, own, queue=queue, payload=payload, headers=headers)
            return
        version = store.run(connection, "item_version", {"id": item_id})
        found = store.fetch([item_id])
        if not found or not version or found[0].task != TASK:
            raise ItemNotFound(f"there is no message {item_id}")
        (item,) = found
        if item.state not in ("waiting", "failed"):
            raise WrongState(f"message {item_id} is {item.state} and cannot be changed")
        is_sent = action == "message.sent"
        row = changed(msgspec.json.decode(item.args, type=Message), queue, payload, headers)
        if is_sent:
            row = replace(row, is_sent_back=True)
            if not row.queue:
                raise InputError("queue", "say where to: this message came without a queue")
        if row.queue == self._settings.retry_queue:
            raise InputError("queue", "is the retry queue itself")
        if payload is not None and len(payload) > self._settings.message_max_bytes:
            raise InputError("payload", "is larger than is kept of a message")
        args = codec.encode(row)
        values = {
            "id": item_id, "owner": None, "was": item.state, "fence": item.fence, "version": version[0][0],
            "args": args.decode(), "due_at": item.due_at, "rank": TASK_RANK, "now": now,
        }  # fmt: skip
        is_changed = bool(store.run(connection, "edit_item", values))
        if is_changed and is_sent:
            revived = decide(item, Revived(now), now, self._task.rules)
            is_changed = not store.settle([revived], connection=connection)
        if not is_changed:
            raise WrongState(f"message {item_id} was changed by someone else; look again")
        said = {
            "queue": queue,
            "payloadBytes": None if payload is None else len(payload),
            "headers": [*(headers or ())],
        }
        note = {"actor": actor, "action": action, "subject": f"item:{item_id}", "now": now}
        store.run(connection, "write_note", {**note, "details": codec.encode(said).decode()})
