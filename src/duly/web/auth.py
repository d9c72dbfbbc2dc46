"""Authentication of requests: by an API key, by a browser session, or as the local admin.

A request from a browser that changes something must come from our own pages: `Sec-Fetch-Site` or `Origin` is checked.
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
SIGN_INS, SIGN_IN_WINDOW = 10, 300.0  # tries per user and per address, in this many seconds
REMEMBERED = 10_000  # how many users and addresses are remembered
PRINCIPAL = "duly.principal"  # the key of the scope for a principal that a middleware has found already


class Authenticator:
    """Finds the principal of each request. All routes of an API share one."""

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
                raise _unknown("this API key is unknown, expired or revoked")
            return found
        if token := session_of(request):
            found = self.users.by_session(token)
            if found is not None:
                check_origin(request)
                return found
        # Through a proxy on this host every request seems local, so only requests without one are the local admin's.
        if self.is_local and not any(name in request.headers for name in FORWARDED):
            check_origin(request)
            return LOCAL
        raise _unknown("sign in, or send an API key (Authorization: Bearer …)")

    def count_sign_in(self, *names: str) -> None:
        """Reject a sign-in if there were too many recent tries for this user or from this address."""
        now = time.monotonic()
        with self._lock:
            for name in names:
                recent = [at for at in self._tries.get(name, ()) if at >= now - SIGN_IN_WINDOW]
                if len(recent) >= SIGN_INS:
                    wait = int(recent[0] + SIGN_IN_WINDOW - now) + 1
                    raise Problem(429, "too many sign-in attempts; try again later", headers={"Retry-After": str(wait)})
            # Rejected tries do not count, so that they cannot push others out of memory.
            for name in names:
                self._tries.setdefault(name, deque(maxlen=SIGN_INS)).append(now)
                self._tries.move_to_end(name)
            while len(self._tries) > REMEMBERED:
                self._tries.popitem(last=False)

    def forgive_sign_in(self, *names: str) -> None:
        """Do not count a successful try: people behind one proxy share an address, which is counted too."""
        with self._lock:
            for name in names:
                if tries := self._tries.get(name):
                    tries.pop()


def session_of(request: Request) -> str | None:
    """The token of the browser's session, if it has one."""
    # On HTTPS, only the cookie that no other site could have set is accepted.
    return request.cookies.get(COOKIE) or (None if is_secure(request) else request.cookies.get(PLAIN_COOKIE))


def is_secure(request: Request) -> bool:
    """Whether the browser accepts cookies that are for HTTPS only."""
    headers = request.headers
    schemes = (headers.get("origin", ""), headers.get("x-forwarded-proto", ""), request.scope.get("scheme", ""))
    return any(each.lower().startswith("https") for each in schemes)


def is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def credentials(request: Request) -> str:
    """A hash of everything that a principal is found by. Reads with the same hash have the same principal."""
    is_forwarded = any(name in request.headers for name in FORWARDED)
    given = [request.headers.get("authorization"), session_of(request), is_forwarded]
    return hashlib.sha256(json.dumps(given).encode()).hexdigest()


def check_origin(request: Request) -> None:
    """Reject cross-site requests, which a page of another site makes the browser of a signed-in user send."""
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


# These describe the credentials in the OpenAPI document. The authenticator checks them; these reject nothing.
_BEARER = HTTPBearer(auto_error=False, scheme_name="key", description="An API key, `duly_…`.")
_SESSION = APIKeyCookie(auto_error=False, name=COOKIE, scheme_name="session", description="See POST /api/session.")


def principal_of(
    request: Request, _: Annotated[object, Depends(_BEARER)], __: Annotated[object, Depends(_SESSION)]
) -> Principal:
    """The principal who makes this request, with any scopes."""
    authenticator: Authenticator = request.app.state.authenticator
    known: Principal | None = request.scope.get(PRINCIPAL)
    return authenticator.who(request) if known is None else known


def _needs(scope: Scope) -> object:
    def check(principal: Annotated[Principal, Depends(principal_of)]) -> Principal:
        if not principal.may(scope):
            raise Problem(403, f"needs the scope {scope}")
        return principal

    return Depends(check)


Reader = Annotated[Principal, _needs("read")]
Writer = Annotated[Principal, _needs("write")]
Admin = Annotated[Principal, _needs("admin")]

UserId = Annotated[
    Annotated[str, AfterValidator(clean)] | None,
    Query(
        alias="userId",
        max_length=100,
        description="`me`, `all` or the id of a user. Only admins may give another than `me`.",
    ),
]


def owner_for(principal: Principal, user_id: str | None) -> str | None:
    """The owner whose rows a request reads; None means all owners, for admins only."""
    if user_id is None:
        return None if principal.is_admin else principal.user_id
    if user_id == "me" or user_id == principal.user_id:
        return principal.user_id
    if not principal.is_admin:
        raise Problem(403, "userId: only admins may read rows of other users", "userId")
    return None if user_id == "all" else user_id


async def _owner(principal: Annotated[Principal, Depends(principal_of)], user_id: UserId = None) -> str | None:
    return owner_for(principal, user_id)


# The owner whose rows a request selects, by its parameter `userId`.
Owner = Annotated[str | None, Depends(_owner)]
