"""Waits for a turn to write that end in an exception: nothing is kept from those who still want to write."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from duly.core.errors import StoreUnavailable
from duly.store.sqlite import turns
from duly.store.sqlite.turns import FileLock, WriterLine, WriterTurn, turn
from tests.process.fleet import until
from tests.support import counts, opened, put

PATIENCE = 30

# Says what it is about to do, so that whoever started it can see to it that it waits.
INTERRUPTED = """
import signal, sys
from tests.support import opened, put

class Enough(BaseException): ...

def stop(*_):
    raise Enough

signal.signal(signal.SIGINT, signal.default_int_handler)  # also where whoever started this ignores it
signal.signal(signal.SIGALRM, stop)
with opened(sys.argv[1], timeout=30) as store:
    store.survey()
    if sys.argv[2] == "alarm":
        signal.setitimer(signal.ITIMER_REAL, 0.3)
    print("putting", flush=True)
    try:
        put(store)
    except (Enough, KeyboardInterrupt) as error:
        print(type(error).__name__, flush=True)
    sys.stdin.readline()
    put(store)
    print("put", flush=True)
    sys.stdin.readline()
"""


@contextmanager
def running(program: str, *words: str) -> Iterator[tuple[subprocess.Popen[str], Callable[[str], None]]]:
    """A Python process, and how to wait for a line of it.

    It is not measured, for an exception from a signal at any moment leaks the locks of what measures it.
    """
    env = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
    process = subprocess.Popen(
        [sys.executable, "-c", program, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
    )
    give_up = threading.Timer(4 * PATIENCE, process.kill)
    give_up.start()

    def says(line: str) -> None:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == line

    try:
        yield process, says
    finally:
        give_up.cancel()
        process.kill()
        process.communicate()


@contextmanager
def held(url: str) -> Iterator[None]:
    """The lock file as another process has it."""
    with open(f"{url.removeprefix('sqlite:///')}-lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.mark.parametrize("how", ["Ctrl-C", "alarm"])
def test_a_signal_during_a_waiting_put_keeps_the_lock_from_nobody(sqlite_url: str, how: str) -> None:
    with opened(sqlite_url, timeout=PATIENCE) as store, running(INTERRUPTED, sqlite_url, how) as (process, says):
        assert process.stdin is not None
        with held(sqlite_url):
            says("putting")
            if how == "Ctrl-C":
                waits_for_its_turn(process.pid)
                process.send_signal(signal.SIGINT)
            says("KeyboardInterrupt" if how == "Ctrl-C" else "Enough")
        put(store)  # while it lives
        process.stdin.write("\n")
        process.stdin.flush()
        says("put")
        put(store)
        assert counts(store) == {"waiting": 3}


def waits_for_its_turn(pid: int) -> None:
    """Until that process has a thread that waits for the lock."""
    until(lambda: len(list(Path(f"/proc/{pid}/task").iterdir())) > 1)


HAMMERED = """
import random, signal, sys, time
from tests.support import opened, put

class Enough(BaseException): ...

def stop(*_):
    raise Enough

signal.signal(signal.SIGALRM, stop)
interrupted = 0
with opened(sys.argv[1] + "?synchronous=off", timeout=30) as store:
    put(store)
    print("ready", flush=True)
    sys.stdin.readline()
    ends = time.monotonic() + 3
    while time.monotonic() < ends:
        try:
            signal.setitimer(signal.ITIMER_REAL, random.uniform(0.0002, 0.004))
            while True:
                put(store)
        except Enough:
            interrupted += 1
    print(interrupted > 50, flush=True)
    put(store)
    print("put", flush=True)
    sys.stdin.readline()
