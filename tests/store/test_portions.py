"""Puts of very many items on SQLite: others write in between, and still all of them are put or none."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from duly.core.decide import UNKNOWN, decide
from duly.core.errors import KeyConflict, StoreUnavailable
from duly.core.model import Cancel, NewItem, Revived
from duly.engine.rescuer import Detector, Rescuer
from duly.store import Store
from duly.store.borrow import put_borrowed
from duly.store.sqlite import portions
from duly.store.sqlite.store import SqliteStore
from tests.process.fleet import until
from tests.support import NOW, claim, counts, fetch, new, opened, put, query

# A process that loads 2,000 items in portions of 50, and shows how far it is.
LOADER = """
import sys
from duly.store import open_store
from duly.core.model import NewItem
from duly.store.sqlite import portions
portions.DIRECT = portions.PORTION = 50
portions.BREATH = 0.05
def rows():
    for n in range(2_000):
        if n == 1_000:
            print("half", flush=True)
            if sys.argv[2] == "stops":
                sys.stdin.read()
        yield NewItem("ring", "ring", b"{}", key=f"k{n}" if n % 3 == 0 else None)
open_store(sys.argv[1]).load(rows())
"""


@pytest.fixture
def store(sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setattr(portions, "DIRECT", 10)
    monkeypatch.setattr(portions, "PORTION", 10)
    with opened(sqlite_url) as store:
        yield store


@pytest.fixture
def other(sqlite_url: str) -> Iterator[Store]:
    with closing(SqliteStore(sqlite_url.removeprefix("sqlite:///"), timeout=0.0)) as store:
        yield store


def left_aside(store: Store) -> list[tuple[Any, ...]]:
    """What is set aside, reserved and marked by files."""
    marks = [path.name for path in Path(store.url.removeprefix("sqlite:///")).parent.glob("*-load-*")]
    tables = ("duly_load", "duly_load_part", "duly_load_key")
    return [(len(marks), *(query(store, f"select count(*) from {table}")[0][0] for table in tables))]


NOTHING = [(0, 0, 0, 0)]


def swept(store: Store) -> None:
    while store.finish_loads():
        pass


@contextmanager
def loading(sqlite_url: str, how: str) -> Iterator[None]:
    """A process that has set half of its items aside. It goes on, or stops there; at the end it is killed."""
    command = [sys.executable, "-c", LOADER, sqlite_url, how]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "half\n"
            yield
        finally:
            child.kill()


def test_others_write_while_very_many_items_are_put(store: Store, sqlite_url: str) -> None:
    is_over, has_begun = threading.Event(), threading.Event()

    def write() -> None:
        with opened(sqlite_url) as mine:
            while not is_over.is_set():
                put(mine, task="theirs")
                has_begun.set()

    writer = threading.Thread(target=write)
    writer.start()
    assert has_begun.wait(30)
    try:
        assert store.load(new(args={"n": n}) for n in range(500)) == 500
    finally:
        is_over.set()
        writer.join()
    found = query(store, "select task, cast(args as text) from duly_item order by id")
    tasks = [task for task, _ in found]
    last = len(tasks) - tasks[::-1].index("ring")
    assert tasks[tasks.index("ring") : last].count("theirs") >= 10, "they had their turns between the portions"
    assert [args for task, args in found if task == "ring"] == [f'{{"n":{n}}}' for n in range(500)]
    assert left_aside(store) == NOTHING


def test_rows_may_come_from_code_that_puts(store: Store) -> None:
    def rows() -> Iterator[NewItem]:
        for n in range(50):
            put(store, task="theirs")
            yield new(args={"n": n})

    assert store.load(rows()) == 50
    assert counts(store) == {"waiting": 100}


def test_nothing_is_seen_of_a_put_that_is_not_decided(store: Store, other: Store) -> None:
    seen: list[Any] = []

    def rows() -> Iterator[NewItem]:
        for n in range(40):
            seen.append((counts(other), claim(other), len(query(other, "select 1 from duly_item"))))
            yield new(key=str(n))
        raise RuntimeError("line 41 is broken")

    with pytest.raises(RuntimeError):
        store.load(rows())
    assert seen == [({}, [], 0)] * 40
    assert left_aside(store) == NOTHING
    assert put(store, key="3"), "its keys are free again"


def test_equal_rows_under_one_key_are_one_and_others_are_refused(store: Store) -> None:
    put(store, key="5", args={"n": 5})
    rows = [new(args={"n": n % 30}, key=str(n % 30)) for n in range(60)]
    assert store.load(rows) == 29
    with pytest.raises(KeyConflict, match="'99' of ring is here twice"):
        store.load([*rows, new(key="99"), *rows, new(key="99", args={"n": 1})])
    assert counts(store) == {"waiting": 30}
    assert left_aside(store) == NOTHING


@pytest.mark.parametrize("how", ["stops", "ends"])
def test_a_killed_process_has_put_all_of_its_items_or_none(sqlite_url: str, how: str) -> None:
    with opened(sqlite_url) as store:
        with loading(sqlite_url, how):
            swept(store)
            assert left_aside(store)[0][0] == 1, "its process lives"
            if how == "ends":  # it was decided, and the first items are there
                until(lambda: counts(store))
        rescuer = Rescuer(store, {}, Detector(20), sweep=5)
        until(lambda: rescuer.tick(NOW) > NOW)
        assert counts(store) == ({} if how == "stops" else {"waiting": 2_000})
        assert left_aside(store) == NOTHING


def test_who_needs_a_key_of_a_put_that_is_under_way_waits_for_its_end(store: Store, other: Store) -> None:
    def rows() -> Iterator[NewItem]:
        for n in range(40):
            if n == 30:
                with pytest.raises(StoreUnavailable, match="'7' of ring is in a put_many that has not ended yet"):
                    put(other, key="7")
                with pytest.raises(StoreUnavailable, match="in a put_many"):
                    other.load(new(key=str(each)) for each in range(5, 20))
                put(other, key="70")
                with closing(sqlite3.connect(other.url.removeprefix("sqlite:///"))) as own:
                    with pytest.raises(KeyConflict, match="has not ended yet; try again"):
                        put_borrowed(own, new(key="7"))
                    own.rollback()
            yield new(args={"n": n}, key=str(n))

    assert store.load(rows()) == 40
    assert [placed.fresh for placed in other.put([new(key="7", args={"n": 7})])] == [False]
    assert counts(store) == {"waiting": 41}


def test_two_such_puts_with_common_keys_follow_one_another(store: Store, sqlite_url: str) -> None:
    answers: list[int] = []
    is_half = threading.Event()

    def rows() -> Iterator[NewItem]:
        for n in range(60):
            if n == 30:
                is_half.set()
            yield new(args={"n": n}, key=str(n))

    def load() -> None:
        is_half.wait(30)
        with opened(sqlite_url) as mine:
            answers.append(mine.load(new(args={"n": n}, key=str(n)) for n in range(80)))

    loader = threading.Thread(target=load)
    loader.start()
    answers.append(store.load(rows()))
    loader.join()
    assert sorted(answers) == [20, 60]
    assert counts(store) == {"waiting": 80}


def test_an_item_that_was_decided_and_whose_key_is_taken_after_all_goes_to_review(store: Store, other: Store) -> None:
    (old,) = put(store, key="7", args={"n": 700})
    store.settle([decide(fetch(store, old), Cancel(), NOW, UNKNOWN)])

    def rows() -> Iterator[NewItem]:
        for n in range(20):
            yield new(args={"n": n}, key=str(n))
        other.settle([decide(fetch(other, old), Revived(NOW), NOW, UNKNOWN)])  # a person does not know of reserved keys

    assert store.load(rows()) == 20
    assert counts(store) == {"waiting": 20, "failed": 1}
    ((error,),) = query(store, "select last_error from duly_item where state = 'failed'")
    assert f"'7' belongs to item {old} of ring with other arguments" in error


@pytest.mark.parametrize("is_loader_by_link", [True, False])
def test_a_load_is_found_alive_through_a_link_to_the_file(
    store: Store, tmp_path: Path, is_loader_by_link: bool
) -> None:
    link = tmp_path / "elsewhere" / "link.db"
    link.parent.mkdir()
    link.symlink_to(store.url.removeprefix("sqlite:///"))
    with opened(f"sqlite:///{link}") as by_link:
        loader, sweeper = (by_link, store) if is_loader_by_link else (store, by_link)

        def rows() -> Iterator[NewItem]:
            for n in range(60):
                yield new(args={"n": n}, key=str(n))
            swept(sweeper)

        assert loader.load(rows()) == 60
    assert counts(store) == {"waiting": 60}
    assert left_aside(store) == NOTHING


@pytest.mark.parametrize(
    ("after", "sweeps"), [(30, 1), (60, 1), (60, 3)], ids=["between portions", "a part at the end", "all at the end"]
)
def test_a_load_that_is_taken_for_dead_fails_and_puts_nothing(
    store: Store, other: Store, tmp_path: Path, after: int, sweeps: int
) -> None:
    taken: list[int] = []

    def rows() -> Iterator[NewItem]:
        for n in range(61):
            if n == after:
                (mark,) = tmp_path.glob("*-load-*")
                mark.unlink()
                for _ in range(sweeps):
                    other.finish_loads()
                if after == 60:
                    return
            taken.append(n)
            yield new(args={"n": n}, key=str(n))

    with pytest.raises(StoreUnavailable, match="what was set aside for this put was removed meanwhile"):
        store.load(rows())
    assert len(taken) == min(after + 10, 60), "it ends with the next portion"
    assert counts(store) == {}
    assert left_aside(store) == NOTHING
    assert store.load(new(key=str(n)) for n in range(60)) == 60, "its keys are free again"


def test_an_interrupt_after_the_decision_does_not_take_a_part_back(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    decide_load = portions.Portions._decide

    def interrupted(mine: portions.Portions, *given: Any) -> None:
        decide_load(mine, *given)
        raise KeyboardInterrupt

    monkeypatch.setattr(portions.Portions, "_decide", interrupted)
    with pytest.raises(KeyboardInterrupt):
        store.load(new() for _ in range(60))
    assert counts(store) == {"waiting": 60}
    assert left_aside(store) == NOTHING


def test_who_needs_a_key_of_a_dead_process_removes_what_it_left_and_goes_on(sqlite_url: str) -> None:
    with opened(sqlite_url) as store:
        with loading(sqlite_url, "stops"):
            pass
        put(store, key="k999")  # of its last portion
        assert counts(store) == {"waiting": 1}
        swept(store)
        assert left_aside(store) == NOTHING


def test_a_conflict_in_a_small_load_takes_everything_back(store: Store) -> None:
    put(store, key="3", args={"n": 300})
    with pytest.raises(KeyConflict, match="'3' belongs to item"):
        store.load(new(args={"n": n}, key=str(n)) for n in range(5))
    assert counts(store) == {"waiting": 1}


def test_a_load_that_cannot_make_its_mark_puts_nothing(sqlite_url: str, tmp_path: Path, store: Store) -> None:
    path = tmp_path / ("d" * 230)  # a name that has no room for what a mark adds to it
    shutil.copy(sqlite_url.removeprefix("sqlite:///"), path)
    with opened(f"sqlite:///{path}") as long:
        with pytest.raises(StoreUnavailable, match=r"cannot lock .*d-load-.*: .*too long"):
            long.load(new() for _ in range(60))
        assert counts(long) == {}
        assert left_aside(long) == NOTHING
