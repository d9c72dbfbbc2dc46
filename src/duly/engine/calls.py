"""One call of a handler: start it, call it, judge its answer. It runs on an event loop, in a thread or in a process."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any

from msgspec import Struct

from duly.core import codec
from duly.core.clock import Clock
from duly.core.decide import decide
from duly.core.errors import DulyError, InputError, LeaseLost, StoreBusy
from duly.core.model import Done, Failed, Fingerprint, GiveUp, Item, Outcome, Released, Verdict, cut
from duly.core.policy.retry import class_name, class_names
from duly.core.settings import Settings
from duly.store.contract import Store
from duly.tasks.attempt import Attempt
from duly.tasks.task import Task
from duly.telemetry.telemetry import Telemetry

WAITING = 0.8  # the part of its deadline that a try may spend waiting for a connection


class Settled(Struct, frozen=True):
    """Stands in place of an outcome when the item was already settled in the handler's own transaction."""


SETTLED = Settled()
Verdicts = list[Outcome | Settled]


@dataclass(eq=False)
class Caller:
    """Calls handlers on behalf of a worker."""

    store: Store
    clock: Clock
    telemetry: Telemetry
    settings: Settings
    report: Callable[[Item, bytes], None]

    def __post_init__(self) -> None:
        self.store = self.telemetry.observe(self.store)
        self._is_traced = self.telemetry.is_tracing()

    def attempt(self, task: Task[..., Any], item: Item) -> Attempt:
        tries = item.max_attempts or task.tries
        opener: Callable[[], AbstractContextManager[Any]] | None = None
        if not task.is_async and not task.batch:
            # Wait for a connection only while there is time left to use it; having to wait is not the item's fault.
            until = time.monotonic() + WAITING * task.deadline
            opener = partial(self.store.transaction, is_handlers=True, until=until)
        return Attempt(item, tries, self.report, opener)

    async def acall(self, task: Task[..., Any], items: list[Item]) -> Verdicts:
        """The verdicts of an async handler, one per item."""
        try:
            return self.judge(task, items, await self.begin(task, items))
        except Exception as error:
            return self.failed(items, error)

    def begin(self, task: Task[..., Any], items: list[Item]) -> Coroutine[Any, Any, Any]:
        """The coroutine of an async handler, ready to be awaited."""
        args = self._arguments(task, items, self._attempts(task, items))
        if self._is_traced or self.telemetry.speaks_of(task):
            return self._watched(task, items, args)
        coroutine: Coroutine[Any, Any, Any] = task.handler(**args)
        return coroutine

    async def _watched(self, task: Task[..., Any], items: list[Item], args: dict[str, Any]) -> Any:
        with self.telemetry.running(task, items, self._is_traced):
            return await task.handler(**args)

    def call(self, task: Task[..., Any], items: list[Item]) -> Verdicts:
        """The verdicts of a plain handler, one per item."""
        attempts = self._attempts(task, items)
        try:
            args = self._arguments(task, items, attempts)
            with self.telemetry.running(task, items, self._is_traced):
                value = task.handler(**args)
            verdicts = self.judge(task, items, value)
        except BaseException as error:
            for attempt in attempts:
                _roll_back(attempt, error)
            if not isinstance(error, Exception):
                self.caught(items, error)
                raise
            return self.failed(items, error)
        if len(attempts) == 1 and attempts[0].transaction is not None:
            return [self._settle_inside(task, attempts[0], verdicts[0])]
        return verdicts

    def failed(self, items: list[Item], error: Exception) -> Verdicts:
        """The verdicts on these items after an exception, which the log line of the failed try will show."""
        self.caught(items, error)
        return [failure(error)] * len(items)

    def caught(self, items: list[Item], error: BaseException) -> None:
        """Have this exception in the log lines of the tries that it ended; a verdict says all in its reason."""
        for item in items if not isinstance(error, Verdict) else ():
            self.telemetry.caught(item, error)

    def _attempts(self, task: Task[..., Any], items: list[Item]) -> list[Attempt]:
        return [self.attempt(task, item) for item in items] if task.wants_attempt else []

    def _arguments(self, task: Task[..., Any], items: list[Item], attempts: list[Attempt]) -> dict[str, Any]:
        if task.batch:
            return task.batch_arguments([item.args for item in items], attempts)
        return task.arguments(items[0].args, attempts[0] if attempts else None)

    def judge(self, task: Task[..., Any], items: list[Item], value: Any) -> Verdicts:
        """The verdicts that a handler's answer means. A batch answers with a value per item, or None: all succeeded."""
        if not task.batch:
            return _ALL_WELL if value is None else [self._verdict(value)]
        if value is None:
            return [Done()] * len(items)
        if isinstance(value, Verdict):
            return [self._verdict(value)] * len(items)
        if not isinstance(value, list | tuple) or len(value) != len(items):
            got = len(value) if isinstance(value, list | tuple) else type(value).__name__
            raise InputError(
                "return", f"a batch handler must return one outcome per item: expected {len(items)}, got {got}"
            )
        return [
            self.failed([item], each)[0]
            if isinstance(each, Exception) and not isinstance(each, Verdict)
            else self._verdict(each)
            for item, each in zip(items, value, strict=True)
        ]

    def _verdict(self, value: Any) -> Outcome:
        if value is None:
            return _DONE
        if isinstance(value, Fingerprint):
            return self._fingerprint(value)
        if isinstance(value, Verdict):
            return value
        text = self._kept("result", value)
        return text if isinstance(text, GiveUp) else Done(text)

    def _fingerprint(self, seen: Fingerprint) -> Outcome:
        """The same fingerprint, with `result` and `keep` as JSON text."""
        kept: dict[str, bytes | None] = {}
        for name, value in (("result", seen.result), ("keep", seen.keep)):
            text = None if value is None else self._kept(name, value)
            if isinstance(text, GiveUp):
                return text
            kept[name] = text
        return Fingerprint(seen.value, **kept, then=seen.then, also=seen.also)

    def _kept(self, what: str, value: Any) -> bytes | GiveUp:
        try:
            return codec.keepable(value, self.settings.max_result_bytes)
        except ValueError as error:
            return GiveUp(f"the work was done, but its {what} {error}")

    def _settle_inside(self, task: Task[..., Any], attempt: Attempt, verdict: Outcome | Settled) -> Outcome | Settled:
        """Settle in the handler's transaction, so that its effects and the item's end commit together."""
        assert attempt.transaction is not None
        assert not isinstance(verdict, Settled)
        stack, connection = attempt.transaction
        try:
            with stack:
                if getattr(connection, "in_transaction", True) is False:
                    raise DulyError(
                        "the handler ended the transaction of attempt.connection, which is for duly to commit"
                    )
                change = decide(attempt.item, verdict, self.clock.now(), task.rules)
                if self.store.settle([change], connection=connection):
                    raise LeaseLost(f"item {attempt.id} was given to another worker; its effects are rolled back")
        except Exception as error:
            return self.failed([attempt.item], error)[0]
        return SETTLED


