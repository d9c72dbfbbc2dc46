"""Keeps secrets out of errors: servers may repeat what they receive, and errors are stored, shown and logged."""

from __future__ import annotations

import json
from collections.abc import Mapping
from urllib.parse import parse_qsl

# Headers that are not secret and may be quoted, and the words of Authorization that are not secret either.
OPEN = frozenset(("content-type", "accept", "user-agent", "idempotency-key", "duly-attempt"))
SCHEMES = frozenset(("basic", "bearer", "digest", "token"))
SHORTEST = 4  # characters from which a word may be a secret


def hide(text: str, headers: Mapping[str, str], query: str = "") -> str:
    """The text without the values of the caller's headers and query."""
    secrets = sorted(_secrets(headers, query), key=len, reverse=True)
    for secret in secrets:
        text = text.replace(secret, "***")
    for secret in secrets:  # the text may have been cut in the middle of one
        for length in range(len(secret) - 1, SHORTEST - 1, -1):
            if text.endswith(secret[:length]):
                return f"{text[:-length]}***"
    return text


def _secrets(headers: Mapping[str, str], query: str) -> set[str]:
    words = [pair.partition("=")[2] for pair in query.split("&")] + [value for _, value in parse_qsl(query)]
    for name, value in headers.items():
        if name.lower() not in OPEN:
            words += (value.strip(), *value.split())
    secrets = {word for word in words if len(word) >= SHORTEST and word.lower() not in SCHEMES}
    return secrets | {json.dumps(secret)[1:-1] for secret in secrets}
