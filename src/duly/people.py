"""People and programs: who they are, their keys and sessions. Secrets are kept as hashes only and shown once."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from duly import codec, passwords
from duly.errors import InputError, ItemNotFound, WrongState
from duly.shown import KeyInfo, Role, Scope, User
from duly.store.records import Record, reader

if TYPE_CHECKING:
    from duly.app import Duly

SCOPES: tuple[Scope, ...] = ("read", "write", "admin")

SESSION = timedelta(hours=12)
USED_EVERY = timedelta(minutes=1)  # a key's last use is written down no oftener than this
PASSWORD = range(8, 1_025)

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,99}")
_TAKEN = ("me", "all", "local", "code", "duly")  # words of ours for others than users
_KEY = re.compile(r"duly_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")


class Principal(Struct, frozen=True):
    """Who asks, and what they may."""

    user_id: str
    role: Role
    scopes: frozenset[str]
    via: Literal["key", "session", "local"]
    until: datetime | None = None  # when the key that they came with ends

    @property
    def is_admin(self) -> bool:
        return self.role == "admin" and "admin" in self.scopes

    @property
    def owner(self) -> str | None:
        """Whose the rows are that this one makes; the local admin's are those of the code."""
        return None if self.via == "local" else self.user_id

    def scoped(self, key: str) -> str:
        """A key of theirs, which nobody else's can be."""
        return key if self.owner is None else f"{self.owner}/{key}"

    def may(self, scope: Scope) -> bool:
        return scope in self.scopes and (scope != "admin" or self.role == "admin")


LOCAL = Principal("local", "admin", frozenset(SCOPES), "local")


