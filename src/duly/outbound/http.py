"""One guarded HTTP client for webhooks and provider calls.

`request` sends one request and returns the answer if its status is 2xx, or raises; `post_json` is the common case. One
deadline covers all steps (name, connection, TLS, request, answer), also if the answer comes slowly. Redirects are not
followed. An answer is read up to a limit. With a `Guard`, for a URL from an untrusted source, connections are made only
to addresses that it allows. The exception decides what the engine does:

    Throttled                 429, and 503 with Retry-After: come back then; not the item's own failure
    GiveUp                    the other 4xx: asking again cannot help
    └── Refused               the guard let no call be made
    OutboundError             everything else: asking again may help
    ├── TimedOut              the time was over; the request may have arrived
    ├── Unreachable           no connection, or it broke; the request may have arrived
    ├── BadStatus             another status than 2xx; has it, and a cut of the body
    └── BadAnswer             a 2xx that is too long, or is not the JSON that was asked for

A caller may say instead which statuses are worth asking again (`retry_statuses`); all others are then given up.
Errors name the method, host and path: never the query or the value of a header, nor what a server echoes of them.
"""

from __future__ import annotations

import io
import json
import queue
import re
import socket
import ssl
import threading
import time
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import Any
from urllib.parse import SplitResult, quote

from msgspec import Struct

from duly.core import codec
from duly.core.errors import DulyError, InputError
from duly.core.model import GiveUp, Throttled
from duly.core.urls import PORTS, web_address
from duly.outbound.guard import Guard
from duly.outbound.hide import hide
from duly.outbound.interrupt import interruptible
from duly.tasks.attempt import Attempt

ANSWER_LIMIT = 1024 * 1024
EXCERPT = 500  # how many characters of a refusal are kept
# 409 is what a callee answers while the first request under the same Idempotency-Key is still under way.
PASSING = frozenset((408, 409, 425))
NO_HINT = 60.0  # seconds to wait after a 429 without a time
LEAST, MOST = 1.0, 86_400.0  # bounds of the wait that a server may ask for

_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")


class OutboundError(DulyError):
    """The root of the errors here: trying again may help."""


class TimedOut(OutboundError):
    pass


class Unreachable(OutboundError):
    pass


class BadStatus(OutboundError):
    def __init__(self, problem: str, status: int, excerpt: str) -> None:
        super().__init__(problem)
        self.status = status
        self.excerpt = excerpt


class BadAnswer(OutboundError):
    pass


