"""The store on PostgreSQL: any number of machines, any number of workers.

Nearly every method runs one statement from the folder `sql` on a pooled connection in autocommit, so it works behind a
transaction pooler too.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from datetime import datetime
from typing import Any

import psycopg

from duly.core.errors import ConstraintViolated, WrongState
from duly.core.model import Change, NewRow
from duly.store.contract import AWAITED, News, Store
from duly.store.postgres import sessions
from duly.store.postgres.arrays import columns, copied_rows
from duly.store.postgres.claims import PostgresClaims
from duly.store.postgres.connections import Connection
from duly.store.postgres.herald import head_of
from duly.store.postgres.puts import PostgresPuts
from duly.store.records import CHANGE, TRIED
from duly.store.sql import to_psycopg

log = logging.getLogger("duly.store")

# Seconds after which a listener that heard nothing checks that its connection still works.
PULSE = 10.0
# Seconds between two looks for ends of items: while news of them comes, and where none can come.
AT_LEAST = 1.0
UNHEARD = 0.2
# Seconds after which workers are asked again to notify of ends; they keep doing so for a while longer.
ASK_AGAIN = 10.0


class PostgresStore(PostgresClaims, PostgresPuts, Store):
    def twin(self, timeout: float | None = None) -> PostgresStore:
        return PostgresStore(self.url, pool_size=2, timeout=timeout or self._timeout, listen=self._listen)

    def _settle_any(
        self, changes: list[Change], closed: set[int], connection: Connection | None
    ) -> list[tuple[int, int]]:
        tried = [change for change in changes if change.tried]
        of_items = {"item_id": [change.id for change in tried], "fence": [change.fence for change in tried]}
        given = {
            **columns(CHANGE, changes, {}),
            **columns(TRIED, [change.tried for change in tried], of_items),
            "closed": list(closed),
        }
        try:
            return self._run("settle", given, connection)
        except ConstraintViolated:
            raise WrongState("another live item has its key now; cancel that item first") from None

    def _load_rows(self, rows: Sequence[NewRow], now: datetime, connection: Connection) -> None:
        with connection.cursor().copy(self._sql["load_rows"]) as copy:
            copy.write(copied_rows(rows, now))

    def prune(self, before: datetime, after: int, most: int) -> tuple[int, int | None]:
        ((gone, go_on),) = self._run("prune", {"before": before, "after": after, "most": most})
        return gone, go_on

    def query(
        self, sql: str, parameters: Mapping[str, Any], connection: Connection | None = None
    ) -> list[tuple[Any, ...]]:
        with self._connection() if connection is None else nullcontext(connection) as own:
            cursor = own.execute(to_psycopg(sql), parameters, binary=True)
            return cursor.fetchall() if cursor.description else []

    def listen(self, tell: Callable[[News], None], stop: threading.Event) -> None:
        while self._listen and not stop.is_set():
            try:
                if self.is_pooled():
                    log.warning(
                        "LISTEN does not work behind this transaction pooler: going on without, new work is found by "
                        "sweeps; set DULY_LISTEN=false, or give workers the server's own address"
                    )
                    break
                with self._dial(application_name="duly-watch") as ear:
                    ear.execute("listen duly")
                    tell(None)
                    self._listen_on(ear, tell, stop)
            except psycopg.OperationalError:
                stop.wait(1.0)
        stop.wait()

    def listen_to_ends(self, tell: Callable[[], None], stop: threading.Event) -> None:
        while not stop.is_set():
            try:
                if not self._listen or self.is_pooled():
                    while not stop.wait(UNHEARD):
                        tell()
                    return
                with self._dial(application_name="duly-ends") as ear:
                    ear.execute("listen duly_ended")
                    ear.patience = sessions.PULSE_PATIENCE
                    while not stop.is_set():
                        ear.execute(self._sql["tell"], {"news": [AWAITED]}, prepare=False)
                        again = time.monotonic() + ASK_AGAIN
                        while time.monotonic() < again and not stop.is_set():
                            tell()
                            deque(ear.notifies(timeout=AT_LEAST, stop_after=1), maxlen=0)
            except psycopg.OperationalError:
                stop.wait(1.0)

    def tell_of_ends(self) -> None:
        self._ends.trail(("",))

    def _listen_on(self, ear: Connection, tell: Callable[[News], None], stop: threading.Event) -> None:
        """Pass news on until `stop`, or until this connection no longer answers."""
        ear.patience = sessions.PULSE_PATIENCE
        pulse = time.monotonic() + PULSE
        while not stop.is_set():
            for note in ear.notifies(timeout=2.5):
                tell(AWAITED if note.payload == AWAITED else head_of(note.payload))
                if stop.is_set():
                    break
            if time.monotonic() > pulse:
                ear.execute("select 1", prepare=False)
                pulse = time.monotonic() + PULSE
