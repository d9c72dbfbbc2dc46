"""Users: the people and programs that may use the service, with their keys and sessions.

Secrets are kept only as hashes, and shown once. Hashes of passwords are argon2id, with the cost that they were made
with. Hashes of another cost, and scrypt hashes of older versions, are still accepted, and replaced at the next sign-in.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from base64 import b64decode
from datetime import datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

from duly.core import codec
from duly.core.errors import ConfigError, InputError, WrongState
from duly.core.shown import KeyInfo, Role, User
from duly.verbs.context import SCOPES, Principal, VerbGroup, local

if TYPE_CHECKING:
    from argon2 import PasswordHasher

SESSION = timedelta(hours=12)
USED_EVERY = timedelta(minutes=1)  # the last use of a key is written at most this often
PASSWORD = range(8, 1_025)
# Twenty megabytes and some 30 ms for each comparison, so that many sign-ins at once do not exhaust a small machine.
_MEMORY_KIB, _ROUNDS, _LANES = 19_456, 2, 1
_SCRYPT = {"n": 2**14, "r": 8, "p": 1}

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,99}")
_TAKEN = ("me", "all", "local", "code", "duly")  # words that the service has a meaning for
_KEY = re.compile(r"duly_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")


class Users(VerbGroup):
    # -- users

    def create(
        self, who: Principal, user_id: str, role: Role = "user", password: str | None = None, connection: Any = None
    ) -> User:
        """Create a user; without a password it can only use keys."""
        if not isinstance(user_id, str) or not _ID.fullmatch(user_id) or user_id in _TAKEN:
            taken = ", ".join(_TAKEN)
            raise InputError("id", f"must be 1 to 100 letters, digits or . _ @ + -, and none of {taken}")
        hashed = None if password is None else _hashed(_checked_password(password))
        row = {"id": user_id, "role": _checked_role(role), "password": hashed, "now": self._now()}
        with self._noted(who, "user.created", f"user:{user_id}", {"role": role}, connection) as connection:
            if not self._store.write("user_create", row, connection):
                raise WrongState(f"user {user_id!r} exists already")
            return self.get(who, user_id, connection)

    def get(self, who: Principal, user_id: str, connection: Any = None) -> User:
        """One user; those who are not admins find only themselves."""
        given = {"id": user_id if who.reach in (None, user_id) else None}
        return self._read.found(f"user {user_id!r:.80}", User, "user", given, connection)

    def page(self, who: Principal, after: str = "", most: int = 100) -> list[User]:
        """All users by id, for admins; `after` is the last id of the page before."""
        users = self._read.all(User, "users", {"after": after, "most": most})
        return [user for user in users if who.reach in (None, user.id)]

    def change(
        self,
        who: Principal,
        user_id: str,
        *,
        role: Role | None = None,
        password: str | None = None,
        is_disabled: bool | None = None,
        connection: Any = None,
    ) -> User:
        """Change the role or password of a user, or disable it. A new password and disabling end all its sessions."""
        self.get(who, user_id, connection)
        now = self._now()
        hashed = None if password is None else _hashed(_checked_password(password))
        given = {
            "id": user_id, "role": None if role is None else _checked_role(role), "password": hashed,
            "is_disabled": is_disabled, "now": now,
        }  # fmt: skip
        store = self._store
        with self._context.joining(connection) as connection:
            store.write("user_change", given, connection)
            user = self.get(who, user_id, connection)
            if password is not None or user.disabled_at is not None:
                store.write("sessions_end", {"user_id": user_id}, connection)
            changed = {"role": user.role, "password": password is not None, "disabled": user.disabled_at is not None}
            self._audit.note(who, "user.changed", f"user:{user_id}", changed, connection)
        return user

    def is_anybody(self) -> bool:
        """Whether there is a user with a password or a key, who can use the service."""
        return bool(self._store.read("anybody", {})[0][0])

    # -- keys

    def make_key(
        self,
        who: Principal,
        user_id: str,
        name: str,
        scopes: tuple[str, ...] = ("read", "write"),
        expires_at: datetime | None = None,
        connection: Any = None,
    ) -> tuple[KeyInfo, str]:
        """Make a key; returns it with its secret, which cannot be shown again."""
        user = self.get(who, user_id)
        if not isinstance(name, str) or not 1 <= len(name.strip()) <= 100 or "\x00" in name:
            raise InputError("name", "must be 1 to 100 characters")
        for scope in scopes:
            if scope not in SCOPES:
                raise InputError("scopes", f"must be some of {', '.join(SCOPES)}, got {scope!r:.40}")
        if "admin" in scopes and user.role != "admin":
            raise InputError("scopes", "only admins may have the scope admin")
        prefix, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
        row = {
            "id": prefix, "user_id": user_id, "name": name.strip(), "hash": _digest(secret),
            "scopes": codec.text(sorted(set(scopes))), "now": self._now(),
            "expires_at": expires_at,
        }  # fmt: skip
        about = {"user": user_id, "scopes": sorted(set(scopes))}
        with self._noted(who, "key.created", f"key:{prefix}", about, connection) as connection:
            self._store.write("key_create", row, connection)
            return self.key(who, prefix, connection), f"duly_{prefix}_{secret}"

    def key(self, who: Principal, key_id: str, connection: Any = None) -> KeyInfo:
        given = {"id": key_id, "user_id": who.reach}
        return self._read.found(f"key {key_id!r:.40}", KeyInfo, "key", given, connection)

    def keys(self, who: Principal, user_id: str | None = None, after: str = "", most: int = 100) -> list[KeyInfo]:
        """A page of keys by id: those of this user, or of all users whose keys the caller may see."""
        return self._read.all(KeyInfo, "keys", {"user_id": who.among(user_id), "after": after, "most": most})

    def revoke_key(self, who: Principal, key_id: str, connection: Any = None) -> KeyInfo:
        """Make a key invalid."""
        given = {"id": key_id, "user_id": who.reach, "now": self._now()}
        with self._noted(who, "key.revoked", f"key:{key_id}", connection=connection) as connection:
            self._store.write("key_revoke", given, connection)
            return self.key(who, key_id, connection)

    def by_key(self, text: str) -> Principal | None:
        """Who acts with this key; None when it is not valid."""
        match = _KEY.fullmatch(text)
        rows = self._store.read("key_owner", {"id": match[1] if match else ""})
        # Also compare when there is no such key, so that the answer takes the same time.
        known = rows[0][0] if rows else _digest("")
        is_right = hmac.compare_digest(known, _digest(match[2] if match else "-"))
        if not rows or not is_right or match is None:
            return None
        _, user_id, role, scopes, expires_at, revoked_at, disabled_at, last_used_at = rows[0]
        now = self._now()
        if revoked_at is not None or disabled_at is not None or (expires_at is not None and expires_at <= now):
            return None
        if last_used_at is None or last_used_at < now - USED_EVERY:
            self._store.write("key_used", {"id": match[1], "now": now})
        return Principal(user_id, role, frozenset(codec.decode(scopes)), "key", expires_at)

    # -- sessions

    def sign_in(self, user_id: str, password: str) -> str | None:
        """Make a session; returns the token for the browser's cookie, or None when this is not the password."""
        rows = self._store.read("password", {"id": user_id})
        known, disabled_at = rows[0] if rows else (None, None)
        if not _matches(password, known) or known is None or disabled_at is not None:
            return None
        # A hash of an older kind or cost is replaced, now that the password is known.
        anew = _hashed(password) if known.startswith("scrypt$") or _hasher().check_needs_rehash(known) else None
        token = secrets.token_urlsafe(32)
        now = self._now()
        row = {"hash": _digest(token), "user_id": user_id, "now": now, "expires_at": now + SESSION, "was": known}
        with self._store.transaction() as connection:
            # No session if the user was disabled or its password changed while we compared.
            if not self._store.write("session_create", row, connection):
                return None
            if anew is not None:
                self._store.write("password_anew", {"id": user_id, "was": known, "password": anew}, connection)
            self._store.write("sessions_prune", {"now": now}, connection)
            self._audit.note(local(user_id), "user.signed_in", f"user:{user_id}", {}, connection)
        return token

    def by_session(self, token: str) -> Principal | None:
        rows = self._store.read("session", {"hash": _digest(token), "now": self._now()})
        if not rows:
            return None
        user_id, role = rows[0]
        return Principal(user_id, role, frozenset(SCOPES), "session")

    def sign_out(self, token: str) -> None:
        with self._store.transaction() as connection:
            for (user_id,) in self._store.write("session_end", {"hash": _digest(token)}, connection):
                self._audit.note(local(user_id), "user.signed_out", f"user:{user_id}", {}, connection)


