"""People, keys and sessions beneath the API: what is kept, what is refused, and what takes the same time."""

from __future__ import annotations

import hashlib
import sys
from base64 import b64encode
from datetime import timedelta
from typing import Any

import pytest

from duly import Duly, InputError
from duly.core.errors import ConfigError, DoesNotExist, WrongState
from duly.verbs import LOCAL, Principal, users
from duly.web.desk import Cursors
from duly.web.problems import Problem
from tests.support import query
from tests.web.conftest import START

PASSWORD = "correct horse battery"


def test_ids_roles_and_passwords_are_checked(app: Duly) -> None:
    for name in ("", "a b", "ü", "x" * 101, "me", "all", "local", "code", "duly", "-x", 7):
        with pytest.raises(InputError, match="id: must be"):
            app.internals.verbs.users.create(LOCAL, name)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="role"):
        app.internals.verbs.users.create(LOCAL, "ana", "king")  # type: ignore[arg-type]
    for password in ("short", "x" * 1_025, 12345678):
        with pytest.raises(InputError, match="password: must have 8 to 1024"):
            app.internals.verbs.users.create(LOCAL, "ana", password=password)  # type: ignore[arg-type]
    assert app.internals.verbs.users.page(LOCAL) == []
    app.internals.verbs.users.create(LOCAL, "ana")
    with pytest.raises(WrongState, match="already"):
        app.internals.verbs.users.create(LOCAL, "ana")


def test_keys_are_checked(app: Duly) -> None:
    app.internals.verbs.users.create(LOCAL, "ana")
    for name in ("", "  ", "x" * 101, "a\x00b", None):
        with pytest.raises(InputError, match="name"):
            app.internals.verbs.users.make_key(LOCAL, "ana", name)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="must be some of read, write, admin"):
        app.internals.verbs.users.make_key(LOCAL, "ana", "k", ("all",))
    with pytest.raises(InputError, match="only admins"):
        app.internals.verbs.users.make_key(LOCAL, "ana", "k", ("admin",))
    with pytest.raises(DoesNotExist):
        app.internals.verbs.users.make_key(LOCAL, "bob", "k")
    with pytest.raises(DoesNotExist):
        app.internals.verbs.users.key(LOCAL, "0" * 12)
    with pytest.raises(DoesNotExist):
        app.internals.verbs.users.revoke_key(LOCAL, "0" * 12)


def test_what_is_no_key_opens_nothing(app: Duly) -> None:
    app.internals.verbs.users.create(LOCAL, "ana")
    key, secret = app.internals.verbs.users.make_key(LOCAL, "ana", "k")
    found = app.internals.verbs.users.by_key(secret)
    assert found == Principal("ana", "user", frozenset(("read", "write")), "key")
    for wrong in ("", "x", secret + "x", secret[:-1] + ("a" if secret[-1] != "a" else "b"), secret.upper(), "duly__"):
        assert app.internals.verbs.users.by_key(wrong) is None
    assert app.internals.verbs.users.by_key(f"duly_{'0' * 12}_{'A' * 43}") is None
    app.internals.verbs.users.change(LOCAL, "ana", is_disabled=True)
    assert app.internals.verbs.users.by_key(secret) is None
    assert key.revoked_at is None


def test_a_demoted_admins_keys_are_a_users(app: Duly) -> None:
    app.internals.verbs.users.create(LOCAL, "ana", "admin")
    _, secret = app.internals.verbs.users.make_key(LOCAL, "ana", "k", ("read", "admin"))
    app.internals.verbs.users.change(LOCAL, "ana", role="user")
    found = app.internals.verbs.users.by_key(secret)
    assert found is not None
    assert (found.is_admin, found.may("admin"), found.may("read"), found.may("write")) == (False, False, True, False)


def test_passwords_are_kept_as_slow_hashes_and_tokens_as_hashes(app: Duly) -> None:
    app.internals.verbs.users.create(LOCAL, "ana", password=PASSWORD)
    token = app.internals.verbs.users.sign_in("ana", PASSWORD)
    assert token is not None
    assert app.internals.verbs.users.sign_in("ana", PASSWORD + " ") is None
    assert app.internals.verbs.users.sign_in("ana", "\ud800") is None
    assert app.internals.verbs.users.sign_in("nobody", PASSWORD) is None
    ((kept,),) = query(app.internals.store, "select password from duly_user")
    assert kept.startswith("$argon2id$")
    assert PASSWORD not in kept
    assert token not in str(query(app.internals.store, "select * from duly_session"))
    assert app.internals.verbs.users.by_session(token) == Principal(
        "ana", "user", frozenset(("read", "write", "admin")), "session"
    )
    assert app.internals.verbs.users.by_session("wrong") is None
    app.internals.verbs.users.sign_out(token)
    app.internals.verbs.users.sign_out(token)
    assert app.internals.verbs.users.by_session(token) is None


