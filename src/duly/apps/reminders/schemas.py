"""Reminders over HTTP."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints

from duly.web.schemas import Key, Model, Moment, Out, clean, example
from duly.web.schemas.items import TryOut

PhoneText = Annotated[str, StringConstraints(min_length=1, max_length=100), AfterValidator(clean)]
MessageText = Annotated[str, StringConstraints(min_length=1, max_length=4_000), AfterValidator(clean)]


class ReminderIn(Model):
    model_config = example(phone="+385 1 234 567", message="Dentist at 9", at="2026-12-01T09:00:00+01:00")

    phone: PhoneText
    message: MessageText
    at: Moment
    name: Annotated[str, StringConstraints(max_length=200), AfterValidator(clean)] = ""
    key: Key | None = None


class ReminderEdit(Model):
    model_config = example(at="2026-12-01T10:00:00+01:00")

    at: Moment | None = None
    phone: PhoneText | None = None
    message: MessageText | None = None
    name: Annotated[str, StringConstraints(max_length=200), AfterValidator(clean)] | None = None


class ReminderOut(Out):
    id: int
    phone: str
    message: str
    name: str
    status: Literal["scheduled", "processing", "completed", "pending_retry", "failed", "cancelled"]
    date_time_utc: datetime
    attempt_count: int
    max_attempts: int
    next_retry_at: datetime | None
    last_error: str | None
    idempotency_key: str | None = Field(description="Of the latest try.")
    execution_key: str = Field(description="Of all of them.")
    vapi_call_id: str | None
    attempts: list[TryOut]
