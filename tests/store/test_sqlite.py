"""What only SQLite has to prove: one file, many processes, a WAL that does not grow for ever."""

import fcntl
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from duly.core.clock import ManualClock
from duly.core.errors import StoreError, StoreUnavailable
from duly.core.model import NewItem
from duly.store.migrate import migrate
from duly.verbs.read import Read
from tests.support import NOW, claim, counts, new, opened, put, query


def test_the_wal_does_not_grow_for_ever(sqlite_url: str) -> None:
    wal = Path(f"{sqlite_url.removeprefix('sqlite:///')}-wal")
    with opened(sqlite_url + "?synchronous=off") as store:
        sizes = []
        for _ in range(4):
            for _ in range(64):
                put(store, args={"page": "x" * 300_000})
            sizes.append(wal.stat().st_size)
    assert sizes[0] > 16 * 1024 * 1024
    assert sizes[-1] < 1.1 * sizes[0], "once checkpointed, the WAL is written from its start again"


def test_a_small_wal_is_not_checkpointed_at_every_turn(sqlite_url: str) -> None:
    path = Path(sqlite_url.removeprefix("sqlite:///"))
    before = path.stat().st_size
    with opened(sqlite_url + "?synchronous=off") as store:
        for _ in range(130):
            put(store)
        assert path.stat().st_size == before
    assert counts_of(sqlite_url) == {"waiting": 130}


def counts_of(url: str) -> dict[str, int]:
    with opened(url) as store:
        return counts(store)


def test_counting_all_that_waits_and_the_engines_reads_do_not_wait_for_each_other(sqlite_url: str) -> None:
    with opened(sqlite_url) as store:
        put(store, 3)
        counted: list[int] = []

        def count() -> None:
            counted.extend(depth.items for depth in Read(store, ManualClock(NOW)).depths())

        with store._reading():  # type: ignore[attr-defined] # the engine is at it
            counter = threading.Thread(target=count)
            counter.start()
            counter.join(30)
            assert counted == [3]


