"""What only PostgreSQL has to prove: poolers, lost connections, and races inside the database."""

import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import datetime
from functools import partial
from typing import Any

import psycopg
import pytest
from msgspec.structs import replace

from duly.core.advance import advance_all, removed
from duly.core.decide import Rules
from duly.core.errors import StoreError, StoreUnavailable
from duly.core.model import Cancel, Done, Failed, Head, Item, Lost, NewSchedule, Revision, Schedule
from duly.store import Store, open_store
from duly.store.contract import News
from duly.store.postgres.store import PostgresStore
from tests.proxy import proxied
from tests.support import (
    NOW,
    after,
    claim,
    claim_one,
    counts,
    decided,
    new,
    opened,
    put,
    put_and_claim,
    query,
    settle,
    together,
)

PATIENCE = 10


@pytest.fixture
def store(postgres_url: str) -> Iterator[Store]:
    with opened(postgres_url, timeout=2) as one:
        yield one


def forget_statements(store: Store, of_handlers: bool = False) -> None:
    """As a transaction pooler does that hands the next transaction to another server connection."""
    with store.transaction() if of_handlers else store.migrations() as connection:
        # in a form that the driver does not notice
        connection.execute("do $$ begin execute 'deallocate all'; end $$", prepare=False)


def terminate(store: Store) -> None:
    """End every connection of our stores, as a restart of the server does."""
    with psycopg.connect(store.url, autocommit=True) as connection:
        connection.execute(
            "select pg_terminate_backend(pid, 10000) from pg_stat_activity"
            " where datname = current_database() and application_name like 'duly%'"
        )


@pytest.fixture
def narrow(postgres_url: str) -> Iterator[Store]:
    """A store with a single connection, so that what is prepared on it is known."""
    with opened(postgres_url, pool_size=1) as one:
        yield one


def test_a_pooler_that_forgets_prepared_statements_is_survived(narrow: Store) -> None:
    put(narrow)
    for _ in range(5):
        narrow.survey()
    forget_statements(narrow)
    assert [head.line.queue for head in narrow.survey()[0]] == ["ring"]
    for _ in range(5):
        forget_statements(narrow)
        assert narrow.survey()[0], "from now on nothing is prepared"
    assert settle(narrow, claim_one(narrow), Done()) == []


def test_a_forgotten_statement_inside_a_transaction_is_unavailable_once(narrow: Store) -> None:
    items = put_and_claim(narrow, 6)

    def act(item: Item) -> None:
        with narrow.transaction() as connection:
            settle(narrow, item, Done(), connection=connection)

    for item in items[:5]:
        act(item)
    forget_statements(narrow, of_handlers=True)
    with pytest.raises(StoreUnavailable, match="prepared statements"):
        act(items[5])
    act(items[5])
    assert counts(narrow) == {"done": 6}


def test_handlers_that_hold_transactions_keep_no_act_of_a_person_waiting(postgres_url: str) -> None:
    with opened(postgres_url, pool_size=1, timeout=2) as store, store.transaction(is_handlers=True) as held:
        held.execute("insert into duly_queue (name) values ('a')")
        with store.transaction() as connection:
            connection.execute("insert into duly_queue (name) values ('b')")
            assert put(store), "nor a put"
    with opened(postgres_url) as store:
        assert query(store, "select name from duly_queue order by name") == [("a",), ("b",)]


def test_connections_that_the_server_ended_while_they_were_idle_fail_nobody(store: Store) -> None:
    with ExitStack() as together:
        for _ in range(9):
            together.enter_context(store._connection())
    terminate(store)
    assert len({id for _ in range(9) for id in put(store)}) == 9, "without a key: each was put once"
    assert counts(store) == {"waiting": 9}


