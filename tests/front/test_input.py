"""Bad input is refused with an error that names the field, and nothing is stored."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest

from duly import Attempt, Backoff, Duly, InputError, KeyConflict, Placed
from duly.core.clock import ManualClock
from duly.core.errors import UnknownTask
from tests.support import counts


@dataclass
class Address:
    street: str
    number: int = 1


@pytest.fixture
def app(database_url: str) -> Iterator[Duly]:
    one = Duly(database_url)

    @one.task
    async def remind(phone: str, message: str = "hi", price: float = 1.0, extra: Any = None) -> None: ...

    @one.task
    async def post(to: Address, when: datetime, code: UUID, cost: Decimal, tags: list[str]) -> None: ...

    @one.task
    def anything(first: int, **rest: Any) -> None: ...

    yield one
    one.close()


BAD = [
    ({}, "phone"),
    ({"phone": 5}, "phone"),
    ({"phone": None}, "phone"),
    ({"phone": datetime(2026, 1, 1, tzinfo=UTC)}, "phone"),
    ({"phone": "1", "nope": 1}, "nope"),
    ({"phone": "a\x00b"}, "phone"),
    ({"phone": "1", "extra": {"deep": ["x", "\x00"]}}, "extra.deep[1]"),
    ({"phone": "1", "extra": {"k\x00": 1}}, "extra.k\x00"),
    ({"phone": "1", "price": float("nan")}, "price"),
    ({"phone": "1", "price": float("inf")}, "price"),
    ({"phone": "1", "extra": [1.0, float("-inf")]}, "extra[1]"),
    ({"phone": "1", "price": "1.0"}, "price"),
    ({"phone": "1", "message": "x" * 10_000_000}, "message"),
    ({"phone": "\ud800"}, "phone"),
    ({"phone": "1", "extra": object()}, "extra"),
    ({"phone": "1", "extra": 10**5_000}, "extra"),
]

BAD_OPTIONS = [
    ({"key": ""}, "key"),
    ({"key": "  "}, "key"),
    ({"key": 7}, "key"),
    ({"key": "a\x00"}, "key"),
    ({"key": "\ud800"}, "key"),
    ({"key": "k" * 501}, "key"),
    ({"at": datetime(2026, 1, 1, 9)}, "at"),  # noqa: DTZ001
    ({"at": "2026-01-01T09:00"}, "at"),
    ({"at": "tomorrow"}, "at"),
    ({"at": 1_700_000_000}, "at"),
    ({"at": date(2026, 1, 1)}, "at"),
    ({"at": datetime(1, 1, 1, tzinfo=UTC)}, "at"),
    ({"at": datetime.max.replace(tzinfo=UTC)}, "at"),
    ({"delay": -1}, "delay"),
    ({"delay": "soon"}, "delay"),
    ({"delay": float("nan")}, "delay"),
    ({"delay": 5, "at": "2026-01-01T09:00Z"}, "delay"),
    ({"rank": 101}, "rank"),
    ({"rank": True}, "rank"),
    ({"tries": 0}, "tries"),
    ({"tries": 1.5}, "tries"),
    ({"connection": object()}, "connection"),
]


@pytest.mark.parametrize(("args", "field"), BAD, ids=[f"{n}-{field[:12]!a}" for n, (_, field) in enumerate(BAD)])
def test_bad_input_names_its_field_and_stores_nothing(app: Duly, args: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as refusal:
        app.put("remind", **args)
    assert refusal.value.field == field
    assert str(refusal.value).startswith(field)
    assert len(str(refusal.value)) < 1_000
    assert counts(app.internals.store) == {}


@pytest.mark.parametrize(
    ("options", "field"), BAD_OPTIONS, ids=[f"{n}-{field}" for n, (_, field) in enumerate(BAD_OPTIONS)]
)
def test_a_bad_option_is_named_and_stores_nothing(app: Duly, options: Any, field: str) -> None:
    with pytest.raises(InputError, match=f"^{field}: "):
        app.task_named("remind").options(**options).put(phone="1")
    assert counts(app.internals.store) == {}


def test_bad_input_in_the_middle_of_many_names_its_row_and_stores_nothing(app: Duly) -> None:
    rows = [{"phone": str(n)} for n in range(6_000)]
    rows[5_500] = {"phone": 5}  # type: ignore[dict-item]
    with pytest.raises(InputError) as refusal:
        app.tasks["remind"].put_many(rows)
    assert refusal.value.field == "rows[5500].phone"
    assert counts(app.internals.store) == {}


def test_an_unknown_task_is_named_beside_the_known_ones(app: Duly) -> None:
    with pytest.raises(UnknownTask, match=r"remin.*anything, post, remind"):
        app.put("remin", phone="1")


def test_deep_recursion_is_refused(app: Duly) -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(InputError) as refusal:
        app.put("remind", phone="1", extra=deep)
    assert refusal.value.field == "extra"
    assert counts(app.internals.store) == {}


def test_what_is_nested_beyond_a_hundred_levels_is_refused(app: Duly) -> None:
    def nested(levels: int) -> Any:
        value: Any = {"quoted": '[[[{{{" \\ ['}
        for _ in range(levels - 1):
            value = [value]
        return value

    app.put("remind", phone="1", extra=nested(99))  # beside the arguments themselves
    app.put("remind", phone="1", extra=[[{"a": "[" * 50}] * 200] * 20)
    with pytest.raises(InputError, match="extra: must not be nested more than 100 levels deep"):
        app.put("remind", phone="1", extra=nested(100))


def test_progress_is_bounded_like_everything_that_a_row_keeps() -> None:
    told: list[bytes] = []
    attempt = Attempt(None, 1, lambda _, text: told.append(text), None)  # type: ignore[arg-type]
    attempt.progress(10**30, -(10**30), "x" * 2_000)
    said = msgspec.json.decode(told[0])
    assert (said["done"], said["total"]) == (2**63 - 1, 1 - 2**63)
    assert len(said["note"]) <= 500
    for given in ({"done": [[]]}, {"done": 1, "total": "many"}, {"done": True}):
        with pytest.raises(InputError, match="must be a number"):
            attempt.progress(**given)  # type: ignore[arg-type]
    attempt.progress(1.5)
    assert msgspec.json.decode(told[1]) == {"done": 1.5, "total": None, "note": ""}


def test_rich_types_travel_as_the_handler_declares_them(app: Duly) -> None:
    args = {
        "to": Address("Ilica", 7), "when": datetime(2026, 3, 1, 9, tzinfo=UTC), "code": uuid4(),
        "cost": Decimal("9.99"), "tags": ["a", "b"],
    }  # fmt: skip
    app.put("post", **args)
    (row,) = app.read.page()
    task = app.tasks["post"]
    assert task.arguments(task.new(**args).args, None) == args
    assert row.args["to"] == {"street": "Ilica", "number": 7}


def test_a_handler_with_open_arguments_takes_them_all_but_checks_what_it_declares(app: Duly) -> None:
    task = app.tasks["anything"]
    assert task.arguments(task.new(first=1, second=[2]).args, None) == {"first": 1, "second": [2]}
    with pytest.raises(InputError, match="first"):
        task.put(first="x", second=2)


def test_puts_say_when(app: Duly) -> None:
    remind = app.tasks["remind"]
    at = datetime(2030, 5, 1, 7, 30, tzinfo=UTC)
    ids = [
        remind.at("2030-05-01T09:30+02:00").put(phone="1").id,
        remind.at(at).put(phone="1").id,
        remind.after(3600).put(phone="1").id,
        remind.after(timedelta(hours=1)).put(phone="1").id,
    ]
    rows = [app.read.item(item_id) for item_id in ids]
    assert [row.due_at for row in rows[:2]] == [at, at]
    hour = timedelta(hours=1)
    assert all(abs(row.due_at - row.created_at - hour) < timedelta(seconds=60) for row in rows[2:])


def test_one_key_is_one_item_and_other_content_is_a_conflict(app: Duly) -> None:
    remind = app.tasks["remind"]
    first = remind.options(key="k").put(phone="1")
    again = remind.options(key="k").put(phone="1")
    assert first.fresh
    assert (again.id, again.execution_key, again.fresh) == (first.id, first.execution_key, False)
    with pytest.raises(KeyConflict) as refusal:
        remind.options(key="k").put(phone="2")
    assert refusal.value.item_id == first.id
    app.cancel(first.id)
    assert remind.options(key="k").put(phone="2").fresh


def test_a_delay_counts_from_now_so_the_same_put_said_later_is_the_same_content(app: Duly) -> None:
    remind = app.tasks["remind"]
    first = remind.options(key="k", delay=60).put(phone="1")
    assert remind.options(key="k", delay=60).put(phone="1") == Placed(first.id, first.execution_key, fresh=False)
    assert asyncio.run(remind.options(key="k", delay=timedelta(minutes=1)).aput(phone="1")).id == first.id
    assert remind.put_many(remind.options(key="k", delay=60).new(phone="1") for _ in range(2)) == 0
    with pytest.raises(KeyConflict, match="other arguments"):
        remind.options(key="k", delay=60).put(phone="2")
    with pytest.raises(KeyConflict, match="planned for"):
        remind.options(key="k", at="2030-05-01T09:30+02:00").put(phone="1")


def test_a_put_without_a_time_is_the_same_content_by_a_clock_that_stamps_too(database_url: str) -> None:
    clock = ManualClock()
    app = Duly(database_url, clock=clock)
    app.task(name="ring")(lambda: None)
    first = app.task_named("ring").options(key="k").put()
    clock.move(1)
    assert app.task_named("ring").options(key="k").put().id == first.id
    app.close()


def test_puts_from_async_code(app: Duly) -> None:
    async def run() -> None:
        placed = await app.tasks["remind"].options(key="a").aput(phone="1")
        assert placed.fresh
        rows = [{"phone": "2"}, app.tasks["remind"].options(rank=5).new(phone="3")]
        assert await app.tasks["remind"].after(60).aput_many(rows) == 2

    asyncio.run(run())
    assert counts(app.internals.store) == {"waiting": 3}


def refused(field: str, register: Any) -> None:
    with pytest.raises(InputError) as refusal:
        register(Duly("sqlite:///unused.db"))
    assert refusal.value.field == field


def test_tasks_that_cannot_work_are_refused_when_they_are_registered() -> None:
    def positional(a: int, /) -> None: ...
    def starred(*args: int) -> None: ...
    def two_lists(rows: list[dict[str, Any]], more: int) -> None: ...
    def no_rows(attempts: list[Attempt]) -> None: ...
    def odd_rows(rows: list[int]) -> None: ...
    def ok() -> None: ...
    async def aok() -> None: ...

    refused("a", lambda app: app.task(positional))
    refused("args", lambda app: app.task(starred))
    refused("more", lambda app: app.task(batch=5)(two_lists))
    refused("no_rows", lambda app: app.task(batch=5)(no_rows))
    refused("batch", lambda app: app.task(batch=5)(odd_rows))
    refused("batch", lambda app: app.task(batch=0)(ok))
    refused("cpu", lambda app: app.task(cpu=True)(aok))
    refused("retry", lambda app: app.task(retry=3)(ok))
    refused("deadline", lambda app: app.task(deadline=0)(ok))
    refused("name", lambda app: app.task(name="a\tb")(ok))
    refused("queue", lambda app: app.task(queue="")(ok) and app.task(queue=" ", name="b")(ok))
    refused("rank", lambda app: app.task(rank=1000)(ok))
    refused("name", lambda app: (app.task(ok), app.task(ok)))


def test_annotations_that_cannot_be_resolved_are_told() -> None:
    def lost(x: Missing) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    refused("lost", lambda app: app.task(lost))


def test_a_task_is_still_a_function() -> None:
    app = Duly("sqlite:///unused.db")

    @app.task(retry=Backoff(tries=1))
    def double(n: int) -> int:
        return 2 * n

    assert double(21) == 42
    assert "double" in repr(double)
