"""An app whose handlers write to a business table in the transaction that settles their item.

`python -c "from tests.borrow.ledger import app; app.run()"` is a worker of it.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from duly import Attempt, Duly, GiveUp, Skip

app = Duly()


def enter(attempt: Attempt, note: str) -> None:
    """Write a business row, as the handler of a real system would."""
    mark = "?" if "sqlite3" in type(attempt.connection).__module__ else "%s"
    attempt.connection.execute(f"insert into entry (item, note) values ({mark}, {mark})", (attempt.id, note))


def ledger_on(app: Duly) -> Duly:
    @app.task
    def book(note: str, attempt: Attempt) -> dict[str, Any]:
        enter(attempt, note)
        return {"booked": note}

    @app.task
    def book_quietly(note: str, attempt: Attempt) -> None:
        enter(attempt, note)

    @app.task
    def book_and_fail(note: str, attempt: Attempt) -> None:
        enter(attempt, note)
        raise ValueError("the till is closed")

    @app.task
    def book_and_give_up(note: str, attempt: Attempt) -> None:
        enter(attempt, note)
        raise GiveUp("no such account")

    @app.task
    def book_and_skip(note: str, attempt: Attempt) -> Skip:
        enter(attempt, note)
        return Skip("noted, nothing to do")

    @app.task
    def book_and_exit(note: str, attempt: Attempt) -> None:
        enter(attempt, note)
        sys.exit("a handler that wants to go home")

    @app.task
    def book_nonsense(note: str, attempt: Attempt) -> None:
        enter(attempt, note)
        attempt.connection.execute("insert into nowhere values (1)")

    @app.task
    def book_what_was_taken_away(note: str, attempt: Attempt) -> None:
        app.cancel(attempt.id)  # as anybody might, at this moment
        enter(attempt, note)

    @app.task
    def book_and_die_once(note: str, attempt: Attempt) -> None:
        enter(attempt, note)
        if attempt.number == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    @app.task(cpu=True)
    def book_apart_and_die_once(note: str, attempt: Attempt) -> None:
        enter(attempt, note)
        if attempt.number == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    @app.task
    async def book_async(note: str, attempt: Attempt) -> None:
        enter(attempt, note)

    return app


ledger_on(app)