class Response(Struct, frozen=True):
    """An answer; callers see those with a 2xx status. The names of its headers are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes
    is_whole: bool = True  # False: the body was longer than `max_response_bytes`

    def json(self) -> Any:
        try:
            return json.loads(codec.without_nul(self.body))
        except (ValueError, RecursionError) as error:  # the place of the error, without the text: it may hold secrets
            where = f" at {error.pos}" if isinstance(error, json.JSONDecodeError) else ""
            raise BadAnswer(f"the answer ({self.status}, {len(self.body)} bytes) is not JSON{where}") from None


def attempt_headers(attempt: Attempt) -> dict[str, str]:
    """Headers that identify a retry: the key, which is the same for every try, and the number of the try."""
    return {"Idempotency-Key": attempt.key, "Duly-Attempt": str(attempt.number)}


def post_json(
    url: str,
    body: Any,
    *,
    headers: Mapping[str, str] | None = None,
    timeout: float = 30.0,
    max_response_bytes: int = ANSWER_LIMIT,
    guard: Guard | None = None,
) -> Response:
    """POST `body` as JSON; the 2xx answer, all of it, within `timeout` seconds."""
    text = json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    response = request(
        "POST", url, text, headers=headers, timeout=timeout, max_response_bytes=max_response_bytes, guard=guard
    )
    if not response.is_whole:
        what = _said("POST", checked_url(url))
        raise BadAnswer(f"{what}: the answer ({response.status}) has more than {max_response_bytes:,} bytes")
    return response


def request(
    method: str,
    url: str,
    body: bytes | None,
    *,
    headers: Mapping[str, str] | None = None,
    timeout: float = 30.0,
    max_response_bytes: int = ANSWER_LIMIT,
    guard: Guard | None = None,
    retry_statuses: Collection[int] | None = None,
) -> Response:
    """The 2xx answer, within `timeout` seconds in all; one longer than `max_response_bytes` is cut and marked."""
    parts = checked_url(url)
    sent = _completed(headers or {}, has_body=body is not None)
    for name, value in sent.items():
        check_header(name, value)
    what = _said(method, parts)
    deadline = time.monotonic() + timeout
    try:
        with _connect(parts, deadline, guard) as wire, interruptible(wire.cut):
            response = _exchange(wire, method, parts, body, sent, max_response_bytes)
    except TimeoutError:
        raise TimedOut(f"{what}: no whole answer within {timeout:g} s") from None
    except (OSError, HTTPException) as error:
        raise Unreachable(f"{what}: {hide(_kind(error), sent, parts.query)}") from None
    if not 200 <= response.status < 300:
        text = hide(response.body.decode("utf8", "replace"), sent, parts.query)
        raise _refusal(what, response, text, retry_statuses)
    return response


def _completed(headers: Mapping[str, str], has_body: bool) -> dict[str, str]:
    """The caller's headers, and ours for names that the caller does not set; case does not matter."""
    ours = {"Content-Type": "application/json"} if has_body else {}
    ours |= {"Accept": "application/json", "User-Agent": "duly"}
    given = {name.lower() for name in headers}
    return {**{name: value for name, value in ours.items() if name.lower() not in given}, **headers}


def _said(method: str, parts: SplitResult) -> str:
    return f"{method} {parts.scheme}://{parts.hostname}{parts.path or '/'}"


def _connect(parts: SplitResult, deadline: float, guard: Guard | None) -> _Wire:
    """Resolve the host, ask the guard, and connect. Only here is it decided which address is called."""
    host, port = parts.hostname or "", parts.port or PORTS[parts.scheme]
    last: OSError = OSError(f"{host} has no address")
    addresses = _resolve(host, port, deadline)
    if guard is not None:
        guard.check(host, (address[0] for *_, address in addresses))
    for place, (family, kind, protocol, _, address) in enumerate(addresses):
        wire = _Wire(socket.socket(family, kind, protocol), deadline)
        try:
            with interruptible(wire.cut):
                # Each address gets its part of the time that is left, since the first may never answer.
                wire.connect(address, _left(deadline) / (len(addresses) - place))
                if parts.scheme == "https":
                    wire.encrypt(host)
            return wire
        except OSError as error:
            wire.hang_up()
            last = error
    raise last


