"""Principals: users of the service, by a key or a session, and the code and the command line of this machine."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from duly.core.shown import Role, Scope

SCOPES: tuple[Scope, ...] = ("read", "write", "admin")


class Principal(Struct, frozen=True):
    """A user or program that acts, with its permissions."""

    user_id: str
    role: Role
    scopes: frozenset[str]
    via: Literal["key", "session", "local"]
    until: datetime | None = None  # when their key expires

    @property
    def is_admin(self) -> bool:
        return self.role == "admin" and "admin" in self.scopes

    @property
    def owner(self) -> str | None:
        """The owner of the rows that this user makes; None for code and the local command line."""
        return None if self.via == "local" else self.user_id

    @property
    def reach(self) -> str | None:
        """The owner of the rows that this user may find and change: the user, or None (all owners) for admins."""
        return None if self.is_admin else self.user_id

    def among(self, owner: str | None) -> str | None:
        """The owner to filter by when this user asks for rows of `owner`; None means all owners."""
        return owner if self.reach is None else self.reach

    def scoped(self, key: str) -> str:
        """The key with the owner in front, so that users cannot take each other's keys."""
        return key if self.owner is None else f"{self.owner}/{key}"

    def unscoped(self, key: str) -> str:
        """The key as the user gave it, without the owner in front."""
        return key.removeprefix(self.scoped(""))

    def may(self, scope: Scope) -> bool:
        """Whether they have this scope. An admin's scope includes the others, but only as long as they are an admin."""
        return self.is_admin or (scope != "admin" and scope in self.scopes)


LOCAL = Principal("local", "admin", frozenset(SCOPES), "local")


def local(name: str) -> Principal:
    """The code or the command line of this machine, under this name in the audit log."""
    return replace(LOCAL, user_id=name)
