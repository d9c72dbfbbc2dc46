"""A resolver that says what it is told: names of our own, while everything else is resolved as ever."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Any

import pytest


def pretend(patch: pytest.MonkeyPatch, name: str, *answers: str | Sequence[str]) -> list[str]:
    """Give a name its addresses, one answer per lookup, the last for ever; returns the lookups, as they come."""
    real = socket.getaddrinfo
    lookups: list[str] = []

    def resolve(host: Any, port: Any, *given: Any, **options: Any) -> Any:
        if host != name or options.get("flags", 0) & socket.AI_NUMERICHOST:
            return real(host, port, *given, **options)
        told = answers[min(len(lookups), len(answers) - 1)]
        lookups.append(host)
        addresses = [told] if isinstance(told, str) else told
        return [info for address in addresses for info in real(address, port, *given, **options)]

    patch.setattr(socket, "getaddrinfo", resolve)
    return lookups
