"""People and their events over HTTP."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, StringConstraints

from duly.web.schemas import Model, Word, clean, example

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
