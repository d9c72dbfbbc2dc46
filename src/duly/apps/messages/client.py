"""Messages through a service (`MessagesClient`) or on a database (`LocalMessages`): the same methods on both."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any, BinaryIO, Unpack

from msgspec import Struct, convert

from duly.apps.messages import message_retry_on
from duly.apps.messages.review import Act, Other
from duly.cli import options
from duly.core.model import State
from duly.core.shown import Drift

if TYPE_CHECKING:
    from duly import Duly
    from duly.client import Client


class Payload(Struct, frozen=True):
    """The beginning of a payload."""

    bytes: int
    text: str | None
    hex: str
    decoded: Any = None


class Failure(Struct, frozen=True):
    retry: int
    at: datetime
    reason: str = ""


class MessageRow(Struct, frozen=True, kw_only=True):
    """A message in a list."""

    id: int
    message_id: str | None
    queue: str
    exchange: str
    routing_key: str | None
    state: State
    due_at: datetime
    retry_count: int
    max_retries: int
    reason: str
    error: str | None
    replay_of: int | None
    first_failed_at: datetime | None
    payload: Payload


class MessageStory(MessageRow, frozen=True, kw_only=True):
    """A message with its failures and its properties."""

    story: list[Failure]
    properties: dict[str, Any]


class MessagesClient:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._http = client.http

    def page(
        self, *, state: State | None = None, queue: str | None = None, message_id: str | None = None, most: int
    ) -> Iterator[MessageRow]:
        query = {"state": state, "queue": queue, "message_id": message_id}
        return self._http.pages(MessageRow, "/api/messages", most, **query)

    def get(self, item_id: int) -> MessageStory:
        return self._http.get(MessageStory, f"/api/messages/{item_id}")

    def edit(self, item_id: int, **change: Unpack[Other]) -> None:
        self._http.request("PATCH", f"/api/messages/{item_id}", _body(change))

    def send(self, item_id: int, *, replay: bool = False, **change: Unpack[Other]) -> int:
        answer = self._http.request("POST", f"/api/messages/{item_id}/send", {**_body(change), "replay": replay})
        return int(answer["ids"][0])

    def payload(self, item_id: int, out: BinaryIO) -> None:
        self._http.download(f"/api/messages/{item_id}/payload", {}, out)

    def drift(self, minutes: int) -> list[Drift]:
        points = self._http.request("GET", "/api/messages/drift", query={"minutes": minutes})["points"]
        return [Drift(int(at), mean, most, int(items)) for at, mean, most, items in points]

    def act(self, act: Act, item_id: int) -> None:
        self.get(item_id)
        match act:
            case "cancel":
                self._client.cancel(item_id)
            case "expedite":
                self._client.retry(item_id)
            case "discard":
                self._client.discard(item_id)


class LocalMessages:
    def __init__(self, app: Duly) -> None:
        messages = message_retry_on(app)
        self._review, self._queries = messages.review, messages.queries
        self._who = options.who()

    def page(
        self, *, state: State | None = None, queue: str | None = None, message_id: str | None = None, most: int
    ) -> Iterator[MessageRow]:
        rows = self._queries.page(None, most=most, state=state, queue=queue, message_id=message_id)
        return (convert(self._queries.shown(row, is_brief=True), MessageRow) for row in rows)

    def get(self, item_id: int) -> MessageStory:
        return convert(self._queries.shown(self._review.find(self._who, item_id)), MessageStory)

    def edit(self, item_id: int, **change: Unpack[Other]) -> None:
        self._review.edit(item_id, who=self._who, **change)

    def send(self, item_id: int, *, replay: bool = False, **change: Unpack[Other]) -> int:
        return self._review.resend(item_id, replay=replay, who=self._who, **change)

    def payload(self, item_id: int, out: BinaryIO) -> None:
        out.write(self._queries.payload(self._review.find(self._who, item_id)))

    def drift(self, minutes: int) -> list[Drift]:
        return self._queries.drift(None, minutes)

    def act(self, act: Act, item_id: int) -> None:
        self._review.act(self._who, act, item_id)


def _body(change: Other) -> dict[str, Any]:
    payload = change.get("payload")
    text = None if payload is None else b64encode(payload).decode()
    body = {"queue": change.get("queue"), "headers": change.get("headers"), "payloadBase64": text}
    return {name: value for name, value in body.items() if value is not None}