def test_a_lost_race_is_unavailable_and_may_be_tried_again(store: Store) -> None:
    """Two transactions that want each other's rows: the database ends one of them."""
    for name in ("a", "b"):
        store.pause(name, NOW)
    meet = threading.Barrier(2)
    ended: list[str] = []

    def cross(first: str, second: str) -> None:
        try:
            with store.transaction() as connection:
                connection.execute("set local deadlock_timeout = '10ms'")
                connection.execute("update duly_queue set paused_at = null where name = %s", (first,))
                meet.wait()
                connection.execute("update duly_queue set paused_at = null where name = %s", (second,))
        except StoreUnavailable as error:
            ended.append(str(error))

    together(lambda: cross("a", "b"), lambda: cross("b", "a"))
    assert len(ended) == 1
    assert "try again" in ended[0]


def test_a_closed_store_says_so_as_unavailable(postgres_url: str) -> None:
    store = open_store(postgres_url)
    put(store)
    store.close()
    with pytest.raises(StoreUnavailable):
        store.survey()


def test_a_store_that_was_never_used_can_be_closed(postgres_url: str) -> None:
    open_store(postgres_url).close()


class Interrupted(PostgresStore):
    """Something happens between a put that found its key taken and its look at who has it."""

    meanwhile = staticmethod(lambda: None)

    def _run(self, name, parameters, connection=None):
        if name == "live":
            self.meanwhile()
        return super()._run(name, parameters, connection)


@pytest.mark.parametrize("count", [1, 2], ids=["one", "many"])
def test_a_key_that_is_freed_between_a_put_and_its_look_is_taken(store: Store, postgres_url: str, count: int) -> None:
    (item,) = put_and_claim(store, key="k")
    late = Interrupted(postgres_url)
    late.meanwhile = lambda: settle(store, item, Done())
    placed = late.put([new(key="k"), *(new() for _ in range(count - 1))])
    late.close()
    assert placed[0].fresh
    assert placed[0].id != item.id


def test_a_key_that_is_taken_by_a_transaction_in_flight_is_waited_for(store: Store) -> None:
    placed: queue.Queue[list] = queue.Queue()
    with store.transaction() as connection:
        connection.execute(
            "insert into duly_item (task, queue, args, planned_at, due_at, key)"
            f" values ('ring', 'ring', '{{}}', '{NOW}', '{NOW}', 'k')"
        )
        thread = threading.Thread(target=lambda: placed.put(store.put([new(key="k")])))
        thread.start()
    thread.join(PATIENCE)
    assert [each.fresh for each in placed.get_nowait()] == [False]


# -- watching


def listen(store: Store) -> tuple[queue.Queue[News], threading.Event, threading.Thread]:
    told: queue.Queue[News] = queue.Queue()
    stop = threading.Event()
    thread = threading.Thread(target=store.listen, args=(told.put, stop))
    thread.start()
    return told, stop, thread


def test_a_watcher_that_loses_its_connection_listens_again(store: Store) -> None:
    told, stop, thread = listen(store)
    assert told.get(timeout=PATIENCE) is None
    terminate(store)
    assert told.get(timeout=PATIENCE) is None, "it looks again, for it may have missed something"
    stop.set()
    put(store, due_at=None)
    thread.join(PATIENCE)
    assert not thread.is_alive()


def test_who_waits_for_ends_and_loses_the_connection_listens_again(store: Store) -> None:
    told: queue.Queue[None] = queue.Queue()
    stop = threading.Event()
    thread = threading.Thread(target=store.listen_to_ends, args=(lambda: told.put(None), stop))
    thread.start()
    told.get(timeout=PATIENCE)
    terminate(store)
    told.get(timeout=PATIENCE)
    stop.set()
    store.tell_of_ends()
    thread.join(PATIENCE)
    assert not thread.is_alive()


def test_a_store_told_not_to_listen_only_waits(postgres_url: str) -> None:
    with opened(postgres_url, listen=False) as store:
        told, stop, thread = listen(store)
        put(store, due_at=None)
        stop.set()
        thread.join(PATIENCE)
        assert not thread.is_alive()
        assert told.empty()
        told, stop, thread = listen(store.twin())
        stop.set()
        thread.join(PATIENCE)
        assert told.empty()


