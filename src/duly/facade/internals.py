"""How the rooms behind an app are connected. `app.internals` is for duly's own rooms; users' code needs only `Duly`.

Rooms below this one get a value with just what they need: tasks a `TaskBackend`, verbs a `VerbContext`, a worker its
`Equipment`. What is opened late is given as a function.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from duly.config import section
from duly.core.clock import Clock
from duly.core.decide import UNKNOWN
from duly.core.errors import UnknownTask
from duly.core.model import NewItem, Placed
from duly.core.settings import JobSettings, Settings
from duly.engine.equipment import Companion, Equipment
from duly.facade.borrowing import Borrowing
from duly.facade.database import Database
from duly.facade.endings import Endings
from duly.facade.schedules import Schedules
from duly.intake.tasks import OwnTasks
from duly.plugins import claim
from duly.store import Store
from duly.tasks.puttable import TaskBackend
from duly.tasks.task import Task
from duly.telemetry.telemetry import Telemetry
from duly.verbs import VerbContext, Verbs
from duly.verbs.context import Masks
from duly.verbs.files import SCAN
from duly.verbs.read import Read

if TYPE_CHECKING:
    from duly.bulk.sources import FileSource
    from duly.engine.worker import Worker
    from duly.facade.kickoff import Kickoffs
    from duly.intake.exports import Exports
    from duly.intake.intake import Intake
    from duly.intake.types import JobType

# The program of a worker's child processes.
CHILD = "duly.facade.child"


class Internals:
    def __init__(
        self, app: object, settings: Settings, given: Mapping[str, Any], store: Store | None, clock: Clock | None
    ) -> None:
        self._app = app
        self.settings = settings
        self.given = given  # the settings that were given in code
        self.spec: str | None = None  # how another process can import the app
        self.tasks: dict[str, Task[..., Any]] = {}
        self.system: dict[str, Task[..., Any]] = {}  # duly's own tasks, which every worker also runs
        self.job_types: dict[str, JobType] = {}  # which task takes the rows of which files
        self.plugins: dict[str, Any] = {}  # the plug-ins that are installed on this app, by name
        self.apps: dict[str, Any] = {}  # and the objects that their `install` returned
        self.owner = "this app"  # which plug-in is being installed
        self.owners: dict[tuple[str, str], str] = {}  # which of them brought what, by kind and name
        self.offered: dict[str, Any] = {}  # plug-ins that are off: their screens explain how to turn them on
        self.sources: list[FileSource] = []  # where plug-ins can fetch files from
        self.companions: list[Companion] = []  # what runs with the workers of this app
        self.workers: WeakSet[Worker] = WeakSet()  # those that were made here, which end with the app
        self.database = Database(settings, lambda: self.app_migrations, store, clock)
        self.borrowing = Borrowing(lambda: self.database.unopened)
        self.endings = Endings(lambda: self.store, lambda ids: self.read.endings(ids))
        self.telemetry = Telemetry(
            self.tasks,
            settings,
            signs=lambda: (self.read.signs(), self.clock.now()),
            depths=lambda: self.read.depths(),
            pending=lambda: self.read.pending(),
        )
        self.verbs = Verbs(self._verb_context())
        self.schedules = Schedules(self.verbs, lambda name: name in self.tasks)
        self.backend = self._task_backend()
        for task in OwnTasks(self.verbs, lambda: self.intake).tasks(self.backend):
            self.system[task.name] = task
        jobs = self.verbs.context.job_settings
        if jobs.inbox or jobs.sources_allowed:  # an app without places to look into has no say in whether others do
            self.schedules.set_own(self.system[SCAN], SCAN, jobs.scan_every if jobs.db_ingest_enabled else 0.0)

    def _task_backend(self) -> TaskBackend:
        return TaskBackend(
            open_clock=self.database.open_clock,
            place=self.place,
            aplace=self.aplace,
            load=self.load,
            aload=self.aload,
            begin=self.schedules.begin,
            declare=self.schedules.declare,
            traceparent=self.telemetry.traceparent,
            max_args_bytes=self.settings.max_args_bytes,
        )

    def _verb_context(self) -> VerbContext:
        return VerbContext(
            open_store=lambda: self.store,
            open_clock=self.database.open_clock,
            observed=lambda: self.telemetry.observe(self.store),
            task_named=self.task_named,
            rules_of=lambda name: self.tasks[name].rules if name in self.tasks else UNKNOWN,
            measured=self.telemetry.measured,
            masks=Masks(self.settings.masked),
            depths=self.telemetry.depths,
            tasks=lambda: self.tasks,
            settings=self.settings,
            job_settings=section(JobSettings, self.given),
        )

    def equip(
        self,
        tasks: Mapping[str, Task[..., Any]],
        system: Mapping[str, Task[..., Any]],
        companions: Sequence[Companion] = (),
        reconcile: Callable[[], None] = lambda: None,
    ) -> Equipment:
        """What a worker for these tasks is given."""
        from duly.facade.loading import find_spec

        self.spec = self.spec or find_spec(self._app)
        return Equipment(
            settings=self.settings,
            clock=self.clock,
            store=self.store,
            app_migrations=self.app_migrations,
            alerts={
                name: partial(plugin.alerts, self.apps[name])
                for name, plugin in self.plugins.items()
                if plugin.alerts is not None
            },
            telemetry=self.telemetry,
            tasks=tasks,
            system=system,
            known=self.all_tasks,
            slices=self.verbs.context.job_settings.slices,
            companions=companions,
            reconcile=reconcile,
            child_command=None if self.spec is None else [sys.executable, "-m", CHILD, self.spec],
        )

    # -- what there is

    @property
    def store(self) -> Store:
        return self.database.store

    @property
    def clock(self) -> Clock:
        return self.database.open_clock()

    @property
    def read(self) -> Read:
        return Read(self.store, self.clock)

    @property
    def all_tasks(self) -> dict[str, Task[..., Any]]:
        return {**self.system, **self.tasks}

    def task_named(self, name: str) -> Task[..., Any]:
        try:
            return self.tasks[name] if name in self.tasks else self.system[name]
        except (KeyError, TypeError):  # or a name that cannot be one, such as a list
            known = ", ".join(sorted(self.tasks)) or "none"
            raise UnknownTask("task", f"there is no task {name!r} here; known: {known}") from None

    @property
    def app_migrations(self) -> dict[str, Path]:
        """The folders with the migrations of the plug-ins that are on this app."""
        return {name: plugin.migrations for name, plugin in self.plugins.items() if plugin.migrations is not None}

    @contextmanager
    def owned_by(self, plugin: str) -> Iterator[None]:
        """Note this plug-in as the owner of what is registered in the block."""
        self.owner, before = plugin, self.owner
        try:
            yield
        finally:
            self.owner = before

    def claim(self, kind: str, name: str) -> None:
        """Note who brings this; ConfigError if another plug-in, or the app, did before."""
        claim(self.owners, self.owner, kind, name)

    def hindrance(self) -> str | None:
        """What keeps the companions of a worker in this process from working, in a few words; None if nothing does."""
        return next((trouble for each in self.companions if (trouble := each.ailing())), None)

    # -- in

    def place(self, new: NewItem, connection: Any = None) -> Placed[Any]:
        placed = self.database.store.put([new])[0] if connection is None else self.borrowing.put(connection, new)
        return placed.awaited_by(self.endings, is_put=connection is None)

    async def aplace(self, new: NewItem, connection: Any = None) -> Placed[Any]:
        if connection is not None:
            placed = await self.borrowing.aput(connection, new)
        else:
            placed = (await asyncio.to_thread(self.store.put, [new]))[0]
        return placed.awaited_by(self.endings, is_put=connection is None)

    def load(self, items: Iterable[NewItem], connection: Any = None) -> int:
        return self.store.load(items) if connection is None else self.borrowing.load(connection, items)

    async def aload(self, items: Iterable[NewItem], connection: Any = None) -> int:
        if connection is not None:
            return await self.borrowing.aload(connection, items)
        return await asyncio.to_thread(self.load, items)

    # An app that takes no files does not load what reads and writes them.

    @cached_property
    def intake(self) -> Intake:
        """Where files come in."""
        from duly.intake.intake import Intake

        return Intake(self.verbs, self.verbs.context.job_settings, self.job_types, self.sources)

    @cached_property
    def exports(self) -> Exports:
        """Where rows of jobs go out as files."""
        from duly.intake.exports import Exports

        return Exports(self.verbs)

    @cached_property
    def kickoffs(self) -> Kickoffs:
        """Works off rows of a job in this process, for a while."""
        from duly.facade.kickoff import Kickoffs

        return Kickoffs(
            self.verbs.jobs, self.endings, lambda job: self.equip({job.task: self.task_named(job.task)}, {})
        )
