"""Batches, slices and kinds of trouble."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.core.policy.adapt import (
    PERMANENT,
    SPACINGS,
    Average,
    Batch,
    BatchBounds,
    Load,
    Slice,
    SliceBounds,
    Spacing,
    Written,
    classify,
)

BOUNDS = BatchBounds()


def write(batch: Batch, bounds: BatchBounds = BOUNDS, seconds: float = 0.01, **more: float) -> Batch:
    seen = {"rows": batch.rows, "bytes": batch.rows * 100, "seconds": seconds, **more}
    return batch.after(Written(**seen), bounds, "seed")  # type: ignore[arg-type]


def test_batches_double_while_all_goes_well() -> None:
    batch, sizes = Batch.first(BOUNDS), []
    for _ in range(10):
        sizes.append(batch.rows)
        batch = write(batch)
    assert sizes == [64, 128, 256, 512, 1024, 2048, 4096, 8192, 8192, 8192]


def test_a_slow_database_halves_them_and_a_slower_one_than_usual_stops_their_growth() -> None:
    batch = write(write(Batch.first(BOUNDS)))
    assert batch.rows == 256
    slower = write(batch, seconds=1.0)
    assert slower.rows == 128
    held = batch
    for _ in range(20):
        held = write(held, seconds=0.2)
    assert held.rows < 600
    assert held.rows == write(held, seconds=0.2).rows


def test_having_to_wait_for_a_connection_halves_them() -> None:
    assert write(write(Batch.first(BOUNDS)), waited=0.01).rows == 64


def test_a_failure_quarters_them_and_each_one_waits_longer() -> None:
    batch = Batch.first(BatchBounds(start=1024))
    pauses = []
    for _ in range(4):
        batch = write(batch, has_failed=True)
        pauses.append(batch.pause)
    assert batch.rows == 16
    assert pauses == sorted(pauses)
    assert 0.5 <= pauses[0] <= 0.75
    assert 4 <= pauses[3] <= 6
    fine = write(batch)
    assert (fine.pause, fine.failures, fine.rows) == (0.0, 0, 18), "afterwards it grows slowly"


def test_large_rows_make_small_batches_and_one_is_always_written() -> None:
    batch = write(Batch.first(BOUNDS), bytes=64 * 100_000)
    assert batch.rows == 41
    assert not batch.is_searching
    assert write(Batch.first(BOUNDS), bytes=64 * 100_000_000).rows == 1
    assert batch.is_full(1, BOUNDS.max_bytes, BOUNDS)
    assert batch.is_full(41, 0, BOUNDS)
    assert not batch.is_full(40, 0, BOUNDS)


def test_a_batch_that_was_not_full_says_nothing_about_larger_ones() -> None:
    batch = Batch.first(BOUNDS)
    assert write(batch, rows=3, bytes=300).rows == 64
    assert write(batch, rows=0, bytes=0).rows == 64


@pytest.mark.parametrize("per_row", [0.00001, 0.0001, 0.002])
def test_on_a_simulated_database_it_settles_between_the_two_latencies(per_row: float) -> None:
    chance = random.Random(7)
    bounds = BatchBounds(max_rows=100_000, max_bytes=10**9)
    batch, sizes = Batch.first(bounds), []
    for _ in range(300):
        batch = write(batch, bounds, seconds=(0.002 + batch.rows * per_row) * chance.uniform(0.8, 1.2))
        sizes.append(batch.rows)
    settled = sizes[100:]
    assert max(settled) <= 1.7 * min(settled), "it does not swing"
    assert 0.05 <= per_row * settled[-1] <= bounds.p95


@given(st.lists(st.tuples(st.floats(0, 10), st.booleans(), st.integers(0, 10**8), st.floats(0, 1)), max_size=50))
def test_whatever_is_seen_the_bounds_hold(seen: list[tuple[float, bool, int, float]]) -> None:
    batch = Batch.first(BOUNDS)
    for seconds, has_failed, size, waited in seen:
        batch = write(batch, seconds=seconds, has_failed=has_failed, bytes=size, waited=waited)
        assert 1 <= batch.rows <= BOUNDS.max_rows
        assert 0 <= batch.pause <= 45


def slice_of(seconds: float, count: int = 100, errors: int = 0) -> Slice:
    known = Slice()
    for n in range(count):
        known = known.after(seconds, n >= count - errors)
    return known


SLICES = SliceBounds()


def test_a_claim_is_what_fits_into_the_slice() -> None:
    assert Slice().claim(SLICES) == 1, "nothing is known yet"
    assert slice_of(0.1).claim(SLICES) == 35
    assert slice_of(0.1).claim(SLICES, concurrency=4) == 140
    assert slice_of(60).claim(SLICES) == 1
    assert slice_of(0).claim(SLICES) == 500
    assert slice_of(0.001).claim(SliceBounds(target=1, safety=0.5, most=1000)) == 500


@pytest.mark.parametrize(
    ("load", "claimed"), [(Load(0.8, 0.1), 35), (Load(0.95, 0.0), 3), (Load(0.0, 1.0), 3), (Load(0.875, 0.0), 19)]
)
def test_a_machine_that_is_short_of_something_claims_less(load: Load, claimed: int) -> None:
    assert slice_of(0.1).claim(SLICES, load) == claimed


def test_a_rush_of_errors_halves_the_claim_and_spaces_retries_out() -> None:
    calm, rush = slice_of(0.1), slice_of(0.1, errors=30)
    assert rush.claim(SLICES) == 17
    assert calm.spacing(SLICES) == 1.0 < 2.5 < rush.spacing(SLICES)


def test_slices_keep_to_their_time_on_a_simulated_worker() -> None:
    chance = random.Random(3)
    known, lengths = Slice(), []
    for round_ in range(60):
        each = 0.05 if round_ < 30 else 0.4
        took = 0.0
        for _ in range(known.claim(SLICES)):
            seconds = each * chance.uniform(0.5, 1.5)
            took += seconds
            known = known.after(seconds)
        lengths.append(took)
    assert max(lengths[5:30]) <= SLICES.target
    assert sum(took > SLICES.target for took in lengths[31:]) <= 1
    assert min(lengths[10:30]) > 2


def test_an_average_follows_what_is_recent() -> None:
    average = Average(9)
    assert average.get(7.0) == 7.0
    for value in [1.0] * 50 + [2.0] * 50:
        average = average.fed(value)
    assert average.value == pytest.approx(2.0, abs=0.001)


@pytest.mark.parametrize(
    ("status", "trouble"),
    [
        (429, "throttled"), (503, "server"), (500, "server"), (504, "timeout"), (408, "timeout"), (404, "not_found"),
        (410, "not_found"), (401, "refused"), (403, "refused"), (409, "unknown"), (422, "invalid"), (302, "unknown"),
    ],
)  # fmt: skip
def test_a_status_says_what_kind_of_trouble_it_is(status: int, trouble: str) -> None:
    assert classify(status) == trouble


def test_retries_are_spaced_by_the_kind_of_trouble() -> None:
    waits = [SPACINGS["not_found"].delay_for(failures) for failures in (1, 2)]
    assert 900 <= waits[0] <= 1_125
    assert 3_600 <= waits[1] <= 4_500
    assert SPACINGS["server"].delay_for(1, "a") != SPACINGS["server"].delay_for(1, "b"), "not all at the same time"
    assert Spacing(base=1).delay_for(10**9) <= 4_500, "no count overflows"
    assert all(SPACINGS[trouble].tries == 1 for trouble in PERMANENT)
