"""The current user, signing in and out, API keys and users."""

from __future__ import annotations

import logging
from typing import Annotated, Any

from fastapi import Path, Request, Response
from msgspec.structs import asdict
from pydantic import AfterValidator, Field, StringConstraints

from duly.core.errors import InputError
from duly.core.results import Me
from duly.core.shown import KeyInfo, NewKey, Role, Scope, User
from duly.verbs import SCOPES
from duly.verbs.users import SESSION
from duly.web.auth import (
    COOKIE,
    PLAIN_COOKIE,
    Admin,
    Authenticator,
    Owner,
    Reader,
    Writer,
    check_origin,
    is_secure,
    session_of,
)
from duly.web.desk import Pages, Verbs
from duly.web.problems import Problem
from duly.web.routing import Once, Router, Transaction, repeatable
from duly.web.schemas import Model, Moment, Page, Password, Word, clean, example, out

log = logging.getLogger("duly.web")

router = Router(tags=["people"])

UserPath = Annotated[str, Path(min_length=1, max_length=100), AfterValidator(clean)]


class SignIn(Model, **example(userId="ana", password="correct horse battery")):  # noqa: S106 - an example
    user_id: Word
    password: Annotated[str, StringConstraints(max_length=1_024)]


class UserIn(Model, **example(id="ana", role="user", password="correct horse battery")):  # noqa: S106 - an example
    id: Annotated[str, StringConstraints(min_length=1, max_length=100), AfterValidator(clean)]
    role: Role = "user"
    password: Password | None = None


class UserEdit(Model, **example(role="admin")):
    role: Role | None = None
    password: Password | None = None
    disabled: bool | None = None


class KeyIn(Model, **example(name="shop", scopes=["read", "write"], expiresAt="2027-12-01T00:00:00Z")):
    name: Annotated[str, StringConstraints(min_length=1, max_length=100, pattern=r"\S"), AfterValidator(clean)]
    scopes: list[Scope] = Field(default=["read", "write"], min_length=1, max_length=3)
    expires_at: Moment | None = None
    user_id: Word | None = Field(
        default=None, description="The user that gets the key. Only admins may give another user."
    )


@router.get("/api/me")
def who_am_i(principal: Reader) -> Me:
    """The user that makes this request, and what they may do."""
    scopes = [scope for scope in SCOPES if principal.may(scope)]
    return Me(principal.user_id, principal.role, scopes, principal.via)


@router.post("/api/session", status_code=204)
@repeatable("another session is created; its cookie must not be stored")
def sign_in(body: SignIn, request: Request, verbs: Verbs, response: Response) -> None:
    """Sign in with a password. The session is a cookie that scripts cannot read.

    There is no Idempotency-Key: signing in again creates another session.
    """
    check_origin(request)
    authenticator: Authenticator = request.app.state.authenticator
    address = request.client.host if request.client else ""
    names = (f"user {body.user_id}", f"from {address}")
    authenticator.count_sign_in(*names)
    token = verbs.users.sign_in(body.user_id, body.password)
    if token is None:
        log.warning("rejected a sign-in as %r from %s", body.user_id, address)
        raise Problem(401, "wrong user or password", headers={"WWW-Authenticate": "Bearer"})
    authenticator.forgive_sign_in(*names)
    is_safe = is_secure(request)
    response.set_cookie(
        COOKIE if is_safe else PLAIN_COOKIE, token, max_age=int(SESSION.total_seconds()), path="/", secure=is_safe,
        httponly=True, samesite="strict",
    )  # fmt: skip


@router.delete("/api/session", status_code=204)
def sign_out(request: Request, verbs: Verbs, response: Response) -> None:
    """End this browser's session."""
    check_origin(request)
    if token := session_of(request):
        verbs.users.sign_out(token)
    response.delete_cookie(COOKIE, path="/", secure=True, httponly=True, samesite="strict")
    response.delete_cookie(PLAIN_COOKIE, path="/", httponly=True, samesite="strict")


@router.get("/api/keys")
def list_keys(verbs: Verbs, principal: Reader, pages: Pages, owner: Owner) -> Page[KeyInfo]:
    """API keys, without their secrets."""
    return pages.turn(lambda after, most: verbs.users.keys(principal, owner, after or "", most))


@router.post("/api/keys", status_code=201, response_model=out(NewKey))
def make_key(new: KeyIn, verbs: Verbs, principal: Writer, once: Once) -> Response:
    """Create an API key. It cannot have more scopes than you have, nor expire later than your own key.

    The secret is in this answer only. A repeated request with the same Idempotency-Key creates no second key: it is
    answered with 409, which names the first.
    """
    if new.user_id is None and principal.via == "local":
        raise InputError("userId", "is required: the local admin needs no key")
    user_id = new.user_id or principal.user_id
    if user_id != principal.user_id and not principal.is_admin:
        raise Problem(403, "userId: only admins may create keys for other users", "userId")
    if not all(principal.may(scope) for scope in new.scopes):
        raise Problem(403, "scopes: a key cannot have scopes that you do not have", "scopes")
    if principal.until is not None and (new.expires_at is None or new.expires_at > principal.until):
        raise Problem(403, "expiresAt: a key cannot expire later than the key that creates it", "expiresAt")

    def act(connection: Any) -> NewKey:
        given = (user_id, new.name, tuple(new.scopes), new.expires_at)
        made, secret = verbs.users.make_key(principal, *given, connection)
        return NewKey(**asdict(made), secret=secret)

    def repeated(answer: Any) -> tuple[int, str]:
        detail = f"this created key {answer['id']}; its secret is shown only once: revoke it and create another"
        return 409, detail

    return once(new, act, repeated)


@router.delete("/api/keys/{key_id}")
def revoke_key(key_id: Annotated[str, Path(pattern=r"^[0-9a-f]{12}$")], verbs: Verbs, principal: Writer) -> KeyInfo:
    """Revoke a key. It is invalid at once."""
    return verbs.users.revoke_key(principal, key_id)


@router.get("/api/users")
def list_users(verbs: Verbs, principal: Admin, pages: Pages) -> Page[User]:
    """The users of this service, people and programs, by id."""
    return pages.turn(lambda after, most: verbs.users.page(principal, after or "", most))


@router.post("/api/users", status_code=201)
def create_user(new: UserIn, verbs: Verbs, principal: Admin, connection: Transaction) -> User:
    """Create a user. A user without a password can only use API keys."""
    return verbs.users.create(principal, new.id, new.role, new.password, connection)


@router.get("/api/users/{user}")
def show_user(user: UserPath, verbs: Verbs, principal: Reader) -> User:
    """One user: yourself, or any user for admins."""
    return verbs.users.get(principal, user)


@router.patch("/api/users/{user}")
def change_user(user: UserPath, edit: UserEdit, verbs: Verbs, principal: Admin) -> User:
    """Change a user's role or password, or disable the user."""
    return verbs.users.change(principal, user, role=edit.role, password=edit.password, is_disabled=edit.disabled)
