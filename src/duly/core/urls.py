"""Checks of web addresses."""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit

PORTS = {"http": 80, "https": 443}


def web_address(url: str) -> SplitResult:
    """The parts of a valid URL; raises ValueError with the reason if it is not valid."""
    try:
        parts = urlsplit(url)
        is_known = parts.scheme in PORTS and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        is_known = False
    if not is_known or any(ord(letter) <= 0x20 or ord(letter) == 0x7F for letter in url):
        raise ValueError("must be http://host/… or https://host/…")
    if "@" in parts.netloc:
        raise ValueError("must not contain a user or password; use a header for credentials")
    return parts
