"""What a form has to know of a task: its parameters, and in which words it is tried again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest

from duly import Attempt, Backoff, ByError, Duly, Limit, Windows
from duly.core.policy.retry import NEVER, Retry
from duly.core.results import Param
from duly.tasks.signature import retry_in_words, signature

app = Duly("sqlite:///never-opened.db")


NONE: list[str] = []


@app.task(limits=[Limit("lines", 2, per="1m")], retry=NEVER)
def call(
    attempt: Attempt, phone: str, times: int, price: float | None = None, total: Decimal = Decimal("1.5"),
    at_once: bool = False, until: datetime | None = None, tags: list[str] = NONE, mixed: int | str = 3,
    given: Any = None,
) -> None:  # fmt: skip
    """Call someone.

    More than once.
    """


def test_parameters_have_types_and_defaults() -> None:
    told = signature(call)
    assert told.params == [
        Param("phone", "string", True, None, False),
        Param("times", "integer", True, None, False),
        Param("price", "number", False, None, True),
        Param("total", "number", False, "1.5", False),
        Param("at_once", "boolean", False, False, False),
        Param("until", "datetime", False, None, True),
        Param("tags", "json", False, [], False),
        Param("mixed", "json", False, 3, False),
        Param("given", "json", False, None, True),
    ]
    assert (told.name, told.queue, told.doc) == ("call", "call", "Call someone.\n\nMore than once.")
    assert (told.limits, told.retry, told.takes_more) == (["lines"], "one try", False)


@dataclass
class Row:
    sku: str
    tags: list[str] = field(default_factory=list)


def test_a_batch_task_has_the_fields_of_its_rows() -> None:
    @app.task(batch=10)
    def ship(rows: list[Row]) -> None: ...

    assert [param.name for param in signature(ship).params] == ["sku", "tags"]
    assert signature(ship).params[1].default == []


def test_a_default_that_json_cannot_say_is_not_told() -> None:
    @app.task
    def odd(shape: Any = complex(1, 2)) -> None: ...

    assert signature(odd).params == [Param("shape", "json", False, None, True)]


class Own:
    has_windows = False

    def tries_for(self, classes: tuple[str, ...]) -> int:
        return 2

    next_at: Callable[..., datetime]


WORDS: list[tuple[Any, str]] = [
    (Backoff(base=60, tries=2), "2 tries, 1 minute after the first failure"),
    (Backoff(base=60, tries=3, cap=7200),
     "3 tries, 1 minute after the first failure, then 2 times longer each time, at most 2 hours"),
    (Backoff(base=0.5, factor=1, tries=5), "5 tries, 0.5 s after the first failure"),
    (Backoff(base=0, tries=3), "3 tries, at once after the first failure"),
    (Windows("30 2 * * *", cap=50), "in windows: cron 30 2 * * *, at most 50 in each"),
    (ByError({OSError: NEVER}, default=Backoff(base=60, tries=2)),
     "2 tries, 1 minute after the first failure; otherwise for some errors"),
    (Own(), "by a policy of its own"),
]  # fmt: skip


@pytest.mark.parametrize(("retry", "words"), WORDS)
def test_a_retry_policy_is_told_in_plain_words(retry: Retry, words: str) -> None:
    assert retry_in_words(retry) == words
