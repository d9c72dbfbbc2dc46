"""Signs requests by the convention of https://www.standardwebhooks.com, so that receivers can use existing libraries.

    webhook-id: <execution key>               the same for every try of an item
    webhook-timestamp: <unix seconds>
    webhook-signature: v1,<base64 of the HMAC-SHA256 of "id.timestamp.body">

The time is part of what is signed, so a recorded request is refused after the tolerance.
`verify` is for receivers; it needs the body as the bytes that arrived, before anyone parses them.
"""

from __future__ import annotations

import hmac
from base64 import b64decode, b64encode
from collections.abc import Mapping
from hashlib import sha256

from duly.core.errors import InputError

ID, TIME, SIGNATURE = "webhook-id", "webhook-timestamp", "webhook-signature"
PREFIX = "whsec_"
_LONGEST = 4_096  # characters; longer headers are not read


def sign(secret: str, message_id: str, body: bytes, now: float) -> dict[str, str]:
    """The headers for this body, at this time in unix seconds."""
    time = str(int(now))
    return {ID: message_id, TIME: time, SIGNATURE: f"v1,{_mac(key_of(secret), message_id, time, body)}"}


def verify(secret: str, headers: Mapping[str, str], body: bytes, now: float, tolerance: float = 300) -> bool:
    """Whether the signature of this body is valid, and its time at most `tolerance` seconds away from `now`.

    With more than one signature any of them will do, so that a sender can change its secret without a gap.
    """
    lowered = {name.lower(): value for name, value in headers.items() if len(value) <= _LONGEST}
    message_id, time = lowered.get(ID, ""), lowered.get(TIME, "")
    if not message_id or not (time.isascii() and time.isdigit() and len(time) <= 15):
        return False
    wanted = _mac(key_of(secret), message_id, time, body).encode()
    pairs = [each.partition(",")[::2] for each in lowered.get(SIGNATURE, "").split(" ")]
    # Each is compared in constant time, and all of them are.
    matches = [hmac.compare_digest(wanted, value.encode()) for version, value in pairs if version == "v1"]
    return any(matches) and abs(now - int(time)) <= tolerance


def key_of(secret: str) -> bytes:
    """The key of a secret: base64 after `whsec_`, otherwise the secret itself."""
    if not secret.startswith(PREFIX):
        key = secret.encode()
    else:
        try:
            key = b64decode(secret.removeprefix(PREFIX), validate=True)
        except ValueError:
            raise InputError("secret", f"what follows {PREFIX} must be base64") from None
    if not key:
        raise InputError("secret", "must not be empty: anybody could sign with it")
    return key


def _mac(key: bytes, message_id: str, time: str, body: bytes) -> str:
    return b64encode(hmac.new(key, f"{message_id}.{time}.".encode() + body, sha256).digest()).decode()
