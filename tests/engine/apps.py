"""Tasks of every kind, for tests that run a worker in this process."""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
import time
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from duly import NEVER, Attempt, Backoff, Cancel, Duly, Fingerprint, GiveUp, NotFound, Skip, Snooze, Throttled

seen: dict[str, list[Any]] = defaultdict(list)
gate = threading.Event()
color: contextvars.ContextVar[str] = contextvars.ContextVar("color", default="none")


class Mute(Exception):
    """An error that fails to say what it is, as many do."""

    def __str__(self) -> str:
        raise AttributeError("response")


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


endless: list[Any] = []
endless.append(endless)


@dataclass
class Product:
    sku: str
    price: int = 1


def tasks_on(app: Duly) -> Duly:
    quick = Backoff(base=0.05, tries=3)

    @app.task(retry=quick)
    async def flaky(fails: int, attempt: Attempt) -> str:
        seen["flaky"].append((attempt.key, attempt.number))
        if attempt.number <= fails:
            raise ConnectionError(f"no luck in try {attempt.number}")
        return "made it"

    @app.task(retry=quick)
    def verdict(kind: str, raised: bool, attempt: Attempt) -> Any:
        seen["verdict"].append(attempt.number)
        outcome = {
            "skip": Skip("nothing new"),
            "not_found": NotFound("gone"),
            "cancel": Cancel("not wanted"),
            "give_up": GiveUp("hopeless"),
            "snooze": Snooze(0.05),
            "throttled": Throttled(0.05),
        }[kind]
        if kind in ("snooze", "throttled") and len(seen["verdict"]) > 1:
            return "later"
        if raised:
            raise outcome
        return outcome

    @app.task(deadline=0.3, retry=NEVER)
    async def block() -> None:
        seen["began"].append("block")
        gate.wait(30)

    @app.task
    async def note_later() -> None:
        seen["noted"].append("later")

    @app.task(cpu=True, retry=NEVER)
    def orphan() -> None:
        if not os.fork():
            time.sleep(600)
        os._exit(3)

    @app.task
    async def wait(attempt: Attempt) -> None:
        seen["began"].append(attempt.id)
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            seen["cancelled"].append(attempt.id)
            raise

    @app.task(deadline=0.2, retry=Backoff(base=0, tries=1))
    async def too_slow() -> None:
        await asyncio.sleep(3600)

    @app.task(deadline=0.2, retry=Backoff(base=0, tries=1))
    def too_slow_thread() -> None:
        gate.wait(30)

    @app.task(batch=4)
    def price(rows: list[Product], attempts: list[Attempt]) -> list[Any]:
        seen["batches"].append([row.sku for row in rows])
        assert len(rows) == len(attempts)
        return [ValueError("no price") if row.sku == "bad" else row.price * 2 for row in rows]

    @app.task(batch=3)
    async def lose(rows: list[dict[str, Any]]) -> None:
        seen["lose"].append(len(rows))
        raise OSError("all of them")

    @app.task
    async def paint(name: str) -> str:
        before = color.get()
        color.set(name)
        await asyncio.sleep(0)
        assert color.get() == name
        return before

    @app.task
    def leave() -> None:
        raise SystemExit(3)

    @app.task
    async def aleave() -> None:
        raise SystemExit(3)

    @app.task
    def unprintable() -> None:
        raise ValueError("\ud800 \x00")

    @app.task
    def answer(kind: str) -> Any:
        return {
            "nan": {"mean": float("nan")}, "infinite": [float("inf")],
            "object": object(), "nul": "a\x00b", "large": "x" * 2_000_000, "dict": {"b": 1, "a": [1.5, None]},
            "deep": nested(300), "endless": endless, "long number": 10**5_000,
            "seen": Fingerprint("a", keep=nested(300)),
        }[kind]  # fmt: skip

    @app.task
    async def in_async(attempt: Attempt) -> None:
        attempt.connection  # noqa: B018

    @app.task
    def steps(attempt: Attempt) -> None:
        attempt.progress(3, 10, "counting")
        seen["began"].append(attempt.id)
        gate.wait(30)

    @app.task
    async def tick() -> None: ...

    @app.task(cpu=True)
    def apart(n: int) -> int:
        return n + 1

    @app.task(cpu=True)
    def odd(kind: str) -> Any:
        if kind == "surrogate":
            raise ValueError("\udcff")
        return NotFound(404)

    @app.task
    def mute() -> None:
        raise Mute

    @app.task
    async def amute() -> None:
        raise Mute

    @app.task
    def note() -> None:
        seen["noted"].append(True)

    @app.task
    async def note_async() -> None:
        seen["noted"].append(True)

    return app


app = tasks_on(Duly())