def test_a_watcher_that_is_told_to_stop_before_it_starts_does_nothing(store: Store) -> None:
    stop = threading.Event()
    stop.set()
    store.listen(lambda news: pytest.fail(f"was told {news}"), stop)


def test_a_quiet_watcher_stops_by_itself(store: Store) -> None:
    told, stop, thread = listen(store)
    told.get(timeout=PATIENCE)
    stop.set()
    thread.join(PATIENCE)
    assert not thread.is_alive()


def test_strangers_news_is_told_as_something_changed(store: Store) -> None:
    told, stop, thread = listen(store)
    told.get(timeout=PATIENCE)
    query(store, "select pg_notify('duly', 'hello')")
    assert told.get(timeout=PATIENCE) is None
    query(store, "select pg_notify('duly', '0\t3\tring\t\tmy queue')")
    news = told.get(timeout=PATIENCE)
    assert isinstance(news, Head)
    assert (news.line.queue, news.rank) == ("my queue", 3)
    stop.set()
    put(store, due_at=None)
    thread.join(PATIENCE)


@pytest.mark.parametrize("is_borrowed", [True, False])
def test_a_cancel_of_what_runs_is_told_and_no_other_end(store: Store, is_borrowed: bool) -> None:
    put(store, 3, due_at=NOW)
    store._herald.flush()  # type: ignore[attr-defined] # told before anyone listens
    items = claim(store)
    told, stop, thread = listen(store)
    assert told.get(timeout=PATIENCE) is None
    settle(store, items[0], Done())
    settle(store, items[1], Failed("no", ()))
    if is_borrowed:
        with store.transaction() as connection:
            settle(store, items[2], Cancel(), connection=connection)
            assert told.empty(), "nobody knows whether it commits"
    else:
        settle(store, items[2], Cancel())
    assert told.get(timeout=PATIENCE) is None
    stop.set()
    put(store, due_at=None)
    thread.join(PATIENCE)


def test_what_is_due_much_later_wakes_nobody(store: Store) -> None:
    told, stop, thread = listen(store)
    told.get(timeout=PATIENCE)
    later = store.now().replace(year=9000)
    put(store, due_at=later)
    put(store, 2, due_at=later)
    store.load([new(due_at=later)])
    put(store, task="mail", due_at=None)
    news = told.get(timeout=PATIENCE)
    assert isinstance(news, Head)
    assert news.line.queue == "mail"
    stop.set()
    put(store, due_at=None)
    thread.join(PATIENCE)
    assert len(claim(store, now=after(10))) == 0


def test_a_handler_that_holds_a_transaction_does_not_take_a_connection_from_puts(narrow: Store) -> None:
    with narrow.transaction():
        put(narrow)
    assert counts(narrow) == {"waiting": 1}


def test_when_all_connections_are_busy_the_error_says_so(postgres_url: str) -> None:
    with (
        opened(postgres_url, pool_size=1, timeout=0.2) as store,
        store.transaction(),
        pytest.raises(StoreUnavailable, match="pool_size"),
        store.transaction(),
    ):
        raise AssertionError("there was a second connection")


def test_when_nobody_listens_the_error_says_so() -> None:
    with (
        opened("postgresql://duly@127.0.0.1:1/none", timeout=0.2) as store,
        pytest.raises(StoreUnavailable, match="refused"),
    ):
        store.now()


# -- the order of locks: schedules by id, then rings, then items; whoever keeps it never waits for someone who waits


WAITING = "select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"


