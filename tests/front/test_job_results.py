"""Jobs after their end: results are read as a stream, a job is found again, and `then` knows of a cancel."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from duly import Backoff, Duly, GiveUp, InputError, NotFound, Skip
from duly.core.clock import ManualClock
from duly.core.errors import DoesNotExist, DulyError
from duly.testing import World
from duly.verbs import LOCAL, job_rows

START = datetime(2031, 5, 1, 8, 0, tzinfo=UTC)


@dataclass
class Price:
    sku: str
    cents: int


@pytest.fixture
def app(database_url: str) -> Iterator[Duly]:
    app = Duly(database_url, clock=ManualClock(START))

    @app.task(retry=Backoff(base=60, tries=2))
    def price(sku: str, how: str = "well") -> Price:
        match how:
            case "badly":
                raise GiveUp("no")
            case "nowhere":
                raise NotFound("nobody")
            case "skipped":
                raise Skip("not today")
            case "later":
                raise OSError("busy")
        return Price(sku, 100)

    @app.task
    def report(job: dict[str, int]) -> dict[str, Any]:
        return {"done": job["done"]}

    @app.task
    def tidy(cancelled: bool, job: dict[str, int] | None = None) -> dict[str, Any]:
        return {"cancelled": cancelled, "job": job}

    @app.task
    def anything(**given: Any) -> dict[str, Any]:
        return given

    app.migrate()
    yield app
    app.close()


@pytest.fixture
def world(app: Duly) -> Iterator[World]:
    assert isinstance(app.clock, ManualClock)
    with asyncio.Runner() as runner:
        yield World(app, app.clock, runner)


def rows(*hows: str) -> list[dict[str, Any]]:
    return [{"sku": f"a{n}", "how": how} for n, how in enumerate(hows)]


# -- results


def test_results_come_in_the_order_of_the_rows_with_the_type_of_the_handler(app: Duly, world: World) -> None:
    job = app.job("price", rows("well", "badly", "nowhere", "skipped", "well"))
    world.run()
    found = list(job.results())
    assert [(row.number, row.status) for row in found] == [
        (1, "DONE"), (2, "ERROR"), (3, "NOT_FOUND"), (4, "SKIPPED"), (5, "DONE"),
    ]  # fmt: skip
    assert [row.result for row in found] == [Price("a0", 100), None, None, None, Price("a4", 100)]
    assert [row.args["sku"] for row in found] == ["a0", "a1", "a2", "a3", "a4"]
    assert [row.error and row.error.partition("\n")[0] for row in found] == [
        None, "no", "nobody", "not today", None,
    ]  # fmt: skip
    assert [row.number for row in job.results("DONE")] == [1, 5]
    assert [row.number for row in job.results("ERROR", "NOT_FOUND")] == [2, 3]


def test_a_row_that_has_not_ended_says_so_and_has_neither_result_nor_error(app: Duly, world: World) -> None:
    job = app.job("price", rows("later", "well"))
    world.run()
    first, second = job.results()
    assert (first.status, first.result, first.error) == ("PENDING", None, None)
    assert second.result == Price("a1", 100)


def test_results_are_read_a_page_at_a_time(app: Duly, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_rows, "PORTION", 2)
    job = app.job("price", rows(*["well"] * 5))
    world.run()
    assert [row.number for row in job.results()] == [1, 2, 3, 4, 5]

    async def read() -> list[int]:
        return [row.number async for row in job.aresults("DONE")]

    assert asyncio.run(read()) == [1, 2, 3, 4, 5]


def test_results_of_a_task_that_is_not_known_here_are_as_json_has_them(
    app: Duly, world: World, database_url: str
) -> None:
    job = app.job("price", rows("well"))
    world.run()
    other = Duly(database_url)
    try:
        assert [row.result for row in other.find_job(job.id).results()] == [{"sku": "a0", "cents": 100}]
        other.task(name="price")(wrong)
        with pytest.raises(DulyError, match="a result of price is not what its handler returns"):
            list(other.find_job(job.id).results())
    finally:
        other.close()


def wrong(sku: str) -> list[Price]:
    raise NotImplementedError


def test_a_status_that_there_is_not_is_refused_at_once(app: Duly) -> None:
    with pytest.raises(InputError, match="statuses: must be some of PENDING"):
        app.job("price", []).results("WELL")  # type: ignore[arg-type]


# -- found again


def test_a_job_is_found_by_its_key_or_id_and_none_is_made(app: Duly) -> None:
    with pytest.raises(DoesNotExist, match="there is no job with the key 'march'"):
        app.find_job(key="march")
    assert list(app.client.jobs()) == []
    job = app.job("price", rows("well"), key="march")
    owned = app.job("price", rows("well"), key="march", owner="ana")
    assert app.find_job(key="march").id == app.find_job(job.id).id == job.id
    assert app.find_job(key="march", owner="ana").id == owned.id
    assert app.find_job(key="march", task=app.tasks["price"]).counts().total == 1
    with pytest.raises(DoesNotExist, match="there is no job 999"):
        app.find_job(999)


def test_jobs_of_several_tasks_with_one_key_are_told_apart_by_their_task(app: Duly) -> None:
    made = {name: app.job(name, [], key="march").id for name in ("price", "anything")}
    with pytest.raises(InputError, match="task: must be given: jobs of several tasks have the key 'march': any"):
        app.find_job(key="march")
    assert {name: app.find_job(key="march", task=name).id for name in made} == made
    with pytest.raises(DoesNotExist):
        app.find_job(key="march", task="renamed")


@pytest.mark.parametrize("given", [{}, {"job_id": 1, "key": "march"}])
def test_a_job_is_looked_for_in_one_way(app: Duly, given: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="give the id of a job, or its key"):
        app.find_job(**given)


# -- what comes then, after a cancel


def test_after_a_cancel_only_a_task_that_takes_cancelled_comes_then(app: Duly, world: World) -> None:
    jobs = {then: app.job("price", rows("well", "well"), then=then) for then in ("report", "tidy", "anything")}
    for job in jobs.values():
        job.cancel("enough")
    world.run()
    assert {job.counts().is_over for job in jobs.values()} == {True}
    assert (world.items(task="report"), world.items(task="anything")) == ([], [])
    (told,) = world.items(task="tidy")
    assert told.result["cancelled"] is True
    assert (told.result["job"]["done"], told.result["job"]["skipped"]) == (0, 2)
    assert app.client.job(jobs["tidy"].id).cancelled


def test_without_a_cancel_it_is_told_that_there_was_none_however_many_rows_were_skipped(
    app: Duly, world: World
) -> None:
    app.job("price", rows("skipped", "skipped"), then=app.tasks["tidy"])
    app.job("price", rows("skipped"), then=app.tasks["tidy"].new(cancelled=True))
    app.job("price", [], then="report")
    world.run()
    assert [item.result["cancelled"] for item in world.items(task="tidy")] == [False, False]
    assert [item.result for item in world.items(task="report")] == [{"done": 0}]


def test_a_cancelled_job_that_goes_on_puts_what_comes_then_at_its_end(app: Duly, world: World) -> None:
    job = app.job("price", rows("well", "well"), then="report")
    job.cancel()
    world.run()
    assert job.counts().is_cancelled
    app.retry(*[row.id for row in app.client.job_items(job.id)])
    assert not job.counts().is_cancelled
    world.run()
    assert [item.result for item in world.items(task="report")] == [{"done": 2}]
    assert not app.client.job(job.id).cancelled


def test_a_job_without_rows_that_is_cancelled_while_it_is_filled_ends_cancelled(app: Duly, world: World) -> None:
    opened = app.internals.verbs.jobs.open(LOCAL, app.tasks["price"], then=app.tasks["report"].new(job={}))
    app.client.cancel_job(opened.id)
    world.run()
    assert app.client.job(opened.id).cancelled
    assert world.items(task="report") == []
