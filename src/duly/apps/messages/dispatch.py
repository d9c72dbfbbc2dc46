"""Messages out: due messages are published to their queue, or to manual review if their retries are used up."""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

from duly import Attempt, GiveUp, Snooze
from duly.apps.messages.rows import about
from duly.bridge.contract import clean
from duly.bridge.message import Message
from duly.bridge.properties import BadProperties
from duly.bridge.publisher import Outgoing, Receipt
from duly.core.errors import DulyError
from duly.core.model import Verdict

if TYPE_CHECKING:
    from duly.apps.messages.service import MessageRetry

log = logging.getLogger("duly.bridge")


class RetryFailed(DulyError):
    """A message could not be published to its queue."""


class Dispatch:
    """Publishes what is due and decides what the broker's answer means for the row."""

    def __init__(self, service: MessageRetry) -> None:
        self.service = service
        self.app, self.settings = service.app, service.settings
        self.rows, self.metrics = service.rows, service.metrics

    def send(self, rows: Sequence[Message], attempts: Sequence[Attempt]) -> list[Verdict | Exception | None]:
        """Publish these, each to its queue or to review; what became of each."""
        verdicts: list[Verdict | Exception | None] = [None] * len(rows)
        out: list[tuple[int, Outgoing]] = []
        is_traced = self.app.internals.telemetry.is_tracing()  # checked once: it is slow if OpenTelemetry is off
        for place, (row, attempt) in enumerate(zip(rows, attempts, strict=True)):
            if row.is_undecided and not row.is_sent_back:
                verdicts[place] = self.service.intake.decide(row, attempt)
                continue
            try:
                if reason := _why_review(row, attempt):
                    if row.is_in_review:
                        verdicts[place] = GiveUp(reason)
                    else:
                        out.append((place, self._for_review(row, attempt, reason)))
                else:
                    out.append((place, self._again(row, attempt, is_traced)))
            except (BadProperties, ValueError) as error:
                verdicts[place] = GiveUp(f"it cannot be published: {error}")
        receipts = self.service.publish([outgoing for _, outgoing in out])
        left: list[tuple[int, Outgoing, str]] = []
        for (place, _), receipt in zip(out, receipts, strict=True):
            row, attempt = rows[place], attempts[place]
            verdicts[place] = self._judge(row, attempt, receipt, _why_review(row, attempt))
            is_last = attempt.number >= attempt.tries or receipt.what == "refused"
            if isinstance(verdicts[place], RetryFailed) and is_last:
                reason = clean(str(verdicts[place]), 1_000)
                left.append((place, self._for_review(row, attempt, reason), reason))
        for (place, _, reason), receipt in zip(left, self.service.publish([each[1] for each in left]), strict=True):
            verdicts[place] = self._judge(rows[place], attempts[place], receipt, reason)
        return verdicts

    def _judge(
        self, row: Message, attempt: Attempt, receipt: Receipt, reason: str | None
    ) -> Verdict | Exception | None:
        """`reason` is why it went to review; None when it went to its own queue."""
        label = self.rows.label_for(row.queue)
        match receipt.what:
            case "confirmed" if reason is None:
                self.metrics.executed.labels(label, "success").inc()
                self.metrics.drift.observe(self._lateness(attempt))
                if attempt.revivals:  # a person has sent it back from review, where it has a copy
                    self.service.withdraw(attempt.id)
                log.debug("message %s is back in %s", row.message_id, row.queue, extra=about(row, attempt))
                return None
            case "confirmed":
                if row.problem is None and row.is_exhausted:
                    self.metrics.exhausted.labels(label).inc()
                log.warning("message %s goes to review: %s", row.message_id, reason, extra=about(row, attempt))
                return GiveUp(reason)
            case "unknown":
                return Snooze(1.0)
            case "not_sent" | "nacked":  # a broker that is down or full is not a failure of the message
                log.info("message %s waits: %s", row.message_id, receipt.why, extra=about(row, attempt))
                return Snooze(2.0 + random.random())  # noqa: S311
            case _:
                self.metrics.executed.labels(label, "failed").inc()
                return RetryFailed(receipt.why)

    def _lateness(self, attempt: Attempt) -> float:
        is_first = attempt.number == 1 and not attempt.revivals
        since = attempt.planned_at if is_first else attempt.due_at
        return max((self.app.clock.now() - since).total_seconds(), 0.0)

    def _again(self, row: Message, attempt: Attempt, is_traced: bool) -> Outgoing:
        properties = row.again()
        if is_traced and (trace := self.app.internals.telemetry.follow(f"publish {row.queue}", attempt.item)):
            properties = properties.with_headers({"traceparent": trace})
        key = row.queue if row.routing_key is None else row.routing_key
        return Outgoing(attempt.id, key, properties, row.body, row.exchange)

    def _for_review(self, row: Message, attempt: Attempt, reason: str) -> Outgoing:
        return Outgoing(attempt.id, self.settings.manual_review_queue, row.for_review(reason), row.body)


def _why_review(row: Message, attempt: Attempt) -> str | None:
    """Why this message goes to a person, not to its queue; None once a person has sent it back."""
    if row.problem is not None:
        return row.problem
    if row.is_exhausted and not row.is_sent_back and not attempt.revivals:
        return f"retries exhausted ({row.retry_count} of {row.max_retries}): {row.reason}"
    return None