@contextmanager
def waiting_for(store: Store, held: str, act: Callable[[], object]) -> Iterator[psycopg.Connection[Any]]:
    """Do this while someone else holds these rows; the block runs when it waits for them."""
    with psycopg.connect(store.url) as holder, psycopg.connect(store.url, autocommit=True) as look:
        holder.execute(f"{held} for update")
        with ThreadPoolExecutor(1) as aside:
            running = aside.submit(act)
            try:
                give_up = time.monotonic() + PATIENCE
                while not look.execute(WAITING).fetchall():
                    assert time.monotonic() < give_up, "it did not wait"
                yield look
            finally:
                holder.rollback()
            running.result()


def is_free(look: psycopg.Connection[Any], rows: str) -> bool:
    try:
        look.execute(f"{rows} for update nowait")
    except psycopg.errors.LockNotAvailable:
        return False
    return True


def members(store: Store, count: int = 3) -> list[int]:
    """Members of one ring, each with an item that is due."""
    news = [
        NewSchedule("ring", f"k{n}", "ring", b"{}", "slot 0/9", "UTC", None, ring="ring", slots=9) for n in range(count)
    ]
    ids = [schedule_id for schedule_id, _ in store.enroll(news, lambda _, slot: (f"slot {slot}/9", after(slot)))]
    store.revise(ids, NOW, count, lambda some, _: [Revision(each, (NOW,)) for each in some])
    return ids


def test_a_schedule_whose_key_is_taken_between_the_look_and_the_insert_is_that_one(
    store: Store, postgres_url: str
) -> None:
    quicker = open_store(postgres_url)
    first: list[tuple[int, bool]] = []

    def seat(new: NewSchedule, slot: int) -> tuple[str, datetime]:
        first.extend(quicker.enroll([replace(new, ring=None, slots=None)], lambda _, slot: ("", NOW)))
        return f"slot {slot}/9", after(slot)

    new = NewSchedule("ring", "k", "ring", b"{}", "slot 0/9", "UTC", None, ring="ring", slots=9)
    second = store.enroll([new], seat)
    quicker.close()
    assert first == [(second[0][0], True)]
    assert second == [(first[0][0], False)]


def test_an_end_waits_for_its_schedules_before_it_takes_anything_else(store: Store) -> None:
    first, second, third = members(store)
    changes = [decided(item, Failed("busy")) for item in reversed(claim(store))]
    held = f"select id from duly_schedule where id = {second}"
    with waiting_for(store, held, lambda: store.settle(changes)) as look:
        assert not is_free(look, f"select id from duly_schedule where id = {first}"), "by id"
        assert is_free(look, f"select id from duly_schedule where id = {third}")
        assert is_free(look, "select id from duly_item"), "whoever has the schedule may need its items"
    assert query(store, "select failures from duly_schedule") == [(1,)] * 3


def test_whoever_changes_the_load_of_several_slots_takes_turns_at_their_ring(store: Store) -> None:
    ids = members(store)
    rules = Rules(breaker=1)
    changes = [decided(item, Failed("busy"), NOW, rules) for item in claim(store)[1:]]
    ring = "select slot from duly_slot where slot = 0"
    others = "select slot from duly_slot where slot > 0"

    def leave() -> None:
        store.revise(ids[:2], NOW, 2, lambda some, _: [removed(each, (), NOW, "ana") for each in some])

    for act in (lambda: store.settle(changes), leave):
        with waiting_for(store, ring, act) as look:
            assert is_free(look, others)
    assert query(store, "select sum(members) from duly_slot") == [(0,)]


def test_what_may_be_superseded_cannot_be_claimed_until_that_is_decided(store: Store) -> None:
    store.enroll(
        [NewSchedule("ring", "k", "ring", b"{}", "every 1s", "UTC", NOW, overlap="supersede")], lambda *_: ("", NOW)
    )
    store.revise(None, NOW, 1, partial(advance_all, NOW))

    def plan(some: Sequence[Schedule], live: Mapping[int, list[Item]]) -> list[Revision]:
        assert claim(store, now=after(1)) == []
        return advance_all(after(1), some, live)

    assert store.revise(None, after(1), 1, plan) == 1
    assert [item.planned_at for item in claim(store, now=after(1))] == [after(1)]


