"""Uses of the public names that mypy and pyright must accept. It is checked by `test_typed.py`, and not run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, assert_type

from duly import Attempt, Backoff, Daily, Duly, Limit, Placed, Slots
from duly.facade.jobs import RunningJob

app = Duly("sqlite:///typed.db", concurrency=20, log_level="DEBUG", inbox="drop")


@dataclass
class Price:
    sku: str
    amount: float


@app.task
def remind(phone: str, message: str = "") -> str:
    return phone + message


@app.task(retry=Backoff(tries=3), limits=Limit("shop", 2, per="1m"), deadline=timedelta(minutes=1))
async def look_up(sku: str, options: dict[str, Any] | None = None) -> Price:
    return Price(sku, 1.0)


@app.task
def export(attempt: Attempt, report: int) -> None:
    attempt.progress(1)


@app.task(cpu=False, name="shop.export")
async def aexport(attempt: Attempt, report: int) -> list[int]:
    return [report, attempt.number]


@app.task
def keyed(key: str, at: int, options: str, connection: bool) -> None: ...


@app.task
def anything(data: Any, n: int = 1) -> None: ...


@app.task
def open_ended(first: int, **rest: Any) -> None: ...


@app.task(batch=10)
def sync(rows: list[Price]) -> None: ...


@app.task
def report(job: dict[str, int]) -> None: ...


assert_type(remind.put("+385"), Placed[str])
assert_type(remind.put(phone="+385", message="hi").wait(timeout=1), str)
assert_type(look_up.put(sku="a").wait(), Price)
assert_type(export.put(report=1).wait(), None)
assert_type(aexport.put(1).wait(), list[int])
keyed.put(key="a", at=1, options="none", connection=True)
anything.put({"a": 1}, n=2)
open_ended.put(1, more="x")
sync.put(sku="a", amount=1.0)

remind.at(datetime.now(UTC)).put("+385")
remind.at("2026-12-01T09:00+01:00").options(key="a", rank=-5, tries=2).put("+385", message="hi")
remind.after(timedelta(minutes=1)).after(60.0).put(phone="+385")
urgent = remind.options(rank=-10, max_lateness=timedelta(hours=1), key=None, connection=object())
assert_type(urgent.put(phone="+385").wait(), str)

remind.put_many({"phone": f"+385 {n}"} for n in range(3))
remind.after(60).put_many([{"phone": "+385"}, remind.options(key="a").new(phone="+385")])
job = app.job(look_up.options(tries=1), [{"sku": "a"}], then=report, key="march")
assert_type(job.wait(timeout=1).done, int)
app.job("remind", (remind.options(key=f"{n}").new(f"{n}") for n in range(3)), then=remind.new("+385"))
app.put("remind", phone="+385")
app.task_named("remind").options(delay=5).put(phone="+385")

remind.every(Daily("09:00"), zone="Europe/Zagreb", catch_up="all", max_lateness=60).put("+385", message="good morning")
export.every("*/5 * * * *").put(report=1)
sync.every(Slots(24), key="a").put(sku="a", amount=1.0)
app.schedules.create(remind, Daily("09:00"), {"phone": "+385"}, key="ana", zone="Europe/Zagreb", overlap="skip")
app.schedules.create_many("remind", "daily 09:00", [{"key": "bob", "args": {"phone": "+386"}, "zone": "UTC"}])


assert_type([row.result for row in app.find_job(key="march", task=look_up).results()], list[Price])
assert_type(app.find_job(7), RunningJob[Any])


def rows() -> Iterator[dict[str, str]]:
    yield {"phone": "+385"}


async def from_async_code() -> None:
    placed = await remind.options(key="a").aput("+385")
    assert_type(await placed.await_(timeout=1), str)
    assert_type(await aexport.put(1).await_(), list[int])
    await remind.aput_many(rows())
    assert_type((await app.job(remind, rows()).await_()).total, int)
    assert_type(await app.acancel(1, 2, reason="enough"), list[int])
    assert_type(await app.aretry(1, delay=60), list[int])
    assert_type((await app.aput("remind", phone="+385")).id, int)
    assert_type((await app.aretask("remnd", "remind", skip=True)).items, int)
    assert_type((await app.read.aitem(1)).task, str)
    assert_type((await app.schedules.afind("remind", key="ana")).id, int)
    assert_type([item.id async for item in app.read.apages(task="remind")], list[int])
    found = await app.ajob(look_up, [{"sku": "a"}], then=report)
    assert_type(found, RunningJob[Price])
    assert_type([row.result async for row in found.aresults("DONE")], list[Price])
    assert_type(await app.afind_job(key="march", task=remind), RunningJob[str])
    assert_type(await app.ajob("remind", rows()), RunningJob[Any])
    assert_type((await found.acounts()).done, int)
    await found.acancel("enough")
