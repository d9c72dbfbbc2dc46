"""Checks an installation for `duly doctor`: settings, database, clock and work. It changes nothing.

Every finding says what to do. `bad` is what keeps work from being done or kept; `warn` is what may surprise; `ok` is
shown too, so that people see what was checked.
"""

from __future__ import annotations

import os
import platform
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from duly.config import aliased, load, section, sources, unknown_variables
from duly.core.clock import DatabaseClock
from duly.core.errors import ConfigError, DulyError, StoreUnavailable
from duly.core.settings import JobSettings, Settings
from duly.core.shown import Depth, WorkerLife
from duly.core.unserved import described, remedy
from duly.plugins import Finding, Plugin, chosen, installed, plugins
from duly.store import Store, open_store
from duly.store.migrate import current, dialect_of, latest, least, migrations, versions
from duly.store.postgres import lacking
from duly.store.unserved import LOOKED, UnservedTasks
from duly.verbs.job_checks import checked, open_jobs
from duly.verbs.read import Read

if TYPE_CHECKING:
    from duly.client import Client
    from duly.store.postgres.store import PostgresStore

# Before this version, two checkpoints at the same time can corrupt the WAL. Ours are under a lock; others' may not be.
SQLITE_SAFE = (3, 51, 3)
POSTGRES_OLDEST = 140_000
PATIENCE = 5.0
WORKERS = 1_000  # that are looked at
# The migration from which on workers say which ones they know.
FIRST_TO_TELL = 13
# Open jobs whose rows are counted off, and rows of them, at most.
JOBS = 500
JOB_ROWS = 1_000_000

ok, warn, bad = partial(Finding, "ok"), partial(Finding, "warn"), partial(Finding, "bad")

_ORPHANS = """
select i.id from duly_item i
 where i.state = 'running' and not exists (select 1 from duly_lease l where l.fence = i.fence) limit 1000
"""
_DURABILITY = "select name, setting from pg_settings where name in ('fsync', 'synchronous_commit', 'full_page_writes')"


def examine() -> Iterator[Finding]:
    """All findings about the installation that the settings describe."""
    yield _versions()
    try:
        with aliased(_chosen(load().apps)):
            settings = load()
            found = [*_settings(settings)]
    except ConfigError as error:
        yield bad("settings", str(error), "`duly settings` lists all of them")
        return
    yield from found
    try:
        missing = missing_file(settings.database_url)
        store = open_store(settings.database_url, timeout=PATIENCE, pool_size=1, listen=False)
    except ConfigError as error:
        yield bad("database", str(error), "correct DULY_DATABASE_URL")
        return
    if missing is not None:
        yield bad("database", f"there is no file {missing} yet", "`duly migrate` or `duly up` creates it")
        return
    try:
        yield from _database(store, settings)
    except DulyError as error:
        yield bad("database", _line(error), "the checks that follow could not be made")
    finally:
        store.close()


def examine_service(client: Client) -> Iterator[Finding]:
    """All findings about a service and the work behind it, as far as the key may see."""
    with client:
        try:
            yield ok("service", f"{client.http.place} answers: {client.http.request('GET', '/healthz')}")
            yield ok("database", f"answers: {client.http.request('GET', '/readyz')}")
            me = client.me()
        except DulyError as error:
            yield bad(
                "service",
                _line(error),
                "check that it runs, that --url or DULY_URL is right, and that DULY_API_KEY is valid",
            )
            return
        yield ok("key", f"belongs to {me.user_id}, with the scopes {', '.join(me.scopes)}")
        if "admin" not in me.scopes:
            advice = "use a key with the scope admin to check workers, alerts and queues"
            yield warn("work", "not checked: only admins may see it", advice)
            return
        workers = list(client.workers())
        yield (
            ok("workers", f"{len(workers)} alive")
            if workers
            else bad("workers", "none is alive", "start one: `duly worker`")
        )
        for each in workers:
            if each.hindrance is not None:
                yield bad("workers", f"{each.name} claims nothing: {each.hindrance}", "upgrade its host and restart it")
        yield from _ailing(workers)
        for alert in client.alerts():
            yield warn(
                alert.name, f"{alert.message}, since {alert.since:%Y-%m-%d %H:%M:%S %z}", "`duly queues` shows where"
            )
        if paused := sorted(each.queue for each in client.queues() if each.paused):
            yield warn("queues", f"paused: {', '.join(paused)}", f"`duly queues resume {paused[0]}` resumes it")


def missing_file(url: str) -> Path | None:
    """The SQLite file that a URL names, if it does not exist."""
    path = getattr(open_store(url), "path", None) if url.startswith("sqlite") else None
    return Path(path) if path is not None and not Path(path).exists() else None


