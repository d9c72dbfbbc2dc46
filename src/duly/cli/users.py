"""`duly users` and `duly keys`: who may come in to the service, and with what. Everything here is in the audit log."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from duly.cli import options, words
from duly.cli.sides import side, time_of
from duly.core.errors import InputError
from duly.verbs.who import SCOPES

if TYPE_CHECKING:
    from duly.core.shown import KeyInfo, Role, Scope

name = click.argument("name")
password_stdin = click.option("--password-stdin", is_flag=True, help="Read the password from standard input.")


@options.listing(short_help="List, add and change who may use the service.")
@options.told
def users(as_json: bool, in_utc: bool) -> None:
    """List the people and programs that may use the service."""
    with side() as api:
        found, now = list(api.users()), time_of(api)
    if words.is_all_told(found, as_json, "there are no users: `duly users add NAME --admin` makes the first"):
        return
    rows = [
        [
            each.id,
            each.role,
            "password and keys" if each.has_password else "keys only",
            words.short(each.created_at, now, in_utc),
            "disabled" if each.disabled_at else "",
        ]
        for each in found
    ]
    words.console().print(words.table("user", "role", "comes in by", "since", "", rows=rows))


@users.command(name="add")
@name
@click.option("--admin", is_flag=True, help="May see and do everything, for everyone.")
@password_stdin
@options.side
@options.as_json
def add_user(name: str, admin: bool, password_stdin: bool, as_json: bool) -> None:
    """Let someone in. On a terminal a password is asked for; without one they come in by keys only."""
    password = _password(password_stdin, is_required=False)
    with side(makes=True) as api:
        user = api.create_user(name, "admin" if admin else "user", password)
    if as_json:
        words.print_json(user)
        return
    click.echo(f"{user.id} is {_a(user.role)}" + ("" if password else "; `duly keys add` makes a key to come in with"))


def _shutting(name: str, doc: str, is_out: bool, done: str) -> None:
    """A command that shuts someone out or lets them in again; `done` has the user's name where it says {user}."""

    @users.command(name=name, help=doc)
    @click.argument("user", metavar="NAME")
    @options.side
    def shut(user: str) -> None:
        with side() as api:
            api.change_user(user, disabled=is_out)
        click.echo(done.format(user=user))


_shutting(
    "disable",
    "Shut someone out: sessions end at once, keys open nothing until they are enabled again.",
    True,
    "{user} is shut out: `duly users enable {user}` lets them in again",
)
_shutting("enable", "Let someone in again.", False, "{user} may come in")


@users.command(name="password")
@name
@password_stdin
@options.side
def set_password(name: str, password_stdin: bool) -> None:
    """Give someone another password; their sessions end."""
    with side() as api:
        api.user(name)  # before anybody types anything
        api.change_user(name, password=_password(password_stdin, is_required=True))
    click.echo(f"{name} has a new password")


@users.command(name="role")
@name
@click.argument("role", type=click.Choice(["user", "admin"]))
@options.side
def set_role(name: str, role: Role) -> None:
    """Make someone a user or an admin."""
    with side() as api:
        api.change_user(name, role=role)
    click.echo(f"{name} is {_a(role)}")


def _a(role: str) -> str:
    return "an admin" if role == "admin" else f"a {role}"


def _password(from_stdin: bool, is_required: bool) -> str | None:
    if from_stdin:
        return sys.stdin.readline().removesuffix("\n")
    if sys.stdin.isatty():
        label = "Password" if is_required else "Password (none: comes in by keys only)"
        default = None if is_required else ""
        typed: str = click.prompt(label, default=default, show_default=False, hide_input=True, confirmation_prompt=True)
        return typed or None
    if is_required:
        raise InputError("password", "is asked for on a terminal; elsewhere say --password-stdin")
    return None


# -- keys


@options.listing(short_help="List, make and revoke API keys.")
@click.option("--user", help="Only those of this user.")
@options.side
@options.as_json
def keys(user: str | None, as_json: bool) -> None:
    """List API keys, without their secrets: nobody can show those again."""
    with side() as api:
        if user is not None:
            api.user(user)  # so that an unknown user is reported
        found, now = list(api.keys(user)), time_of(api)
    if words.is_all_told(found, as_json, "there are no such keys"):
        return

    def state(key: KeyInfo) -> str:
        if key.revoked_at is not None:
            return "revoked"
        if key.expires_at is None:
            return ""
        return f"expires {words.relative(key.expires_at, now)}" if key.expires_at > now else "expired"

    rows = [
        [
            each.id,
            each.user_id,
            words.cut(each.name, 24),
            ",".join(each.scopes),
            words.relative(each.last_used_at, now) if each.last_used_at else "never",
            state(each),
        ]
        for each in found
    ]
    words.console().print(words.table("key", "user", "name", "scopes", "used", "", rows=rows))


@keys.command(name="add")
@click.argument("user")
@click.option("--name", required=True, help="What it is for.")
@click.option(
    "--scope", "scopes", type=click.Choice(SCOPES), multiple=True, default=("read", "write"), show_default=True,
    help="What it may do; say it again for more.",
)  # fmt: skip
@click.option("--expires", metavar="TIME", help="After how long it opens nothing, such as 90d.")
@options.side
@options.as_json
def add_key(user: str, name: str, scopes: tuple[Scope, ...], expires: str | None, as_json: bool) -> None:
    """Make a key. Its secret is printed this once, alone on standard output."""
    length = options.span(expires, "expires")
    with side() as api:
        ends = None
        if length is not None:
            length = length if isinstance(length, timedelta) else timedelta(seconds=length)
            if length <= timedelta():
                raise InputError("expires", f"must be later than now, got {expires!r}")
            ends = time_of(api) + length
        made = api.make_key(name, user_id=user, scopes=scopes, expires_at=ends)
    if as_json:
        words.print_json(made)
        return
    click.echo(f"key {made.id} of {user}; it cannot be shown again:", err=True)
    click.echo(made.secret)


@keys.command(name="revoke")
@click.argument("key_id", metavar="ID")
@options.side
def revoke_key(key_id: str) -> None:
    """Make a key open nothing any more."""
    with side() as api:
        key = api.revoke_key(key_id)
    click.echo(f"key {key.id} of {key.user_id} is revoked")
