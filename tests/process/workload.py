"""The app that the worker processes of these tests run. Effects go to files that survive any kill."""

from __future__ import annotations

import asyncio
import ctypes
import os
import threading
import time
from pathlib import Path

from duly import NEVER, Attempt, Backoff, Duly, Limit, Source

app = Duly()


def note(kind: str, text: str) -> None:
    """Append one line at once: a write this small is atomic with O_APPEND."""
    path = Path(os.environ["DULY_TEST_SINK"]) / kind
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(handle, f"{text}\n".encode())
    os.close(handle)


@app.task
async def mark(n: int, attempt: Attempt) -> None:
    note("marks", f"{attempt.key} {n} {attempt.number} {os.getpid()}")


@app.task(retry=Backoff(base=0.1, tries=3))
def linger(seconds: float, attempt: Attempt) -> None:
    """Works for a while in a thread, and says when it began and ended."""
    note("began", f"{attempt.key} {attempt.number} {os.getpid()}")
    time.sleep(seconds)
    note("ended", f"{attempt.key} {attempt.number} {os.getpid()}")


@app.task(source=Source("tower", tries=5, probe=2), retry=Backoff(base=0.1, tries=3), trusted=True)
async def ask(n: int) -> None:
    """Asks a tower that answers while there is a file."""
    note("asked", f"{time.time()} {os.getpid()}")
    if not (Path(os.environ["DULY_TEST_SINK"]) / "up").exists():
        raise ConnectionError(f"no route for {n}")


@app.task
async def ponder(seconds: float, attempt: Attempt) -> None:
    """Waits in a thread that nobody can stop."""
    note("began", f"{attempt.key} {attempt.number} {os.getpid()}")
    await asyncio.to_thread(time.sleep, seconds)


@app.task(retry=Backoff(base=0.1, tries=3))
async def rest(seconds: float, attempt: Attempt) -> None:
    """Waits where it can be stopped, and says when it began and ended."""
    note("began", f"{attempt.key} {attempt.number} {os.getpid()}")
    await asyncio.sleep(seconds)
    note("ended", f"{attempt.key} {attempt.number} {os.getpid()}")


@app.task
async def spin(seconds: float, attempt: Attempt) -> None:
    """Blocks the event loop and the CPU."""
    note("began", f"{attempt.key} {attempt.number} {os.getpid()}")
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass
    note("ended", f"{attempt.key} {attempt.number} {os.getpid()}")


@app.task
def poison(n: int, attempt: Attempt) -> None:
    """Takes its process down, every time."""
    note("began", f"{attempt.key} {attempt.number} {os.getpid()}")
    ctypes.string_at(0)


@app.task(cpu=True)
def poison_apart(n: int, attempt: Attempt) -> None:
    note("began", f"{attempt.key} {attempt.number} {os.getpid()}")
    ctypes.string_at(0)


@app.task(cpu=True, deadline=0.5, retry=Backoff(base=0, tries=2))
def hang(n: int) -> None:
    while True:
        pass


@app.task(deadline=0.3, retry=NEVER)
def hang_here(n: int) -> None:
    note("hung", f"{n} {os.getpid()}")
    threading.Event().wait()


@app.task(deadline=0.3, retry=NEVER)
async def block(n: int) -> None:
    note("hung", f"{n} {os.getpid()}")
    threading.Event().wait()


@app.task(cpu=True)
def square(n: int) -> int:
    return n * n


@app.task
async def greet(n: int, attempt: Attempt) -> None:
    """A message that takes its time on the way."""
    await asyncio.sleep(0.01)
    note("greeted", f"{attempt.key} {n} {attempt.planned_at.timestamp():.6f} {attempt.item.started_at.timestamp():.6f}")


@app.task(limits=Limit("ration", 2, per="6s"))
async def ration(n: int, attempt: Attempt) -> None:
    note("rations", f"{attempt.key} {time.time():.6f}")


@app.task(limits=Limit("few", 3))
def crowd(n: int, attempt: Attempt) -> None:
    note("crowd", f"{attempt.key} {time.time():.6f} in")
    time.sleep(0.05)
    note("crowd", f"{attempt.key} {time.time():.6f} out")
