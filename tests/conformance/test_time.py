"""Times: microseconds, the same in both databases, from 1970 to 9998."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from duly.core.model import Done, Failed, Snooze
from duly.store import Store
from tests.support import NOW, claim, claim_one, decided, fetch, new, put, put_and_claim, settle, share, show, tries

ODD = [
    datetime(1970, 1, 1, tzinfo=UTC),
    datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
    datetime(2026, 3, 29, 0, 59, 59, 999_999, tzinfo=UTC),
    datetime(2038, 1, 19, 3, 14, 8, tzinfo=UTC),
    datetime(9998, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
]


@pytest.mark.parametrize("time", ODD, ids=lambda time: time.isoformat())
@pytest.mark.parametrize("way", ["put", "put many", "load", "load keyed"])
def test_a_due_time_survives_to_the_microsecond(store: Store, time: datetime, way: str) -> None:
    item = new(due_at=time, key="k" if way == "load keyed" else None)
    if way.startswith("load"):
        store.load([item])
    else:
        store.put([item] * (2 if way == "put many" else 1))
    (row, *_) = store.read(
        "page", dict.fromkeys(("owner", "state", "task", "queue", "key")) | {"before": 2**62, "most": 5}
    )
    found = fetch(store, row[0])
    assert (found.due_at, found.planned_at) == (time, time)
    assert found.due_at.utcoffset() is not None
    assert [head.due_at for head in store.survey()[0]] == [time]
    assert claim(store, now=time - timedelta(microseconds=1) if time > ODD[0] else NOW.replace(year=1969)) == []
    assert claim(store, now=time, lease=timedelta(0))[0].due_at == time


@pytest.mark.parametrize("time", ODD, ids=lambda time: time.isoformat())
def test_every_time_of_a_try_survives_to_the_microsecond(store: Store, time: datetime) -> None:
    put(store, due_at=ODD[0])
    item = claim_one(store, now=time, lease=timedelta(0))
    assert show(store, item.id)["lease_until"] == time
    assert fetch(store, item.id).started_at == time
    settle(store, item, Failed("busy"), now=time)
    (record,) = tries(store, item.id)
    assert (record["started_at"], record["ended_at"]) == (time, time)
    (again,) = claim(store, share(lane="retry"), now=time + timedelta(seconds=60), lease=timedelta(0))
    settle(store, again, Done(), now=time)
    assert show(store, item.id)["finished_at"] == time


def test_another_zones_time_is_the_same_instant(store: Store) -> None:
    zone = timezone(timedelta(hours=5, minutes=30))
    ids = put(store, due_at=NOW.astimezone(zone)) + put(store, 2, due_at=NOW.astimezone(zone))
    store.load([new(due_at=NOW.astimezone(zone))])
    assert {item.due_at for item in store.fetch([*ids, ids[-1] + 1])} == {NOW}
    assert len(claim(store)) == 4


def test_the_databases_clock_is_aware_and_does_not_stand_still(store: Store) -> None:
    first, second = store.now(), store.now()
    assert first.utcoffset() is not None
    assert first <= second
    assert abs(first - datetime.now(UTC)) < timedelta(minutes=1)


def test_a_snooze_by_microseconds_is_kept(store: Store) -> None:
    (item,) = put_and_claim(store)
    store.settle([decided(item, Snooze(0.000001))])
    assert fetch(store, item.id).due_at == NOW + timedelta(microseconds=1)
