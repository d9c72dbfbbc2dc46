"""What verbs share: who acts, what they are given of an app, masks, and selections of rows.

Principals are users of the service, by a key or a session, and the code and the command line of this machine. Masks
hide secret values in lists and in the audit log, by the names of their fields.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import wraps
from inspect import signature
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from duly.core import codec
from duly.core.clock import Clock
from duly.core.decide import Rules
from duly.core.errors import DoesNotExist, DulyError, InputError, WrongState
from duly.core.filters import checked_ids
from duly.core.patience import Thrifty
from duly.core.settings import JobSettings, Settings
from duly.core.shown import Depth, Measure, Role, Scope
from duly.store.borrow import lent
from duly.store.contract import Store
from duly.store.statements import WAITS
from duly.tasks.task import Task
from duly.verbs.read import Read

if TYPE_CHECKING:
    from duly.verbs import Verbs
    from duly.verbs.audit import Audit

G = TypeVar("G", bound="VerbGroup")
P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")

NONE: Mapping[str, Any] = {}
SCOPES: tuple[Scope, ...] = ("read", "write", "admin")
MASK = "***"
SELECTED = 1_000  # rows of one selection
NAMED = 20  # rows that an error names at most


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


@dataclass(frozen=True, kw_only=True)
class VerbContext:
    # Functions, because the store and the clock are created on first use.
    open_store: Callable[[], Store]
    open_clock: Callable[[], Clock]
    # The same store, with its claims and settles counted for the metrics.
    observed: Callable[[], Store]
    # A task that is registered here, by name. Other names raise UnknownTask.
    task_named: Callable[[str], Task[..., Any]]
    # The rules that decide the items of a task, also of a task that is not registered here.
    rules_of: Callable[[str], Rules]
    # Report a measurement about jobs, for the job or list of this name: seconds, or a number of rows.
    measured: Callable[[Measure, str, float], None]
    # Hides secret values in the audit log.
    masks: Masks
    # The depths of the queues, as last read. They are forgotten when a queue is paused or resumed.
    depths: Thrifty[Sequence[Depth]]
    # The tasks that are registered here, by name.
    tasks: Callable[[], Mapping[str, Task[..., Any]]]
    settings: Settings
    # Limits on jobs.
    job_settings: JobSettings

    @property
    def store(self) -> Store:
        return self.open_store()

    @property
    def read(self) -> Read:
        return Read(self.open_store(), self.open_clock())

    def waited(self) -> float:
        """Seconds that the current thread has waited for connections to the database."""
        return WAITS.own

    def now(self) -> datetime:
        return self.open_clock().now()

    @contextmanager
    def joining(self, connection: Any) -> Iterator[Any]:
        """The transaction of this connection; without one, a new transaction."""
        if connection is not None:
            yield connection
        else:
            with self.store.transaction() as own:
                yield own


class VerbGroup:
    """The verbs of one noun. The groups of other nouns are in `_peers`."""

    def __init__(self, verbs: Verbs) -> None:
        self._peers = verbs
        self._context = verbs.context

    @property
    def _store(self) -> Store:
        return self._context.store

    @property
    def _read(self) -> Read:
        return self._context.read

    @property
    def _audit(self) -> Audit:
        return self._peers.audit

    def _now(self) -> datetime:
        return self._context.now()

    @contextmanager
    def lent(self, connection: Any) -> Iterator[Any]:
        """A caller's own connection, as verbs use it: all of a verb is done there, or nothing. None stays None."""
        if connection is None:
            yield None
        else:
            with lent(self._store, connection) as own:
                yield own

    @contextmanager
    def _noted(
        self, who: Principal, action: str, subject: str, details: Mapping[str, Any] = NONE, connection: Any = None
    ) -> Iterator[Any]:
        """A transaction, or a part of that of `connection`, which ends with this line of the audit log."""
        with self._context.joining(connection) as connection:
            yield connection
            self._audit.note(who, action, subject, details, connection)


def by_code(group: Callable[[S], G], verb: Callable[Concatenate[G, Principal, P], R]) -> Callable[Concatenate[S, P], R]:
    """A method that calls this verb of the group that `group` finds, with user code as the principal: no `who`.

    A `connection` of the caller's own is lent to the verb for this call.
    """

    @wraps(verb)
    def act(self: S, /, *args: P.args, **options: P.kwargs) -> R:
        here = group(self)
        given = shape.bind(here, LOCAL, *args, **options)
        with here.lent(given.arguments.get("connection")) as connection:
            given.arguments["connection"] = connection
            return verb(*given.args, **given.kwargs)

    shape = signature(verb)
    shown: Any = act  # help() must not show `who`
    parameters = [each for each in shape.parameters.values() if each.name != "who"]
    shown.__signature__ = shape.replace(parameters=parameters)
    return act


class Masks:
    def __init__(self, names: str) -> None:
        """`names` are parts of field names, separated by commas, in any style such as apiKey or api_key."""
        found = "|".join(re.escape(_bare(name)) for name in names.split(",") if _bare(name))
        self._masked = re.compile(found) if found else None

    def masked(self, value: Any, is_revealed: bool = False, level: int = 0) -> Any:
        """The value with secrets masked.

        What is nested too deeply to be shown is masked too; rows may have been written before there was a bound.
        """
        if level > codec.DEPTH and isinstance(value, dict | list):
            return codec.TOO_DEEP
        if isinstance(value, dict):
            return {
                name: MASK if not is_revealed and self._is_secret(name, inner)
                else self.masked(inner, is_revealed, level + 1)
                for name, inner in value.items()
            }  # fmt: skip
        return [self.masked(inner, is_revealed, level + 1) for inner in value] if isinstance(value, list) else value

    def unmasked(self, value: Any, known: Any) -> Any:
        """A value that was shown masked and is sent back, with the known values in place of the masks."""
        if isinstance(value, dict) and isinstance(known, dict):
            return {
                name: known[name]
                if name in known and inner == MASK and self._is_secret(name, known[name])
                else self.unmasked(inner, known.get(name))
                for name, inner in value.items()
            }
        if isinstance(value, list) and isinstance(known, list) and len(value) == len(known):
            return [self.unmasked(inner, there) for inner, there in zip(value, known, strict=True)]
        return value

    def hides(self, name: str) -> bool:
        """Whether values of a field of this name are secret."""
        return self._masked is not None and bool(self._masked.search(_bare(name)))

    def _is_secret(self, name: str, value: Any) -> bool:
        # None and booleans are shown: whether there is a secret is no secret.
        is_open = value is None or isinstance(value, bool)
        return not is_open and self.hides(name)


def _bare(name: str) -> str:
    """A name without its style: the same for apiKey, API-Key and api_key."""
    return re.sub(r"[-_ ]", "", name).lower()


def selected(ids: Sequence[int], field: str = "ids") -> list[int]:
    """These ids, each once: at least one, and at most a thousand."""
    wanted = checked_ids(ids, field)
    if not 1 <= len(wanted) <= SELECTED:
        raise InputError(field, f"must be 1 to {SELECTED:,} ids")
    return wanted


def refusal(reasons: Mapping[int, str], known: Container[int]) -> DulyError:
    """The error about these rows, each with the reason why it cannot be changed; `known` are the rows that exist."""
    named = [reasons[row_id] for row_id in sorted(reasons)]
    more = f"; and {len(named) - NAMED} more" if len(named) > NAMED else ""
    kind = WrongState if any(row_id in known for row_id in reasons) else DoesNotExist
    return kind("; ".join(named[:NAMED]) + more)