_DONE = Done()
_ALL_WELL: Verdicts = [_DONE]


def failure(error: Exception) -> Outcome:
    """The outcome that an exception means."""
    if isinstance(error, Fingerprint):
        return Failed("a Fingerprint must be returned, not raised", ("duly.InputError",))
    if isinstance(error, Verdict):
        return error
    if isinstance(error, StoreBusy):  # all connections of this process were in use, which is not the item's failure
        return Released("no connection to the database was free")
    frames = "".join(traceback.format_exception(error, limit=-8))
    return Failed(cut(f"{class_name(type(error))}: {_words(error)}\n\n{frames}".strip()), class_names(error))


def breakdown(error: BaseException) -> Outcome:
    """The outcome of SystemExit and the like in a handler: the handler has failed, and the worker continues."""
    return Failed(cut(f"{type(error).__name__}: {_words(error)}"), (type(error).__name__,))


def _words(error: BaseException) -> str:
    """The text of an exception, also if its own `__str__` raises."""
    try:
        return str(error)
    except Exception as again:
        return f"(str() of the exception failed: {type(again).__name__})"


def _roll_back(attempt: Attempt, error: BaseException) -> None:
    if attempt.transaction is not None:
        stack, _ = attempt.transaction
        try:
            stack.__exit__(type(error), error, error.__traceback__)
        except BaseException as again:  # the same error, or one of the rollback; the handler's own error is kept
            if again is not error and again.__cause__ is not error:
                error.add_note(f"and the rollback failed: {again}")