def knock(url: str) -> None:
    """Raise when PostgreSQL cannot be reached. It makes one plain connection, with a more specific error."""
    try:
        import psycopg
    except ImportError as error:
        raise lacking(error) from error
    try:
        psycopg.connect(url, connect_timeout=int(PATIENCE)).close()
    except psycopg.OperationalError as error:
        raise StoreUnavailable(f"cannot connect: {error}") from error
    except psycopg.ProgrammingError as error:  # its text may quote the URL with the password
        raise ConfigError("database_url: PostgreSQL does not understand this URL") from error


def _versions() -> Finding:
    names = ("duly", "msgspec", "click", "rich", "prometheus-client", "psycopg")
    found = [f"Python {platform.python_version()}", f"SQLite {sqlite3.sqlite_version}"]
    for name in names:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            found.append(f"no {name}")
    return ok("versions", ", ".join(found))


def _settings(settings: Settings) -> Iterator[Finding]:
    """Where values come from that are not defaults, and which settings of apps are wrong."""
    shown, where = settings.shown(), sources()
    for name, reason in installed().broken.items():
        yield bad(name, reason, "correct or uninstall the package of the app")
    for plugin in plugins().values():
        try:
            shown |= section(plugin.settings).shown()
            where |= sources(kind=plugin.settings)
        except ConfigError as error:
            yield bad(plugin.name, _line(error), "`duly settings` lists its settings")
    text = ", ".join(f"{name} = {shown[name]} ({source})" for name, source in where.items())
    for name, near in unknown_variables(os.environ):
        advice = f"did you mean {near}?" if near else "`duly settings` lists all of them"
        yield warn(name, "is not a setting and has no effect", advice)
    yield ok("settings", text or "all defaults: no duly.toml, nothing in the environment")


# -- the database


def _database(store: Store, settings: Settings) -> Iterator[Finding]:
    is_sqlite = store.url.startswith("sqlite")
    began = time.monotonic()
    try:
        if not is_sqlite:
            knock(store.url)
        have, need = current(store), latest(store)
    except DulyError as error:
        advice = (
            "check that the file is readable and a database"
            if is_sqlite
            else "check that the server runs and that the URL is right"
        )
        yield bad("database", _line(error), advice)
        return
    place = settings.shown()["database_url"]
    yield ok("database", f"{place} answers ({(time.monotonic() - began) * 1000:.0f} ms)")
    yield from _sqlite(store) if is_sqlite else _postgres(store, settings.listen)
    if have < need:
        yield bad("migrations", f"at {have}, this version needs {need}", "run `duly migrate`")
        return
    ahead = " (newer than this code, which is compatible)" if have > need else ""
    yield ok("migrations", f"up to date at {have}{ahead}")
    yield _app_tables(store, settings)
    yield from _work(store, settings)


def _app_tables(store: Store, settings: Settings) -> Finding:
    """Whether the tables of the chosen apps are there. One that was named in DULY_APPS does not start without them."""
    try:
        apps = _chosen(settings.apps)
        wanted = {each.name: each.migrations for each in apps if each.migrations}
        have = versions(store, wanted)
        need = {app: len(migrations(dialect_of(store), folder, app)) for app, folder in wanted.items()}
    except ConfigError as error:
        return bad("app tables", _line(error), "correct DULY_APPS, or the package of the app")
    behind = {app: have.get(app, 0) for app in wanted if have.get(app, 0) < need[app]}
    if not behind:
        return ok("app tables", f"up to date: {', '.join(wanted) or 'no app has any'}")
    level = bad if settings.apps or any(behind.values()) else warn
    text = ", ".join(f"{app} is at {version}, needs {need[app]}" for app, version in behind.items())
    return level("app tables", text, "run `duly migrate`, or set DULY_APPS to the apps that run here")


def _sqlite(store: Store) -> Iterator[Finding]:
    if sqlite3.sqlite_version_info < SQLITE_SAFE:
        yield warn(
            "SQLite",
            f"{sqlite3.sqlite_version} has a bug: two connections that checkpoint at once can corrupt the file",
            "duly checkpoints one at a time; do not write to its file with other programs, or use SQLite 3.51.3",
        )
    with store.transaction() as connection:
        mode = connection.execute("pragma journal_mode").fetchone()[0]
        synchronous = connection.execute("pragma synchronous").fetchone()[0]
    if mode != "wal":
        yield bad("journal", f"{mode}, not WAL", "keep the file on a local disk, not on a network share")
    elif synchronous < 2:
        yield warn(
            "journal",
            "WAL, but synchronous is below FULL: a power cut may undo the last commits",
            "take synchronous= out of DULY_DATABASE_URL",
        )
    else:
        yield ok("journal", "WAL, synchronous: a commit survives a power cut")


