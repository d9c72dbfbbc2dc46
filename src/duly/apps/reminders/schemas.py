"""Reminders over HTTP."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, StringConstraints

from duly.web.schemas import Key, Model, Moment, clean, example

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
