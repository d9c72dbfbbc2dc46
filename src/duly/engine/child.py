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
from duly.engine.calls import Caller, Settled, Verdicts, breakdown
from duly.tasks.task import Task

PR_SET_PDEATHSIG = 1


class CallRequest(Struct, array_like=True):
    task: str
    items: list[Item]


class Ready(Struct, tag=True):
    """The app is imported; calls may come."""


class Report(Struct, tag=True):
    """How far a running item is."""

    item: int
    progress: bytes


class WireOutcome(Struct, array_like=True):
    """An outcome in the form in which it is sent to the parent process: its class and the values of its fields."""

    kind: str
    fields: dict[str, Any] = {}
    then: tuple[NewItem, ...] = ()


class CallResult(Struct, tag=True):
    verdicts: list[WireOutcome]


Reply = Ready | Report | CallResult

_replies = msgspec.msgpack.Decoder(Reply)
_calls = msgspec.msgpack.Decoder(CallRequest)
_FIELDS: dict[type, tuple[str, ...]] = {
    Settled: (), Done: ("result",), Failed: ("error", "classes"), Fingerprint: ("value", "result", "keep"),
    Throttled: ("retry_after", "is_guess"), Snooze: ("delay",), Released: (),
    Skip: ("reason",), NotFound: ("reason",), Cancel: ("reason",), GiveUp: ("reason",),
}  # fmt: skip
_CLASSES: dict[str, Callable[..., Outcome | Settled]] = {kind.__name__: kind for kind in _FIELDS}


def to_wire(outcome: Outcome | Settled) -> WireOutcome:
    kind = next(kind for kind in type(outcome).__mro__ if kind in _FIELDS)  # it may be a subclass of the user's
    fields = {name: getattr(outcome, name) for name in _FIELDS[kind]}
    return WireOutcome(kind.__name__, fields, outcome.then if isinstance(outcome, Fingerprint) else ())


def from_wire(verdict: WireOutcome) -> Outcome | Settled:
    fields = {name: tuple(value) if isinstance(value, list) else value for name, value in verdict.fields.items()}
    if verdict.then:
        fields["then"] = verdict.then
    return _CLASSES[verdict.kind](**fields)


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
    """Run calls until the parent is gone. `make_caller` gets the function that sends progress to the parent."""
    lock = threading.Lock()

    def reply(message: Reply) -> None:
        with lock:
            send(replies_out, message)

    def report(item: Item, progress: bytes) -> None:
        reply(Report(item.id, progress))

    caller = make_caller(report)
    waiting: queue.SimpleQueue[CallRequest] = queue.SimpleQueue()

    def listen() -> None:
        while (body := receive(calls_in)) is not None:
            waiting.put(_calls.decode(body))
        os._exit(0)

    threading.Thread(target=listen, daemon=True).start()
    reply(Ready())
    while True:
        call = waiting.get()
        try:
            reply(CallResult([to_wire(outcome) for outcome in _run(task_named(call.task), call.items, caller)]))
        except Exception as error:
            reply(CallResult([to_wire(breakdown(error))] * len(call.items)))


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
