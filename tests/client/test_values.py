"""Values that are no JSON are stored, or refused, alike in Python and through a service."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from duly import Duly
from duly.client import Client
from duly.core.errors import InputError
from duly.web.server import Service


class Colour(Enum):
    RED = "r"


def keep(value: object) -> None: ...


@pytest.fixture
def doors(tmp_path: Path) -> Iterator[list[Any]]:
    app = Duly(f"sqlite:///{tmp_path}/duly.db")
    app.task(name="keep")(keep)
    with Service(app, "127.0.0.1", 0) as service, Client(service.url) as client:
        yield [app.client, client]
    app.close()


@pytest.mark.parametrize(
    "value",
    [
        b"raw",
        {3},
        (1, "two"),
        Colour.RED,
        Decimal("1.50"),
        UUID(int=7),
        date(2026, 11, 18),
        datetime(2026, 11, 18, 9, tzinfo=UTC),
        {"nested": [b"raw", Colour.RED, None]},
    ],
)
def test_what_json_does_not_know_is_stored_alike_at_every_door(doors: list[Any], value: object) -> None:
    python, http = (door.item(door.put("keep", {"value": value}).id).args for door in doors)
    assert python == http


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (object(), "value"),
        (float("nan"), "value"),
        ({"deep": [float("inf")]}, "value.deep[0]"),
        ({"deep": [1, object()]}, "value.deep[1]"),
        ("a\0b", "value"),
        ("\ud800", "value"),
        ([10**5000], "value[0]"),
    ],
    ids=["object", "nan", "deep nan", "deep object", "nul", "surrogate", "digits"],
)
def test_what_cannot_be_stored_is_refused_by_its_path_at_every_door(doors: list[Any], value: object, path: str) -> None:
    refused = []
    for door in doors:
        with pytest.raises(InputError) as error:
            door.put("keep", {"value": value})
        refused.append(error.value.field)
    assert refused == [path, path]