def _postgres(store: Store, listen: bool) -> Iterator[Finding]:
    if not cast("PostgresStore", store).is_pooled(look=True):
        yield ok("pooler", "none that shares sessions of the server between transactions")
    elif listen:
        yield warn(
            "pooler",
            "LISTEN does not work behind this transaction pooler: new work is found by sweeps, with a delay",
            "set DULY_LISTEN=false, or give workers the address of the server itself",
        )
    else:
        yield ok("pooler", "a transaction pooler; LISTEN is off, as it has to be")
    with store.transaction() as connection:
        number = int(connection.execute("show server_version_num").fetchone()[0])
        off = sorted(name for name, value in connection.execute(_DURABILITY).fetchall() if value == "off")
    text = f"{number // 10_000}.{number % 10_000}"
    if number < POSTGRES_OLDEST:
        yield warn("PostgreSQL", f"{text} is out of support", "upgrade the server")
    else:
        yield ok("PostgreSQL", text)
    if off:
        yield warn(
            "durability",
            f"{', '.join(off)} off: a crash of the server may undo committed transactions",
            "turn them on in postgresql.conf, or for this database with `alter database … set`",
        )
    else:
        yield ok("durability", "fsync and synchronous_commit are on")
    yield _clock(store)


def _clock(store: Store) -> Finding:
    offset = (DatabaseClock(store.now).now() - datetime.now(UTC)).total_seconds()
    text = f"the database is {abs(offset):.3f} s {'ahead of' if offset > 0 else 'behind'} this host"
    if abs(offset) > 1:
        advice = "due times follow the database; run NTP on both, or times shown and logged here will look wrong"
        return warn("clock", text, advice)
    return ok("clock", text)


# -- the work


def _ailing(workers: Sequence[WorkerLife]) -> Iterator[Finding]:
    """The workers that report that something is wrong with them, or have handlers that run on."""
    for worker in workers:
        if worker.ailing is not None:
            advice = (
                "if it is still there in a minute, it runs inside another program, which only a restart mends; "
                "give the calls of its handlers a time-out that is shorter than their deadline"
            )
            yield bad("workers", f"{worker.name}: {worker.ailing}", advice)
        elif worker.runaways:
            yield warn(
                "workers",
                f"{worker.name}: {worker.runaways} handlers run on after they were stopped",
                "give the calls of its handlers a time-out that is shorter than their deadline",
            )


def _work(store: Store, settings: Settings) -> Iterator[Finding]:
    clock = DatabaseClock(store.now)
    silence = timedelta(seconds=settings.alert_silence_seconds)
    yield from _ailing([each for each in Read(store, clock).workers() if clock.now() - each.seen_at <= silence])
    yield from _leases(store, clock.now(), timedelta(seconds=settings.lease_seconds))
    depths = Read(store, clock).depths()
    yield from _queues(depths, clock.now())
    yield from _tasks(store, clock.now())
    yield from _apps(settings, depths)
    yield from _workers(store)
    yield from _jobs(store)
    yield from _files(store)


def _workers(store: Store) -> Iterator[Finding]:
    """Workers that are too old for the database. Those before migration 13 do not know it, and go on."""
    needed = least(store)
    for worker in Read(store, DatabaseClock(store.now)).workers()[:WORKERS]:
        known = worker.migration or FIRST_TO_TELL - 1
        if worker.hindrance is not None or known < needed:
            text = f"{worker.name} knows migrations up to {known}, and the database needs workers that know {needed}"
            does = "it claims nothing" if worker.migration is not None else "it does not know, and claims"
            yield bad("workers", f"{text}; {does}", "upgrade duly on its host, and restart it")


def _jobs(store: Store) -> Iterator[Finding]:
    """Whether jobs that are not over count their rows right: if not, they may never end."""
    jobs = open_jobs(store, JOBS + 1)
    rows = list(accumulate(total for _, total in jobs[:JOBS]))
    chosen_jobs = [job_id for (job_id, _), upto in zip(jobs, rows, strict=False) if upto <= JOB_ROWS]
    wrong = [job_id for job_id in chosen_jobs if (found := checked(store, job_id)) is not None and not found.is_true]
    if wrong:
        yield bad(
            "jobs",
            f"the counters of job {', '.join(map(str, wrong[:5]))} are wrong{' (and of others)' if wrong[5:] else ''}",
            "`duly jobs check --fix` makes them true; do workers of an old version run beside new ones?",
        )
    if len(chosen_jobs) < len(jobs):
        text = f"the counters of {len(chosen_jobs)} jobs were compared with their rows; there are more open jobs"
        yield warn("jobs", text, "`duly jobs check` compares all of them")
    elif chosen_jobs and not wrong:
        yield ok("jobs", f"the counters of all open jobs, {len(chosen_jobs)}, are true")


