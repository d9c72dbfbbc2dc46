"""Signed requests: `Duly-Signature: t=<unix seconds>,v1=<hex HMAC-SHA256 of "t.body">`.

The time is part of what is signed, so a request that somebody recorded is worth nothing after the tolerance.
`verify` is for receivers; it needs the body as the bytes that arrived, before anyone parses them.
"""

from __future__ import annotations

import hmac
from hashlib import sha256

from duly.errors import InputError

HEADER = "Duly-Signature"
_LONGEST = 4_096  # of a header that is worth reading


def sign(secret: str, body: bytes, now: float) -> str:
    """The value of the header for this body, at this time in unix seconds."""
    if not secret:
        raise InputError("secret", "is empty: whoever reads this could sign with it")
    time = str(int(now))
    return f"t={time},v1={_mac(secret, time, body)}"


def verify(secret: str, header: str, body: bytes, now: float, tolerance: float = 300) -> bool:
    """Whether someone who knows the secret sent exactly this, at most `tolerance` seconds away from `now`.

    With more than one v1 any of them will do, so that a sender can change its secret without a gap.
    """
    if not secret or len(header) > _LONGEST:
        return False
    pairs = [part.strip().partition("=")[::2] for part in header.split(",")]
    times = [value for name, value in pairs if name == "t"]
    if len(times) != 1 or not (times[0].isascii() and times[0].isdigit() and len(times[0]) <= 15):
        return False
    wanted = _mac(secret, times[0], body).encode()
    # Each is compared in constant time, and all of them are.
    matches = [hmac.compare_digest(wanted, value.encode()) for name, value in pairs if name == "v1"]
    return any(matches) and abs(now - int(times[0])) <= tolerance


def _mac(secret: str, time: str, body: bytes) -> str:
    return hmac.new(secret.encode(), f"{time}.".encode() + body, sha256).hexdigest()