def _resolve(host: str, port: int, deadline: float) -> list[Any]:
    """The addresses of a host. The system's resolver cannot be interrupted, so it is abandoned at the deadline."""
    found: queue.SimpleQueue[list[Any] | OSError] = queue.SimpleQueue()

    def ask() -> None:
        try:
            found.put(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except OSError as error:
            found.put(error)
        except UnicodeError:
            found.put(OSError(f"{host!r} is not the name of a host"))

    threading.Thread(target=ask, name="duly-resolve", daemon=True).start()
    try:
        with interruptible(lambda: found.put(ConnectionAbortedError("this call was stopped"))):
            answer = found.get(timeout=_left(deadline))
    except queue.Empty:
        raise TimeoutError from None
    if isinstance(answer, OSError):
        raise answer
    return answer


class _Wire(io.RawIOBase):
    """A socket for http.client on which every wait ends at the same deadline."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._sock = sock
        self._deadline = deadline

    def connect(self, address: Any, timeout: float) -> None:
        self._sock.settimeout(timeout)
        self._sock.connect(address)
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def encrypt(self, host: str) -> None:
        self._sock.settimeout(_left(self._deadline))
        self._sock = wrapped = _tls().wrap_socket(self._sock, server_hostname=host, do_handshake_on_connect=False)
        wrapped.do_handshake()

    def cut(self) -> None:
        """End a wait for this socket in another thread. Only that thread may close the socket."""
        socket.socket.shutdown(self._sock, socket.SHUT_RDWR)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._sock.settimeout(_left(self._deadline))
        return self._sock.recv_into(buffer)

    def sendall(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            self._sock.settimeout(_left(self._deadline))
            rest = rest[self._sock.send(rest) :]

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def close(self) -> None:
        """Do nothing, because http.client calls this before it has read the answer; the `with` block closes."""

    def hang_up(self) -> None:
        self._sock.close()

    def __exit__(self, *_: object) -> None:
        self.hang_up()


def _exchange(
    wire: _Wire, method: str, parts: SplitResult, body: bytes | None, headers: Mapping[str, str], limit: int
) -> Response:
    """Send and receive: the answer, whatever its status, with its body up to the limit."""
    connection = HTTPConnection(parts.netloc)
    connection.sock = wire
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    connection.request(method, quote(target, safe="/?&=%:@!$'()*+,;~[]"), body, dict(headers))
    answer = connection.getresponse()
    got = {name.lower(): value for name, value in answer.getheaders()}
    return Response(answer.status, got, *_read(answer, limit if 200 <= answer.status < 300 else EXCERPT * 4))


def _read(response: HTTPResponse, limit: int) -> tuple[bytes, bool]:
    parts: list[bytes] = []
    room = limit + 1
    while room and (part := response.read(min(room, 65_536))):
        parts.append(part)
        room -= len(part)
    if room and response.length:
        raise HTTPException(f"the answer broke off {response.length:,} bytes before its end")
    return b"".join(parts)[:limit], room > 0


def _refusal(what: str, response: Response, body: str, retry_statuses: Collection[int] | None) -> Exception:
    """What a status other than 2xx means."""
    status, has_hint = response.status, "retry-after" in response.headers
    excerpt = " ".join(body.split())[:EXCERPT]
    problem = f"{what} answered {status}" + (f": {excerpt}" if excerpt else "")
    if retry_statuses is None:
        is_passing = status in PASSING or not 400 <= status < 500
        is_busy = status == 429 or (status == 503 and has_hint)
    else:
        is_passing = status in retry_statuses
        is_busy = is_passing and status in (429, 503) and has_hint
    if is_busy:
        return Throttled(_retry_after(response.headers), is_guess=not has_hint)
    return BadStatus(problem, status, excerpt) if is_passing else GiveUp(problem)


def _retry_after(headers: Mapping[str, str]) -> float:
    """Seconds to wait by Retry-After: a number, or a date, which is compared with the server's own `Date` if there."""
    text = headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        seconds = float(text)
    elif until := _date(text):
        seconds = (until - (_date(headers.get("date", "")) or datetime.now(UTC))).total_seconds()
    else:
        seconds = NO_HINT
    return min(max(seconds, LEAST), MOST)


def _date(text: str) -> datetime | None:
    try:
        date = parsedate_to_datetime(text)
    except ValueError:
        return None
    return date.replace(tzinfo=UTC) if date.tzinfo is None else date


def checked_url(url: str) -> SplitResult:
    """The parts of a URL that can be asked for; InputError otherwise."""
    try:
        return web_address(url)
    except ValueError as error:
        raise InputError("url", str(error)) from None


def check_header(name: str, value: str) -> None:
    # http.client would refuse these too, but quote the value, such as a key with a line end from a secrets file.
    if not _TOKEN.fullmatch(name):
        raise InputError("headers", f"{name!r:.80} is not the name of a header")
    if not _VALUE.fullmatch(value):
        raise InputError(f"headers.{name}", "holds a line end or another character that a header cannot carry")


def _kind(error: Exception) -> str:
    """What went wrong, in one line."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return f"{type(error).__name__}: {error}"


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


@cache
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()
