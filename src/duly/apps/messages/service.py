"""The retry service on one app: its task, its life beside a worker, and the parts that do the work."""

from __future__ import annotations

from base64 import b64decode
from typing import Any

from duly import Attempt, Backoff, Duly, InputError
from duly.apps.messages.dispatch import Dispatch
from duly.apps.messages.intake import MessageIntake
from duly.apps.messages.metrics import Metrics
from duly.apps.messages.queries import Queries
from duly.apps.messages.review import Review
from duly.apps.messages.rows import QUEUE, TASK, Rows
from duly.apps.messages.settings import MessagesSettings
from duly.apps.messages.wire import Wire
from duly.bridge.message import Message
from duly.bridge.names import queue_problem
from duly.bridge.properties import parse
from duly.core.model import Verdict
from duly.tasks.task import Task

WINDOW = 100  # messages that are published before their confirms are waited for
TRIES = 4  # tries to publish a message before it goes to review: its queue may come back


class MessageRetry:
    """The parts of the service. The worker calls `start`, `rest`, `stop` and `ailing`."""

    def __init__(self, app: Duly, settings: MessagesSettings) -> None:
        self.app = app
        self.metrics = Metrics(app.internals.telemetry.depths)
        self.wire = Wire(settings)
        self._rows = Rows(settings)
        self.intake = MessageIntake(app, settings, self._rows, self.metrics, self.wire)
        self._dispatch = Dispatch(app, settings, self._rows, self.metrics, self.wire, self.intake)
        self.task = self._register()
        self.review = Review(app, settings, self._rows)
        self.queries = Queries(app, settings)

    def _register(self) -> Task[..., Any]:
        retry = Backoff(base=self._rows.base, cap=self._rows.cap, tries=TRIES)

        # Internal, because an item of this task is published to whatever queue it names.
        @self.app.task(
            name=TASK, queue=QUEUE, batch=WINDOW, retry=retry, trusted=True, internal=True, deadline=900, check=_check
        )
        def message_retry(rows: list[Message], attempts: list[Attempt]) -> list[Verdict | Exception | None]:
            return self._dispatch.send(rows, attempts)

        return message_retry

    def start(self) -> None:
        """Connect, and go on connecting; returns at once."""
        self.wire.start(self.intake.keep, self._is_store_up)

    def rest(self) -> None:
        """Take no more messages in; what is due still goes out."""
        self.wire.rest()

    def stop(self) -> None:
        self.wire.stop()

    def ailing(self) -> str | None:
        """What keeps messages from passing."""
        return self.wire.trouble()

    def _is_store_up(self) -> bool:
        """Whether the database takes writes again; reading is not enough, since messages have to be stored."""
        try:
            self.app.check()
            self.app.internals.store.report(-1, 0, b"0")
        except Exception:
            return False
        return True


def install(app: Duly, settings: MessagesSettings) -> MessageRetry:
    """Register the task `message_retry` on this app; its workers connect to the broker."""
    service = MessageRetry(app, settings)
    app.internals.companions.append(service)
    return service


def _check(args: dict[str, Any]) -> None:
    """Check a message that was put by code as one that arrives is checked."""
    try:
        b64decode(args["payload"], validate=True)
        parse(b64decode(args["properties"], validate=True)) if args["properties"] else None
    except ValueError as error:
        raise InputError("payload", f"must be base64: {error}") from None
    if args["problem"] is None and (problem := queue_problem(args["queue"])):
        raise InputError("queue", problem)
