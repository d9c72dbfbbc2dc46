"""Async forms: every public method that uses the database has one, which answers alike and never blocks the loop."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from duly import Duly, InputError, ItemFailed
from duly.core.aforms import in_thread, streamed
from duly.core.errors import DoesNotExist
from duly.facade.jobs import RunningJob
from duly.facade.schedules import Schedules
from duly.tasks.puttable import Puttable
from duly.verbs.read import Read

# Public methods without an async form, each with the reason.
PLAIN = {
    Duly: {
        "job_type", "section", "task_named",  # they use no database
        "run", "worker", "close",  # of a process; `lifespan` is for async programs
    },
    RunningJob: set(),
    Puttable: {"after", "at", "items", "new", "options"},  # they use no database
    Read: {
        "all", "one", "found", "endings", "owned_planned", "drift", "ids_between", "seen_at", "signs",  # for our rooms
    },
    Schedules: {
        "begin", "declare", "declared", "reconcile", "set_own", "lent", "owned_one", "some", "search", "describe",
        "shown", "standing", "standings", "causes", "begun", "retries", "rebalance", "audit",  # for our rooms
        "preview", "clock_notes",  # they use no database
    },
}  # fmt: skip


@pytest.fixture
def app(database_url: str) -> Iterator[Duly]:
    app = Duly(database_url)

    @app.task
    def ring(n: int) -> dict[str, int]:
        return {"n": n}

    app.migrate()
    yield app
    app.close()


@pytest.mark.parametrize("kind", PLAIN)
def test_every_method_that_uses_the_database_has_an_async_form(kind: type) -> None:
    methods = {name: each for name, each in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")}
    forms = {name for name, each in methods.items() if is_async(each)}
    plain = methods.keys() - forms - PLAIN[kind]
    assert {"await_" if name == "wait" else f"a{name}" for name in plain} == forms - {"lifespan"}
    assert PLAIN[kind] <= methods.keys()


def is_async(method: Callable[..., Any]) -> bool:
    is_lifespan = inspect.isfunction(method) and method.__name__ == "lifespan"
    return inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method) or is_lifespan


@pytest.mark.parametrize("kind", PLAIN)
def test_a_form_has_the_parameters_of_its_method_and_says_whose_it_is(kind: type) -> None:
    for name, form in inspect.getmembers(kind, is_async):
        if name in ("lifespan", "await_", "aput"):
            continue
        method = getattr(kind, name.removeprefix("a"))
        assert inspect.signature(form).parameters == inspect.signature(method).parameters, name
        assert form.__name__ == name
        assert (form.__doc__ or "").startswith(f"`{method.__name__}` for async callers"), name


class Slow:
    """Methods that end when the event loop has gone on."""

    def __init__(self) -> None:
        self.gone_on = threading.Event()

    def wait_for(self) -> int:
        assert self.gone_on.wait(30), "the loop was blocked"
        return threading.get_ident()

    def rows(self) -> Iterator[int]:
        yield self.wait_for()
        yield from range(1_200)

    await_for = in_thread(wait_for)
    arows = streamed(rows)


@pytest.mark.parametrize("ask", ["await_for", "read_all"])
def test_the_loop_goes_on_while_the_database_answers(ask: str) -> None:
    async def program() -> int:
        slow = Slow()
        asyncio.get_running_loop().call_soon(slow.gone_on.set)
        return await (slow.await_for() if ask == "await_for" else read_all(slow))

    assert asyncio.run(program()) != threading.get_ident()


async def read_all(slow: Slow) -> int:
    first, *rest = [row async for row in slow.arows()]
    assert rest == [*range(1_200)]
    return first


def test_an_async_program_puts_reads_acts_and_waits(app: Duly) -> None:
    async def program() -> None:
        placed = await app.aput("ring", n=1)
        assert (await app.read.aitem(placed.id)).state == "waiting"
        assert [row.id async for row in app.read.apages(task="ring")] == [placed.id]
        assert await app.acancel(placed.id, reason="enough") == [placed.id]
        with pytest.raises(ItemFailed):
            await app.await_(placed.id, timeout=30)
        assert await app.aretry(placed.id) == [placed.id]
        job = await app.ajob("ring", ({"n": n} for n in range(3)), key="march")
        assert (await app.afind_job(key="march")).id == job.id
        schedule = await app.schedules.acreate("ring", "daily 09:00", {"n": 1}, key="k")
        assert [each.id for each in await app.schedules.apage()] == [schedule.id]
        async with app.lifespan():
            assert await app.await_(placed.id, timeout=60) == {"n": 1}
            assert (await job.await_(60)).done == 3
        assert [row.result async for row in job.aresults()] == [{"n": 0}, {"n": 1}, {"n": 2}]

    asyncio.run(program())


def test_an_item_that_there_is_not_is_not_waited_for(app: Duly) -> None:
    with pytest.raises(DoesNotExist):
        asyncio.run(app.await_(7))


def test_an_async_form_refuses_a_connection_of_the_caller(app: Duly) -> None:
    words = "connection: acancel has a transaction of its own; on your own connection call cancel"
    with pytest.raises(InputError, match=words):
        asyncio.run(app.acancel(1, connection=object()))


def test_a_stream_that_is_left_early_reads_no_further(tmp_path: Path) -> None:
    class Counted:
        read = 0

        def rows(self) -> Iterator[int]:
            for number in range(10_000):
                self.read += 1
                yield number

        arows = streamed(rows)

    async def first(counted: Counted) -> int:
        async for row in counted.arows():
            return row
        raise AssertionError

    counted = Counted()
    assert asyncio.run(first(counted)) == 0
    assert counted.read == 500
