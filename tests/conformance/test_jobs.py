"""Jobs: rows are counted in the transaction that ends them, and what comes then is put exactly once."""

from __future__ import annotations

import random
from collections import Counter
from functools import partial
from typing import Any

import msgspec
import pytest

from duly.core.model import Cancel, Discarded, Done, GiveUp, Item, Job, NewRow, NotFound, Released, Revived, Skip
from duly.store import Store
from duly.store.settling import COUNTERS
from tests.support import NOW, after, claim, decided, new, put, query, settle, share, show, together

THEN = msgspec.json.encode(new("report", args={"to": "ana", "job": {}}))


def opened(store: Store, *, then: bytes | None = None, key: str | None = None, owner: str | None = None) -> Job:
    given = {
        "task": "ring", "queue": "ring", "key": key, "owner": owner, "options": "{}", "job_type": None, "file_id": None,
        "ip_address": None, "now": NOW,
    }  # fmt: skip
    with store.transaction() as connection:
        (row,) = store.write("open_job", {**given, "then_item": None if then is None else then.decode()}, connection)
    return Job(*row)


def rows(job: Job, count: int, first: int = 1, **more: Any) -> list[NewRow]:
    return [
        NewRow("ring", f"ring/job-{job.id}", b"{}", NOW, job_id=job.id, row_no=n, **more)
        for n in range(first, first + count)
    ]


def filled(store: Store, count: int, *, then: bytes | None = None, is_sealed: bool = True) -> Job:
    job = opened(store, then=then)
    assert store.load_rows(job.id, 1, rows(job, count))
    if is_sealed:
        store.seal_job(job.id, NOW)
    return job


def look(store: Store, job: Job) -> Job:
    return Job(*store.read("job", {"id": job.id, "owner": None})[0])


def started(store: Store, job: Job, limit: int = 100, **more: Any) -> list[Item]:
    return claim(store, share(f"ring/job-{job.id}", task="ring", limit=limit), **more)


def statuses(store: Store, job: Job) -> Counter[str]:
    found = query(store, f"select status, count(*) from duly_item where job_id = {job.id} group by status")
    return Counter(dict(found))


def check_counts(store: Store, job: Job) -> None:
    counted, found = look(store, job), statuses(store, job)
    assert counted.total == sum(found.values())
    assert {name: getattr(counted, name) for name in COUNTERS.values()} == {
        name: found[status] for status, name in COUNTERS.items() if status is not None
    }


def test_rows_are_items_that_stand_somewhere_in_their_job(store: Store) -> None:
    job = filled(store, 3)
    assert statuses(store, job) == {"PENDING": 3}
    first, second, third = started(store, job, now=after(5))
    assert [item.job_id for item in (first, second, third)] == [job.id] * 3
    assert statuses(store, job) == {"PROCESSING": 3}
    settle(store, first, Done(), now=after(6))
    settle(store, second, NotFound("nowhere"), now=after(7))
    settle(store, third, Released(), now=after(8))
    assert statuses(store, job) == {"DONE": 1, "NOT_FOUND": 1, "PENDING": 1}
    changed = query(store, "select changed_at from duly_item order by id")
    assert len({row[0] for row in changed}) == 3, "each when it changed last"
    check_counts(store, job)


def test_items_without_a_job_have_nothing_of_it(store: Store) -> None:
    (item_id,) = put(store)
    settle(store, claim(store), Done())
    assert query(store, "select job_id, row_no, status, changed_at, input from duly_item") == [(None,) * 5]
    assert show(store, item_id)["state"] == "done"


def test_what_comes_then_is_put_with_the_end_of_the_last_row(store: Store) -> None:
    job = filled(store, 3, then=THEN)
    items = started(store, job)
    settle(store, items[:2], Done())
    assert look(store, job).then_id is None
    settle(store, items[2], GiveUp("no"), now=after(9))
    over = look(store, job)
    assert (over.done, over.failed, over.finished_at) == (2, 1, after(9))
    (args,) = query(store, "select args from duly_item where task = 'report'")[0]
    told = msgspec.json.decode(args) if isinstance(args, (str, bytes)) else args
    assert told == {
        "to": "ana",
        "job": {"id": job.id, "total": 3, "done": 2, "not_found": 0, "failed": 1, "skipped": 0},
    }


