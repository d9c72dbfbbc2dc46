"""Options and arguments never mix: `put` has the handler's signature, and options come first."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, cast, get_args, get_type_hints

import pytest

import duly.testing
from duly import Attempt, Daily, Duly, InputError, Skip
from duly.core.settings import JobSettings, Settings
from duly.errors import ConfigError, DulyError
from duly.facade.given import GivenSettings
from duly.virtual.world import World


@dataclass
class Price:
    sku: str
    amount: Decimal


@pytest.fixture
def app(database_url: str) -> Iterator[Duly]:
    one = Duly(database_url)

    @one.task
    def remind(phone: str, message: str = "hi", *, loud: bool = False) -> None: ...

    @one.task
    def odd(self: str, key: str, at: int, options: list[str], connection: str) -> None: ...

    @one.task
    def numbered(attempt: Attempt, n: int) -> int:
        return n + attempt.number

    @one.task
    async def price(sku: str) -> Price | Skip:
        return Price(sku, Decimal("1.50")) if sku else Skip("no sku")

    yield one
    one.close()


@pytest.fixture
def world(app: Duly) -> Iterator[World]:
    with duly.testing.virtual(app) as one:
        yield one


def test_arguments_go_by_position_or_by_name(app: Duly) -> None:
    remind = app.tasks["remind"]
    for placed in (
        remind.put("+1", "hello", loud=True),
        remind.put("+1", message="hello", loud=True),
        remind.put(phone="+1", message="hello", loud=True),
        app.put("remind", "+1", "hello", loud=True),
        asyncio.run(remind.aput("+1", "hello", loud=True)),
    ):
        assert app.read.item(placed.id).args == {"phone": "+1", "message": "hello", "loud": True}


@pytest.mark.parametrize(
    ("args", "kwargs", "problem"),
    [
        (("+1", "hi", True), {}, "args: remind takes at most 2 arguments by position, got 3"),
        (("+1",), {"phone": "+2"}, "phone: is given twice, by position and by name"),
        (("+1",), {"key": "a"}, "key: is not an argument of this task; accepted: phone, message, loud"),
        ((), {}, "phone: is required"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(app: Duly, args: Any, kwargs: Any, problem: str) -> None:
    with pytest.raises(InputError, match=f"^{problem}"):
        app.tasks["remind"].put(*args, **kwargs)


def test_a_handler_may_have_any_argument_names(app: Duly) -> None:
    args = {"self": "a", "key": "b", "at": 1, "options": ["c"], "connection": "d"}
    odd = app.tasks["odd"]
    placed = [odd.put(**args), odd.options(key="k", delay=5).put(**args), app.put("odd", **args)]
    assert [app.read.item(each.id).args for each in placed] == [args] * 3
    odd.put_many([args])
    job = app.job(odd, [args, odd.options(key="row").new(**args)])
    rows = app.read.page(task="odd")
    assert len(rows) == 6
    assert all(row.args == args for row in rows)
    assert sorted(row.key or "" for row in rows) == ["", "", "", "", "k", "row"]
    assert job.counts().total == 2
    app.schedules.create(odd, "daily 09:00", args, key="s")
    assert app.schedules.find("odd", "s").next_at is not None


def test_options_add_up_and_leave_their_task_as_it_was(app: Duly) -> None:
    remind = app.tasks["remind"]
    urgent = remind.options(rank=-5)
    placed = urgent.after(timedelta(minutes=5)).options(tries=2, key="k").put("+1")
    row = app.read.item(placed.id)
    assert (row.rank, row.max_attempts, row.key) == (-5, 2, "k")
    assert app.read.item(urgent.put("+1").id).max_attempts is None
    assert app.read.item(remind.put("+1").id).rank == 0
    assert repr(urgent) == "<Task remind with rank=-5>"
    assert urgent.options(rank=None).new("+1").rank == 0


def test_an_unknown_option_is_a_mistake_in_the_code(app: Duly) -> None:
    options: dict[str, Any] = {"keyy": "k"}
    with pytest.raises(TypeError, match="unexpected keyword argument 'keyy'"):
        app.tasks["remind"].options(**options)
    with pytest.raises(TypeError, match="unexpected keyword argument 'keyy'; options: catch_up, max_lateness"):
        app.tasks["remind"].every(Daily("09:00"), **options)
    with pytest.raises(InputError, match="keyy: is not an option of a schedule"):
        app.schedules.create("remind", Daily("09:00"), {"phone": "+1"}, key="k", **options)


def test_a_time_that_is_missing_is_not_taken_for_now(app: Duly) -> None:
    remind, missing = app.tasks["remind"], cast(Any, None)
    for given in (remind.at, remind.after):
        with pytest.raises(InputError, match=r"got None$"):
            given(missing)
    assert remind.options(at=None, delay=None).new("+1").is_relative, "an option that is None is not given"


def test_an_argument_that_begins_with_two_underscores_is_refused_when_it_is_declared(app: Duly) -> None:
    for handler in (lambda *, __n: None, lambda __n: None):
        with pytest.raises(InputError, match=r"^__n: rename this argument of hidden: it must not begin with two under"):
            app.task(name="hidden")(handler)


def test_rows_are_arguments_or_items_of_the_same_task(app: Duly) -> None:
    remind = app.tasks["remind"]
    assert remind.put_many([{"phone": "+1"}, remind.options(key="k").new("+2")]) == 2
    with pytest.raises(InputError, match=r"^rows\[1\]\.task: is an item of numbered, not of remind$"):
        remind.put_many([{"phone": "+1"}, app.tasks["numbered"].new(n=1)])
    with pytest.raises(InputError, match=r"^rows\[0\]\.key: is not an argument"):
        app.job(remind, [{"phone": "+1", "key": "k"}])
    with pytest.raises(InputError, match=r"^connection: put cannot use a builtins\.object: "):
        remind.options(connection=object()).put_many([{"phone": "+1"}])


def test_a_result_has_the_type_that_the_handler_returns(app: Duly, world: World) -> None:
    found, skipped, number = app.put("price", "a"), app.put("price", ""), app.tasks["numbered"].put(41)
    world.run()
    assert found.wait(0.1) == Price("a", Decimal("1.50"))
    assert asyncio.run(found.await_(0.1)) == Price("a", Decimal("1.50"))
    assert skipped.wait(0.1) is None
    assert number.wait(0.1) == 42
    with pytest.raises(
        DulyError, match=f"the result of item {found.id} is not what its handler returns: Expected `int`"
    ):
        found.read_by(int).wait(0.1)


def test_a_row_of_a_batch_has_the_type_of_one_result(app: Duly, world: World) -> None:
    @app.task(batch=10)
    def prices(rows: list[dict[str, Any]]) -> list[Price | Skip]:
        return [Price(row["sku"], Decimal("1.50")) if row["sku"] else Skip("no sku") for row in rows]

    @app.task(batch=10)
    def anything(rows: list[dict[str, Any]]) -> list[Any]:
        return [row["n"] for row in rows]

    found, skipped, number = prices.put(sku="a"), prices.put(sku=""), anything.put(n=41)
    world.run()
    assert found.wait(0.1) == Price("a", Decimal("1.50"))
    assert skipped.wait(0.1) is None
    assert number.wait(0.1) == 41


def test_a_job_is_awaited_by_async_code_too(app: Duly, world: World) -> None:
    job = app.job("remind", [{"phone": "+1"}])
    with pytest.raises(TimeoutError, match="0 of 1 rows have ended"):
        asyncio.run(job.await_(0.01))
    world.run()
    assert asyncio.run(job.await_(1)).done == 1


def test_a_schedule_that_is_begun_and_never_put_stops_a_worker_from_starting(app: Duly) -> None:
    app.tasks["remind"].every(Daily("09:00"))
    with pytest.raises(ConfigError, match=r"remind\.every\(daily 09:00\) has no arguments yet: call its put\(…\)"):
        app.schedules.reconcile()


def test_the_keywords_of_an_app_are_the_settings_that_are_declared() -> None:
    declared = {each.name: each.type for kind in (Settings, JobSettings) for each in fields(kind)}
    del declared["database_url"]
    given = get_type_hints(GivenSettings)
    assert given.keys() == declared.keys()
    assert {name: get_args(hint)[0].__name__ for name, hint in given.items()} == declared


def test_settings_of_plug_ins_are_given_apart() -> None:
    assert Duly(concurrency=3, plugin_settings={"message_base_delay_ms": 5}).settings.concurrency == 3
    with pytest.raises(ConfigError, match="'concurency' is not a setting"):
        Duly(plugin_settings={"concurency": 3})


def test_times_are_of_the_moment_of_the_put_and_not_of_the_options(app: Duly, world: World) -> None:
    later = app.tasks["remind"].after(60)
    world.advance(30)
    due_at: datetime = app.read.item(later.put("+1").id).due_at
    assert due_at == world.clock.now() + timedelta(seconds=60)


@pytest.mark.parametrize("row", [("+1", "Hello"), "phone", 7, None])
def test_a_row_that_is_no_mapping_is_refused_by_its_number(app: Duly, row: object) -> None:
    rows: Any = [{"phone": "+1"}, row]
    with pytest.raises(InputError, match=r"^rows\[1\]: must be a mapping of arguments or an item of remind, got "):
        app.tasks["remind"].put_many(rows)


def test_what_is_put_later_does_not_join_a_transaction(app: Duly) -> None:
    tied = app.tasks["remind"].options(connection=object())
    with pytest.raises(InputError, match=r"^connection: what puts the item later gives the connection; use put$"):
        tied.new("+1")
    with pytest.raises(InputError, match=r"^connection: is given twice"):
        app.job(tied, [], connection=object())


@pytest.mark.parametrize("bad", ["", "a\x00b", "\ud800", "k" * 501, 7])
@pytest.mark.parametrize("field", ["key", "owner"])
def test_the_key_and_the_owner_of_a_job_are_checked(app: Duly, field: str, bad: Any) -> None:
    with pytest.raises(InputError, match=f"^{field}: "):
        app.job("remind", [], **{field: bad})
