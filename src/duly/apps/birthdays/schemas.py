"""People and their events over HTTP."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints

from duly.web.schemas import Model, Out, Word, clean, example

Birthday = Annotated[str, StringConstraints(min_length=5, max_length=10), AfterValidator(clean)]


class PersonIn(Model):
    model_config = example(
        id="user-456", firstName="Ana", lastName="Horvat", birthday="1990-03-15", zone="Europe/Zagreb"
    )

    id: Word
    first_name: Word
    last_name: Word
    birthday: Birthday
    zone: Word
    leap: Literal["feb28", "mar1", "skip"] = "feb28"


class PersonEdit(Model):
    model_config = example(zone="America/New_York")

    first_name: Word | None = None
    last_name: Word | None = None
    birthday: Birthday | None = None
    zone: Word | None = None
    leap: Literal["feb28", "mar1", "skip"] | None = None


class PersonOut(Out):
    id: str
    first_name: str
    last_name: str
    birthday: str = Field(description="MM-DD.")
    zone: str
    leap: Literal["feb28", "mar1", "skip"]
    next_at: datetime | None
    owner: str | None = Field(description="Whose they are; none for those that code or an admin added.")


class EventOut(Out):
    id: int | None = Field(description="None until it is due.")
    person_id: str
    status: Literal["PENDING", "PROCESSING", "COMPLETED", "FAILED", "CANCELLED"]
    target: datetime
    attempts: int
    executed_at: datetime | None
    next_try_at: datetime | None
    last_error: str | None


class PersonStoryOut(PersonOut):
    events: list[EventOut]
