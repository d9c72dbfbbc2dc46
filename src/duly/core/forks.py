"""Renews locks, threads and connections in a process that was forked.

A child inherits copies of everything but the threads: a lock that another thread held stays held for ever, and a socket
is shared with the parent. Objects that keep such things register here, and are renewed in every child.
"""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class Renewed(Protocol):
    def renew(self) -> None:
        """Called in a child before anything else runs there: make new locks and connections; never use the old ones."""
        ...


_KEPT: WeakSet[Renewed] = WeakSet()


def renew_in_children(kept: Renewed) -> None:
    _KEPT.add(kept)


def _renew() -> None:
    for kept in list(_KEPT):
        kept.renew()


os.register_at_fork(after_in_child=_renew)
