"""Masks: secret values are hidden in lists and in the audit log, by the names of their fields."""

from __future__ import annotations

import re
from typing import Any

from duly.core import codec

MASK = "***"


class Masks:
    def __init__(self, names: str) -> None:
        """`names` are parts of field names, separated by commas, in any style such as apiKey or api_key."""
        found = "|".join(re.escape(_bare(name)) for name in names.split(",") if _bare(name))
        self._masked = re.compile(found) if found else None

    def masked(self, value: Any, is_revealed: bool = False, level: int = 0) -> Any:
        """The value with secrets masked.

        What is nested too deeply to be shown is masked too; rows may have been written before there was a bound.
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
        """A value that someone sends back after seeing it masked, with the known values in place of the masks."""
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

    def hides(self, name: str) -> bool:
        """Whether values of a field of this name are secret."""
        return self._masked is not None and bool(self._masked.search(_bare(name)))

    def _is_secret(self, name: str, value: Any) -> bool:
        # None and booleans are shown: whether there is a secret is no secret.
        is_open = value is None or isinstance(value, bool)
        return not is_open and self.hides(name)


def _bare(name: str) -> str:
    """A name without its style: the same for apiKey, API-Key and api_key."""
    return re.sub(r"[-_ ]", "", name).lower()
