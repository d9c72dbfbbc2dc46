"""Hashes of passwords: argon2id, with the cost that they were made with.

Hashes of another cost, and scrypt hashes of older versions, are still accepted, and replaced at the next sign-in.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode
from functools import cache
from typing import TYPE_CHECKING

from duly.core.errors import ConfigError

if TYPE_CHECKING:
    from argon2 import PasswordHasher

# Twenty megabytes and some 30 ms for each comparison, so that many sign-ins at once do not exhaust a small machine.
_MEMORY_KIB, _ROUNDS, _LANES = 19_456, 2, 1
_SCRYPT = {"n": 2**14, "r": 8, "p": 1}


def hashed(password: str) -> str:
    return _hasher().hash(_encoded(password))


def matches(password: str, known: str | None) -> bool:
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


def is_dated(known: str) -> bool:
    """Whether this hash is of an older kind or cost, and should be replaced now that the password is known."""
    return known.startswith("scrypt$") or _hasher().check_needs_rehash(known)


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
