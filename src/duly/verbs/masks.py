"""Masks: values that nobody should read over a shoulder are hidden by the names that they go under."""

from __future__ import annotations

import re
from typing import Any

from duly.core import codec

MASK = "***"


class Masks:
    def __init__(self, names: str) -> None:
        """`names`: parts of names, with commas between them, however they are written."""
        found = "|".join(re.escape(_bare(name)) for name in names.split(",") if _bare(name))
        self._masked = re.compile(found) if found else None

    def masked(self, value: Any, is_revealed: bool = False, level: int = 0) -> Any:
        """The same without what is secret.

        Nor with what lies too deep to be written out: a row may be older than the bounds of what is kept.
        """
        if level > codec.DEPTH and isinstance(value, dict | list):
            return codec.TOO_DEEP
        if isinstance(value, dict):
            return {
                name: MASK if not is_revealed and self._is_secret(name, inner)
                else self.masked(inner, is_revealed, level + 1)
                for name, inner in value.items()
            }  # fmt: skip
        return [self.masked(inner, is_revealed, level + 1) for inner in value] if isinstance(value, list) else value

    def unmasked(self, value: Any, known: Any) -> Any:
        """What someone sends back who saw it masked: a mask stands for what is there."""
        if isinstance(value, dict) and isinstance(known, dict):
            return {
                name: known[name]
                if name in known and inner == MASK and self._is_secret(name, known[name])
                else self.unmasked(inner, known.get(name))
                for name, inner in value.items()
            }
        if isinstance(value, list) and isinstance(known, list) and len(value) == len(known):
            return [self.unmasked(inner, there) for inner, there in zip(value, known, strict=True)]
        return value

    def _is_secret(self, name: str, value: Any) -> bool:
        # Whether there is one is no secret.
        is_open = value is None or isinstance(value, bool)
        return self._masked is not None and not is_open and bool(self._masked.search(_bare(name)))


def _bare(name: str) -> str:
    """A name however it is written: apiKey, API-Key, api_key."""
    return re.sub(r"[-_ ]", "", name).lower()
