"""Where the command line looks after messages: on a database, or through a service."""

from __future__ import annotations

from base64 import b64encode
from contextlib import AbstractContextManager
from itertools import islice
from typing import Any, BinaryIO, Protocol

from duly.apps.messages import message_retry_on
from duly.apps.messages.review import Act
from duly.cli import options
from duly.cli.sides import chosen, snake
from duly.core.shown import Drift


class Side(Protocol):
    """Where messages are looked after: here, or through a service."""

    def pages(self, most: int, filters: dict[str, Any]) -> list[dict[str, Any]]: ...

    def show(self, item_id: int) -> dict[str, Any]: ...

    def edit(self, item_id: int, changes: dict[str, Any]) -> None: ...

    def send(self, item_id: int, is_again: bool, changes: dict[str, Any]) -> int: ...

    def payload(self, item_id: int, out: BinaryIO) -> None: ...

    def drift(self, minutes: int) -> list[Drift]: ...

    def act(self, act: Act, item_id: int) -> None: ...


class _Here:
    """On the database that the settings name."""

    def __init__(self, app: Any) -> None:
        self._messages = message_retry_on(app)

    def pages(self, most: int, filters: dict[str, Any]) -> list[dict[str, Any]]:
        return [
            self._messages.queries.shown(row, is_brief=True)
            for row in self._messages.queries.page(None, most=most, **filters)
        ]

    def show(self, item_id: int) -> dict[str, Any]:
        return self._messages.queries.shown(self._messages.review.find(options.who(), item_id))

    def edit(self, item_id: int, changes: dict[str, Any]) -> None:
        self._messages.review.edit(item_id, **changes, who=options.who())

    def send(self, item_id: int, is_again: bool, changes: dict[str, Any]) -> int:
        return self._messages.review.resend(item_id, replay=is_again, **changes, who=options.who())

    def payload(self, item_id: int, out: BinaryIO) -> None:
        out.write(self._messages.queries.payload(self._messages.review.find(options.who(), item_id)))

    def drift(self, minutes: int) -> list[Drift]:
        return self._messages.queries.drift(None, minutes)

    def act(self, act: Act, item_id: int) -> None:
        self._messages.review.act(options.who(), act, item_id)


class _There:
    """Through a service."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def pages(self, most: int, filters: dict[str, Any]) -> list[dict[str, Any]]:
        said = {"pageSize": min(most, 500), "messageId": filters.pop("message_id"), **filters}
        return [snake(each) for each in islice(self._client.pages("/api/messages", said), most)]

    def show(self, item_id: int) -> dict[str, Any]:
        return snake(self._client.request("GET", f"/api/messages/{item_id}"))

    def edit(self, item_id: int, changes: dict[str, Any]) -> None:
        self._client.request("PATCH", f"/api/messages/{item_id}", _body(changes))

    def send(self, item_id: int, is_again: bool, changes: dict[str, Any]) -> int:
        body = {**_body(changes), "replay": is_again}
        return int(self._client.request("POST", f"/api/messages/{item_id}/send", body)["ids"][0])

    def payload(self, item_id: int, out: BinaryIO) -> None:
        self._client.download(f"/api/messages/{item_id}/payload", {}, out)

    def drift(self, minutes: int) -> list[Drift]:
        told = self._client.request("GET", "/api/messages/drift", query={"minutes": minutes})
        return [Drift(*point) for point in told["points"]]

    def act(self, act: Act, item_id: int) -> None:
        self.show(item_id)
        self._client.request("POST", f"/api/items/{item_id}/{'retry' if act == 'expedite' else act}")


def _body(changes: dict[str, Any]) -> dict[str, Any]:
    payload = changes.pop("payload")
    text = None if payload is None else b64encode(payload).decode()
    return {name: value for name, value in {**changes, "payloadBase64": text}.items() if value is not None}


def side() -> AbstractContextManager[Side]:
    """The one that the command line asks for."""
    return chosen(_Here, _There)