def test_what_comes_then_under_a_key_that_is_live_is_that_item(store: Store) -> None:
    """Two jobs whose reports have one key: neither keeps the other from ending."""
    then = msgspec.json.encode(new("report", key="monthly", args={"job": {}}))
    first, second = filled(store, 1, then=then), filled(store, 1, then=then)
    for job in (first, second):
        assert settle(store, started(store, job), Done()) == []
    (report,) = query(store, "select id from duly_item where task = 'report'")
    assert [look(store, job).then_id for job in (first, second)] == [report[0], report[0]]
    assert all(look(store, job).finished_at is not None for job in (first, second))


def test_what_comes_then_may_come_much_later(store: Store) -> None:
    job = filled(store, 1, then=msgspec.json.encode(new("report", due_at=after(10**9))))
    settle(store, started(store, job), Done())
    (row,) = query(store, "select id, task from duly_item where task = 'report'")
    assert row == (look(store, job).then_id, "report")


def test_what_comes_then_need_not_be_told_how_the_rows_ended(store: Store) -> None:
    job = filled(store, 1, then=msgspec.json.encode(new("report", args={"to": "ana"})))
    settle(store, started(store, job), Done())
    (args,) = query(store, "select args from duly_item where task = 'report'")[0]
    assert (msgspec.json.decode(args) if isinstance(args, (str, bytes)) else args) == {"to": "ana"}


def test_rows_end_also_when_their_job_is_gone(store: Store) -> None:
    job = filled(store, 1)
    items = started(store, job)
    store.write("remove_job", {"id": job.id})
    assert settle(store, items, Done()) == []


def test_a_job_without_rows_is_over_when_it_is_sealed(store: Store) -> None:
    job = opened(store, then=THEN)
    assert not job.is_over
    store.seal_job(job.id, after(1))
    assert look(store, job).finished_at == after(1)
    assert query(store, "select count(*) from duly_item where task = 'report'") == [(1,)]


def test_rows_that_end_before_the_last_ones_have_come_do_not_end_the_job(store: Store) -> None:
    job = filled(store, 2, then=THEN, is_sealed=False)
    settle(store, started(store, job), Done())
    assert look(store, job).finished_at is None
    assert store.load_rows(job.id, 3, rows(job, 1, 3))
    store.seal_job(job.id, NOW)
    assert look(store, job).finished_at is None
    settle(store, started(store, job), Done())
    assert look(store, job).is_over
    assert query(store, "select count(*) from duly_item where task = 'report'") == [(1,)]


def test_a_row_that_is_tried_again_opens_its_job_again_but_nothing_comes_twice(store: Store) -> None:
    job = filled(store, 2, then=THEN)
    first, second = started(store, job)
    settle(store, first, GiveUp("no"))
    settle(store, second, NotFound("nowhere"))
    ended = store.fetch([first.id, second.id])
    settle(store, ended, Revived(after(1)), now=after(1))
    again = look(store, job)
    assert (again.failed, again.not_found, again.finished_at) == (0, 0, None)
    settle(store, started(store, job, now=after(2)), Done(), now=after(3))
    over = look(store, job)
    assert (over.done, over.finished_at) == (2, after(3))
    assert query(store, "select count(*) from duly_item where task = 'report'") == [(1,)]


def test_what_is_done_is_not_done_again(store: Store) -> None:
    job = filled(store, 1)
    (item,) = started(store, job)
    settle(store, item, Done())
    (ended,) = store.fetch([item.id])
    with pytest.raises(Exception, match="cannot be retried"):
        decided(ended, Revived(NOW))


def test_a_late_result_is_not_counted(store: Store) -> None:
    job = filled(store, 1)
    (item,) = started(store, job)
    assert settle(store, item, Cancel()) == []
    assert settle(store, item, Done()) == [item.id]
    counted = look(store, job)
    assert (counted.done, counted.skipped) == (0, 1)


