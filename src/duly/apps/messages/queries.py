"""Reads and searches messages for people."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from google.protobuf.message import DecodeError

from duly import Duly, InputError
from duly.apps.messages.rows import TASK, own_queue
from duly.apps.messages.settings import MessagesSettings
from duly.bridge.message import ID_LIMIT, Message, message_id_of, preview
from duly.bridge.properties import BadProperties
from duly.core.errors import ConfigError, WrongState
from duly.core.filters import checked_most
from duly.core.model import State
from duly.core.shown import Drift, Row

# The number of steps of a chart, and the least number of seconds of a step.
DRIFT_STEPS, DRIFT_LEAST = 120, 10


class Queries:
    """Finds messages, and shows them with a look at what they hold."""

    def __init__(self, app: Duly, settings: MessagesSettings) -> None:
        self._app = app
        self._decoder = Decoder(settings.message_descriptors, settings.message_types)

    def page(
        self,
        owner: str | None,
        *,
        message_id: str | None = None,
        queue: str | None = None,
        state: State | None = None,
        before: int | None = None,
        most: int = 100,
    ) -> list[Row]:
        """Messages, newest first."""
        if message_id is None:
            wanted = None if queue is None else own_queue(queue)
            return self._app.read.page(owner=owner, before=before, most=most, task=TASK, queue=wanted, state=state)
        # There is one for each queue that it failed in.
        named = message_id_of(message_id)
        if named is None:
            raise InputError("message_id", f"must be from 1 to {ID_LIMIT} characters without spaces")
        ids = self._app.read.ids_between(TASK, f"{named} ", f"{named}!")
        rows = [self._app.read.row(item_id, owner) for item_id in ids if before is None or item_id < before]
        found = [row for row in rows if row is not None and state in (None, row.state)]
        return [row for row in found if queue in (None, row.args["queue"])][: checked_most(most)]

    def payload(self, row: Row) -> bytes:
        """All bytes of a message."""
        message = msgspec.convert(row.args, Message)
        if message.is_in_review:
            raise WrongState(f"message {row.id} was too large to be stored: take it from the review queue")
        return message.body

    def drift(self, owner: str | None, minutes: int) -> list[Drift]:
        """How late messages were published in the last minutes, in about a hundred steps; of the newest rows."""
        step = max(minutes * 60 // DRIFT_STEPS, DRIFT_LEAST)
        since = self._app.clock.now() - timedelta(minutes=minutes)
        return self._app.read.drift(owner, TASK, since, step)

    def shown(self, row: Row, is_brief: bool = False) -> dict[str, Any]:
        """A message for people to read; in lists without what costs time."""
        message = msgspec.convert(row.args, Message)
        body = message.body
        try:
            properties = message.kept.shown()
        except BadProperties:
            properties = {}
        return {
            "id": row.id,
            "message_id": message.message_id,
            "queue": message.queue or message.named_queue,
            "exchange": message.exchange,
            "routing_key": message.routing_key,
            "state": row.state,
            "due_at": row.due_at,
            "retry_count": message.retry_count,
            "max_retries": message.max_retries,
            "reason": message.reason or message.problem or "",
            "error": row.last_error,
            "replay_of": message.replay_of,
            "first_failed_at": message.story[0].at if message.story else None,
            "story": [msgspec.to_builtins(each, builtin_types=(datetime,)) for each in message.story],
            "properties": properties,
            "payload": {**preview(body), "decoded": None if is_brief else self._decoder.decode(message.queue, body)},
        }


class Decoder:
    """Decodes payloads for people to read, by the protobuf type that is configured for their queue.

    `types`: which message type a queue holds, such as `orders=shop.Order,*=shop.Event`.
    """

    def __init__(self, path: str, types: str) -> None:
        self._types: dict[str, str] = {}
        for each in filter(None, map(str.strip, types.split(","))):
            queue, is_there, name = each.partition("=")
            if not is_there or not queue.strip() or not name.strip():
                raise ConfigError(f"message_types: must be like orders=shop.Order, got {each!r}")
            self._types[queue.strip()] = name.strip()
        self._classes = self._load(path) if path and self._types else {}

    def _load(self, path: str) -> dict[str, Any]:
        files = descriptor_pb2.FileDescriptorSet()
        pool = descriptor_pool.DescriptorPool()
        try:
            files.ParseFromString(Path(path).read_bytes())
            for file in files.file:
                pool.Add(file)
            return {
                name: message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
                for name in set(self._types.values())
            }
        except (OSError, DecodeError, TypeError) as error:
            raise ConfigError(f"message_descriptors: {path} cannot be used: {error}") from None
        except KeyError as error:
            raise ConfigError(f"message_types: {path} has no {error}") from None

    def decode(self, queue: str, payload: bytes) -> dict[str, Any] | None:
        """The payload as JSON of its type; None when the type is unknown, or the payload is of another."""
        found = self._classes.get(self._types.get(queue) or self._types.get("*", ""))
        if found is None:
            return None
        message = found()
        try:
            message.ParseFromString(payload)
            decoded: dict[str, Any] = json_format.MessageToDict(message)
        except Exception:  # a decoder may raise anything on bytes of another type
            return None
        return decoded
