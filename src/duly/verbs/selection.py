"""Acts on several rows at once: all of them or none, and an error that names each row that cannot be changed."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from duly.core.errors import DoesNotExist, DulyError, InputError, WrongState

SELECTED = 1_000  # rows of one selection
NAMED = 20  # rows that an error names at most


def selected(ids: Sequence[int]) -> list[int]:
    """These ids, each once: at least one, and at most a thousand."""
    wanted = list(dict.fromkeys(ids))
    if not 1 <= len(wanted) <= SELECTED:
        raise InputError("ids", f"must be 1 to {SELECTED:,} ids")
    return wanted


def refusal(reasons: Mapping[int, str], known: Container[int]) -> DulyError:
    """The error about these rows, each with the reason why it cannot be changed; `known` are the rows that exist."""
    named = [reasons[row_id] for row_id in sorted(reasons)]
    more = f"; and {len(named) - NAMED} more" if len(named) > NAMED else ""
    kind = WrongState if any(row_id in known for row_id in reasons) else DoesNotExist
    return kind("; ".join(named[:NAMED]) + more)
