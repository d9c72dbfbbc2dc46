"""Waits for items to end: `placed.wait()` and `await placed.await_()`.

All waiting callers of a process share one thread, which is notified of ends, and one query for all of their items.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Any

from duly.core.errors import ItemFailed, StoreError, StoreUnavailable
from duly.core.forks import renew_in_children
from duly.core.model import LIVE
from duly.core.shown import Ending
from duly.store.contract import Store
from duly.tasks.checks import checked_timeout

log = logging.getLogger("duly")

# How many items one look reads.
PORTION = 1_000
# Seconds for which it keeps listening after the last caller stopped waiting; another may follow soon.
LINGER = 30.0

Ended = Future[Any]


class Endings:
    def __init__(self, open_store: Callable[[], Store], endings: Callable[[Sequence[int]], list[Ending]]) -> None:
        self._open_store = open_store
        self._endings = endings
        self.renew()
        renew_in_children(self)

    def renew(self) -> None:
        """Start without waiting callers: a forked process has no thread, and the callers are in its parent."""
        self._lock = threading.Lock()
        self._awaited: dict[int, list[Ended]] = defaultdict(list)
        self._known: set[int] = set()  # those of the awaited items that surely were put
        self._watchers: list[Callable[[], object]] = []
        self._stop: threading.Event | None = None
        self._idle_since = 0.0

    def ended(self, item_id: int, timeout: float | None, is_put: bool) -> Any:
        """The result of an item, when it has ended; ItemFailed when it failed for good, was cancelled or is gone.

        `is_put`: it was committed. Otherwise it may still come, so it counts as gone only after it was found once.
        """
        timeout = checked_timeout(timeout)
        with self._waiting(item_id, is_put) as ended:
            self._look([item_id])
            try:
                return ended.result(timeout)
            except TimeoutError:
                raise TimeoutError(f"item {item_id} has not ended within {timeout:g} s") from None

    async def aended(self, item_id: int, timeout: float | None, is_put: bool) -> Any:
        timeout = checked_timeout(timeout)
        with self._waiting(item_id, is_put) as ended:
            await asyncio.to_thread(self._look, [item_id])
            try:
                return await asyncio.wait_for(asyncio.wrap_future(ended), timeout)
            except TimeoutError:
                raise TimeoutError(f"item {item_id} has not ended within {timeout:g} s") from None

    @contextmanager
    def changes(self) -> Iterator[threading.Event]:
        """An event that is set whenever items have ended, and now and then."""
        changed = threading.Event()
        with self._watching(changed.set):
            yield changed

    @contextmanager
    def achanges(self) -> Iterator[asyncio.Event]:
        """`changes` for async callers."""
        changed, loop = asyncio.Event(), asyncio.get_running_loop()
        with self._watching(lambda: loop.call_soon_threadsafe(changed.set)):
            yield changed

    @contextmanager
    def _watching(self, notify: Callable[[], object]) -> Iterator[None]:
        with self._lock:
            self._watchers.append(notify)
            self._listen()
        try:
            yield
        finally:
            with self._lock:
                self._watchers.remove(notify)
                self._idle_since = time.monotonic()

    def close(self) -> None:
        """Stop listening; waiting callers get a StoreUnavailable."""
        with self._lock:
            self._end()
            waiting = [each for some in self._awaited.values() for each in some]
        for each in waiting:
            with suppress(InvalidStateError):
                each.set_exception(StoreUnavailable("this app was closed while someone waited for an item of it"))

    def _end(self) -> None:
        if self._stop is not None:
            self._stop.set()
            self._stop = None

    @contextmanager
    def _waiting(self, item_id: int, is_put: bool) -> Iterator[Ended]:
        ended: Ended = Future()
        with self._lock:
            self._awaited[item_id].append(ended)
            if is_put:
                self._known.add(item_id)
            self._listen()
        try:
            yield ended
        finally:
            with self._lock:
                waiting = self._awaited[item_id]
                waiting.remove(ended)
                if not waiting:
                    del self._awaited[item_id]
                    self._known.discard(item_id)
                self._idle_since = time.monotonic()

    def _listen(self) -> None:
        if self._stop is None:
            stop = threading.Event()
            threading.Thread(target=self._run, args=(stop,), name="duly-endings", daemon=True).start()
            self._stop = stop

    def _run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            try:
                self._open_store().listen_to_ends(self._look_around, stop)
            except StoreError as error:
                log.debug("waiting for ends of items: %s", error)
                stop.wait(1.0)
            except Exception:  # callers must not wait for a thread that has ended
                log.exception("waiting for ends of items failed and continues")
                stop.wait(1.0)

    def _look_around(self) -> None:
        with self._lock:
            for notify in self._watchers:
                notify()
            ids = iter(list(self._awaited))
            if not self._awaited and not self._watchers and time.monotonic() - self._idle_since > LINGER:
                self._end()
        while portion := list(islice(ids, PORTION)):
            self._look(portion)

    def _look(self, ids: Sequence[int]) -> None:
        with self._lock:  # before the look: what is put after it is not gone
            known = self._known.intersection(ids)
        found = {each.id: each for each in self._endings(ids)}
        with self._lock:
            self._known |= found.keys() & self._awaited.keys()
            waiting = [(each, item_id) for item_id in known | found.keys() for each in self._awaited.get(item_id, ())]
        for each, item_id in waiting:
            with suppress(InvalidStateError):  # another look was faster, or the caller no longer waits
                _tell(each, item_id, found.get(item_id))


def _tell(waiting: Ended, item_id: int, ending: Ending | None) -> None:
    """Tell a caller how an item has ended, if it has; None: it no longer exists."""
    if ending is None:
        waiting.set_exception(ItemFailed(item_id, "gone", "it was removed, or pruned after its end"))
    elif ending.state == "done":
        waiting.set_result(ending.result)
    elif ending.state not in LIVE:
        waiting.set_exception(ItemFailed(item_id, ending.state, (ending.last_error or "").partition("\n")[0]))
