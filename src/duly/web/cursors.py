"""Cursors of pages: signed texts with the place where a page ends, valid for one owner and one filter only."""

from __future__ import annotations

import hashlib
import hmac
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any

from duly.web.problems import Problem


class Cursors:
    def __init__(self, secret: str) -> None:
        self._secret = secret.encode()

    def make(self, place: Any, bound: Any) -> str:
        """A cursor for the place after which the next page begins, bound to a list and its owner."""
        body = json.dumps(place, ensure_ascii=False).encode()
        return urlsafe_b64encode(self._sign(body, bound) + body).decode().rstrip("=")

    def read(self, text: str | None, bound: Any) -> Any:
        """The place in this cursor; None without a cursor."""
        if text is None:
            return None
        try:
            raw = urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
            signature, body = raw[:16], raw[16:]
            if hmac.compare_digest(signature, self._sign(body, bound)):
                return json.loads(body)
        except (ValueError, UnicodeError):
            pass
        raise Problem(422, "after: is not a cursor of this list with these filters", "after")

    def _sign(self, body: bytes, bound: Any) -> bytes:
        about = json.dumps(bound, sort_keys=True, default=str).encode()
        return hmac.digest(self._secret, hashlib.sha256(about).digest() + body, "sha256")[:16]