def test_rows_come_once_in_their_order(store: Store) -> None:
    job = opened(store)
    assert store.load_rows(job.id, 1, rows(job, 3))
    assert not store.load_rows(job.id, 1, rows(job, 3)), "as after a crash: these are there"
    assert not store.load_rows(job.id, 5, rows(job, 1, 5)), "one before it is missing"
    assert store.load_rows(job.id, 4, rows(job, 2, 4))
    store.seal_job(job.id, NOW)
    assert not store.load_rows(job.id, 6, rows(job, 1, 6)), "no more come"
    assert query(store, "select row_no from duly_item order by id") == [(n,) for n in range(1, 6)]
    assert look(store, job).total == 5


def test_a_job_that_is_gone_takes_no_rows(store: Store) -> None:
    job = opened(store)
    store.write("remove_job", {"id": job.id})
    assert not store.load_rows(job.id, 1, rows(job, 1))
    assert query(store, "select count(*) from duly_item") == [(0,)]


def test_two_who_fill_a_job_at_once_do_not_double_a_row(store: Store, other: Store) -> None:
    job = opened(store)
    told: list[bool] = []
    together(
        *(partial(lambda mine: told.append(mine.load_rows(job.id, 1, rows(job, 50))), each) for each in (store, other))
    )
    assert sorted(told) == [False, True]
    assert look(store, job).total == 50
    check_counts(store, job)


def test_a_row_that_could_not_be_read_is_a_failed_item(store: Store) -> None:
    job = opened(store)
    bad = NewRow(
        "ring", f"ring/job-{job.id}", b"{}", NOW, job_id=job.id, row_no=1, status="ERROR", state="failed",
        outcome="gave_up", finished_at=NOW, last_error="line 2: a quote is never closed", input=b'{"raw":"x"}',
    )  # fmt: skip
    assert store.load_rows(job.id, 1, [bad, *rows(job, 1, 2)])
    check_counts(store, job)
    assert look(store, job).failed == 1
    store.seal_job(job.id, NOW)
    settle(store, started(store, job), Done())
    assert look(store, job).is_over


def test_a_key_finds_the_job_that_has_it(store: Store) -> None:
    first = opened(store, key="march", owner="ana")
    assert opened(store, key="march", owner="ana").id == first.id
    assert opened(store, key="march", owner="bob").id != first.id
    assert opened(store).id != opened(store).id


@pytest.mark.parametrize("seed", range(5))
def test_counters_are_the_rows_whatever_happens_in_whatever_order(store: Store, other: Store, seed: int) -> None:
    chance = random.Random(seed)
    jobs = [filled(store, 30, then=THEN, is_sealed=chance.random() < 0.8) for _ in range(2)]

    def work(mine: Store, luck: random.Random) -> None:
        for step in range(25):
            items = [item for job in jobs for item in started(mine, job, limit=luck.randrange(1, 5), now=after(step))]
            luck.shuffle(items)
            outcomes = [Done(), GiveUp("no"), NotFound("no"), Skip("no"), Released(), Cancel(), Done(b'{"n":1}')]
            mine.settle(
                [decided(item, luck.choice(outcomes), after(step)) for item in items], [item.fence for item in items]
            )
            ended = [row[0] for row in query(mine, "select id from duly_item where state in ('failed', 'cancelled')")]
            for item in mine.fetch(luck.sample(ended, min(len(ended), 2))):
                if item.state in ("failed", "cancelled") and item.job_id is not None:
                    again = [Revived(after(step)), Discarded()] if item.state == "failed" else [Revived(after(step))]
                    mine.settle([decided(item, luck.choice(again), after(step))])

    together(*(partial(work, each, random.Random(f"{seed} {n}")) for n, each in enumerate((store, other))))
    for job in jobs:
        check_counts(store, job)
        store.seal_job(job.id, after(99))
        while items := started(store, job, now=after(100)):
            store.settle([decided(item, Done(), after(100)) for item in items], [item.fence for item in items])
        check_counts(store, job)
        assert look(store, job).is_over
    assert query(store, "select count(*) from duly_item where task = 'report'") == [(2,)]
