"""How it is now: one picture of queues, workers, limits, alerts and review, and whether all is well.

It costs eight short questions to the database, whatever there is in it: what could be long is counted up to a bound.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote

from msgspec import convert
from msgspec.structs import asdict, replace

from duly.core import results
from duly.core.policy.limits import Limit
from duly.core.results import ItemsNow, Level, Picture, QueueNow, Reason, SchedulesNow, UnservedTask
from duly.core.shown import Alert, ReviewTotals, WorkerLife
from duly.verbs.context import Principal, VerbGroup
from duly.verbs.history import TaskActivity
from duly.verbs.read import utc

QUEUES, WORKERS, LIMITS = 100, 100, 50  # how many of each are listed
RUNS = 5  # how many running items of each worker
LOOKED = 1_000  # how many workers and meters are looked at
COUNTED = 20_000  # up to how many rows are counted
LEVELS: tuple[Level, ...] = ("ok", "warn", "bad")
# Where one acts on an alert; on others, where the queues are.
PATHS = {"no_tick": "/workers", "oldest_due": "/items?state=waiting"}


class Now(VerbGroup):
    def look(self, who: Principal) -> Picture:
        """The current state: for admins of everything, for others of their own rows."""
        return self._whole() if who.is_admin else self._own(who.user_id)

    def _own(self, owner: str) -> Picture:
        now = self._now()
        before = now - timedelta(seconds=self._context.settings.alert_late_seconds)
        given = {"owner": owner, "now": now, "before": before, "most": COUNTED}
        (row,) = self._store.read("own_totals", given)
        waiting, due, retrying, running, failed, late, groups, looked = map(int, row[:8])
        totals = ItemsNow(waiting, due, retrying, running, failed, late, looked == COUNTED)
        review = ReviewTotals(failed, groups, totals.capped)
        schedules = self._beyond(_schedules(*row[8:]), owner)
        reasons = [*_about_review(review), *_about_schedules(schedules)]
        return Picture(
            at=now, health=_health(reasons), reasons=reasons, totals=totals, review=review, schedules=schedules
        )

    def _beyond(self, known: SchedulesNow, owner: str) -> SchedulesNow:
        """The same totals; if there are more schedules than were looked at, also with broken and next ones of those."""
        if not known.capped:
            return known
        ((broken, next_at),) = self._store.read("own_standing", {"owner": owner, "most": COUNTED})
        times = [at for at in (known.next_at, None if next_at is None else utc(next_at)) if at is not None]
        return replace(known, broken=max(known.broken, int(broken)), next_at=min(times, default=None))

    def _whole(self) -> Picture:
        context = self._context
        now, read = context.now(), context.read
        happened = self._peers.history.lately()
        queues = self._queues(read.queues(context.depths()), happened)
        alerts = read.alerts()
        workers = self._workers(read.workers(most=LOOKED))
        limits = self._limits(now)
        (row,) = context.store.read("standing", {"most": COUNTED})
        *counted, groups = row
        schedules = _schedules(*counted)
        recovery = _recovery(alerts, happened)

        def in_all(name: str) -> int:
            return sum(getattr(queue, name) for queue in queues)

        late = 0 if recovery is None else recovery.late
        totals = ItemsNow(
            in_all("waiting"), in_all("due"), in_all("retrying"), in_all("running"), in_all("failed"), late, False
        )
        review = ReviewTotals(totals.failed, int(groups), totals.failed > COUNTED)
        reasons = [
            *self._about_workers(workers, totals, now),
            *map(_about_alert, alerts),
            *_about_pauses(queues),
            *_about_review(review),
            *_about_schedules(schedules),
        ]
        reasons.sort(key=lambda reason: -LEVELS.index(reason.level))
        return Picture(
            at=now, health=_health(reasons), reasons=reasons, totals=totals, review=review, schedules=schedules,
            queues=queues[:QUEUES], more_queues=max(len(queues) - QUEUES, 0),
            workers=workers[:WORKERS], more_workers=max(len(workers) - WORKERS, 0),
            limits=limits[:LIMITS], more_limits=max(len(limits) - LIMITS, 0), recovery=recovery, alerts=alerts,
            unserved=_unserved(alerts),
        )  # fmt: skip

    def _queues(self, depths: Sequence[Mapping[str, Any]], happened: Mapping[str, TaskActivity]) -> list[QueueNow]:
        """All queues, the worst first: those with the oldest due item, then those with most in review."""
        of_queue: dict[str, list[str]] = {}
        for name, task in self._context.tasks().items():
            of_queue.setdefault(task.queue, []).append(name)
        found = []
        for depth in depths:
            own = of_queue.get(depth["queue"])
            facts = [happened[task] for task in own or () if task in happened]
            starts, late = sum(each.starts for each in facts), sum(each.late for each in facts)
            found.append(
                QueueNow(
                    **{name: depth[name] for name in QueueNow.__struct_fields__ if name in depth},
                    lateness_seconds=late / starts if starts else None,
                    per_minute=None if own is None else sum(each.per_minute for each in facts),
                )
            )
        return sorted(found, key=_how_bad)

    def _workers(self, lives: Sequence[WorkerLife]) -> list[results.WorkerNow]:
        running: dict[str, int] = {}
        runs: dict[str, list[results.Run]] = {}
        for worker, count, item_id, task, key, started_at in self._store.read("runs", {"most": RUNS}):
            running[worker] = int(count)
            runs.setdefault(worker, []).append(results.Run(item_id, task, key, utc(started_at)))
        found = [
            results.WorkerNow(**asdict(life), running=running.get(life.name, 0), runs=runs.get(life.name, []))
            for life in lives
        ]
        return sorted(found, key=lambda worker: (-worker.running, worker.name))

    def _limits(self, now: datetime) -> list[results.LimitNow]:
        """Limits, the fullest first."""
        declared = {limit.name: limit for task in self._context.tasks().values() for limit in task.limits}
        rows = {row[0]: row for row in self._store.read("all_meters", {"after": "", "most": LOOKED})}
        under_way = {name: int(count) for name, count in self._store.read("all_under_way", {})}
        names = {*rows, *under_way, *(name for name, limit in declared.items() if limit.by is None)}
        found = [_limit(name, rows.get(name), declared, under_way.get(name, 0), now) for name in names]
        return sorted(found, key=lambda limit: (-limit.fill, -limit.used, limit.name))

    def _about_workers(self, workers: Sequence[results.WorkerNow], totals: ItemsNow, now: datetime) -> Iterator[Reason]:
        silence = timedelta(seconds=self._context.settings.alert_silence_seconds)
        alive = [worker for worker in workers if now - worker.seen_at <= silence]
        for worker in alive:
            if worker.ailing is not None:
                yield Reason("warn", f"worker {worker.name}: {worker.ailing}", "/workers")
        if alive:
            return
        if totals.due:
            yield Reason("bad", f"no worker is running, and {_items(totals.due)} due", "/workers")
        else:
            yield Reason("warn", "no worker is running: due items will wait", "/workers")


def _schedules(active: Any, paused: Any, broken: Any, looked: Any, next_at: datetime | None) -> SchedulesNow:
    soon = None if next_at is None else utc(next_at)
    return SchedulesNow(int(active), int(paused), int(broken), soon, int(looked) == COUNTED)


def _how_bad(queue: QueueNow) -> tuple[float, int, int, str]:
    """A sort key: the worst queues first."""
    age = -1.0 if queue.oldest_due_seconds is None else queue.oldest_due_seconds
    return -age, -queue.failed, -queue.waiting, queue.queue


def _limit(
    name: str, row: tuple[Any, ...] | None, declared: Mapping[str, Limit], under_way: int, now: datetime
) -> results.LimitNow:
    """How full a limit is: by the value that a person set, or else the one in code; `name:key` uses that of `name`."""
    _, most, per, hits = row or (name, None, None, [])
    code = declared.get(name) or declared.get(name.partition(":")[0])
    if most is None and code is not None:
        most, per = code.most, code.seconds
    elif per is None and code is not None:
        per = code.seconds
    # Calls that are granted for later are not used yet.
    recent = hits if per is None else [hit for hit in hits if now - timedelta(seconds=per) < hit <= now]
    used = under_way if per is None else len(recent)
    fill = 0.0 if most is None else 1.0 if most == 0 else min(used / most, 1.0)
    is_full = most is not None and 0 < most <= used and per is not None
    # The next call is allowed when the oldest of the last `most` is no longer counted.
    free_at = utc(recent[-most]) + timedelta(seconds=per) if is_full else None
    return results.LimitNow(name, most, per, used, fill, free_at)


def _recovery(alerts: Sequence[Alert], happened: Mapping[str, TaskActivity]) -> results.Recovery | None:
    """The number in the alert of late items, and how long it will take at the rate of the last minutes."""
    alert = next((each for each in alerts if each.name == "late_items"), None)
    if alert is None:
        return None
    late = int(alert.details.get("lateEvents", 0))
    pace = sum(each.per_minute for each in happened.values())
    return results.Recovery(late, alert.since, pace, late / pace * 60 if pace else None)


def _unserved(alerts: Sequence[Alert]) -> list[UnservedTask]:
    """The tasks that nobody runs, by the alerts about them."""
    details = [alert.details for alert in alerts if alert.name.startswith("task:")]
    return [convert({**each, "seen_at": each["seenAt"]}, UnservedTask) for each in details]


def _about_pauses(queues: Sequence[QueueNow]) -> Iterator[Reason]:
    held = [queue for queue in queues if queue.paused and queue.due]
    if len(held) == 1:
        yield Reason("warn", f"queue {held[0].queue} is paused, and {_items(held[0].due)} due in it", "/queues")
    elif held:
        due = sum(queue.due for queue in held)
        yield Reason("warn", f"{len(held):,} queues are paused, and {_items(due)} due in them", "/queues")


def _about_review(review: ReviewTotals) -> Iterator[Reason]:
    if review.items:
        # Of all owners all are counted, and only their groups are not.
        more = " or more" if review.is_more and review.items <= COUNTED else ""
        many = "1 item was" if review.items == 1 else f"{review.items:,} items{more} were"
        yield Reason("warn", f"{many} given up and wait{'s' if review.items == 1 else ''} for a person", "/review")


def _about_schedules(schedules: SchedulesNow) -> Iterator[Reason]:
    if schedules.broken:
        many = "1 schedule was" if schedules.broken == 1 else f"{schedules.broken:,} schedules were"
        yield Reason("warn", f"{many} deactivated after failures in a row", "/schedules?state=broken")


def _items(count: int) -> str:
    return "1 item is" if count == 1 else f"{count:,} items are"


def _about_alert(alert: Alert) -> Reason:
    is_over = alert.name == "no_tick" or "backAt" in alert.details  # only its backlog is left
    kind, _, task = alert.name.partition(":")
    path = f"/items?state=waiting&task={quote(task, safe='')}" if kind == "task" else PATHS.get(alert.name, "/queues")
    return Reason("warn" if is_over else "bad", alert.message, path)


def _health(reasons: Sequence[Reason]) -> Level:
    return max((reason.level for reason in reasons), key=LEVELS.index, default="ok")
