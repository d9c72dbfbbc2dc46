"""From the columns of a file to the fields that a task needs.

values      which fields there are and what their values must be; a row as the task gets it, or why it is refused
columns     which column is which field: a suggestion by names and values, and a fingerprint to remember it by
duplicates  rows that say the same thing twice, found in bounded memory
"""

from __future__ import annotations

from duly.bulk.mapping.columns import Mapping, fingerprint, suggest
from duly.bulk.mapping.duplicates import Duplicates
from duly.bulk.mapping.values import Field, Fields, Normal, identity, normalise, preview

__all__ = [
    "Duplicates", "Field", "Fields", "Mapping", "Normal", "fingerprint", "identity", "normalise", "preview", "suggest",
]  # fmt: skip
