"""Routes: a function's return annotation is the type of its answer, and an act is carried out once per key."""

from __future__ import annotations

import hashlib
import inspect
import json
import re
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any, TypeVar, get_type_hints

from fastapi import APIRouter, Depends, FastAPI, Header, Request, Response
from fastapi.datastructures import DefaultPlaceholder
from fastapi.responses import JSONResponse
from msgspec import Struct
from pydantic import BaseModel

from duly import Duly
from duly.core.errors import ConfigError
from duly.core.model import Placed
from duly.plugins import claim
from duly.verbs import Principal
from duly.verbs.service import StoredReply
from duly.web.auth import principal_of
from duly.web.desk import App
from duly.web.problems import Problem, problem
from duly.web.schemas import modelled, out

IdempotencyKey = Annotated[
    str | None,
    Header(alias="Idempotency-Key", min_length=1, max_length=200, pattern=r"^[\x21-\x7e]+$",
           description="A POST with the same key and body returns the first answer and has no second effect."),
]  # fmt: skip

# The connection of a route that changes something. The function is called in a transaction, once per Idempotency-Key.
Transaction = Annotated[Any, "transaction"]

F = TypeVar("F", bound=Callable[..., Any])


def repeatable(why: str) -> Callable[[F], F]:
    """Marks the function of a POST that needs no `Transaction`, with the reason why a second execution does no harm."""

    def mark(endpoint: F) -> F:
        endpoint.repeatable = why  # type: ignore[attr-defined]
        return endpoint

    return mark


