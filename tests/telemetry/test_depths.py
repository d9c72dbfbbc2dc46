"""Depths of many queues: told under a bounded number of names, with sums that are right."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from prometheus_client import generate_latest

from duly import Duly, Limit
from duly.core.model import Change, GiveUp
from duly.core.shown import Depth
from duly.store import Store
from duly.telemetry.families import NAMES
from duly.telemetry.levels import labels
from duly.verbs.read import Read
from tests.support import NOW, after, claim, new, put, settle, share

LINE = re.compile(r"(\w+)\{(.*)\} (\S+)")


class Time:
    now = 100.0

    def monotonic(self) -> float:
        return self.now


def told(app: Duly) -> dict[str, dict[tuple[str, ...], float]]:
    """What a scrape says: by metric, the values by the values of the labels."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for line in generate_latest(app.internals.telemetry.registry).decode().splitlines():
        if line[0] != "#" and (match := LINE.fullmatch(line)):
            found.setdefault(match[1], {})[tuple(re.findall(r'="([^"]*)"', match[2]))] = float(match[3])
    return found


def depth(queue: str, items: int = 1) -> Depth:
    return Depth(queue, "main", "waiting", items, 0, None, False)


def ended(task: str) -> Change:
    return Change(1, task, "running", 1, "done", "done", "main", NOW, 1, 0, 0, 0, NOW)


def test_the_known_and_the_largest_queues_keep_their_names() -> None:
    many = [depth(f"q{n:05}", items=n) for n in range(1_000)]
    names = labels([*many, depth("mine", 0)], {"mine"}, ())
    assert names["mine"] == "mine"
    assert names["q00999"] == "q00999"
    assert names["q00000"] == names["q00800"] == "others"
    assert len(set(names.values())) == NAMES + 1


def test_few_queues_have_their_names_and_those_of_a_family_the_familys() -> None:
    names = labels([depth("a"), depth("a/1"), depth("a/2"), depth("ab/1"), depth("a", 3)], (), {"a"})
    assert names == {"a": "a", "a/1": "a", "a/2": "a", "ab/1": "ab/1"}


@pytest.fixture
def app(database_url: str) -> Iterator[Duly]:
    one = Duly(database_url)

    @one.task(name="ring", queue="ring")
    def ring() -> None: ...

    @one.task(name="mail", limits=[Limit("mail", 1, by="to")])
    def mail(to: str) -> None: ...

    yield one
    one.close()


def test_ten_thousand_queues_make_a_bounded_page_of_metrics_with_the_right_sums(store: Store, app: Duly) -> None:
    store.load(new(queue=f"made up {n % 10_000}", due_at=after(-60)) for n in range(12_000))
    store.load(new("mail", queue=f"mail/{n}", due_at=datetime(2999, 1, 1, tzinfo=UTC)) for n in range(3_000))
    for n in range(7):
        store.pause(f"made up {n}", NOW)
    put(store, 3)
    (failed, running, _) = claim(store)
    settle(store, failed, GiveUp("no"))
    assert running.queue == "ring"
    page = generate_latest(app.internals.telemetry.registry)
    assert len(page) < 150_000
    found = told(app)
    items = found["duly_queue_items"]
    sums: Counter[str] = Counter()
    for (_, _, state), count in items.items():
        sums[state] += int(count)
    assert sums == {"waiting": 15_000, "running": 2, "failed": 1}
    assert items["main", "mail", "waiting"] == 3_000, "of all who have mail"
    assert items["main", "ring", "running"] == 2, "a task of ours is told by its name, however little there is"
    assert items["main", "others", "waiting"] > 9_000
    assert sum(found["duly_queue_due_items"].values()) == 12_000
    assert sum(found["duly_queue_paused"].values()) == 7
    for metric, values in found.items():
        assert len({key for key in values if "others" not in key}) <= 3 * NAMES, metric


def test_counters_keep_the_names_that_came_first_and_never_go_down(app: Duly) -> None:
    telemetry = app.internals.telemetry
    before: dict[tuple[str, ...], float] = {}
    for part in range(3):
        tasks = [f"task {n}" for n in range(part * 300, part * 300 + 300)]
        telemetry.settled([ended(task) for task in tasks], [])
        telemetry.ran([(task, 1.0) for task in tasks])
        for n in range(1_000):
            telemetry.limited(share(queue=f"mail/{part}-{n}"))
        found = told(app)
        attempts = found["duly_attempts_total"]
        assert all(attempts[key] >= count for key, count in before.items())
        before = attempts
    assert len(attempts) == NAMES + 1
    assert sum(attempts.values()) == 900
    assert attempts["done", "others"] == 700
    assert sum(found["duly_run_seconds_count"].values()) == 900
    assert found["duly_run_seconds_sum"][("others",)] == 700
    assert found["duly_limited_claims_total"] == {("mail",): 3_000}


def test_a_long_count_is_not_made_again_at_every_scrape(
    store: Store, app: Duly, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store, 3)
    asked, clock = [], Time()
    count = Read.depths

    def dear(read: Read) -> list[Depth]:
        asked.append(1)
        found = count(read)
        clock.now += 1.0
        return found

    monkeypatch.setattr("duly.core.patience.time", clock)
    monkeypatch.setattr(Read, "depths", dear)
    assert told(app)["duly_queue_items"]["main", "ring", "waiting"] == 3
    put(store, 2)
    assert told(app)["duly_queue_items"]["main", "ring", "waiting"] == 3
    assert len(asked) == 1
    app.pause("ring")
    found = told(app)
    assert found["duly_queue_paused"][("ring",)] == 1, "what a person did here shows at once"
    clock.now += 60
    put(store, 1)
    assert told(app)["duly_queue_items"]["main", "ring", "waiting"] == 6
