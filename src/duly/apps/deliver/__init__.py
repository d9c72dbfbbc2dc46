"""HTTP requests that fall due: calls an endpoint of any program at a given time, with retries.

    from duly.apps.deliver import http
    http.put(url="https://shop.example/hooks/renew", body={"order": 7}, at="2026-12-01T09:00+01:00")

    duly worker duly.apps.deliver:app          # on as many servers as you like

`http_on(app)` puts the same task on an app of your own. How a try ends:

    2xx                                 done; the status and the answer are the item's result
    429, 503 with Retry-After           again when the server says; not a failure
    the rest of `retry_statuses`        a failure: again after 60, 120, 240, 480 seconds, five tries in all
    time-out, broken connection         the same
    any other status, redirects too     to review at once
    an address that is not public       to review at once, unless DULY_OUTBOUND_ALLOW allows it

Every try sends the same `Idempotency-Key`, so a receiver can tell a retry from a second request. URLs are arguments and
not trusted: at put, the guard rejects what it can detect without a resolver; later it checks the very address that is
connected to. Values of headers are stored with the item and are in no error and no log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta

from duly import Attempt, Backoff, Duly, GiveUp, InputError
from duly.apps import alone
from duly.core import codec
from duly.outbound import signature
from duly.outbound.guard import Guard
from duly.outbound.http import BadAnswer, Response, attempt_headers, check_header, checked_url, request
from duly.plugin import Plugin, Section, setting
from duly.tasks.task import Task

if TYPE_CHECKING:
    app: Duly
    http: Task[..., Any]

__all__ = ["DeliverSettings", "http_on", "plugin"]

RETRY = Backoff(base=60, factor=2, tries=5)
RETRIED = (408, 409, 425, 429, 500, 502, 503, 504)
URL_LIMIT = 4_096
LONGEST = 300.0  # seconds that one request may take
HEADERS, NAME_LIMIT, VALUE_LIMIT, HEADERS_LIMIT = 50, 100, 4_096, 16_384
ANSWER_LIMIT = 65_536  # bytes of an answer that are read, and kept if they are JSON
EXCERPT = 2_000  # characters that are kept of any other

# Headers that the connection or duly sets.
OURS = frozenset(
    (
        "connection", "content-length", "expect", "host", "idempotency-key", "keep-alive", "proxy-authenticate",
        "proxy-authorization", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
    )
)  # fmt: skip

Url = Annotated[str, Meta(min_length=1, max_length=URL_LIMIT)]
Method = Literal["POST", "PUT", "PATCH", "GET", "DELETE"]
Headers = Annotated[dict[str, str], Meta(max_length=HEADERS)]
Timeout = Annotated[float, Meta(ge=0.1, le=LONGEST)]
Statuses = Annotated[tuple[Annotated[int, Meta(ge=300, le=599)], ...], Meta(max_length=100)]


@dataclass(frozen=True, kw_only=True)
class DeliverSettings(Section):
    """The settings of the `http` task: DULY_OUTBOUND_ALLOW and DULY_SIGNING_SECRET in the environment."""

    outbound_allow: str = setting(
        "", "Private targets that the http task may call: networks, addresses and host names, separated by commas."
    )
    signing_secret: str = setting(
        "", "The secret that the http task signs requests with: whsec_ and base64, or any text.", secret=True
    )


def install(app: Duly, settings: DeliverSettings) -> Task[..., Any]:
    """Register the task `http` on this app."""
    guard = Guard(settings.outbound_allow.split(","))

    def check(args: dict[str, Any]) -> None:
        if problem := guard.objection(checked_url(args["url"]).hostname or ""):
            raise InputError("url", problem)
        _check_headers(args["headers"])
        if args["sign"]:
            _secret(settings)

    @app.task(name="http", queue="http", retry=RETRY, deadline=LONGEST + 30, check=check)
    def http(
        url: Url,
        attempt: Attempt,
        method: Method = "POST",
        body: Any = None,
        headers: Headers = {},  # noqa: B006 - a default is copied into the item
        timeout: Timeout = 30.0,
        retry_statuses: Statuses = RETRIED,
        sign: bool = False,
    ) -> dict[str, Any]:
        """Send the request. A body of None is none at all."""
        text = None if body is None else codec.encode(body)
        try:
            now = app.clock.now().timestamp()
            signed = signature.sign(_secret(settings), attempt.key, text or b"", now) if sign else {}
            response = request(
                method,
                url,
                text,
                headers={**headers, **attempt_headers(attempt), **signed},
                timeout=timeout,
                max_response_bytes=ANSWER_LIMIT,
                guard=guard,
                retry_statuses=retry_statuses,
            )
        except InputError as error:  # this worker has other settings than the process that put this
            raise GiveUp(str(error)) from None
        return {"status": response.status, "body": _told(response, app.settings.max_result_bytes // 2)}

    return http


def _check_headers(headers: Mapping[str, str]) -> None:
    seen: set[str] = set()
    for name, value in headers.items():
        if len(name) > NAME_LIMIT or len(value) > VALUE_LIMIT:
            raise InputError(
                f"headers.{name:.{NAME_LIMIT}}",
                f"is too long: a name has at most {NAME_LIMIT} characters, a value {VALUE_LIMIT:,}",
            )
        check_header(name, value)
        lower = name.lower()
        if lower in OURS or lower.startswith(("duly-", "webhook-")):
            raise InputError(f"headers.{name}", "is set by duly or by the connection")
        if lower in seen:
            raise InputError(f"headers.{name}", "is given twice")
        if not value.isascii():
            raise InputError(f"headers.{name}", "must be ASCII: encode what is not")
        seen.add(lower)
    if (size := sum(len(name) + len(value) for name, value in headers.items())) > HEADERS_LIMIT:
        raise InputError("headers", f"have {size:,} characters in all; {HEADERS_LIMIT:,} is the limit")


def _secret(settings: DeliverSettings) -> str:
    if not settings.signing_secret:
        raise InputError("sign", "needs the setting signing_secret: set DULY_SIGNING_SECRET")
    try:
        signature.key_of(settings.signing_secret)
    except InputError as error:
        raise InputError("sign", f"DULY_SIGNING_SECRET: {error.problem}") from None
    return settings.signing_secret


def _told(response: Response, most: int) -> Any:
    """The part of an answer that is stored. The item is done with any answer, so nothing here may fail."""
    if not response.body:
        return None
    try:
        told = response.json()
        codec.keepable([told], most)  # as deep as it will be in the result
        if response.is_whole:
            return told
    except (BadAnswer, ValueError, RecursionError):
        pass
    return response.body.decode("utf8", "replace").replace("\x00", "\ufffd")[: min(EXCERPT, most // 8)]


plugin = Plugin(name="deliver", doc="HTTP requests that fall due.", settings=DeliverSettings, install=install)

# Registers the task `http` on an app.
http_on = plugin.on
__getattr__ = alone(globals(), plugin, http=lambda made: made)
