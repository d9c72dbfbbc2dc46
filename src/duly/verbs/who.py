"""Who acts: someone who came in by a key or a session, or the code and the command line of this machine."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from duly.core.shown import Role, Scope

SCOPES: tuple[Scope, ...] = ("read", "write", "admin")


class Principal(Struct, frozen=True):
    """Someone who acts, with what they are allowed to do."""

    user_id: str
    role: Role
    scopes: frozenset[str]
    via: Literal["key", "session", "local"]
    until: datetime | None = None  # when the key that they came with ends

    @property
    def is_admin(self) -> bool:
        return self.role == "admin" and "admin" in self.scopes

    @property
    def owner(self) -> str | None:
        """Whose the rows are that this one makes; the local admin's are those of the code."""
        return None if self.via == "local" else self.user_id

    @property
    def reach(self) -> str | None:
        """Whose rows this one finds and changes: only their own; None for admins, who reach everybody's."""
        return None if self.is_admin else self.user_id

    def among(self, whose: str | None) -> str | None:
        """Whose rows are meant when this one asks for those of `whose`; None: of all that they reach."""
        return whose if self.reach is None else self.reach

    def scoped(self, key: str) -> str:
        """A key of theirs, which nobody else's can be."""
        return key if self.owner is None else f"{self.owner}/{key}"

    def unscoped(self, key: str) -> str:
        """The same key as they said it."""
        return key.removeprefix(self.scoped(""))

    def may(self, scope: Scope) -> bool:
        return scope in self.scopes and (scope != "admin" or self.role == "admin")


LOCAL = Principal("local", "admin", frozenset(SCOPES), "local")


def local(name: str) -> Principal:
    """The code or the command line of this machine, which goes by this name in the audit log."""
    return replace(LOCAL, user_id=name)