def test_processes_queue_up_for_their_turn_to_write(sqlite_url: str) -> None:
    program = (
        "import sys; from tests.support import *\n"
        "with opened(sys.argv[1], timeout=1) as store:\n"
        "    [put(store) for _ in range(100)]\n"
        "    taken = 0\n"
        "    while items := claim(store, share(limit=5)): taken += len(items)\n"
        "    print(taken)\n"
    )
    running = [
        subprocess.Popen([sys.executable, "-c", program, sqlite_url], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    taken = [int(process.communicate()[0]) for process in running]
    assert sum(taken) == 200
    assert counts_of(sqlite_url) == {"running": 200}


def test_a_reader_is_not_held_up_by_a_transaction(sqlite_url: str) -> None:
    with opened(sqlite_url) as store, opened(sqlite_url, timeout=0.05) as other:
        (item_id,) = put(store)
        other.survey()
        with store.transaction() as connection:
            connection.execute("delete from duly_item")
            assert [item.id for item in other.fetch([item_id])] == [item_id]


def test_a_put_beside_an_open_transaction_of_the_same_thread_says_so_instead_of_hanging(sqlite_url: str) -> None:
    with opened(sqlite_url, timeout=0.05) as store:
        with store.transaction(), pytest.raises(StoreUnavailable, match="write on its own connection"):
            put(store)
        assert put(store)


def test_a_caller_that_ends_its_transaction_itself_is_not_rolled_back_twice(sqlite_url: str) -> None:
    def act() -> None:
        with store.transaction() as connection:
            connection.execute("insert into duly_queue (name) values ('a')")
            connection.execute("rollback")
            raise RuntimeError("enough")

    with opened(sqlite_url) as store:
        with pytest.raises(RuntimeError, match="enough"):
            act()
        assert query(store, "select name from duly_queue") == []


class ThreeLooks(threading.Event):
    """Stops a watcher after its third look."""

    looks = 0

    def wait(self, timeout: float | None = None) -> bool:
        self.looks += 1
        if self.looks == 3:
            self.set()
        return self.is_set()


def test_a_watcher_tells_nothing_while_nothing_changes(sqlite_url: str) -> None:
    told: list[object] = []
    with opened(sqlite_url) as store:
        store.listen(told.append, ThreeLooks())
    assert told == [None], "but for the first look"


def test_a_damaged_file_is_told_as_such(tmp_path: Path) -> None:
    path = tmp_path / "duly.db"
    with opened(f"sqlite:///{path}") as store:
        migrate(store)
        put(store, 50, args={"a": "x" * 200})
    page = 4096
    text = bytearray(path.read_bytes())
    text[page:] = b"\xff" * (len(text) - page)
    path.write_bytes(text)
    with opened(f"sqlite:///{path}") as store:
        for act in (
            store.survey,
            lambda: put(store),
            lambda: claim(store),
            lambda: query(store, "select * from duly_item"),
        ):
            with pytest.raises(StoreError, match=r"duly\.db"):
                act()


def test_a_file_that_is_damaged_among_its_rows_is_told_as_such(tmp_path: Path) -> None:
    path = tmp_path / "duly.db"
    with opened(f"sqlite:///{path}") as store:
        migrate(store)
        put(store, 2_000, args={"a": "x" * 200})
    text = bytearray(path.read_bytes())
    half = len(text) // 2
    text[half:] = b"\xff" * (len(text) - half)
    path.write_bytes(text)
    with opened(f"sqlite:///{path}") as store, pytest.raises(StoreError, match=r"duly\.db is damaged"):
        query(store, "select * from duly_item")


def test_a_process_that_writes_for_ever_is_not_waited_for_for_ever(sqlite_url: str) -> None:
    with opened(sqlite_url, timeout=0.1) as store:
        put(store)
        with open(f"{sqlite_url.removeprefix('sqlite:///')}-lock") as turn:
            fcntl.flock(turn, fcntl.LOCK_EX)  # as another process has it
            with pytest.raises(StoreUnavailable, match="another process"):
                put(store)
        put(store)
    with opened(sqlite_url) as store:
        assert counts(store) == {"waiting": 2}


def test_rows_may_come_from_code_that_puts(sqlite_url: str) -> None:
    with opened(sqlite_url, timeout=1) as store:

        def rows() -> Iterator[NewItem]:
            for _ in range(3):
                put(store)
                yield new()

        assert store.load(rows()) == 3
        assert counts(store) == {"waiting": 6}


FULL = """
import resource, sqlite3, sys
from duly.store.sqlite import file
from tests.support import counts, opened, put

file.CHECKPOINT_BYTES = 0
path = sys.argv[1].removeprefix("sqlite:///")
with opened(sys.argv[1] + "?synchronous=off") as store:
    put(store, 40, args={"page": "x" * 100_000})
    with sqlite3.connect(path) as light:  # so that what is changed from here on lies beyond the limit
        light.execute("pragma wal_checkpoint(truncate)")
    light.close()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_500_000, hard))
    for _ in range(64):
        put(store)
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    for _ in range(64):
        put(store)
    print(counts(store), flush=True)
"""


def test_a_checkpoint_that_fails_is_told_and_tried_again_for_what_was_put_is_safe(sqlite_url: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", FULL, sqlite_url], capture_output=True, text=True, check=False, timeout=120
    )
    assert ended.stdout.strip() == "{'waiting': 168}", ended.stderr
    assert "a checkpoint failed, and will be tried again" in ended.stderr
    with opened(sqlite_url) as store:
        assert counts(store) == {"waiting": 168}


def test_a_watch_on_a_file_that_fails_says_which(sqlite_url: str) -> None:
    path = Path(sqlite_url.removeprefix("sqlite:///"))

    def spoil(_: object) -> None:
        path.write_bytes(b"no database " * 1000)
        path.with_name("duly.db-wal").unlink()

    with opened(sqlite_url) as store, pytest.raises(StoreError, match=r"duly\.db"):
        store.listen(spoil, threading.Event())


def test_an_act_whose_transaction_was_rolled_back_by_the_database_ends_with_its_own_error(sqlite_url: str) -> None:
    with opened(sqlite_url) as store, closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as own:

        def find_the_disk_full() -> None:
            own.rollback()  # as SQLite itself does then
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError), store.lent(own):
            find_the_disk_full()
        assert not own.in_transaction
