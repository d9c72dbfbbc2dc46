"""Finds out who makes a request, by an API key, a browser's session or as the local admin, and what they may see.

A request from a browser that changes something must come from our own pages, which `Sec-Fetch-Site` or `Origin` shows.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
import threading
import time
from collections import OrderedDict, deque
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Depends, Query, Request
from fastapi.security import APIKeyCookie, HTTPBearer
from pydantic import AfterValidator

from duly.core.shown import Scope
from duly.verbs import LOCAL, Principal
from duly.verbs.users import Users
from duly.web.problems import Problem
from duly.web.schemas import clean

COOKIE = "__Host-duly"
# The name of the same cookie where a browser would not keep the other: on plain HTTP.
PLAIN_COOKIE = "duly"
SAFE = frozenset(("GET", "HEAD", "OPTIONS"))
FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip", "via")
SIGN_INS, SIGN_IN_WINDOW = 10, 300.0  # so many tries per user and address in so many seconds
REMEMBERED = 10_000  # how many users and addresses are remembered
PRINCIPAL = "duly.principal"  # where a request has its principal that was found before it came to its route


class Gate:
    """Finds the principal of each request. There is one for an API, which all routes share."""

    def __init__(self, users: Users, is_local: bool) -> None:
        self.users = users
        self.is_local = is_local
        self._tries: OrderedDict[str, deque[float]] = OrderedDict()
        self._lock = threading.Lock()

    def who(self, request: Request) -> Principal:
        """The principal who makes this request; raises if there is none."""
        header = request.headers.get("authorization")
        if header is not None:
            kind, _, secret = header.partition(" ")
            found = self.users.by_key(secret.strip()) if kind.lower() == "bearer" else None
            if found is None:
                raise _unknown("this API key opens nothing")
            return found
        if token := session_of(request):
            found = self.users.by_session(token)
            if found is not None:
                check_origin(request)
                return found
        # Through a proxy on this host everybody seems to be local, so only requests without one are the local admin's.
        if self.is_local and not any(name in request.headers for name in FORWARDED):
            check_origin(request)
            return LOCAL
        raise _unknown("an API key (Authorization: Bearer …) or a session is needed")

    def count_sign_in(self, *names: str) -> None:
        """Refuse a sign-in if there were too many tries for this user or from this address lately."""
        now = time.monotonic()
        with self._lock:
            for name in names:
                recent = [at for at in self._tries.get(name, ()) if at >= now - SIGN_IN_WINDOW]
                if len(recent) >= SIGN_INS:
                    wait = int(recent[0] + SIGN_IN_WINDOW - now) + 1
                    raise Problem(429, "too many tries to sign in; wait a little", headers={"Retry-After": str(wait)})
            # Refused tries do not count, so that they cannot push others out of what is remembered.
            for name in names:
                self._tries.setdefault(name, deque(maxlen=SIGN_INS)).append(now)
                self._tries.move_to_end(name)
            while len(self._tries) > REMEMBERED:
                self._tries.popitem(last=False)

    def forgive_sign_in(self, *names: str) -> None:
        """Do not count a try that was right, since people behind one proxy share an address, which is counted too."""
        with self._lock:
            for name in names:
                if tries := self._tries.get(name):
                    tries.pop()


def session_of(request: Request) -> str | None:
    """The token of the browser's session, if it has one."""
    # On a safe connection only the cookie that no other site could have set counts.
    return request.cookies.get(COOKIE) or (None if is_secure(request) else request.cookies.get(PLAIN_COOKIE))


def is_secure(request: Request) -> bool:
    """Whether the browser keeps cookies that are only for safe connections."""
    headers = request.headers
    said = (headers.get("origin", ""), headers.get("x-forwarded-proto", ""), request.scope.get("scheme", ""))
    return any(each.lower().startswith("https") for each in said)


def is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def credentials(request: Request) -> str:
    """What a principal is found by, as a hash: requests that only read and have the same one are by the same."""
    is_forwarded = any(name in request.headers for name in FORWARDED)
    given = [request.headers.get("authorization"), session_of(request), is_forwarded]
    return hashlib.sha256(json.dumps(given).encode()).hexdigest()


def check_origin(request: Request) -> None:
    """Refuse requests that a page of another site makes the browser of a signed-in user send."""
    if request.method in SAFE:
        return
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        if site not in ("same-origin", "none"):
            raise Problem(403, "this request comes from another site")
        return
    origin = request.headers.get("origin")
    if origin is not None and _address(origin) != request.headers.get("host"):
        raise Problem(403, "this request comes from another site")


def _address(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None


def _unknown(detail: str) -> Problem:
    return Problem(401, detail, headers={"WWW-Authenticate": "Bearer"})


# These describe the credentials in the OpenAPI document. The gate checks them; these refuse nothing.
_BEARER = HTTPBearer(auto_error=False, scheme_name="key", description="An API key, `duly_…`.")
_SESSION = APIKeyCookie(auto_error=False, name=COOKIE, scheme_name="session", description="See POST /api/session.")


def _principal(
    request: Request, _: Annotated[object, Depends(_BEARER)], __: Annotated[object, Depends(_SESSION)]
) -> Principal:
    gate: Gate = request.app.state.gate
    known: Principal | None = request.scope.get(PRINCIPAL)
    return gate.who(request) if known is None else known


def _needs(scope: Scope) -> object:
    def check(principal: Annotated[Principal, Depends(_principal)]) -> Principal:
        if not principal.may(scope):
            raise Problem(403, f"this needs the scope {scope}")
        return principal

    return Depends(check)


Reader = Annotated[Principal, _needs("read")]
Writer = Annotated[Principal, _needs("write")]
Admin = Annotated[Principal, _needs("admin")]

UserId = Annotated[
    Annotated[str, AfterValidator(clean)] | None,
    Query(alias="userId", max_length=100, description="me, all or a user's id; others than me are for admins."),
]


def owner_for(principal: Principal, user_id: str | None) -> str | None:
    """The owner whose rows a request is about; None, which means all owners, is for admins only."""
    if user_id is None:
        return None if principal.is_admin else principal.user_id
    if user_id == "me" or user_id == principal.user_id:
        return principal.user_id
    if not principal.is_admin:
        raise Problem(403, "userId: only admins may look at others' rows", "userId")
    return None if user_id == "all" else user_id
