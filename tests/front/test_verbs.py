"""Verbs: one for each act, with the same line in the audit log whatever door it came through."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest

from duly import Duly
from duly.errors import InputError, ItemNotFound
from duly.verbs import LOCAL, Principal


@pytest.fixture
def app(database_url: str) -> Iterator[Duly]:
    app = Duly(database_url)

    @app.task
    def ring(phone: str, n: int = 0) -> None: ...

    app.migrate()
    yield app
    app.close()


def actions(app: Duly, subject: str | None = None) -> list[tuple[str, str]]:
    """Who did what, the oldest first."""
    return [(line.actor, line.action) for line in reversed(app.verbs.audit.page(subject))]


def someone(name: str) -> Principal:
    return Principal(name, "user", frozenset(("read", "write")), "key")


def test_code_that_looks_after_queues_and_limits_is_in_the_audit_log(app: Duly) -> None:
    app.pause("ring")
    app.resume("ring")
    app.set_limit("boeing", "2/1m")
    assert actions(app) == [("local", "queue.paused"), ("local", "queue.resumed"), ("local", "limit.set")]


def test_a_limit_that_cannot_be_read_is_refused_by_its_name(app: Duly) -> None:
    with pytest.raises(InputError, match="limit: "):
        app.set_limit("boeing", "many")
    assert actions(app) == []


def test_an_act_and_its_line_come_and_go_with_the_callers_transaction(app: Duly) -> None:
    with suppress(ZeroDivisionError), app.store.transaction() as connection:
        app.pause("ring", connection)
        app.verbs.users.create(LOCAL, "ana", connection=connection)
        raise ZeroDivisionError
    assert actions(app) == []
    assert app.verbs.users.page(LOCAL) == []
    assert app.store.open_queues(["ring"]) == {"ring"}


def test_for_a_user_there_is_nobody_but_themselves(app: Duly) -> None:
    for name in ("ana", "bob"):
        app.verbs.users.create(LOCAL, name)
        app.verbs.users.make_key(LOCAL, name, "k")
    users, ana = app.verbs.users, someone("ana")
    assert users.get(ana, "ana").id == "ana"
    assert [each.id for each in users.page(ana)] == ["ana"]
    (key,) = users.keys(LOCAL, "bob")
    assert {each.user_id for each in users.keys(ana, "bob")} == {"ana"}
    for act in (lambda: users.get(ana, "bob"), lambda: users.key(ana, key.id), lambda: users.revoke_key(ana, key.id)):
        with pytest.raises(ItemNotFound):
            act()
