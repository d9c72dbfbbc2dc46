"""The audit log as it is followed: every line is told, in whatever order transactions end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest

from duly import Duly
from duly.verbs import audit as room
from duly.verbs import local
from duly.verbs.audit import Tail
from tests.process.fleet import until


def write(app: Duly, action: str, connection: Any = None, actor: str = "ana") -> None:
    app.internals.verbs.audit.note(local(actor), action, "item:1", {}, connection)


def follow(app: Duly) -> Tail:
    """From a line on that there is, so that no id before it counts as missing."""
    write(app, "before")
    return Tail(app.internals.store, None, app.internals.store.read("audit_last", {})[0][0])


def told(tail: Tail) -> list[str]:
    return [line.action for _, line in tail.look()]


@pytest.fixture
def pg(postgres_url: str) -> Iterator[Duly]:
    app = Duly(postgres_url)
    yield app
    app.close()


def test_lines_are_told_once_and_each_is_a_place_to_go_on_from(app: Duly) -> None:
    tail = follow(app)
    assert tail.look() == []
    for action in ("a", "b", "c"):
        write(app, action)
    lines = tail.look()
    assert [(line.action, place == line.id) for place, line in lines] == [("a", True), ("b", True), ("c", True)]
    assert tail.look() == []
    assert told(Tail(app.internals.store, None, lines[0][0])) == ["b", "c"]
    assert tail.place == lines[-1][1].id


def test_more_lines_than_are_read_at_once_are_told_together(app: Duly, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "MOST", 3)
    tail = Tail(app.internals.store, "ana", None)
    for number in range(10):
        write(app, str(number))
        write(app, "another's", actor="bob")
    assert told(tail) == [str(number) for number in range(10)]


def test_a_log_of_any_length_is_told_some_at_a_time(app: Duly, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "MOST", 2)
    monkeypatch.setattr(room, "PORTIONS", 2)
    tail = follow(app)
    for number in range(7):
        write(app, f"act {number}")
    looks = [(told(tail), tail.is_cut) for _ in range(3)]
    assert [line for lines, _ in looks for line in lines] == [f"act {number}" for number in range(7)]
    assert [(len(lines), is_cut) for lines, is_cut in looks] == [(4, True), (3, True), (0, False)]


def test_a_line_that_commits_after_a_later_one_is_told_and_no_place_is_behind_it(pg: Duly) -> None:
    tail = follow(pg)
    with pg.internals.store.transaction() as slow:
        write(pg, "slow", slow)
        write(pg, "quick")
        ((place, quick),) = tail.look()
        assert quick.action == "quick"
        assert place == quick.id - 2, "the slow one is still to come"
        for _ in range(3):
            assert told(tail) == []
        write(pg, "third")
        assert told(tail) == ["third"]
        resumed = Tail(pg.internals.store, None, place)
        assert told(resumed) == ["quick", "third"]
    assert told(tail) == ["slow"]
    assert told(resumed) == ["slow"]
    assert told(Tail(pg.internals.store, None, place)) == ["slow", "quick", "third"]
    assert tail.place == resumed.place == quick.id + 1


def test_a_stream_that_begins_meanwhile_hears_of_what_was_begun_before(pg: Duly) -> None:
    with pg.internals.store.transaction() as slow:
        write(pg, "slow", slow)
        write(pg, "quick")
        tail = Tail(pg.internals.store, None, None)
        assert told(tail) == []
    assert told(tail) == ["slow"]


def test_what_was_rolled_back_is_not_waited_for(pg: Duly) -> None:
    tail = Tail(pg.internals.store, None, None)
    with suppress(RuntimeError), pg.internals.store.transaction() as connection:
        write(pg, "never", connection)
        raise RuntimeError
    write(pg, "after")
    ((_, line),) = tail.look()
    # Numbers of transactions are the whole server's: those of other databases are waited for too.
    until(lambda: told(tail) == [] and tail.place == line.id, 20)
    until(lambda: Tail(pg.internals.store, None, None).place == line.id, 20)


def test_two_that_wait_for_each_other_are_told_in_the_order_in_which_they_end(pg: Duly) -> None:
    tail = follow(pg)
    with ExitStack() as first, ExitStack() as second:
        one, two = (stack.enter_context(pg.internals.store.transaction()) for stack in (first, second))
        write(pg, "one", one)
        write(pg, "two", two)
        write(pg, "three", one)
        second.close()
        assert told(tail) == ["two"]
        start = tail.place
        first.close()
        assert told(tail) == ["one", "three"]
    assert told(Tail(pg.internals.store, None, start)) == ["one", "two", "three"]


def test_a_count_that_jumped_is_not_waited_for_id_by_id(pg: Duly, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "MOST", 10)
    tail = follow(pg)
    with pg.internals.store.transaction() as held:
        held.execute("select pg_current_xact_id()")  # so that no gap can be closed
        with pg.internals.store.transaction() as connection:
            connection.execute("select setval(pg_get_serial_sequence('duly_audit', 'id'), "
                               "nextval(pg_get_serial_sequence('duly_audit', 'id')) + 1000000)")  # fmt: skip
        write(pg, "far")
        ((place, line),) = tail.look()
        assert line.id - place <= 11
    assert told(tail) == []
