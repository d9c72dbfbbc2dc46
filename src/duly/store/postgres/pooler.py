"""Finds out whether a pooler between us and PostgreSQL gives each transaction to another session of the server.

If so, LISTEN does not work, and settings and prepared statements of a session may end up with another client. A pooler
answers the start of a connection itself, with a process id that no session of the server has. Whether it also changes
sessions between transactions is tried out: while a second connection holds a session, does the first keep its own?
"""

from __future__ import annotations

from collections.abc import Callable

from duly.store.postgres.connections import AnswerTimeout, Connection

LOOKS = 5


def is_shared(dial: Callable[[], Connection]) -> bool:
    with dial() as one:
        first = _session(one)
        if first == one.info.backend_pid:
            return False
        with dial() as other:
            other.autocommit = False  # from its first statement on it keeps a session
            try:
                _session(other)
            except AnswerTimeout:  # there is no session left for it, so the first connection keeps its own
                return False
            try:
                return any(_session(one) != first for _ in range(LOOKS))
            except AnswerTimeout:  # the other connection has it now, and there is no more
                return True


def _session(connection: Connection) -> int:
    row = connection.execute("select pg_backend_pid()", prepare=False).fetchone()
    assert row is not None
    session: int = row[0]
    return session