class Router(APIRouter):
    """A router for functions that return structs.

    The answer's model is made from the return annotation: `Row`, `Page[Row]`, `list[Alert]`. A function with a
    parameter `connection: Transaction` is called once per Idempotency-Key; what it writes on that connection commits
    together with its answer. A POST without it has to be marked as `repeatable`. An item that was put before is
    answered with 200.
    """

    def add_api_route(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        hints = get_type_hints(endpoint, include_extras=True)
        answer = hints.pop("return")
        if isinstance(options["response_model"], DefaultPlaceholder):  # that is, none was given
            is_plain = isinstance(answer, type) and issubclass(answer, Response | None)
            options["response_model"] = None if is_plain or options["status_code"] == 204 else modelled(answer)
        if getattr(answer, "__origin__", None) is Placed:
            options["responses"] = {200: {"model": options["response_model"]}}
        is_act = Transaction in hints.values()
        is_once = is_act or Once in hints.values() or IdempotencyKey in hints.values()
        if "POST" in options["methods"] and not is_once and not hasattr(endpoint, "repeatable"):
            raise ConfigError(
                f"POST {self.prefix}{path}: {endpoint.__module__}.{endpoint.__qualname__} would be executed again for "
                "a repeated Idempotency-Key: give it a parameter `connection: Transaction` and write on that "
                "connection, or mark it with @repeatable if that does no harm"
            )
        super().add_api_route(path, _act(endpoint, hints) if is_act else endpoint, **options)


def add_routes(api: FastAPI, router: APIRouter, owner: str, owners: dict[tuple[str, str], str]) -> None:
    """Add the routes of the core or of a plug-in to the service, unless another has the same."""
    if router.prefix:
        claim(owners, owner, "prefix of routes", router.prefix)
    for route in router.routes:
        path = re.sub(r"{[^}]*}", "{}", getattr(route, "path", ""))
        for method in getattr(route, "methods", None) or ():
            claim(owners, owner, "route", f"{method} {path}")
            if method == "POST" and not isinstance(router, Router):
                raise ConfigError(
                    f"apps: {owner} has POST {path} on a plain APIRouter, where a repeated Idempotency-Key has no "
                    "effect: make the router with duly.plugin.Router"
                )
    api.include_router(router)


def _act(endpoint: Callable[..., Any], hints: dict[str, Any]) -> Callable[..., Response]:
    """The function as FastAPI calls it: with the dependency `once` in place of the connection."""

    @wraps(endpoint)
    def act(once: OncePerKey, **given: Any) -> Response:
        body = next((value for value in given.values() if isinstance(value, BaseModel)), None)
        return once(body, lambda connection: endpoint(**given, connection=connection))

    parameters = inspect.signature(endpoint).parameters
    given = [each.replace(annotation=hints[name]) for name, each in parameters.items() if name != "connection"]
    once = inspect.Parameter("once", inspect.Parameter.KEYWORD_ONLY, annotation=Once)
    act.__signature__ = inspect.Signature([*given, once])  # type: ignore[attr-defined]
    return act


class OncePerKey:
    """Carries out an act in a transaction: once per Idempotency-Key, if the request has one."""

    def __init__(self, request: Request, app: Duly, user_id: str, key: str | None) -> None:
        self._request = request
        self._app = app
        self._user_id = user_id
        self._key = key

    def __call__(
        self,
        body: BaseModel | None,
        act: Callable[[Any], Any],
        kept: Callable[[Any], tuple[int, Any]] = lambda answer: (0, answer),
    ) -> Response:
        """Carry out `act` once: a repeated request gets the same answer and has no effect.

        `act` returns the answer. It writes on the connection that it is given, so that the effect, the audit line and
        the stored answer commit together. `kept` gives the status and answer to store in place of an answer that holds
        a secret.
        """
        store, service = self._app.internals.store, self._app.internals.verbs.service
        if self._key is None:
            with store.transaction() as connection:
                answer = act(connection)
            return _reply(self._status(answer), _jsonable(answer))
        named = (self._user_id, self._key)
        digest = _digest(self._request, body)
        if (known := _repeated(service.reply(*named), digest)) is not None:
            return known
        with store.transaction() as connection:
            if service.begin_reply(*named, digest, connection):
                answer = act(connection)
                status, plain = self._status(answer), _jsonable(answer)
                other_status, stored = kept(plain)
                service.end_reply(*named, other_status or status, json.dumps(stored), connection)
                return _reply(status, plain)
        if (known := _repeated(service.reply(*named), digest)) is None:
            raise Problem(409, "a request with this Idempotency-Key is in progress", headers={"Retry-After": "1"})
        return known

    def _status(self, answer: Any) -> int:
        """That of the route; 200 for an item that was there before, and for an answer where none was expected."""
        status: int = self._request.scope["route"].status_code or 200
        was_there = isinstance(answer, Placed) and not answer.fresh
        return 200 if was_there or (status == 204 and answer is not None) else status


async def _once(
    request: Request,
    app: App,
    principal: Annotated[Principal, Depends(principal_of)],
    idempotency_key: IdempotencyKey = None,
) -> OncePerKey:
    return OncePerKey(request, app, principal.user_id, idempotency_key)


Once = Annotated[OncePerKey, Depends(_once)]


def _repeated(known: StoredReply | None, digest: str) -> Response | None:
    if known is None:
        return None
    if known.request != digest:
        raise Problem(422, "Idempotency-Key: was already used for another request", "Idempotency-Key")
    answer = json.loads(known.answer)
    reply = problem(known.status, answer) if known.status >= 400 else _reply(known.status, answer)
    reply.headers["Idempotency-Replayed"] = "true"
    return reply


def _reply(status: int, answer: Any) -> Response:
    return Response(status_code=status) if status == 204 else JSONResponse(answer, status)


def _digest(request: Request, body: BaseModel | None) -> str:
    # Without the password, because this hash is stored, and a fast hash is easy to guess against.
    content = None if body is None else body.model_dump(exclude={"password"})
    text = json.dumps([request.method, request.url.path, request.url.query, content], default=str, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _jsonable(answer: Any) -> Any:
    if not isinstance(answer, Struct):
        return answer
    return out(type(answer)).model_validate(answer).model_dump(mode="json", by_alias=True)
