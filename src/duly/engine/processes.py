"""A slot whose calls run in a child process: killable, and alone in its crash."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, BinaryIO

from duly.engine.calls import Verdicts
from duly.engine.child import Answer, Call, Ready, Report, from_wire, receive_reply, send
from duly.engine.work import Work
from duly.model import Crashed, Failed, Item
from duly.task import Task


class ProcessSlot:
    def __init__(self, spec: str, report: Callable[[Item, bytes], None]) -> None:
        self._spec = spec
        self._report = report
        self._child: subprocess.Popen[bytes] | None = None
        self._calls: BinaryIO | None = None
        self._replies: BinaryIO | None = None

    def call(self, task: Task[..., Any], items: list[Item]) -> Verdicts:
        if not self._is_up():
            return [Failed(f"cannot start a process for this: it {self._end()}", ("duly.NoProcess",))] * len(items)
        verdicts = self._ask(task, items)
        return verdicts or [Crashed(f"the process that ran this {self._end()}")] * len(items)

    def _ask(self, task: Task[..., Any], items: list[Item]) -> Verdicts | None:
        """The child's verdicts; None when it died."""
        assert self._calls is not None
        assert self._replies is not None
        by_id = {item.id: item for item in items}
        try:
            send(self._calls, Call(task.name, items))
            while True:
                match receive_reply(self._replies):
                    case Answer(verdicts):
                        return [from_wire(verdict) for verdict in verdicts]
                    case Report(item_id, progress):
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
        self._child = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            [sys.executable, "-m", "duly.engine.child", self._spec, str(their_in), str(their_out)],
            pass_fds=(their_in, their_out),
            stdin=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )
        os.close(their_in)
        os.close(their_out)
        self._calls, self._replies = os.fdopen(our_out, "wb"), os.fdopen(our_in, "rb")

    def _end(self) -> str:
        """How the child ended."""
        assert self._child is not None
        code = self._child.wait()
        self._drop()
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"

    def stop(self, work: Work | None = None) -> None:
        """Kill the handler, from any thread; the slot starts another child when it needs one."""
        child = self._child
        if child is not None and child.poll() is None:
            child.kill()

    def close(self) -> None:
        self.stop()
        self._drop()

    def _drop(self) -> None:
        for pipe in (self._calls, self._replies):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
        if self._child is not None:
            self._child.wait()
        self._child = self._calls = self._replies = None
