"""The task `http`: its settings, what it may be asked to send, and how a try ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from msgspec import Meta

from duly import Attempt, Backoff, Duly, GiveUp, InputError
from duly.core import codec
from duly.outbound import signature
from duly.outbound.guard import Guard
from duly.outbound.http import BadAnswer, Response, attempt_headers, check_header, checked_url, request
from duly.plugin import Section, setting
from duly.tasks.task import Task

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
            signed = _signed(app, settings, attempt, text or b"") if sign else {}
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


def _signed(app: Duly, settings: DeliverSettings, attempt: Attempt, text: bytes) -> dict[str, str]:
    return signature.sign(_secret(settings), attempt.key, text, app.clock.now().timestamp())


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
    return response.body.decode("utf8", "replace")[: min(EXCERPT, most // 8)]