def test_a_schedule_that_someone_is_at_is_passed_over_and_not_waited_for(store: Store) -> None:
    new = NewSchedule("ring", "k", "ring", b"{}", "every 1s", "UTC", NOW)
    store.enroll([new], lambda *_: ("", NOW))
    with psycopg.connect(store.url) as holder:
        holder.execute("select id from duly_schedule for update")
        assert store.revise(None, NOW, 10, partial(advance_all, NOW)) == 0
    assert store.revise(None, NOW, 10, partial(advance_all, NOW)) == 1


def test_a_process_that_was_stopped_inside_a_transaction_does_not_hold_its_locks_for_ever(
    postgres_url: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    items = put_and_claim(store)
    monkeypatch.setattr("duly.store.postgres.sessions.IDLE_SECONDS", 1)

    def hold() -> None:
        with opened(postgres_url) as stopped, stopped.migrations() as connection:
            connection.execute("select from duly_item for update")
            assert settle(store, items, Lost(), after(3600)) == [], "the rescue waits for the lock, and gets it"
            connection.execute("select 1")

    with pytest.raises(StoreUnavailable, match="idle-in-transaction"):
        hold()


def test_a_source_of_rows_may_be_slower_than_a_transaction_of_ours_may_idle(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duly.store.postgres.sessions.IDLE_SECONDS", 1)
    with opened(postgres_url) as slow:

        def rows() -> Iterator[Any]:
            for n in range(2_000):
                if n == 1_500:
                    with psycopg.connect(postgres_url) as elsewhere:
                        elsewhere.execute("select pg_sleep(2)")
                yield new(key=f"k{n}")

        assert slow.load(rows()) == 2_000


# -- silence, and what surely was not done


def idle(store: Store, count: int) -> None:
    """Have so many connections lie idle."""
    with ExitStack() as together:
        for _ in range(count):
            together.enter_context(store._connection())


def test_a_statement_on_a_silent_connection_is_given_up_and_all_idle_ones_with_it(postgres_url: str) -> None:
    with proxied(postgres_url) as proxy, opened(proxy.url, timeout=0.5) as store:
        idle(store, 5)
        proxy.swallow()
        with pytest.raises(StoreUnavailable, match="did not answer, so it is not known"):
            put(store)
        for _ in range(5):
            assert put(store), "no other connection of that time is tried"


def test_a_commit_on_a_silent_connection_is_given_up(postgres_url: str) -> None:
    with proxied(postgres_url) as proxy, opened(proxy.url, timeout=0.5) as store:
        for is_handlers in (True, False):
            with pytest.raises(StoreUnavailable, match="did not answer"), store.transaction(is_handlers=is_handlers):
                proxy.swallow()
        (item,) = put_and_claim(store)

        def settle_inside() -> None:
            with store.transaction(is_handlers=True) as connection:
                proxy.swallow()
                settle(store, item, Done(), connection=connection)

        with pytest.raises(StoreUnavailable, match="did not answer"):
            settle_inside()


def test_a_handlers_own_statement_may_take_longer_than_ours(postgres_url: str) -> None:
    with opened(postgres_url, timeout=0.1) as store, store.transaction(is_handlers=True) as connection:
        connection.execute("select pg_sleep(1.5)")
    with opened(postgres_url, timeout=0.1) as store, store.migrations() as connection:
        connection.execute("select pg_sleep(1.5)")


def test_a_statement_that_the_server_gave_up_was_not_done_and_says_so(postgres_url: str) -> None:
    with opened(postgres_url, timeout=0.5) as store:
        with psycopg.connect(postgres_url) as holder:
            holder.execute("lock table duly_item")
            with pytest.raises(StoreUnavailable, match=r"could not do this now; try again: .*timeout"):
                put(store)
        assert counts(store) == {}


def test_a_listener_whose_connection_falls_silent_listens_again(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duly.store.postgres.store.PULSE", 0.0)
    monkeypatch.setattr("duly.store.postgres.sessions.PULSE_PATIENCE", 0.5)
    with proxied(f"{postgres_url}") as proxy, opened(proxy.url) as store:
        told, stop, thread = listen(store)
        assert told.get(timeout=PATIENCE) is None
        query(store, "select pg_notify('duly', 'hello')")
        assert told.get(timeout=PATIENCE) is None
        proxy.swallow()
        assert told.get(timeout=PATIENCE) is None, "it looks again"
        stop.set()
        thread.join(PATIENCE)
        assert not thread.is_alive()


class Broken(PostgresStore):
    """The server ends the connection while, or before, a statement of this name runs on it; once."""

    at = ""

    def _rows(self, connection, name, parameters):
        if name == self.at:
            self.at = ""
            with psycopg.connect(self.url, autocommit=True) as killer:
                killer.execute("select pg_terminate_backend(%s, 10000)", (connection.info.backend_pid,))
        return super()._rows(connection, name, parameters)


@pytest.fixture
def broken(postgres_url: str) -> Iterator[Broken]:
    store = Broken(postgres_url, timeout=2)
    yield store
    store.close()


def test_a_read_and_a_put_with_a_key_are_repeated_when_their_connection_breaks(broken: Broken) -> None:
    for name in ("put_one", "put_one_and_tell"):
        broken._herald._last = -float("inf") if name == "put_one_and_tell" else time.monotonic() + 60
        broken.at = name
        assert put(broken, key=name)
        assert broken.at == ""
    broken.at = "survey"
    assert len(broken.survey()[0]) == 1
    assert counts(broken) == {"waiting": 2}


def test_a_put_without_a_key_that_may_have_been_done_is_not_repeated(broken: Broken) -> None:
    broken._herald._last = time.monotonic() + 60
    broken.at = "put_one"
    with pytest.raises(StoreUnavailable, match="connection to the database broke, so it is not known"):
        put(broken)


def test_a_put_of_many_that_broke_before_its_commit_is_repeated(broken: Broken) -> None:
    broken.at = "put"
    assert len(put(broken, 3)) == 3
    broken.at = "arm_find"
    assert [each.how for each in broken.arm([new(key="a", version=1)], lambda _, item: item.args)] == ["new"]
    assert counts(broken) == {"waiting": 4}


def test_a_put_of_many_whose_commit_was_never_answered_is_not_repeated(postgres_url: str) -> None:
    with proxied(postgres_url) as proxy, opened(proxy.url, timeout=0.5) as store:
        silent = store._put_many

        def then_silence(*given: Any) -> Any:
            placed = silent(*given)
            proxy.swallow()
            return placed

        store._put_many = then_silence
        with pytest.raises(StoreUnavailable, match="did not answer"):
            put(store, 2)
        store._put_many = silent
    with opened(postgres_url) as store:
        assert counts(store) == {}


def test_a_put_to_a_server_that_takes_no_writes_for_the_moment_is_repeated(postgres_url: str) -> None:
    with opened(postgres_url) as store:
        idle(store, 1)
        with store._connection() as connection:
            connection.execute("set default_transaction_read_only = on")
        assert put(store), "on a new connection, which may lead to another server"


def test_a_full_disk_is_not_called_an_absent_database(store: Store) -> None:
    with (
        pytest.raises(StoreUnavailable, match=r"^the database cannot do this now: "),
        store.transaction() as connection,
    ):
        connection.execute("do $$ begin raise exception 'could not extend file' using errcode = '53100'; end $$")


def test_a_value_that_the_database_does_not_accept_is_an_error_of_ours_in_a_transaction_too(postgres_url: str) -> None:
    wrong = pytest.raises(StoreError, match="does not accept a value")
    with opened(postgres_url) as store, store.transaction() as connection, wrong:
        store.read("show", {"id": "no number"}, connection)