class People:
    def __init__(self, app: Duly) -> None:
        self._app = app

    # -- users

    def create(
        self,
        user_id: str,
        role: Role = "user",
        password: str | None = None,
        actor: str = "local",
        connection: Any = None,
    ) -> User:
        """A new person or program; without a password it comes in by keys only."""
        if not isinstance(user_id, str) or not _ID.fullmatch(user_id) or user_id in _TAKEN:
            taken = ", ".join(_TAKEN)
            raise InputError("id", f"must be 1 to 100 letters, digits or . _ @ + -, and none of {taken}")
        hashed = None if password is None else passwords.hashed(_checked_password(password))
        row = {"id": user_id, "role": _checked_role(role), "password": hashed, "now": self._app.clock.now()}
        with self._app.joining(connection) as connection:
            if not self._app.store.run(connection, "user_create", row):
                raise WrongState(f"there is a user {user_id!r} already")
            self._app.note(actor, "user.created", f"user:{user_id}", {"role": role}, connection)
            return self.get(user_id, connection)

    def get(self, user_id: str, connection: Any = None) -> User:
        rows = self._app.store.read("user", {"id": user_id}, connection)
        if not rows:
            raise ItemNotFound(f"there is no user {user_id!r:.80}")
        return _user(rows[0])

    def users(self, after: str = "", most: int = 100) -> list[User]:
        return [_user(row) for row in self._app.store.read("users", {"after": after, "most": most})]

    def change(
        self,
        user_id: str,
        *,
        role: Role | None = None,
        password: str | None = None,
        is_disabled: bool | None = None,
        actor: str = "local",
    ) -> User:
        """Another role or password, or shut out. A new password and a shut door end all sessions."""
        self.get(user_id)
        now = self._app.clock.now()
        hashed = None if password is None else passwords.hashed(_checked_password(password))
        given = {
            "id": user_id, "role": None if role is None else _checked_role(role), "password": hashed,
            "is_disabled": is_disabled, "now": now,
        }  # fmt: skip
        store = self._app.store
        with store.transaction() as connection:
            store.run(connection, "user_change", given)
            user = self.get(user_id, connection)
            if password is not None or user.disabled_at is not None:
                store.run(connection, "sessions_end", {"user_id": user_id})
            changed = {"role": user.role, "password": password is not None, "disabled": user.disabled_at is not None}
            self._app.note(actor, "user.changed", f"user:{user_id}", changed, connection)
        return user

    def is_anybody(self) -> bool:
        """Whether anyone could come in: a user with a password or a key."""
        return bool(self._app.store.read("anybody", {})[0][0])

    # -- keys

    def make_key(
        self,
        user_id: str,
        name: str,
        scopes: tuple[str, ...] = ("read", "write"),
        expires_at: datetime | None = None,
        actor: str = "local",
        connection: Any = None,
    ) -> tuple[KeyInfo, str]:
        """A new key, and its secret, which nobody can show again."""
        user = self.get(user_id)
        if not isinstance(name, str) or not 1 <= len(name.strip()) <= 100 or "\x00" in name:
            raise InputError("name", "must be 1 to 100 characters")
        for scope in scopes:
            if scope not in SCOPES:
                raise InputError("scopes", f"must be of {', '.join(SCOPES)}, got {scope!r:.40}")
        if "admin" in scopes and user.role != "admin":
            raise InputError("scopes", "admin is for admins only")
        prefix, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
        row = {
            "id": prefix, "user_id": user_id, "name": name.strip(), "hash": _digest(secret),
            "scopes": codec.encode(sorted(set(scopes))).decode(), "now": self._app.clock.now(),
            "expires_at": expires_at,
        }  # fmt: skip
        about = {"user": user_id, "scopes": sorted(set(scopes))}
        with self._app.joining(connection) as connection:
            self._app.store.run(connection, "key_create", row)
            self._app.note(actor, "key.created", f"key:{prefix}", about, connection)
            return self.key(prefix, connection=connection), f"duly_{prefix}_{secret}"

    def key(self, key_id: str, user_id: str | None = None, connection: Any = None) -> KeyInfo:
        rows = self._app.store.read("key", {"id": key_id, "user_id": user_id}, connection)
        if not rows:
            raise ItemNotFound(f"there is no key {key_id!r:.40}")
        return _key(rows[0])

    def keys(self, user_id: str | None = None, after: str = "", most: int = 100) -> list[KeyInfo]:
        rows = self._app.store.read("keys", {"user_id": user_id, "after": after, "most": most})
        return [_key(row) for row in rows]

    def revoke_key(self, key_id: str, user_id: str | None = None, actor: str = "local") -> KeyInfo:
        """This key opens nothing any more."""
        given = {"id": key_id, "user_id": user_id, "now": self._app.clock.now()}
        with self._app.store.transaction() as connection:
            if not self._app.store.run(connection, "key_revoke", given):
                raise ItemNotFound(f"there is no key {key_id!r:.40}")
            self._app.note(actor, "key.revoked", f"key:{key_id}", {}, connection)
            return self.key(key_id, connection=connection)

    def by_key(self, text: str) -> Principal | None:
        """Whose key this is; None when it opens nothing."""
        match = _KEY.fullmatch(text)
        rows = self._app.store.read("key_owner", {"id": match[1] if match else ""})
        # Compared also when there is no such key, so that the answer takes the same time.
        known = rows[0][0] if rows else _digest("")
        is_right = hmac.compare_digest(known, _digest(match[2] if match else "-"))
        if not rows or not is_right or match is None:
            return None
        _, user_id, role, scopes, expires_at, revoked_at, disabled_at, last_used_at = rows[0]
        now = self._app.clock.now()
        if revoked_at is not None or disabled_at is not None or (expires_at is not None and expires_at <= now):
            return None
        if last_used_at is None or last_used_at < now - USED_EVERY:
            self._app.store.write("key_used", {"id": match[1], "now": now})
        return Principal(user_id, role, frozenset(codec.decode(scopes)), "key", expires_at)

    # -- sessions

    def sign_in(self, user_id: str, password: str) -> str | None:
        """A token for a browser's cookie; None when this is not the password."""
        rows = self._app.store.read("password", {"id": user_id})
        known, disabled_at = rows[0] if rows else (None, None)
        if not passwords.matches(password, known) or known is None or disabled_at is not None:
            return None
        anew = passwords.hashed(password) if passwords.is_dated(known) else None
        token = secrets.token_urlsafe(32)
        now = self._app.clock.now()
        row = {"hash": _digest(token), "user_id": user_id, "now": now, "expires_at": now + SESSION, "was": known}
        with self._app.store.transaction() as connection:
            # Not for one who was shut out, or whose password was changed, while we compared.
            if not self._app.store.run(connection, "session_create", row):
                return None
            if anew is not None:
                self._app.store.run(connection, "password_anew", {"id": user_id, "was": known, "password": anew})
            self._app.store.run(connection, "sessions_prune", {"now": now})
            self._app.note(user_id, "user.signed_in", f"user:{user_id}", {}, connection)
        return token

    def by_session(self, token: str) -> Principal | None:
        rows = self._app.store.read("session", {"hash": _digest(token), "now": self._app.clock.now()})
        if not rows:
            return None
        user_id, role = rows[0]
        return Principal(user_id, role, frozenset(SCOPES), "session")

    def sign_out(self, token: str) -> None:
        with self._app.store.transaction() as connection:
            for (user_id,) in self._app.store.run(connection, "session_end", {"hash": _digest(token)}):
                self._app.note(user_id, "user.signed_out", f"user:{user_id}", {}, connection)


def _digest(secret: str) -> str:
    """For secrets that are long and random: a plain hash is enough, and quick."""
    return hashlib.sha256(secret.encode("utf8", "replace")).hexdigest()


def _checked_password(password: Any) -> str:
    if not isinstance(password, str) or len(password) not in PASSWORD:
        raise InputError("password", f"must have {PASSWORD[0]} to {PASSWORD[-1]} characters")
    return password


def _checked_role(role: Any) -> Role:
    if role not in ("user", "admin"):
        raise InputError("role", f"must be user or admin, got {role!r:.40}")
    found: Role = role
    return found


_user = reader(Record(User), {})
_key = reader(Record(KeyInfo), {object: codec.decode})
