"""The class `Duly`: register tasks, put items, look after them, run workers. It passes everything on to other rooms."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, cast, overload

from duly.config import check_names, load, section
from duly.core.aforms import in_thread
from duly.core.clock import Clock
from duly.core.errors import ConfigError, InputError
from duly.core.model import NewItem, Placed
from duly.core.results import Retasked
from duly.core.section import Section
from duly.core.settings import Settings
from duly.core.shown import Row
from duly.facade import jobs
from duly.facade.given import GivenSettings
from duly.facade.internals import Internals
from duly.facade.jobs import RunningJob
from duly.facade.policies import Register, check_shared, make_task
from duly.store import Store
from duly.store.migrate import check
from duly.tasks.puttable import ItemRow, Puttable
from duly.tasks.task import Task
from duly.verbs import LOCAL
from duly.verbs.context import by_code
from duly.verbs.items import Items
from duly.verbs.queues import Queues
from duly.verbs.read import Read

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from duly.bulk.mapping import Fields
    from duly.client import Client
    from duly.engine.worker import Worker

R = TypeVar("R")
S = TypeVar("S", bound=Section)


_items, _queues = attrgetter("internals.verbs.items"), attrgetter("internals.verbs.queues")


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
        self.internals = Internals(self, self.settings, given, store, clock)
        self.tasks = self.internals.tasks
        self.schedules = self.internals.schedules

    @property
    def clock(self) -> Clock:
        """The clock that due times are measured by: by default, that of the database."""
        return self.internals.clock

    @property
    def read(self) -> Read:
        """Queries that look at items, queues, limits and workers, and change nothing."""
        return self.internals.read

    @property
    def client(self) -> Client:
        """The methods of `duly.client.Client` on the database of this app, without a service; the local admin acts."""
        from duly.facade.local import Local

        return cast("Client", Local(self))

    @property
    def registry(self) -> CollectorRegistry:
        """The registry of this app's metrics and of those of the plug-ins that are installed on it."""
        return self.internals.telemetry.registry

    def section(self, kind: type[S]) -> S:
        """The settings of a plug-in, as they are in force in this app."""
        return section(kind, self.internals.given)

    # -- tasks

    @property
    def task(self) -> Register:
        """Register a handler, bare or with policies: `@app.task`, `@app.task(retry=…)`; see `Register`."""
        return Register(self._register)

    def _register(self, handler: Callable[..., Any], policies: Mapping[str, Any]) -> Task[..., Any]:
        task = make_task(self.internals.backend, self.settings, handler, policies)
        self.internals.claim("task", task.name)
        if task.name in self.tasks:
            raise InputError("name", f"a task called {task.name!r} is registered already")
        check_shared(task, self.tasks.values())
        self.tasks[task.name] = task
        return task

    def task_named(self, name: str) -> Task[..., Any]:
        """The task of this name; UnknownTask if the app has none."""
        return self.internals.task_named(name)

    # -- in

    def put(self, task: str, /, *args: Any, **kwargs: Any) -> Placed[Any]:
        """Put an item by the name of its task; with options: `app.task_named("remind").options(delay=60).put(…)`."""
        return self.task_named(task).put(*args, **kwargs)

    @overload
    def job(
        self,
        task: Puttable[..., R],
        rows: Iterable[ItemRow],
        *,
        then: Puttable[..., Any] | NewItem | str | None = None,
        key: str | None = None,
        owner: str | None = None,
        connection: Any = None,
    ) -> RunningJob[R]: ...

    @overload
    def job(
        self,
        task: str,
        rows: Iterable[ItemRow],
        *,
        then: Puttable[..., Any] | NewItem | str | None = None,
        key: str | None = None,
        owner: str | None = None,
        connection: Any = None,
    ) -> RunningJob[Any]: ...

    def job(
        self,
        task: Puttable[..., Any] | str,
        rows: Iterable[ItemRow],
        *,
        then: Puttable[..., Any] | NewItem | str | None = None,
        key: str | None = None,
        owner: str | None = None,
        connection: Any = None,
    ) -> RunningJob[Any]:
        """Put one item of a task for each of these rows, as a whole that is counted, waited for, paused and cancelled.

        Rows are what `put_many` takes. `then` is put in the transaction that ends the last row: a task, its name, or an
        item from `task.new`. An argument of its handler that is called `job` is given the counts. One that is called
        `cancelled` is given whether the job was cancelled; without it, the handler is not called then. With a `key` it
        is one job however often this is called: rows that it has already are skipped, so an interrupted call can be
        repeated. With the caller's own `connection`, the job and all of its rows are put inside the caller's
        transaction, or nothing of it if a row is rejected.
        """
        return jobs.placed(self.internals, task, rows, then, key, owner, connection)

    @overload
    async def ajob(
        self,
        task: Puttable[..., R],
        rows: Iterable[ItemRow],
        *,
        then: Puttable[..., Any] | NewItem | str | None = None,
        key: str | None = None,
        owner: str | None = None,
        connection: Any = None,
    ) -> RunningJob[R]: ...

    @overload
    async def ajob(
        self,
        task: str,
        rows: Iterable[ItemRow],
        *,
        then: Puttable[..., Any] | NewItem | str | None = None,
        key: str | None = None,
        owner: str | None = None,
        connection: Any = None,
    ) -> RunningJob[Any]: ...

    async def ajob(
        self,
        task: Puttable[..., Any] | str,
        rows: Iterable[ItemRow],
        *,
        then: Puttable[..., Any] | NewItem | str | None = None,
        key: str | None = None,
        owner: str | None = None,
        connection: Any = None,
    ) -> RunningJob[Any]:
        """`job` for async callers; `connection` may be an async one."""
        return await jobs.aplaced(self.internals, task, rows, then, key, owner, connection)

    @overload
    def find_job(
        self, job_id: int | None = None, *, task: Puttable[..., R], key: str | None = None, owner: str | None = None
    ) -> RunningJob[R]: ...

    @overload
    def find_job(
        self, job_id: int | None = None, *, task: str | None = None, key: str | None = None, owner: str | None = None
    ) -> RunningJob[Any]: ...

    def find_job(
        self,
        job_id: int | None = None,
        *,
        task: Puttable[..., Any] | str | None = None,
        key: str | None = None,
        owner: str | None = None,
    ) -> RunningJob[Any]:
        """The job with this id, or with this key; DoesNotExist if there is none. It makes nothing.

        A `task` is needed where jobs of several tasks have the key, and the `owner` where the job has one.
        """
        if (job_id is None) == (key is None):
            raise InputError("key", "give the id of a job, or its key")
        if key is not None:
            name = task.task.name if isinstance(task, Puttable) else task
            tasks = None if name is None else [name]
            job_id = self.internals.verbs.jobs.find(LOCAL, key, tasks=tasks, owner=owner).id
        assert job_id is not None
        return RunningJob(self.internals, self.internals.verbs.jobs.get(LOCAL, job_id).id)

    def job_type(self, name: str, task: Task[..., Any], fields: Fields | None = None, *, images: bool = False) -> None:
        """Have files that are sent as jobs of this type worked off by this task, one item for each row.

        With `fields`, columns are mapped to them and values brought into one spelling: the task is called with the
        fields. Without, it is called with the columns as they are. `images`: such a job takes an image, or a zip file
        of images, in place of a table.
        """
        from duly.intake.types import IMAGES, TABLES, JobType

        known = self.internals.job_types
        self.internals.claim("type of jobs", name)
        if name in known:
            raise InputError("name", f"there is a type of jobs called {name!r} already")
        known[name] = JobType(name=name, task=task, fields=fields, kinds=IMAGES if images else TABLES)

    def wait(self, item_id: int, timeout: float | None = None) -> Any:
        """Wait until an item has ended, and return its result; see `Placed.wait`. It must exist already."""
        _items(self).find(LOCAL, item_id)
        return self.internals.endings.ended(item_id, timeout, is_put=True)

    # -- care

    cancel = by_code(_items, Items.cancel)
    discard = by_code(_items, Items.discard)
    pause = by_code(_queues, Queues.pause)
    resume = by_code(_queues, Queues.resume)
    set_limit = by_code(_queues, Queues.set_limit)

    def retry(
        self,
        *ids: int,
        at: datetime | str | None = None,
        delay: float | timedelta | None = None,
        connection: Any = None,
    ) -> list[int]:
        """Have failed or cancelled items tried again with all their tries, and waiting ones sooner."""
        items = self.internals.verbs.items
        with items.lent(connection) as own:
            return items.retry(LOCAL, *ids, at=at, delay=delay, connection=own)

    def again(
        self,
        item_id: int,
        *,
        key: str | None = None,
        at: datetime | str | None = None,
        delay: float | timedelta | None = None,
        connection: Any = None,
    ) -> Placed[Any]:
        """Put an item that has ended again, as a new one: same task, arguments, queue, rank and tries."""
        items, trace = self.internals.verbs.items, self.internals.telemetry.traceparent()
        with items.lent(connection) as own:
            placed = items.again(LOCAL, item_id, key=key, at=at, delay=delay, trace=trace, connection=own)
        return placed.awaited_by(self.internals.endings, is_put=connection is None)

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
        items = self.internals.verbs.items
        with items.lent(connection) as own:
            return items.edit(LOCAL, item_id, args=args, at=at, queue=queue, rank=rank, tries=tries, connection=own)

    def retask(self, old: str, new: str, *, skip: bool = False) -> Retasked:
        """Give what waits, failed or recurs of the task `old` to `new`, the name that it has now.

        All or nothing: an error names each row that `new` does not accept. With `skip`, the others are moved.
        """
        return self.client.retask(old, new, skip=skip)

    # -- the same for async callers

    async def aput(self, task: str, /, *args: Any, **kwargs: Any) -> Placed[Any]:
        """`put` for async callers."""
        return await self.task_named(task).aput(*args, **kwargs)

    async def await_(self, item_id: int, timeout: float | None = None) -> Any:
        """`wait` for async callers."""
        await asyncio.to_thread(_items(self).find, LOCAL, item_id)
        return await self.internals.endings.aended(item_id, timeout, is_put=True)

    afind_job = in_thread(find_job)
    acancel = in_thread(cancel)
    adiscard = in_thread(discard)
    apause = in_thread(pause)
    aresume = in_thread(resume)
    aset_limit = in_thread(set_limit)
    aretry = in_thread(retry)
    aagain = in_thread(again)
    aedit = in_thread(edit)
    aretask = in_thread(retask)

    # -- the database

    def migrate(self, tell: Callable[[str], None] = lambda _: None) -> list[str]:
        """Bring the database up to date, with the tables of the plug-ins; returns the names of applied migrations."""
        return self.internals.database.migrate(tell)

    def check(self) -> None:
        """Raise when the database does not answer or is not migrated."""
        check(self.internals.store, self.internals.app_migrations)

    amigrate = in_thread(migrate)
    acheck = in_thread(check)

    # -- out

    def run(self, tasks: Iterable[str] | None = None) -> None:
        """Work until SIGTERM or Ctrl-C."""
        self.worker(tasks).run()

    def worker(self, tasks: Iterable[str] | None = None) -> Worker:
        """A worker for these tasks, or for all by default; it is not started yet."""
        from duly.engine.worker import Worker

        asked = {name: self.task_named(name) for name in tasks} if tasks is not None else dict(self.tasks)
        if not asked:
            raise ConfigError("this app has no tasks: register some with @app.task before starting a worker")
        inside = self.internals
        chosen = {**inside.system, **asked}
        companions = [each for each in inside.companions if each.task.name in chosen]
        made = Worker(inside.equip(chosen, inside.system, companions, self.schedules.reconcile))
        inside.workers.add(made)
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
            self.internals.workers.discard(worker)
            if all(other.is_over for other in list(self.internals.workers)):
                await asyncio.to_thread(self.close)

    def close(self) -> None:
        """Stop the workers of this app that run in this process, and let go of the database."""
        workers = list(self.internals.workers)
        for worker in workers:  # all of them before the first is waited for
            worker.ask_to_stop()
        for worker in workers:
            worker.close()
        self.internals.workers.clear()
        self.internals.endings.close()
        self.internals.database.close()