def test_a_hash_of_an_older_version_is_recognized_and_replaced_at_the_next_sign_in(app: Duly) -> None:
    app.internals.verbs.users.create(LOCAL, "ana", password=PASSWORD)
    salt, old = b"0" * 16, "scrypt${}${}"
    stretched = hashlib.scrypt(PASSWORD.encode(), salt=salt, n=2**14, r=8, p=1)
    with app.internals.store.transaction() as connection:
        kept = old.format(b64encode(salt).decode(), b64encode(stretched).decode())
        connection.execute(f"update duly_user set password = '{kept}'")
    assert app.internals.verbs.users.sign_in("ana", "another horse") is None
    assert query(app.internals.store, "select password from duly_user") == [(kept,)]
    assert app.internals.verbs.users.sign_in("ana", PASSWORD) is not None
    ((anew,),) = query(app.internals.store, "select password from duly_user")
    assert anew.startswith("$argon2id$")
    assert app.internals.verbs.users.sign_in("ana", PASSWORD) is not None
    assert query(app.internals.store, "select password from duly_user") == [(anew,)], "once is enough"


def test_without_argon2_a_password_says_what_to_install(app: Duly, monkeypatch: pytest.MonkeyPatch) -> None:
    users._hasher.cache_clear()
    monkeypatch.setitem(sys.modules, "argon2", None)
    with pytest.raises(ConfigError, match=r"duly\[server\]"):
        app.internals.verbs.users.create(LOCAL, "ana", password=PASSWORD)
    app.internals.verbs.users.create(LOCAL, "robot")
    assert app.internals.verbs.users.get(LOCAL, "robot").has_password is False


@pytest.mark.parametrize("change", [{"password": "another horse"}, {"is_disabled": True}])
def test_nobody_gets_a_session_whose_door_was_shut_while_they_knocked(
    app: Duly, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any]
) -> None:
    app.internals.verbs.users.create(LOCAL, "ana", password=PASSWORD)
    real = users._matches

    def meanwhile(password: str, known: str | None) -> bool:
        app.internals.verbs.users.change(LOCAL, "ana", **change)
        return real(password, known)

    monkeypatch.setattr(users, "_matches", meanwhile)
    assert app.internals.verbs.users.sign_in("ana", PASSWORD) is None
    assert query(app.internals.store, "select * from duly_session") == []


def test_sessions_that_are_over_are_swept_away(app: Duly) -> None:
    app.internals.verbs.users.create(LOCAL, "ana", password=PASSWORD)
    app.internals.verbs.users.sign_in("ana", PASSWORD)
    app.clock.set(START + timedelta(hours=13))  # type: ignore[attr-defined]
    app.internals.verbs.users.sign_in("ana", PASSWORD)
    assert query(app.internals.store, "select count(*) from duly_session") == [(1,)]


def test_a_change_of_role_alone_keeps_sessions_and_password(app: Duly) -> None:
    app.internals.verbs.users.create(LOCAL, "ana", password=PASSWORD)
    token = app.internals.verbs.users.sign_in("ana", PASSWORD)
    assert app.internals.verbs.users.change(LOCAL, "ana", role="admin").has_password
    assert token is not None
    session = app.internals.verbs.users.by_session(token)
    assert session is not None
    assert session.is_admin


def test_who_owns_what_they_make() -> None:
    ana = Principal("ana", "user", frozenset(("read",)), "key")
    assert (ana.owner, ana.scoped("k")) == ("ana", "ana/k")
    assert (LOCAL.owner, LOCAL.scoped("k"), LOCAL.is_admin) == (None, "k", True)


@pytest.mark.parametrize("place", [7, "ana", 2**63 - 1])
def test_a_cursor_comes_back_as_it_went_and_only_to_where_it_belongs(place: int | str) -> None:
    cursors = Cursors("secret")
    text = cursors.make(place, ["items", "ana", {"state": None}])
    assert cursors.read(text, ["items", "ana", {"state": None}]) == place
    assert cursors.read(None, ["items"]) is None
    others = (["items", "bob", {"state": None}], ["items", "ana", {"state": "done"}], ["items", None, {"state": None}])
    for bound in others:
        with pytest.raises(Problem):
            cursors.read(text, bound)
    for wrong in (text[:-1], text[1:], text + "A", "", "=", "ü", "A", "A" * 10_000):
        with pytest.raises(Problem):
            cursors.read(wrong, ["items", "ana", {"state": None}])
    with pytest.raises(Problem):
        Cursors("another").read(text, ["items", "ana", {"state": None}])
