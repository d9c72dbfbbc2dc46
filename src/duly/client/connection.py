"""The HTTP side of the client: one kept connection, requests repeated while that is safe, files streamed both ways.

Errors of the service become the errors that the same call would raise on a database.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator, Mapping
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, IncompleteRead
from typing import Any, BinaryIO, TypeAlias, TypeVar
from urllib.parse import urlencode, urlsplit
from uuid import uuid4

from duly.core import codec, errors, wire
from duly.core.errors import ConfigError, DulyError, InputError
from duly.core.filters import checked_most, first
from duly.core.urls import PORTS

T = TypeVar("T")

TRIES = 4
PAUSE = 0.2
ANSWER_LIMIT = 64 * 1024 * 1024
PORTION = 256 * 1024  # bytes of a file that are sent or written at a time
PAGE = 500  # rows of one page, at most
# What a service that restarts, or its proxy, answers.
PASSING = frozenset((408, 429, 502, 503, 504))

Body: TypeAlias = bytes | Iterator[bytes] | None


class ServiceError(DulyError):
    """The service could not be reached (`status` is None), or failed in a way that no error of duly stands for."""

    def __init__(self, detail: str, status: int | None = None, field: str | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.field = field


class Connection:
    def __init__(self, url: str, key: str | None = None, timeout: float = 30.0) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError("url: must be http://host or https://host")
        self._parts = parts
        self.place = parts.netloc.rpartition("@")[2] if parts.port else f"{parts.hostname}:{PORTS[parts.scheme]}"
        self._key = key
        self._timeout = timeout
        self._connection: HTTPConnection | None = None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def get(self, kind: type[T], path: str, /, **query: Any) -> T:
        """GET this path, read as a struct of the core."""
        return wire.read(kind, self.request("GET", path, query=wire.written(query)))

    def post(self, kind: type[T], path: str, idempotency_key: str | None = None, /, **body: Any) -> T:
        """POST these values, and read the answer as a struct of the core."""
        return wire.read(kind, self.request("POST", path, wire.written(body), idempotency_key=idempotency_key))

    def patch(self, kind: type[T], path: str, /, **body: Any) -> T:
        return wire.read(kind, self.request("PATCH", path, wire.written(body)))

    def pages(self, kind: type[T], path: str, most: int | None = None, /, **query: Any) -> Iterator[T]:
        """The rows of a list, at most `most`, read page by page as needed."""
        size = PAGE if most is None else min(checked_most(most), PAGE)
        return first(self._pages(kind, path, size, wire.written(query)), most)

    def _pages(self, kind: type[T], path: str, size: int, query: Mapping[str, Any]) -> Iterator[T]:
        after: str | None = None
        while True:
            page = self.request("GET", path, query={**query, "pageSize": size, "after": after})
            yield from (wire.read(kind, each) for each in page["items"])
            after = page["next"]
            if after is None:
                return

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        query: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
    ) -> Any:
        """One request, repeated while that is safe; the decoded answer."""
        headers = {"Accept": "application/json"}
        text = None
        if body is not None or method in ("POST", "PUT", "PATCH"):
            try:
                text = codec.request(body or {})
            except InputError as error:
                raise InputError(_field(error.field), error.problem) from None
            headers["Content-Type"] = "application/json"
        if method == "POST":
            headers["Idempotency-Key"] = idempotency_key or uuid4().hex
        return self._repeat(method, self._target(path, query), lambda: text, headers)

    def upload(
        self, path: str, file: BinaryIO, name: str, fields: Mapping[str, Any], idempotency_key: str | None
    ) -> Any:
        """Send a file as a form, as it is read. A repeated request reads it from its start."""
        boundary = uuid4().hex
        size = file.seek(0, 2)
        head, tail = _form(boundary, name, fields), f"\r\n--{boundary}--\r\n".encode()
        headers = {
            "Accept": "application/json",
            "Content-Type": f"multipart/form-data; boundary={boundary}",
            "Content-Length": str(len(head) + size + len(tail)),
            "Idempotency-Key": idempotency_key or uuid4().hex,
        }

        def whole() -> Iterator[bytes]:
            file.seek(0)
            yield head
            while portion := file.read(PORTION):
                yield portion
            yield tail

        return self._repeat("POST", self._target(path, None), whole, headers)

    def download(self, path: str, query: Mapping[str, Any], out: BinaryIO) -> None:
        """Stream the response of this path to a file."""
        target = self._target(path, query)
        try:
            response, first = self._begun(target)
            if response.status >= 400:
                raise _error(response.status, _decoded(response))
            out.write(first)
            while portion := response.read(PORTION):
                out.write(portion)
        except (OSError, HTTPException) as error:
            self.close()
            raise ServiceError(f"cannot reach {self.place}: {error}") from error

    def _begun(self, target: str) -> tuple[HTTPResponse, bytes]:
        """The response with the first bytes of its file; no bytes of an error."""
        is_kept = self._connection is not None
        try:
            response = self._send("GET", target, None, {})
            return response, b"" if response.status >= 400 else response.read(PORTION)
        except (OSError, HTTPException):
            self.close()
            if not is_kept:
                raise
        return self._begun(target)  # the service may have closed a connection that was not in use for a while

    def _target(self, path: str, query: Mapping[str, Any] | None) -> str:
        given = {name: value for name, value in (query or {}).items() if value is not None}
        return self._parts.path.rstrip("/") + path + (f"?{urlencode(given, doseq=True)}" if given else "")

    def _repeat(self, method: str, target: str, body: Callable[[], Body], headers: Mapping[str, str]) -> Any:
        """Send a request, again after errors that may pass, and return the decoded answer."""
        for number in range(1, TRIES + 1):
            try:
                response = self._send(method, target, body(), headers)
                status, answer, wait = response.status, _decoded(response), _retry_after(response)
            except (OSError, HTTPException) as error:
                self.close()
                if number == TRIES:
                    raise ServiceError(f"cannot reach {self.place}: {error}") from error
                wait = None
            else:
                if status < 400:
                    return answer
                is_under_way = status == 409 and wait is not None  # our own earlier request, whose answer was lost
                if number == TRIES or not (status in PASSING or is_under_way):
                    raise _error(status, answer)
            time.sleep(min(wait or PAUSE * 2**number, 30.0) * (0.5 + random.random() / 2))  # noqa: S311
        raise AssertionError  # the last try returned or raised

    def _send(self, method: str, target: str, body: Body, headers: Mapping[str, str]) -> HTTPResponse:
        if self._connection is None:
            kind = HTTPSConnection if self._parts.scheme == "https" else HTTPConnection
            self._connection = kind(self._parts.hostname or "", self._parts.port, timeout=self._timeout)
        known = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        try:
            self._connection.request(method, target, body, {"User-Agent": "duly-client", **headers, **known})
        except ConnectionError as error:
            return self._refusal(self._connection, error)
        return self._connection.getresponse()

    def _refusal(self, connection: HTTPConnection, error: ConnectionError) -> HTTPResponse:
        """The error response of a service that stopped reading a request; raises `error` if there is none."""
        if connection.sock is None:  # it was never connected
            raise error
        try:
            response = connection.getresponse()
        except (OSError, HTTPException):
            raise error from None
        if not 400 <= response.status < 500:
            raise error
        # The request was not sent as a whole, so the connection cannot be used again. Its response is still read.
        if connection.sock is not None:
            connection.sock.close()
            connection.sock = None
        self._connection = None
        return response


def _form(boundary: str, name: str, fields: Mapping[str, Any]) -> bytes:
    """The part of a form before the bytes of its file."""
    parts = []
    for field, value in fields.items():
        if value is not None:
            text = value if isinstance(value, str) else codec.text(value)
            parts.append(f'--{boundary}\r\nContent-Disposition: form-data; name="{field}"\r\n\r\n{text}\r\n')
    quoted = "".join("_" if letter in '"\\\r\n' else letter for letter in name)
    file = f'Content-Disposition: form-data; name="file"; filename="{quoted}"'
    return f"{''.join(parts)}--{boundary}\r\n{file}\r\nContent-Type: application/octet-stream\r\n\r\n".encode()


def _decoded(response: HTTPResponse) -> Any:
    text = response.read(ANSWER_LIMIT)
    if response.length:  # cut off, which a bounded read does not report
        raise IncompleteRead(text, response.length)
    if not text or "json" not in response.headers.get("content-type", ""):
        return text.decode("utf8", "replace") if text else None
    try:
        return json.loads(text)
    except ValueError as error:
        raise HTTPException(f"the answer is not JSON: {error}") from None


def _retry_after(response: HTTPResponse) -> float | None:
    text = response.headers.get("retry-after", "")
    return float(text) if text.isdecimal() else None


def _field(path: str) -> str:
    """The field of a request as errors on a database name it: an argument of a task by its own name."""
    return path.removeprefix("args.")


def _error(status: int, answer: Any) -> DulyError:
    """The error that the service had, as the class that it is on a database."""
    if not isinstance(answer, dict):
        return ServiceError(f"the service answered {status}", status)
    detail, field = str(answer.get("detail") or answer.get("title") or status), answer.get("field")
    problem = detail.removeprefix(f"{field}: ")
    match status:
        case 401:
            return ConfigError(f"{detail}; give a key with --api-key or DULY_API_KEY")
        case 403:
            return errors.NotAllowed(detail)
        case 404:
            return errors.DoesNotExist(detail)
        case 409 if field == "key":
            return errors.KeyConflict(problem, answer.get("itemId", 0))
        case 409:
            return errors.WrongState(detail)
        case 413 | 422 if field is not None:
            return (errors.UnknownTask if answer.get("title") == "Unknown task" else errors.InputError)(
                _field(field), problem
            )
        case 422:
            return ConfigError(detail)
        case _:
            return ServiceError(detail, status, field)
