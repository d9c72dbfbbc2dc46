"""A slot whose calls run in a child process, which can be killed, and whose crash harms nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import BinaryIO

from duly.core.model import Crashed, Failed, Item, Released
from duly.engine.calls import Verdicts
from duly.engine.child import CallRequest, CallResult, Ready, Report, from_wire, receive_reply, send
from duly.engine.work import Work


class ProcessSlot:
    def __init__(self, command: Sequence[str], report: Callable[[Item, bytes], None]) -> None:
        self._command = command
        self._report = report
        self._child: subprocess.Popen[bytes] | None = None
        self._calls: BinaryIO | None = None
        self._replies: BinaryIO | None = None
        self._work: Work | None = None
        self._stopped: Work | None = None

    def call(self, work: Work) -> Verdicts:
        self._work = work
        try:
            if not self._is_up():
                error = f"cannot start a process for this: it {self._end()}"
                return [Failed(error, ("duly.NoProcess",))] * len(work.items)
            # The child took too long to start for the limit, or the work was stopped before there was a child to kill.
            if time.monotonic() > work.start_by or self._stopped is work:
                return [Released()] * len(work.items)
            verdicts = self._ask(work)
            return verdicts or [Crashed(f"the process that ran this {self._end()}")] * len(work.items)
        finally:
            self._work = None

    def _ask(self, work: Work) -> Verdicts | None:
        """The child's verdicts; None when it died."""
        assert self._calls is not None
        assert self._replies is not None
        by_id = {item.id: item for item in work.items}
        try:
            send(self._calls, CallRequest(work.task.name, work.items))
            while True:
                match receive_reply(self._replies):
                    case CallResult(verdicts):
                        return [from_wire(verdict) for verdict in verdicts]
                    case Report(item_id, progress):
                        if item_id in by_id:  # otherwise a thread of an earlier handler reports
                            self._report(by_id[item_id], progress)
                    case _:
                        return None
        except BrokenPipeError:
            return None

    def _is_up(self) -> bool:
        """Whether there is a child that has imported the app; starts one when there is none."""
        if self._child is not None and self._child.poll() is None:
            return True
        self._drop()
        self._start()
        assert self._replies is not None
        return isinstance(receive_reply(self._replies), Ready)

    def _start(self) -> None:
        their_in, our_out = os.pipe()
        our_in, their_out = os.pipe()
        self._calls, self._replies = os.fdopen(our_out, "wb"), os.fdopen(our_in, "rb")
        try:
            self._child = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                [*self._command, str(their_in), str(their_out)],
                pass_fds=(their_in, their_out),
                stdin=subprocess.DEVNULL,
                process_group=0,  # so that processes which the handler starts can be killed with it
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            )
        finally:
            os.close(their_in)
            os.close(their_out)
        threading.Thread(target=_clear_up, args=(self._child,), name="duly-child", daemon=True).start()

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
        for pipe in (self._calls, self._replies):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
        if self._child is not None:
            self._child.wait()
        self._child = self._calls = self._replies = None


def _clear_up(child: subprocess.Popen[bytes]) -> None:
    """Kill what a dead child had forked: it holds the child's pipes open, so the slot would wait for an answer."""
    child.wait()
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
