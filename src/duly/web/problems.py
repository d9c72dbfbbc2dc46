"""Problem documents (RFC 9457) for all errors, with a status for each error class of duly."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from duly.core import errors

log = logging.getLogger("duly.web")

MEDIA_TYPE = "application/problem+json"

STATUSES: tuple[tuple[type[Exception], int, str], ...] = (
    (errors.DoesNotExist, 404, "Not found"),
    (errors.NotAllowed, 403, "Not allowed"),
    (errors.UnknownTask, 422, "Unknown task"),
    (errors.KeyConflict, 409, "Conflict"),
    (errors.WrongState, 409, "Not in this state"),
    (errors.InputError, 422, "Invalid input"),
    (errors.ConfigError, 422, "Invalid input"),
    (errors.StoreUnavailable, 503, "The database cannot be reached"),
    (errors.NotMigrated, 503, "The database is not migrated"),
)
TITLES = {
    400: "Bad request", 401: "Sign in first", 403: "Not allowed", 404: "Not found", 405: "Method not allowed",
    409: "Conflict", 413: "Too large", 415: "Unsupported media type",
    422: "Invalid input", 429: "Too many requests", 503: "Unavailable",
}  # fmt: skip
# What is wrong with a field, by the type of pydantic's error, or by the part of that before the first "_".
FAULTS = {
    "missing": "is required", "extra": "is not a known field", "json": "is not valid JSON ({error})",
    "value": "{error}", "literal": "must be {expected}", "int": "must be a whole number",
    "float": "must be a number", "decimal": "must be a number", "finite": "must be a finite number",
    "decimal_max_digits": "must have at most {max_digits} digits", "bool": "must be true or false",
    "string": "must be a string", "string_too_short": "must have at least {min_length} characters",
    "string_too_long": "must have at most {max_length} characters", "string_pattern_mismatch": "must match {pattern}",
    "string_unicode": "must be valid Unicode", "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be at least {ge}", "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}", "list": "must be a list", "dict": "must be an object",
    "model": "must be an object", "too_short": "must have at least {min_length} entries",
    "too_long": "must have at most {max_length} entries", "date": "must be a date like 2026-12-01",
    "datetime": "must be a time like 2026-12-01T09:00:00+01:00",
    "timezone": "must be a time with its zone, like 2026-12-01T09:00:00+01:00",
}  # fmt: skip
# For a path without a route.
NOWHERE = "there is nothing at {}; a path of an app needs that app in the setting `apps`"


class Problem(Exception):
    """An error with its status, raised anywhere below a route."""

    def __init__(
        self, status: int, detail: str, field: str | None = None, headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.field = field
        self.headers = headers or {}


def problem(status: int, detail: str, title: str = "", field: str | None = None, **headers: str) -> Response:
    return document(status, detail, title, headers, field=field)


def document(status: int, detail: str, title: str, headers: Mapping[str, str], **more: Any) -> Response:
    """A problem document with these fields more; those that are None are left out."""
    body = {"type": "about:blank", "title": title or TITLES.get(status, "Problem"), "status": status, "detail": detail}
    body |= {name: value for name, value in more.items() if value is not None}
    # In ASCII, because the text may quote a request that is not valid Unicode.
    return Response(json.dumps(body), status, headers=dict(headers), media_type=MEDIA_TYPE)


def unexpected(error: Exception) -> Response:
    log.error("a request failed", exc_info=error)
    return problem(500, "unexpected error; see the log of the service", "Internal error")


def _fault(error: dict[str, Any]) -> tuple[str, str]:
    """The field of an error of pydantic, and what is wrong with it."""
    kind: str = error["type"]
    # JSON that cannot be read has no fields: its place is a position in the text.
    place = () if kind == "json_invalid" else error["loc"][1:]
    given = {
        name: int(value) if isinstance(value, float) and value.is_integer() else value
        for name, value in error.get("ctx", {}).items()
    }
    if isinstance(ours := given.get("error"), errors.InputError):  # which names a field of its own
        return ours.field, ours.problem
    text = FAULTS.get(kind) or FAULTS.get(kind.partition("_")[0], "is not valid")
    if given.get("min_length") == 1 and kind.endswith("too_short"):
        text = "must not be empty"
    return ".".join(map(str, place)) or "body", text.format(**given)


def handle_on(api: FastAPI) -> None:
    """Answer every error with a problem document that shows no internals."""

    @api.exception_handler(Problem)
    def refused(_: Request, error: Problem) -> Response:
        return problem(error.status, error.detail, field=error.field, **error.headers)

    @api.exception_handler(errors.DulyError)
    def ours(_: Request, error: errors.DulyError) -> Response:
        for kind, status, title in STATUSES:
            if not isinstance(error, kind):
                continue
            if status == 503:  # the address of the database and its answer are only logged
                log.warning("a request failed: %s", error)
                return problem(503, f"{title[0].lower()}{title[1:]}; try again later", title, **{"Retry-After": "1"})
            field = error.field if isinstance(error, errors.InputError) else None
            item_id = error.item_id or None if isinstance(error, errors.KeyConflict) else None
            return document(status, str(error), title, {}, field=field, itemId=item_id)
        return unexpected(error)

    @api.exception_handler(RequestValidationError)
    def invalid(_: Request, error: RequestValidationError) -> Response:
        field, fault = _fault(error.errors()[0])
        return problem(422, f"{field}: {fault}", field=field)

    @api.exception_handler(HTTPException)
    def http(request: Request, error: HTTPException) -> Response:
        detail = NOWHERE.format(request.url.path) if error.status_code == 404 else str(error.detail)
        return problem(error.status_code, detail, **dict(error.headers or {}))