def _digest(secret: str) -> str:
    """The hash of a long random secret; a fast hash is enough for that."""
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


def _hashed(password: str) -> str:
    return _hasher().hash(_encoded(password))


def _matches(password: str, known: str | None) -> bool:
    """Whether this is the password. It takes the same time when there is no hash, so timing reveals nothing."""
    if known is not None and known.startswith("scrypt$"):
        _, salt, stretched = known.split("$")
        anew = hashlib.scrypt(_encoded(password), salt=b64decode(salt), **_SCRYPT)
        return hmac.compare_digest(anew, b64decode(stretched))
    from argon2.exceptions import VerificationError

    try:
        return _hasher().verify(known or _nobodys(), _encoded(password)) and known is not None
    except VerificationError:
        return False


@cache
def _hasher() -> PasswordHasher:
    try:
        from argon2 import PasswordHasher
    except ImportError:
        raise ConfigError("passwords need argon2-cffi: pip install 'duly[server]'") from None
    return PasswordHasher(time_cost=_ROUNDS, memory_cost=_MEMORY_KIB, parallelism=_LANES)


@cache
def _nobodys() -> str:
    """The hash that a password is compared with when there is no such user."""
    return _hasher().hash(b"nobody")


def _encoded(password: str) -> bytes:
    return password.encode("utf8", "replace")
