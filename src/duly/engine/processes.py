"""A slot whose calls run in a child process, which can be killed, and whose crash harms nothing else.

The child reads one call at a time from a pipe, runs it and writes the verdicts back. It ends with its parent, when the
pipe closes or, on Linux, by a signal of the kernel. So no handler goes on for a worker that is gone. Messages are
msgpack. `duly.facade.child` is the program that does this with the user's app.
"""

from __future__ import annotations

import asyncio
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from typing import Any

import msgspec
from msgspec import Struct

from duly.core import model
from duly.core.model import Crashed, Failed, Fingerprint, Item, NewItem, Outcome, Released
from duly.engine.calls import Caller, Settled, Verdicts, breakdown
from duly.engine.work import Work
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
    Settled: (), model.Done: ("result",), Failed: ("error", "classes"),
    Fingerprint: ("value", "result", "keep", "also"),
    model.Throttled: ("retry_after", "is_guess"), model.Snooze: ("delay",), Released: ("reason",),
    model.Skip: ("reason",), model.NotFound: ("reason",), model.Cancel: ("reason",), model.GiveUp: ("reason",),
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


def send(pipe: Connection, message: Any) -> None:
    pipe.send_bytes(msgspec.msgpack.encode(message))


def receive_reply(pipe: Connection) -> Reply | None:
    """The next message of the child; None when it is gone."""
    try:
        reply: Reply = _replies.decode(pipe.recv_bytes())
        return reply
    except (EOFError, OSError):
        return None


class ProcessSlot:
    def __init__(self, command: Sequence[str], report: Callable[[Item, bytes], None]) -> None:
        self._command = command
        self._report = report
        self._child: subprocess.Popen[bytes] | None = None
        self._pipe: Connection | None = None
        self._work: Work | None = None
        self._stopped: Work | None = None

    def call(self, work: Work) -> Verdicts:
        self._work = work
        try:
            if not self._is_up():
                error = f"cannot start a process for this: it {self._end()}"
                return [Failed(error, ("duly.NoProcess",))] * len(work.items)
            # The work was stopped before there was a child to kill, or the child took too long to start for the limit.
            if self._stopped is work or (work.permit is not None and not work.permit.begin()):
                work.has_begun = False
                return [Released("its process did not start in time")] * len(work.items)
            verdicts = self._ask(work)
            return verdicts or [Crashed(f"the process that ran this {self._end()}")] * len(work.items)
        finally:
            self._work = None

    def _ask(self, work: Work) -> Verdicts | None:
        """The child's verdicts; None when it died."""
        assert self._pipe is not None
        by_id = {item.id: item for item in work.items}
        try:
            send(self._pipe, CallRequest(work.task.name, work.items))
            while True:
                match receive_reply(self._pipe):
                    case CallResult(verdicts):
                        return [from_wire(verdict) for verdict in verdicts]
                    case Report(item_id, progress):
                        if item_id in by_id:  # otherwise a thread of an earlier handler reports
                            self._report(by_id[item_id], progress)
                    case _:
                        return None
        except OSError:  # it died before the call was sent
            return None

    def _is_up(self) -> bool:
        """Whether there is a child that has imported the app; starts one when there is none."""
        if self._child is not None and self._child.poll() is None:
            return True
        self._drop()
        return isinstance(receive_reply(self._start()), Ready)

    def _start(self) -> Connection:
        self._pipe, theirs = Pipe()
        with theirs:
            self._child = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                [*self._command, str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                process_group=0,  # so that processes which the handler starts can be killed with it
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            )
        threading.Thread(target=_clear_up, args=(self._child,), name="duly-child", daemon=True).start()
        return self._pipe

    def _end(self) -> str:
        """Wait for the child's end and describe it."""
        assert self._child is not None
        code = self._child.wait()
        self._drop()
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"

    def stop(self, work: Work) -> None:
        """Kill the handler of this work, from any thread; the slot starts another child when it needs one."""
        self._stopped = work
        if self._work is work:
            self._kill()

    def close(self) -> None:
        self._kill()
        self._drop()

    def _kill(self) -> None:
        child = self._child
        if child is not None and child.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)

    def _drop(self) -> None:
        if self._pipe is not None:
            self._pipe.close()
        if self._child is not None:
            self._child.wait()
        self._child = self._pipe = None


def _clear_up(child: subprocess.Popen[bytes]) -> None:
    """Kill what a dead child had forked: it holds the child's pipes open, so the slot would wait for an answer."""
    child.wait()
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)


def serve(
    task_named: Callable[[str], Task[..., Any]],
    make_caller: Callable[[Callable[[Item, bytes], None]], Caller],
    parent: Connection,
) -> None:
    """Run calls until the parent is gone. `make_caller` gets the function that sends progress to the parent."""
    lock = threading.Lock()

    def reply(message: Reply) -> None:
        with lock:
            send(parent, message)

    def report(item: Item, progress: bytes) -> None:
        reply(Report(item.id, progress))

    caller = make_caller(report)
    waiting: queue.SimpleQueue[CallRequest] = queue.SimpleQueue()

    def listen() -> None:
        with suppress(EOFError, OSError):
            while True:
                waiting.put(_calls.decode(parent.recv_bytes()))
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
