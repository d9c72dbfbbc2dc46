"""`duly users` and `duly keys`: who may use the service, and with which keys. Every change is in the audit log."""

from __future__ import annotations

import sys
from datetime import timedelta

import click

from duly.cli import options
from duly.cli.session import Session, acting, printing, printing_times, session
from duly.core.errors import InputError
from duly.core.shown import KeyInfo, Role, Scope
from duly.verbs.context import SCOPES

name = click.argument("name")
password_stdin = click.option("--password-stdin", is_flag=True, help="Read the password from standard input.")


@options.listing(short_help="List, add and change the users of the service.")
@printing_times
def users(session: Session) -> None:
    """List the people and programs that may use the service."""
    session.print_table(
        list(session.api.users()),
        "there are no users: `duly users add NAME --admin` creates the first",
        ("user", "role", "signs in with", "since", ""),
        lambda user: [user.id, user.role, "password and keys" if user.has_password else "keys only",
                      session.short(user.created_at), "disabled" if user.disabled_at else None],
    )  # fmt: skip


@users.command(name="add")
@name
@click.option("--admin", is_flag=True, help="May see and change everything, of all users.")
@password_stdin
@session(options.as_json, makes=True)
def add_user(session: Session, name: str, admin: bool, password_stdin: bool) -> None:
    """Add a user. On a terminal it prompts for a password; without one the user can only use API keys."""
    password = _password(password_stdin, is_required=False)
    user = session.api.create_user(name, "admin" if admin else "user", password)
    session.print_one(user, f"{user.id} is {_a(user.role)}" + ("" if password else "; `duly keys add` makes a key"))


@users.command(name="disable")
@name
@acting
def disable_user(session: Session, name: str) -> None:
    """Disable a user: sessions end at once, and keys are rejected until the user is enabled again."""
    session.api.change_user(name, disabled=True)
    click.echo(f"{name} is disabled: `duly users enable {name}` enables them again")


@users.command(name="enable")
@name
@acting
def enable_user(session: Session, name: str) -> None:
    """Enable a user again."""
    session.api.change_user(name, disabled=False)
    click.echo(f"{name} is enabled")


@users.command(name="password")
@name
@password_stdin
@acting
def set_password(session: Session, name: str, password_stdin: bool) -> None:
    """Set another password. The user's sessions end."""
    session.api.user(name)  # before the prompt
    session.api.change_user(name, password=_password(password_stdin, is_required=True))
    click.echo(f"{name} has a new password")


@users.command(name="role")
@name
@click.argument("role", type=click.Choice(["user", "admin"]))
@acting
def set_role(session: Session, name: str, role: Role) -> None:
    """Make a user an admin, or an admin a user."""
    session.api.change_user(name, role=role)
    click.echo(f"{name} is {_a(role)}")


def _a(role: str) -> str:
    return "an admin" if role == "admin" else f"a {role}"


def _password(from_stdin: bool, is_required: bool) -> str | None:
    if from_stdin:
        return sys.stdin.readline().removesuffix("\n")
    if sys.stdin.isatty():
        label = "Password" if is_required else "Password (none: API keys only)"
        default = None if is_required else ""
        typed: str = click.prompt(label, default=default, show_default=False, hide_input=True, confirmation_prompt=True)
        return typed or None
    if is_required:
        raise InputError("password", "needs a terminal; use --password-stdin without one")
    return None


# -- keys


@options.listing(short_help="List, make and revoke API keys.")
@click.option("--user", help="Only those of this user.")
@printing
def keys(session: Session, user: str | None) -> None:
    """List API keys, without their secrets, which cannot be shown again."""
    if user is not None:
        session.api.user(user)  # so that an unknown user is reported

    def state(key: KeyInfo) -> str:
        if key.revoked_at is not None:
            return "revoked"
        if key.expires_at is None:
            return ""
        return f"expires {session.relative(key.expires_at)}" if key.expires_at > session.now else "expired"

    session.print_table(
        list(session.api.keys(user)),
        "there are no such keys",
        ("key", "user", "name", "scopes", "used", ""),
        lambda key: [key.id, key.user_id, key.name, ",".join(key.scopes),
                     session.relative(key.last_used_at) or "never", state(key)],
    )  # fmt: skip


@keys.command(name="add")
@click.argument("user")
@click.option("--name", required=True, help="What it is for.")
@click.option(
    "--scope", "scopes", type=click.Choice(SCOPES), multiple=True, default=("read", "write"), show_default=True,
    help="What it may do. Repeatable.",
)  # fmt: skip
@options.span_option("--expires", help="How long it is accepted, such as 90d.")
@printing
def add_key(session: Session, user: str, name: str, scopes: tuple[Scope, ...], expires: float | None) -> None:
    """Make a key. Its secret is printed this once, alone on standard output."""
    if expires == 0:
        raise InputError("expires", "must be later than now, got 0 s")
    ends = None if expires is None else session.now + timedelta(seconds=expires)
    made = session.api.make_key(name, user_id=user, scopes=scopes, expires_at=ends)
    if not session.as_json:
        click.echo(f"key {made.id} of {user}; it cannot be shown again:", err=True)
    session.print_one(made, made.secret)


@keys.command(name="revoke")
@click.argument("key_id", metavar="ID")
@acting
def revoke_key(session: Session, key_id: str) -> None:
    """Reject a key from now on."""
    key = session.api.revoke_key(key_id)
    click.echo(f"key {key.id} of {key.user_id} is revoked")
