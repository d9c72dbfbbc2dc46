"""Transactions: a driver's connection that commits at the end of the block, or leaves nothing."""

import pytest

from duly.core.errors import NotMigrated
from duly.core.model import Done
from duly.store import Store
from duly.store.migrate import check
from tests.support import claim, counts, opened, put, put_and_claim, query, settle, together


def test_what_a_transaction_wrote_is_there_when_it_ends(store: Store, other: Store) -> None:
    with store.transaction() as connection:
        connection.execute("insert into duly_queue (name) values ('a')")
    assert query(other, "select name from duly_queue") == [("a",)]


def test_nothing_of_a_transaction_that_raised_is_there(store: Store, other: Store) -> None:
    def write() -> None:
        with store.transaction() as connection:
            connection.execute("insert into duly_queue (name) values ('a')")
            raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        write()
    assert query(other, "select name from duly_queue") == []
    assert put(store), "and the store goes on"


def test_the_first_read_of_a_store_may_happen_inside_its_transaction(store: Store, other: Store) -> None:
    (item_id,) = put(other)
    with store.transaction() as connection:
        connection.execute("insert into duly_queue (name) values ('a')")
        assert [item.id for item in store.fetch([item_id])] == [item_id]


def test_another_thread_may_write_while_a_transaction_waits_for_its_turn(store: Store) -> None:
    items = put_and_claim(store, 20)
    together(
        lambda: [settle(store, item, Done()) for item in items],
        lambda: [put(store) for _ in range(20)],
        lambda: [query(store, "select 1") for _ in range(20)],
    )
    assert counts(store) == {"done": 20, "waiting": 20}


def test_a_failing_statement_leaves_the_store_usable(store: Store) -> None:
    with pytest.raises(Exception, match=r"(?i)syntax|violates"):
        query(store, "insert into duly_queue (name) values (null)")
    assert put(store)
    assert len(claim(store)) == 1


def test_an_empty_database_says_which_command_helps(blank_url: str) -> None:
    with opened(blank_url) as store:
        with pytest.raises(NotMigrated, match=r"at migration 0, .* needs \d+: run `duly migrate`"):
            check(store)
        with pytest.raises(NotMigrated, match="run `duly migrate`"):
            store.survey()
        with pytest.raises(NotMigrated, match="run `duly migrate`"):
            put(store)
        with pytest.raises(NotMigrated, match="run `duly migrate`"):
            put(store, 2)


def test_a_missing_column_says_which_command_helps(blank_url: str) -> None:
    with opened(blank_url) as store:
        with store.transaction() as connection:
            connection.execute("create table duly_item (id integer, state text)")
        with pytest.raises(NotMigrated, match="run `duly migrate`"):
            store.survey()


def test_a_closed_store_lets_go_of_its_database(store: Store, other: Store) -> None:
    put(other)
    other.close()
    other.close()
    assert len(claim(store)) == 1
