"""The child process of a slot: it reads one call at a time from a pipe, runs it and writes the verdicts back.

It ends with its parent, when the pipe closes or, on Linux, by a signal of the kernel. So no handler goes on for a
worker that is gone. Messages are msgpack with their length in front. `duly.facade.child` is the program that does this
with the user's app.
"""

from __future__ import annotations

import asyncio
import os
import queue
import signal
import struct
import sys
import threading
from collections.abc import Callable
from typing import Any, BinaryIO

import msgspec
from msgspec import Struct

from duly.core.model import (
    Cancel,
    Done,
    Failed,
    Fingerprint,
    GiveUp,
    Item,
    NewItem,
    NotFound,
    Outcome,
    Released,
    Skip,
    Snooze,
    Throttled,
)
from duly.engine.calls import SETTLED, Caller, Settled, Verdicts, breakdown
from duly.tasks.task import Task

PR_SET_PDEATHSIG = 1


class Call(Struct, array_like=True):
    task: str
    items: list[Item]


class Ready(Struct, tag=True):
    """The app is imported; calls may come."""


class Report(Struct, tag=True):
    """How far a running item is."""

    item: int
    progress: bytes


class WireOutcome(Struct, array_like=True):
    """An outcome in the form in which it is sent to the parent process."""

    kind: str
    text: str = ""
    number: float = 0.0
    result: bytes | None = None
    classes: tuple[str, ...] = ()
    keep: bytes | None = None
    then: tuple[NewItem, ...] = ()


class Answer(Struct, tag=True):
    verdicts: list[WireOutcome]


Reply = Ready | Report | Answer

_replies = msgspec.msgpack.Decoder(Reply)
_calls = msgspec.msgpack.Decoder(Call)
_REASONED = {"skip": Skip, "not_found": NotFound, "cancel": Cancel, "give_up": GiveUp}


def to_wire(outcome: Outcome | Settled) -> WireOutcome:
    match outcome:
        case Settled():
            return WireOutcome("settled")
        case Done(result):
            return WireOutcome("done", result=result)
        case Failed(error, classes):
            return WireOutcome("failed", text=error, classes=classes)
        case Fingerprint():
            return WireOutcome(
                "fingerprint", text=outcome.value, result=outcome.result, keep=outcome.keep, then=outcome.then
            )
        case Throttled():
            return WireOutcome("throttled", text="guess" if outcome.is_guess else "", number=outcome.delay)
        case Snooze():
            return WireOutcome("snooze", number=outcome.delay)
        case Released():
            return WireOutcome("released")
        case _:
            kind = next(kind for kind, reasoned in _REASONED.items() if isinstance(outcome, reasoned))
            return WireOutcome(kind, text=outcome.reason)  # type: ignore[union-attr]


def from_wire(verdict: WireOutcome) -> Outcome | Settled:
    match verdict.kind:
        case "settled":
            return SETTLED
        case "done":
            return Done(verdict.result)
        case "failed":
            return Failed(verdict.text, verdict.classes)
        case "fingerprint":
            return Fingerprint(verdict.text, result=verdict.result, keep=verdict.keep, then=verdict.then)
        case "throttled":
            return Throttled(verdict.number, is_guess=verdict.text == "guess")
        case "snooze":
            return Snooze(verdict.number)
        case "released":
            return Released()
        case kind:
            return _REASONED[kind](verdict.text)


def send(pipe: BinaryIO, message: Any) -> None:
    body = msgspec.msgpack.encode(message)
    pipe.write(struct.pack(">I", len(body)) + body)
    pipe.flush()


def receive(pipe: BinaryIO) -> bytes | None:
    """The next message; None when the other side is gone."""
    head = pipe.read(4)
    if len(head) < 4:
        return None
    (size,) = struct.unpack(">I", head)
    body = pipe.read(size)
    return body if len(body) == size else None


def receive_reply(pipe: BinaryIO) -> Reply | None:
    body = receive(pipe)
    return None if body is None else _replies.decode(body)


def serve(
    task_named: Callable[[str], Task[..., Any]],
    make_caller: Callable[[Callable[[Item, bytes], None]], Caller],
    calls_in: BinaryIO,
    replies_out: BinaryIO,
) -> None:
    """Answer calls until the parent is gone. `make_caller` is given the function that sends progress to the parent."""
    lock = threading.Lock()

    def reply(message: Reply) -> None:
        with lock:
            send(replies_out, message)

    def report(item: Item, progress: bytes) -> None:
        reply(Report(item.id, progress))

    caller = make_caller(report)
    waiting: queue.SimpleQueue[Call] = queue.SimpleQueue()

    def listen() -> None:
        while (body := receive(calls_in)) is not None:
            waiting.put(_calls.decode(body))
        os._exit(0)

    threading.Thread(target=listen, daemon=True).start()
    reply(Ready())
    while True:
        call = waiting.get()
        try:
            reply(Answer([to_wire(outcome) for outcome in _run(task_named(call.task), call.items, caller)]))
        except Exception as error:
            reply(Answer([to_wire(breakdown(error))] * len(call.items)))


def _run(task: Task[..., Any], items: list[Item], caller: Caller) -> Verdicts:
    try:
        if task.is_async:
            return asyncio.run(caller.acall(task, items))
        return caller.call(task, items)
    except BaseException as error:
        return [breakdown(error)] * len(items)


def die_with_parent() -> None:
    """Ask the kernel, where it is Linux, to end this process with the thread that started it."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
