"""The class `Duly`: register tasks, put items, look after them, run workers. It passes everything on to other rooms."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, Unpack, overload
from weakref import WeakSet

from duly.config import check_names, load, section
from duly.core.clock import Clock, DatabaseClock
from duly.core.decide import UNKNOWN
from duly.core.errors import ConfigError, InputError, UnknownTask
from duly.core.forks import renew_in_children
from duly.core.model import NewItem, Placed
from duly.core.section import Section
from duly.core.settings import JobSettings, Settings
from duly.core.shown import Row
from duly.engine.equipment import Companion, Equipment
from duly.facade.endings import Endings
from duly.facade.given import GivenSettings
from duly.facade.jobs import RunningJob
from duly.facade.policies import Anything, BatchPolicies, Policies, Register, check_source, make_task
from duly.facade.schedules import Schedules
from duly.facade.spec import find_spec
from duly.intake.tasks import OwnTasks
from duly.store import Store, open_store
from duly.store.borrow import aput_borrowed, put_borrowed
from duly.store.migrate import check, migrate
from duly.tasks.attempt import Attempt
from duly.tasks.puttable import ItemRow, Puttable, TaskBackend
from duly.tasks.task import Task
from duly.telemetry.telemetry import Telemetry
from duly.verbs import LOCAL, VerbContext, Verbs
from duly.verbs.files import SCAN
from duly.verbs.masks import Masks
from duly.verbs.read import Read

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from duly.bulk.mapping import Fields
    from duly.bulk.sources.registry import FileSource
    from duly.engine.worker import Worker
    from duly.facade.kickoff import Kickoffs
    from duly.intake.exports import Exports
    from duly.intake.intake import Intake
    from duly.intake.types import JobType

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound=Section)

# The program of a worker's child processes.
CHILD = "duly.facade.child"


class Duly:
    """An app: its tasks and the database they are due in.

    `database_url` and any setting may be given here; settings of plug-ins are given in `plugin_settings`, by name. What
    is not given comes from the environment or duly.toml.
    """

    def __init__(
        self,
        database_url: str | None = None,
        *,
        clock: Clock | None = None,
        store: Store | None = None,
        plugin_settings: Mapping[str, Any] | None = None,
        **settings: Unpack[GivenSettings],
    ) -> None:
        given = {**settings, **(plugin_settings or {})}
        check_names(given, "Duly")
        self.settings: Settings = load(database_url=database_url, **given)
        self._given = given
        self.tasks: dict[str, Task[..., Any]] = {}
        self.spec: str | None = None
        self._store = store
        self._bare: Store | None = None  # a store that was only asked for the time, and is not migrated
        self._clock = clock
        self.renew()
        renew_in_children(self)
        self.endings = Endings(lambda: self.store, lambda ids: self.read.endings(ids))
        self.telemetry = Telemetry(
            self.tasks,
            self.settings,
            signs=lambda: (self.read.signs(), self.clock.now()),
            depths=lambda: self.read.depths(),
            pending=lambda: self.read.pending(),
        )
        self.verbs = Verbs(self._verb_context())
        self.schedules = Schedules(self.verbs, lambda name: name in self.tasks)
        self._backend = self._make_backend()
        self.plugins: dict[str, Any] = {}  # the plug-ins that are installed on this app, by name
        self.apps: dict[str, Any] = {}  # and the objects that their `install` returned
        self.offered: dict[str, Any] = {}  # plug-ins that are off and could be on here: their screens say how
        self._workers: WeakSet[Worker] = WeakSet()  # those that were made here, which end with it
        self.companions: list[Companion] = []  # what runs beside this app's workers
        # duly's own tasks, which every worker runs beside the app's.
        self.system: dict[str, Task[..., Any]] = {}
        self.sources: list[FileSource] = []  # where plug-ins can fetch files from
        self.job_types: dict[str, JobType] = {}  # which task takes the rows of which files
        for task in OwnTasks(self.verbs, lambda: self.intake).tasks(self._backend):
            self.system[task.name] = task
        self._schedule_scans(self.verbs.context.job_settings)

    def renew(self) -> None:
        """Make a new lock, in a forked process too: the old one may have been held when the process was forked."""
        self._opening = threading.Lock()

    def _schedule_scans(self, settings: JobSettings) -> None:
        """Look for files now and then. An app without places to look into has no say in whether others do."""
        if settings.inbox or settings.sources_allowed:
            self.schedules.set_own(self.system[SCAN], SCAN, settings.scan_every if settings.db_ingest_enabled else 0.0)

    def _make_backend(self) -> TaskBackend:
        return TaskBackend(
            open_clock=lambda: self.clock,
            place=self.place,
            aplace=self.aplace,
            load=lambda items: self.store.load(items),
            begin=self.schedules.begin,
            declare=self.schedules.declare,
            traceparent=self.telemetry.traceparent,
            max_args_bytes=self.settings.max_args_bytes,
        )

    def _verb_context(self) -> VerbContext:
        return VerbContext(
            open_store=lambda: self.store,
            open_clock=lambda: self.clock,
            observed=lambda: self.telemetry.observe(self.store),
            task_named=self.task_named,
            rules_of=lambda name: self.tasks[name].rules if name in self.tasks else UNKNOWN,
            is_task_queue=lambda name: any(task.queue == name for task in self.tasks.values()),
            forget_depths=self.telemetry.depths.forget,
            measured=self.telemetry.jobs.measured,
            masks=Masks(self.settings.masked),
            depths=self.telemetry.depths,
            tasks=lambda: self.tasks,
            late_seconds=self.settings.alert_late_seconds,
            silence_seconds=self.settings.alert_silence_seconds,
            history_seconds=self.settings.history_seconds,
            job_settings=self.section(JobSettings),
        )

    @property
    def registry(self) -> CollectorRegistry:
        """The registry of this app's metrics and of those of the plug-ins that are installed on it."""
        return self.telemetry.registry

    def section(self, kind: type[S]) -> S:
        """The settings of a plug-in, as they are in force in this app."""
        return section(kind, self._given)

    # -- tasks

    @overload
    def task(self, handler: Callable[Concatenate[Anything, ...], Any], /) -> Task[..., Any]: ...

    @overload
    def task(self, handler: Callable[Concatenate[Attempt, P], Coroutine[Any, Any, R]], /) -> Task[P, R]: ...

    @overload
    def task(self, handler: Callable[Concatenate[Attempt, P], R], /) -> Task[P, R]: ...

    @overload
    def task(self, handler: Callable[P, Coroutine[Any, Any, R]], /) -> Task[P, R]: ...

    @overload
    def task(self, handler: Callable[P, R], /) -> Task[P, R]: ...

    @overload
    def task(self, /, **policies: Unpack[BatchPolicies]) -> Callable[[Callable[..., Any]], Task[..., Any]]: ...

    @overload
    def task(self, /, **policies: Unpack[Policies]) -> Register: ...

    def task(self, handler: Callable[..., Any] | None = None, /, **policies: Any) -> Any:
        """Register a handler, bare or with policies.

        The first parameter of a handler may be `attempt: Attempt`: the engine gives it, and `put` does not take it.

        name: default the function's. queue: default the name. retry: when to try again. deadline: seconds after which
        a try is stopped. cpu: run in a killable process of its own. batch: call with up to so many rows at once.
        rank: lower runs first. crash_limit: crashes before review. breaker: failures in a row after which a schedule is
        deactivated. limits: how many calls at most, over the whole fleet. backlog: such as "100/s", how fast missed
        work is made up. source: what its tries depend on; while that is down, one try at a time finds out whether it is
        back, and nobody is blamed. pace: `Pace("provider")`, to call as much as a provider takes. label: the noun that
        logs use. check: called with the arguments when they are put; raises InputError. trusted: known not to take its
        process down, so a try whose worker vanished is simply given back. internal: nobody may put it through the
        service.
        """
        register = Register(lambda handler: self._register(handler, policies))
        return register if handler is None else register(handler)

    def _register(self, handler: Callable[..., Any], policies: Mapping[str, Any]) -> Task[..., Any]:
        task = make_task(self._backend, self.settings, handler, policies)
        if task.name in self.tasks:
            raise InputError("name", f"a task called {task.name!r} is registered already")
        check_source(task.source, self.tasks.values())
        self.tasks[task.name] = task
        return task

    @property
    def all_tasks(self) -> dict[str, Task[..., Any]]:
        return {**self.system, **self.tasks}

    def task_named(self, name: str) -> Task[..., Any]:
        """The task of this name; UnknownTask if the app has none."""
        try:
            return self.tasks[name] if name in self.tasks else self.system[name]
        except KeyError:
            known = ", ".join(sorted(self.tasks)) or "none"
            raise UnknownTask("task", f"there is no task {name!r} here; known: {known}") from None

    # -- in

    def put(self, task: str, /, *args: Any, **kwargs: Any) -> Placed[Any]:
        """Put an item by the name of its task; with options: `app.task_named("remind").options(delay=60).put(…)`."""
        return self.task_named(task).put(*args, **kwargs)

    def job(
        self,
        task: Puttable[..., Any] | str,
        rows: Iterable[ItemRow],
        *,
        then: Puttable[..., Any] | NewItem | str | None = None,
        key: str | None = None,
        owner: str | None = None,
    ) -> RunningJob:
        """Put one item of a task for each of these rows, as a whole that is counted, waited for, paused and cancelled.

        Rows are what `put_many` takes. `then` is put in the transaction that ends the last row: a task, its name, or an
        item from `task.new`. An argument of its handler that is called `job` is given the counts. With a `key` it is
        one job however often this is called: rows that it has already are skipped, so an interrupted call can be
        repeated.
        """
        chosen = self.task_named(task) if isinstance(task, str) else task
        chosen.refuse_connection("a job")
        if isinstance(then, str):
            then = self.task_named(then)
        if isinstance(then, Puttable):
            then = then.new(job={}) if then.task.takes("job") else then.new()
        if then is not None and not isinstance(then, NewItem):
            raise InputError("then", f"must be a task, its name, or an item from task.new, got {type(then).__name__}")
        job = self.verbs.jobs.open(LOCAL, chosen.task, key=key, then=then, owner=owner)
        if not job.is_sealed:
            try:
                self.verbs.jobs.fill(job, chosen, rows)
            except Exception:
                if key is None:  # nobody can go on with it
                    self.verbs.jobs.remove(LOCAL, job.id)
                raise
        return RunningJob(self.verbs.jobs, self.endings, lambda *asked: self.kickoffs.run(*asked), job.id)

    def job_type(self, name: str, task: Task[..., Any], fields: Fields | None = None, *, images: bool = False) -> None:
        """Have files that are sent as jobs of this type worked off by this task, one item for each row.

        With `fields`, columns are mapped to them and values brought into one spelling: the task is called with the
        fields. Without, it is called with the columns as they are. `images`: such a job takes an image, or a zip file
        of images, in place of a table.
        """
        from duly.intake.types import IMAGES, TABLES, JobType

        if name in self.job_types:
            raise InputError("name", f"there is a type of jobs called {name!r} already")
        self.job_types[name] = JobType(name=name, task=task, fields=fields, kinds=IMAGES if images else TABLES)

    # Whoever takes no files does not load what reads and writes them.

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

    def place(self, new: NewItem, connection: Any = None) -> Placed[Any]:
        placed = self.store.put([new])[0] if connection is None else put_borrowed(connection, new)
        return placed.awaited_by(self.endings)

    async def aplace(self, new: NewItem, connection: Any = None) -> Placed[Any]:
        if connection is not None:
            placed = await aput_borrowed(connection, new)
        else:
            placed = (await asyncio.to_thread(self.store.put, [new]))[0]
        return placed.awaited_by(self.endings)

    def wait(self, item_id: int, timeout: float | None = None) -> Any:
        """Wait until an item has ended, and return its result; see `Placed.wait`."""
        return self.endings.ended(item_id, timeout)

    # -- care

    def cancel(self, *ids: int, reason: str = "", connection: Any = None) -> list[int]:
        """Cancel waiting and running items; a running handler is stopped within a second. Returns the ids."""
        return self.verbs.items.cancel(LOCAL, *ids, reason=reason, connection=connection)

    def retry(
        self,
        *ids: int,
        at: datetime | str | None = None,
        delay: float | timedelta | None = None,
        connection: Any = None,
    ) -> list[int]:
        """Have failed or cancelled items tried again with all their tries, and waiting ones sooner."""
        return self.verbs.items.retry(LOCAL, *ids, at=at, delay=delay, connection=connection)

    def discard(self, *ids: int, connection: Any = None) -> list[int]:
        """Take failed items out of review for good."""
        return self.verbs.items.discard(LOCAL, *ids, connection=connection)

    def again(
        self,
        item_id: int,
        *,
        key: str | None = None,
        at: datetime | str | None = None,
        delay: float | timedelta | None = None,
        connection: Any = None,
    ) -> Placed[Any]:
        """Put an item that has ended once more, as a new one: same task, arguments, queue, rank and tries."""
        trace = self.telemetry.traceparent()
        placed = self.verbs.items.again(LOCAL, item_id, key=key, at=at, delay=delay, trace=trace, connection=connection)
        return placed.awaited_by(self.endings)

    def edit(
        self,
        item_id: int,
        *,
        args: Mapping[str, Any] | None = None,
        at: datetime | str | None = None,
        queue: str | None = None,
        rank: int | None = None,
        tries: int | None = None,
        connection: Any = None,
    ) -> Row:
        """Change an item that waits or is in review: its arguments as a whole, time, queue, rank or tries."""
        return self.verbs.items.edit(
            LOCAL, item_id, args=args, at=at, queue=queue, rank=rank, tries=tries, connection=connection
        )

    def hindrance(self) -> str | None:
        """What keeps the companions of a worker in this process from working, in a few words; None if nothing does."""
        return next((trouble for each in self.companions if (trouble := each.ailing())), None)

    def pause(self, queue: str, connection: Any = None) -> str | None:
        """Start nothing more of this queue until it is resumed; what runs goes on.

        Returns a note when nothing has this name yet: it is paused all the same, for what comes.
        """
        return self.verbs.queues.pause(LOCAL, queue, connection)

    def resume(self, queue: str, connection: Any = None) -> None:
        """Open a paused queue again."""
        self.verbs.queues.resume(LOCAL, queue, connection)

    # -- the rooms behind

    @property
    def app_migrations(self) -> dict[str, Path]:
        """The folders with the migrations of the plug-ins that are on this app."""
        return {name: plugin.migrations for name, plugin in self.plugins.items() if plugin.migrations is not None}

    def migrate(self, tell: Callable[[str], None] = lambda _: None) -> list[str]:
        """Bring the database up to date, with the tables of the plug-ins; returns the names of what was applied."""
        with self._opening:
            store = self._store or self._open_store()
            applied = migrate(store, tell=tell, apps=self.app_migrations)
            self._store, self._bare = store, None
        return applied

    def check(self) -> None:
        """Raise when the database does not answer or is not migrated."""
        check(self.store, self.app_migrations)

    def migrate_embedded(self) -> None:
        """Create the tables of a plug-in that was put on an app whose embedded database is open already."""
        if self._store is not None and self._store.url.startswith("sqlite"):
            migrate(self._store, apps=self.app_migrations)

    @property
    def store(self) -> Store:
        if self._store is None:
            with self._opening:
                if self._store is None:
                    store = self._open_store()
                    if store.url.startswith("sqlite"):
                        migrate(store, apps=self.app_migrations)  # nobody else migrates an embedded database
                    self._store, self._bare = store, None
        return self._store

    def _open_store(self) -> Store:
        settings = self.settings
        self._bare = self._bare or open_store(
            settings.database_url,
            timeout=settings.store_timeout_seconds,
            pool_size=settings.pool_size,
            listen=settings.listen,
        )
        return self._bare

    @property
    def clock(self) -> Clock:
        if self._clock is None:
            self._clock = DatabaseClock(self._database_time)
        return self._clock

    def _database_time(self) -> datetime:
        """The database's time. It is read without migrating, because the caller may hold SQLite's write lock."""
        store = self._store
        if store is None:
            with self._opening:
                store = self._store or self._open_store()
        return store.now()

    @property
    def read(self) -> Read:
        return Read(self.store, self.clock)

    def set_limit(self, name: str, limit: str | None) -> None:
        """Change a limit while everything runs: `2/1m`, `4`, or None for what the code says."""
        self.verbs.limits.set(LOCAL, name, limit)

    def observed(self, store: Store) -> Store:
        return self.telemetry.observe(store)

    # -- out

    def run(self, tasks: Iterable[str] | None = None) -> None:
        """Work until told to stop (SIGTERM, Ctrl-C)."""
        self.worker(tasks).run()

    def worker(self, tasks: Iterable[str] | None = None) -> Worker:
        """A worker for these tasks, or for all by default; it is not started yet."""
        from duly.engine.worker import Worker

        asked = {name: self.task_named(name) for name in tasks} if tasks is not None else dict(self.tasks)
        if not asked:
            raise ConfigError("this app has no tasks: register some with @app.task before starting a worker")
        chosen = {**self.system, **asked}
        companions = [each for each in self.companions if each.task.name in chosen]
        made = Worker(self._equip(chosen, self.system, companions, self.schedules.reconcile))
        self._workers.add(made)
        return made

    @asynccontextmanager
    async def lifespan(self, _: object = None) -> AsyncIterator[None]:
        """A worker for as long as an ASGI app lives: `FastAPI(lifespan=app.lifespan)`.

        In the end the app is closed too, unless it has another worker in this process.
        """
        worker = self.worker()
        try:
            await asyncio.to_thread(worker.start)
            yield
        finally:
            await asyncio.to_thread(worker.close)
            self._workers.discard(worker)
            if all(other.is_over for other in list(self._workers)):
                await asyncio.to_thread(self.close)

    def _equip(
        self,
        tasks: Mapping[str, Task[..., Any]],
        system: Mapping[str, Task[..., Any]],
        companions: Sequence[Companion] = (),
        reconcile: Callable[[], None] = lambda: None,
    ) -> Equipment:
        self.spec = self.spec or find_spec(self)
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
            observer=self.telemetry,
            tasks=tasks,
            system=system,
            known=self.all_tasks,
            slices=self.verbs.context.job_settings.slices,
            companions=companions,
            reconcile=reconcile,
            child_command=None if self.spec is None else [sys.executable, "-m", CHILD, self.spec],
        )

    @cached_property
    def kickoffs(self) -> Kickoffs:
        """Works off rows of a job in this process, for a while."""
        from duly.facade.kickoff import Kickoffs

        return Kickoffs(
            self.verbs.jobs, self.endings, lambda job: self._equip({job.task: self.task_named(job.task)}, {})
        )

    def close(self) -> None:
        """Stop the workers of this app that run in this process, and let go of the database."""
        workers = list(self._workers)
        for worker in workers:  # all of them before the first is waited for
            worker.ask_to_stop()
        for worker in workers:
            worker.close()
        self._workers.clear()
        self.endings.close()
        for store in (self._store, self._bare):
            if store is not None:
                store.close()
        self._store = self._bare = None
        if isinstance(self._clock, DatabaseClock):
            self._clock = None
