"""`duly users` and `duly keys`: people come and go, secrets are shown once, and all of it is in the audit log."""

from __future__ import annotations

import getpass
import json
import os
import pty
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import duly as package
from duly.cli import main
from tests.cli.conftest import Duly, call


@pytest.fixture
def app(database_url: str) -> Iterator[package.Duly]:
    """What the commands left behind."""
    one = package.Duly(database_url)
    yield one
    one.close()


def notes(app: package.Duly) -> list[tuple[str, str, str]]:
    """Actor, action and subject, oldest first."""
    rows = app.internals.store.read("audit", {"subject": None, "before": None, "most": 100})
    return [(actor, action, subject) for _, _, actor, action, subject, _ in reversed(rows)]


def test_the_first_admin_is_made_and_listed(duly: Duly) -> None:
    assert "`duly users add NAME --admin` creates the first" in duly("users").output
    made = duly("users", "add", "ana", "--admin")
    assert made.output == "ana is an admin; `duly keys add` makes a key\n"
    (user,) = json.loads(duly("users", "--json").output)
    assert (user["id"], user["role"], user["has_password"], user["disabled_at"]) == ("ana", "admin", False, None)
    assert "keys only" in duly("users").output


def test_a_password_comes_by_standard_input_and_opens_a_session(database_url: str, app: package.Duly) -> None:
    env = {"DULY_DATABASE_URL": database_url}
    made = CliRunner().invoke(main, ["users", "add", "bo", "--password-stdin"], input="correct horse\n", env=env)
    assert made.output == "bo is a user\n"
    token = app.internals.verbs.users.sign_in("bo", "correct horse")
    assert token is not None
    changed = CliRunner().invoke(main, ["users", "password", "bo", "--password-stdin"], input="battery pin\n", env=env)
    assert changed.output == "bo has a new password\n"
    assert app.internals.verbs.users.by_session(token) is None, "a new password ends sessions"
    assert app.internals.verbs.users.sign_in("bo", "correct horse") is None
    assert app.internals.verbs.users.sign_in("bo", "battery pin")


def test_who_is_disabled_stays_out_until_enabled(duly: Duly, app: package.Duly) -> None:
    duly("users", "add", "ana")
    secret = duly("keys", "add", "ana", "--name", "ci").stdout.strip()
    assert app.internals.verbs.users.by_key(secret)
    assert "ana is disabled" in duly("users", "disable", "ana").output
    assert app.internals.verbs.users.by_key(secret) is None
    assert "disabled" in duly("users").output
    assert duly("users", "enable", "ana").output == "ana is enabled\n"
    assert app.internals.verbs.users.by_key(secret)


def test_the_secret_of_a_key_is_alone_on_standard_output_and_never_shown_again(duly: Duly, app: package.Duly) -> None:
    duly("users", "add", "ana", "--admin")
    words = ("--name", "deploys", "--scope", "read", "--scope", "admin", "--expires", "90d")
    made = duly("keys", "add", "ana", *words)
    assert made.exit_code == 0
    (secret,) = made.stdout.splitlines()
    assert "it cannot be shown again" in made.stderr
    principal = app.internals.verbs.users.by_key(secret)
    assert principal is not None
    assert (principal.user_id, set(principal.scopes)) == ("ana", {"read", "admin"})
    listed = duly("keys", "--json").output
    assert secret not in listed
    assert secret.split("_", 2)[2] not in listed
    (key,) = json.loads(listed)
    assert (key["name"], key["user_id"]) == ("deploys", "ana")
    assert "expires in 90 d" in duly("keys").output


def test_a_revoked_key_opens_nothing(duly: Duly, app: package.Duly) -> None:
    duly("users", "add", "ana")
    made = json.loads(duly("keys", "add", "ana", "--name", "ci", "--json").output)
    assert app.internals.verbs.users.by_key(made["secret"])
    assert duly("keys", "revoke", made["id"]).output == f"key {made['id']} of ana is revoked\n"
    assert app.internals.verbs.users.by_key(made["secret"]) is None
    assert "revoked" in duly("keys", "--user", "ana").output


