"""Errors as problem documents (RFC 9457): one shape for all of them, and a status for each of ours."""

from __future__ import annotations

import logging
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from duly.errors import (
    ConfigError,
    DulyError,
    InputError,
    ItemNotFound,
    KeyConflict,
    StoreUnavailable,
    UnknownTask,
    WrongState,
)

log = logging.getLogger("duly.web")

MEDIA_TYPE = "application/problem+json"

STATUSES: tuple[tuple[type[Exception], int, str], ...] = (
    (ItemNotFound, 404, "Not found"),
    (UnknownTask, 422, "Unknown task"),
    (KeyConflict, 409, "Conflict"),
    (WrongState, 409, "Not in this state"),
    (InputError, 422, "Invalid input"),
    (ConfigError, 422, "Invalid input"),
    (StoreUnavailable, 503, "The database is away"),
)
TITLES = {
    400: "Bad request", 401: "Sign in first", 403: "Not allowed", 404: "Not found", 405: "No such method",
    408: "Too slow", 409: "Conflict", 411: "Length required", 413: "Too large", 415: "Not JSON",
    422: "Invalid input", 429: "Too many", 503: "Away",
}  # fmt: skip


class Problem(Exception):
    """A refusal with its status, raised anywhere below a route."""

    def __init__(
        self, status: int, detail: str, field: str | None = None, headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.field = field
        self.headers = headers or {}


def problem(status: int, detail: str, title: str = "", field: str | None = None, **headers: str) -> JSONResponse:
    body: dict[str, Any] = {
        "type": "about:blank",
        "title": title or TITLES.get(status, "Problem"),
        "status": status,
        "detail": detail,
    }
    if field is not None:
        body["field"] = field
    return JSONResponse(body, status, headers=headers, media_type=MEDIA_TYPE)


def handle_on(api: FastAPI) -> None:
    """Every error leaves as a problem document; none of them tells what it need not."""

    @api.exception_handler(Problem)
    def refused(_: Request, error: Problem) -> JSONResponse:
        return problem(error.status, error.detail, field=error.field, **error.headers)

    @api.exception_handler(DulyError)
    def ours(_: Request, error: DulyError) -> JSONResponse:
        for kind, status, title in STATUSES:
            if isinstance(error, kind):
                field = error.field if isinstance(error, InputError) else None
                headers = {"Retry-After": "5"} if status == 503 else {}
                return problem(status, str(error), title, field, **headers)
        log.exception("a request failed", exc_info=error)
        return problem(500, "this was not expected; it is in the log", "Internal error")

    @api.exception_handler(RequestValidationError)
    def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        place = [str(part) for part in first.get("loc", ()) if part not in ("body", "query", "path")]
        field = ".".join(place) or "body"
        return problem(422, f"{field}: {first.get('msg', 'is invalid')}", field=field)

    @api.exception_handler(HTTPException)
    def http(_: Request, error: HTTPException) -> JSONResponse:
        return problem(error.status_code, str(error.detail), **dict(error.headers or {}))

    @api.exception_handler(Exception)
    def unexpected(_: Request, error: Exception) -> JSONResponse:
        log.exception("a request failed", exc_info=error)
        return problem(500, "this was not expected; it is in the log", "Internal error")