def _files(store: Store) -> Iterator[Finding]:
    """Several machines may work on a server's database, and all of them need the files of jobs."""
    with store.transaction() as connection:
        has_files = connection.execute("select 1 from duly_file limit 1").fetchone() is not None
    if not has_files:
        return
    where = section(JobSettings).files_url
    is_own = "://" not in where and not Path(where).is_absolute()
    if is_own and not store.url.startswith("sqlite"):
        yield warn(
            "files",
            f"files_url is {where}, a relative path: processes that start in other folders do not find the files",
            "set DULY_FILES_URL to the absolute path of a folder that all servers and workers share, or to s3://…",
        )
    else:
        yield ok("files", f"files of jobs are in {where}")


def _leases(store: Store, now: datetime, lease: timedelta) -> Iterator[Finding]:
    with store.transaction() as connection:
        orphans = [row[0] for row in connection.execute(_ORPHANS).fetchall()]
    if orphans:
        yield bad(
            "leases",
            f"{_items(orphans)} running without a lease: no worker will finish or rescue this",
            f"were rows changed by hand? `duly cancel {orphans[0]}`, then `duly retry {orphans[0]}`",
        )
    items, empty = store.expired(now - lease, 1_000)
    if items or empty:
        yield warn(
            "leases",
            f"{len({item.fence for item in items} | set(empty))} expired long ago and were not rescued",
            "start a worker with their tasks: `duly worker` rescues expired leases every few seconds",
        )
    if not orphans and not items and not empty:
        yield ok("leases", "every running item has one, and none is overdue")


def _queues(depths: list[Depth], now: datetime) -> Iterator[Finding]:
    paused = sorted({depth.queue for depth in depths if depth.paused})
    if paused:
        yield warn("queues", f"paused: {', '.join(paused)}", f"`duly queues resume {paused[0]}` resumes it")
    due = [depth for depth in depths if depth.state == "waiting" and depth.due and not depth.paused]
    oldest = min((depth.oldest for depth in due if depth.oldest is not None), default=None)
    late = (now - oldest).total_seconds() if oldest is not None else 0.0
    count = sum(depth.due for depth in due)
    if late > 60:
        yield warn(
            "due work",
            f"{count} items are due, the oldest for {late:.0f} s",
            "check that enough workers with their tasks run; `duly queues` shows where they wait",
        )
    else:
        yield ok("due work", f"{count} items are due, none for more than a minute")
    if failed := sum(depth.items for depth in depths if depth.state == "failed"):
        yield ok("review", f"{failed} items have failed and are in review: `duly items --state failed`")


def _tasks(store: Store, now: datetime) -> Iterator[Finding]:
    """Tasks that nobody runs. Without any running worker there is no finding: that is about all of them."""
    tasks, until = UnservedTasks(store), time.monotonic() + PATIENCE
    found = {each.task: each for each in tasks.find(now)}
    while not tasks.is_complete and time.monotonic() < until:
        found |= {each.task: each for each in tasks.find(now)}
    for each in found.values():
        yield bad("tasks", described(each, each.items >= LOOKED), remedy(each))
    for each in tasks.recurring(now):
        many = "1 schedule makes" if each.items == 1 else f"{each.items:,} schedules make"
        yield warn("schedules", f"{many} items of {each.task}, a task that no running worker has", remedy(each))
    if not tasks.is_complete:
        yield warn("tasks", "not all lines of waiting items were looked at in time", "run `duly doctor` again later")


def _apps(settings: Settings, depths: list[Depth]) -> Iterator[Finding]:
    """The findings of the chosen apps."""
    waiting: Counter[str] = Counter()
    for depth in depths:
        if depth.state == "waiting":
            waiting[depth.queue] += depth.items
    try:
        wanted = chosen(settings.apps, {})
    except ConfigError as error:
        yield bad("apps", _line(error), "correct DULY_APPS, or the package of the app")
        return
    for plugin in wanted:
        with suppress(ConfigError):  # there is a finding about it already
            yield from plugin.checks(section(plugin.settings), waiting)


def _chosen(names: str) -> list[Plugin[Any, Any]]:
    """The chosen apps that can be used. There is another finding about the others, and about unknown names."""
    try:
        return chosen(names, {})
    except ConfigError:
        return []


def _items(ids: list[int]) -> str:
    more = f" and {len(ids) - 5} more" if len(ids) > 5 else ""
    return f"item {', '.join(map(str, ids[:5]))}{more}"


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