def test_a_role_decides_what_a_key_may_do(duly: Duly) -> None:
    duly("users", "add", "bo")
    refused = duly("keys", "add", "bo", "--name", "x", "--scope", "admin")
    assert (refused.exit_code, refused.stderr) == (2, "Error: scopes: only admins may have the scope admin\n")
    assert duly("users", "role", "bo", "admin").output == "bo is an admin\n"
    assert duly("keys", "add", "bo", "--name", "x", "--scope", "admin").exit_code == 0


def test_everything_is_in_the_audit_log_by_name(duly: Duly, app: package.Duly) -> None:
    duly("users", "add", "ana")
    duly("users", "role", "ana", "admin")
    made = json.loads(duly("keys", "add", "ana", "--name", "ci", "--json").output)
    duly("keys", "revoke", made["id"])
    who = f"cli:{getpass.getuser()}"
    assert notes(app) == [
        (who, "user.created", "user:ana"),
        (who, "user.changed", "user:ana"),
        (who, "key.created", f"key:{made['id']}"),
        (who, "key.revoked", f"key:{made['id']}"),
    ]


@pytest.mark.parametrize(
    ("words", "code", "problem"),
    [
        (["users", "disable", "zoe"], 1, "there is no user 'zoe'"),
        (["users", "add", "not a name"], 2, "id: must be 1 to 100 letters"),
        (["users", "add", "ana"], 1, "user 'ana' exists already"),
        (["users", "password", "ana"], 2, "--password-stdin"),
        (["users", "role", "ana", "king"], 2, "'king' is not one of"),
        (["keys", "add", "zoe", "--name", "x"], 1, "there is no user 'zoe'"),
        (["keys", "add", "ana", "--name", " "], 2, "name: must be 1 to 100 characters"),
        (["keys", "add", "ana", "--name", "x", "--expires", "soon"], 2, "expires: must be seconds or such as"),
        (["keys", "add", "ana", "--name", "x", "--expires", "0"], 2, "expires: must be later than now"),
        (["keys", "revoke", "000000000000"], 1, "there is no key '000000000000'"),
        (["keys", "--user", "zoe"], 1, "there is no user 'zoe'"),
    ],
)
def test_what_cannot_be_done_gets_one_clear_line(sqlite_url: str, words: list[str], code: int, problem: str) -> None:
    env = {"DULY_DATABASE_URL": sqlite_url}
    call("users", "add", "ana", **env)
    refused = call(*words, **env)
    assert (refused.exit_code, problem in refused.stderr) == (code, True), refused.output


def test_a_short_password_is_refused_before_anything_is_made(sqlite_url: str) -> None:
    env = {"DULY_DATABASE_URL": sqlite_url}
    refused = CliRunner().invoke(main, ["users", "add", "bo", "--password-stdin"], input="short\n", env=env)
    assert (refused.exit_code, "password: must have 8" in refused.stderr) == (2, True)
    assert json.loads(call("users", "--json", **env).output) == []


def test_the_first_user_may_come_before_the_database(tmp_path: Path) -> None:
    env = {"DULY_DATABASE_URL": f"sqlite:///{tmp_path / 'new.db'}"}
    assert call("users", **env).exit_code == 2, "looking makes no database"
    assert call("users", "add", "ana", **env).exit_code == 0
    assert "ana" in call("users", **env).output


def test_a_terminal_is_asked_for_the_password_and_does_not_show_it(sqlite_url: str, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "duly.cli", "users", "add", "ana", "--database-url", sqlite_url],
        stdin=theirs, stdout=theirs, stderr=theirs, cwd=tmp_path, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    screen = ""
    for prompt in ("Password", "Repeat"):
        screen = _until(ours, screen, prompt)
        os.write(ours, b"correct horse\n")
    screen = _until(ours, screen, "ana is a user")
    assert process.wait(60) == 0
    os.close(ours)
    assert "correct horse" not in screen
    app: Any = package.Duly(sqlite_url)
    assert app.internals.verbs.users.sign_in("ana", "correct horse")
    app.close()


def _until(terminal: int, screen: str, text: str) -> str:
    give_up = time.monotonic() + 30
    while text not in screen:
        assert time.monotonic() < give_up, screen
        screen += os.read(terminal, 65_536).decode()
    return screen