"""


def test_hundreds_of_signals_at_any_moment_leave_everybody_able_to_write(sqlite_url: str) -> None:
    with (
        running(HAMMERED, sqlite_url) as (one, one_says),
        running(HAMMERED, sqlite_url) as (two, two_says),
        opened(sqlite_url, timeout=PATIENCE) as store,
    ):
        for says in (one_says, two_says):
            says("ready")
        for process in (one, two):
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        for says in (one_says, two_says):
            says("True")
            says("put")
        put(store)


def test_a_thread_that_gives_up_waiting_lets_the_next_one_have_its_turn() -> None:
    line, first, second, third = WriterLine(), WriterTurn(), WriterTurn(), WriterTurn()
    assert line.join(first, 0)
    assert not line.join(second, 0.01)
    waiting = threading.Thread(target=line.join, args=(third, PATIENCE))
    waiting.start()
    line.leave(second)
    line.leave(first)
    waiting.join(PATIENCE)
    assert not waiting.is_alive()
    line.leave(third)
    line.leave(third)  # no harm
    assert line.join(WriterTurn(), 0)


def test_a_turn_that_came_to_a_thread_that_is_leaving_is_passed_on() -> None:
    line, first, second, third = WriterLine(), WriterTurn(), WriterTurn(), WriterTurn()
    assert line.join(first, 0)
    assert not line.join(second, 0.01)
    line.leave(first)  # it is the second one's turn, which does not know it
    assert not line.join(third, 0.01)
    line.leave(second)
    assert not third.calls.empty()


def test_a_thread_that_was_cut_short_while_it_left_is_not_waited_for() -> None:
    line, first, second = WriterLine(), WriterTurn(), WriterTurn()
    assert line.join(first, 0)
    assert not line.join(second, 0.01)
    del first  # as when an exception came before it could leave
    assert line.join(WriterTurn(), 0) is False
    assert line.join(second, PATIENCE)


def test_threads_write_in_the_order_they_came(tmp_path: Path) -> None:
    path, order = str(tmp_path / "a.db"), []
    line, threads = WriterLine(), []

    def write(n: int) -> None:
        with turn(line, path, PATIENCE):
            order.append(n)

    with turn(line, path, PATIENCE):
        for n in range(5):
            threads.append(threading.Thread(target=write, args=(n,)))
            threads[-1].start()
            until(lambda n=n: len(line._places) == n + 2)
    for thread in threads:
        thread.join(PATIENCE)
    assert order == [0, 1, 2, 3, 4]


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits for a lock does so in a thread that coverage sees."""
    started = SimpleNamespace(start_new_thread=lambda act, given: threading.Thread(target=act, args=given).start())
    monkeypatch.setattr(turns, "_thread", started)


@pytest.mark.usefixtures("measured")
def test_a_lock_that_comes_when_nobody_wants_it_any_more_is_given_back(tmp_path: Path) -> None:
    path = str(tmp_path / "a.db-lock")
    first, second = FileLock(path), FileLock(path)
    assert first.take(0)
    assert not second.take(0.01)
    second.free()
    first.free()
    third = FileLock(path)
    assert third.take(PATIENCE)
    third.free()


@pytest.mark.usefixtures("measured")
def test_a_lock_that_came_at_the_last_moment_is_given_back_too(tmp_path: Path) -> None:
    path = str(tmp_path / "a.db-lock")
    first, second = FileLock(path), FileLock(path)
    assert first.take(0)
    assert not second.take(0.01)
    first.free()
    until(second._settled.locked)  # the thread has it by now
    with pytest.raises(StoreUnavailable, match="another process"), turn(WriterLine(), path.removesuffix("-lock"), 0.01):
        pass
    second.free()
    with turn(WriterLine(), path.removesuffix("-lock"), PATIENCE):
        pass


def test_who_holds_several_lines_takes_a_place_like_anybody_else() -> None:
    line, place = WriterLine(), WriterTurn()
    assert line.lock() is None
    assert line.join(place, 1)
    assert line.is_own()
    assert not line.acquire(0.01), "it is another's turn"
    line.leave(place)
    assert line.acquire(1)
    line.release()
    line.release()
    assert not line.is_own()
