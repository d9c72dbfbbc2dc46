"""Counters of jobs and statuses of rows that workers of an old version left wrong: they are found and made true."""

from __future__ import annotations

import pytest

from duly.core.decide import status_of
from duly.core.model import Done
from duly.store import Store
from duly.verbs.job_checks import checked
from tests.conformance.test_jobs import THEN, filled, look, opened, rows, started
from tests.support import NOW, after, query, settle


def end_as_old_workers_did(store: Store, ids: list[int]) -> None:
    """Rows end without their status, and nobody counts them."""
    for item_id in ids:
        store.query("update duly_item set state = 'done', outcome = 'done' where id = :id", {"id": item_id})


@pytest.mark.parametrize("outcome", [None, "done", "unchanged", "not_found", "skipped", "expired", "gave_up"])
@pytest.mark.parametrize("state", ["waiting", "running", "done", "failed", "cancelled"])
def test_the_status_of_a_state_is_the_same_in_sql(store: Store, state: str, outcome: str | None) -> None:
    job = filled(store, 1)
    store.query("update duly_item set state = :state, outcome = :outcome", {"state": state, "outcome": outcome})
    store.query("update duly_item set status = 'NONE'", {})
    store.write("true_up_rows", {"id": job.id, "after": 0, "until": 1, "now": NOW})
    assert query(store, "select status from duly_item") == [(status_of(state, outcome),)]  # type: ignore[arg-type]


def test_a_job_whose_rows_were_not_counted_ends_when_they_are(store: Store) -> None:
    job = filled(store, 5, then=THEN)
    items = started(store, job)
    settle(store, items[:2], Done())
    end_as_old_workers_did(store, [item.id for item in items[2:]])
    found = checked(store, job.id)
    assert found is not None
    assert (found.is_true, found.untrue_rows, found.counters["done"]) == (False, 3, 2)
    for _ in range(2):  # again is harmless
        store.write("true_up_rows", {"id": job.id, "after": 0, "until": 5, "now": after(1)})
        over = store.recount_job(job.id, after(1))
        assert over is not None
        assert over.is_over
    assert look(store, job).finished_at == after(1)
    assert query(store, "select count(*) from duly_item where task = 'report'") == [(1,)], "its sequel, once"
    found = checked(store, job.id)
    assert found is not None
    assert found.is_true


def test_counters_that_are_too_high_open_the_job_again(store: Store) -> None:
    job = filled(store, 2)
    store.query("update duly_job set done = 2, finished_at = :now where id = :id", {"now": NOW, "id": job.id})
    found = checked(store, job.id)
    assert found is not None
    assert not found.is_true
    assert store.recount_job(job.id, after(1)) is not None
    assert (look(store, job).done, look(store, job).finished_at) == (0, None)
    settle(store, started(store, job), Done())
    assert look(store, job).is_over


def test_a_job_that_is_gone_has_no_counters(store: Store) -> None:
    assert checked(store, 7) is None
    assert store.recount_job(7, NOW) is None


def test_a_job_that_is_still_filled_stays_open(store: Store) -> None:
    job = opened(store)
    assert store.load_rows(job.id, 1, rows(job, 3))
    recounted = store.recount_job(job.id, after(1))
    assert recounted is not None
    assert (recounted.total, recounted.is_over) == (3, False)
