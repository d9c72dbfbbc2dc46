"""What routes have in common: the app behind them, pages with cursors, masks, and replies that may be repeated."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

from fastapi import Depends, Header, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from duly import Duly, codec
from duly.people import Principal
from duly.web.cursors import Cursors
from duly.web.problems import Problem

MASK = "***"

IdempotencyKey = Annotated[
    str | None,
    Header(alias="Idempotency-Key", min_length=1, max_length=200, pattern=r"^[\x21-\x7e]+$",
           description="Repeating a POST with the same key and body repeats its answer, not its effect."),
]  # fmt: skip


class Desk:
    """Everything that the routes need, made once per API."""

    def __init__(self, app: Duly, cursors: Cursors) -> None:
        self.app = app
        self.cursors = cursors
        names = "|".join(re.escape(name) for name in app.settings.masked.replace(" ", "").split(",") if name)
        self._masked = re.compile(names, re.IGNORECASE) if names else None

    # -- pages

    def page(
        self, rows: Sequence[Any], most: int, place: Callable[[Any], Any], bound: Any, show: Callable[[Any], Any]
    ) -> dict[str, Any]:
        """A page of `most` rows, of which one more was asked for to know whether there are more."""
        shown = [show(row) for row in rows[:most]]
        following = self.cursors.make(place(rows[most - 1]), bound) if len(rows) > most else None
        return {"items": shown, "next": following}

    # -- masks

    def masked(self, value: Any) -> Any:
        """The same without what nobody should read over a shoulder: values by the names they go under."""
        if self._masked is None:
            return value
        if isinstance(value, dict):
            return {name: MASK if self._is_secret(name, inner) else self.masked(inner) for name, inner in value.items()}
        return [self.masked(inner) for inner in value] if isinstance(value, list) else value

    def _is_secret(self, name: str, value: Any) -> bool:
        return self._masked is not None and value is not None and bool(self._masked.search(name))

    # -- replies

    def once(
        self, principal: Principal, key: str | None, request: Request, body: BaseModel | None,
        act: Callable[[Any], tuple[int, Any]],
    ) -> Response:  # fmt: skip
        """Do this once per key: the effect and the answer commit together, and a repetition gets the same answer.

        `act` gets a connection to write on (None without a key) and returns a status and what to answer.
        """
        if key is None:
            status, answer = act(None)
            return JSONResponse(_jsonable(answer), status)
        text = f"{request.method} {request.url.path} {body.model_dump_json() if body is not None else ''}"
        digest = hashlib.sha256(text.encode()).hexdigest()
        named = {"owner": principal.user_id, "key": key}
        if (known := self._known(named, digest)) is not None:
            return known
        with self.app.store.transaction() as connection:
            if not self._run(connection, "reply_begin", {**named, "request": digest, "now": self.app.clock.now()}):
                status = 0
            else:
                status, answer = act(connection)
                plain = _jsonable(answer)
                kept = {**named, "status": status, "answer": codec.encode(plain).decode()}
                self._run(connection, "reply_end", kept)
        if status == 0:  # someone else was faster; the insert waited for them, so their answer is there
            known = self._known(named, digest)
            if known is None:
                raise Problem(409, "a request with this Idempotency-Key is under way", headers={"Retry-After": "1"})
            return known
        return JSONResponse(plain, status)

    def _known(self, named: Mapping[str, Any], digest: str) -> Response | None:
        rows = self.app.store.read("reply", named)
        if not rows:
            return None
        request, status, answer = rows[0]
        if request != digest:
            raise Problem(422, "Idempotency-Key: was used for another request", "Idempotency-Key")
        if status is None:
            return None
        return JSONResponse(codec.decode(answer.encode() if isinstance(answer, str) else answer), status,
                            headers={"Idempotency-Replayed": "true"})  # fmt: skip

    def _run(self, connection: Any, name: str, parameters: Mapping[str, Any]) -> list[Any]:
        return self.app.store.run(connection, name, parameters)


def _jsonable(answer: Any) -> Any:
    return answer.model_dump(mode="json", by_alias=True) if isinstance(answer, BaseModel) else answer


def _desk(request: Request) -> Desk:
    desk: Desk = request.app.state.desk
    return desk


At = Annotated[Desk, Depends(_desk)]
