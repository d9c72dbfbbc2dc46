"""A typed client for the service, for programs and for the command line's `--url`. Synchronous, standard library only.

    from duly.client import Client
    duly = Client("https://duly.example", key="duly_…")
    placed = duly.put("http", {"url": "https://example.com/hook"}, at="2026-12-01T09:00+01:00", key="order-7")

It returns the structs of the core, and raises the errors that the same call raises in Python on a database: InputError,
DoesNotExist, WrongState, NotAllowed, ConfigError. ServiceError is raised when the service cannot be reached or fails.
A POST is sent with an Idempotency-Key of its own, so one whose answer was lost is safely repeated. Acts on several ids
are one request: all of them are changed, or none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Any, BinaryIO, TypeVar, Unpack
from urllib.parse import quote

from duly.client.connection import PAGE, Connection, ServiceError
from duly.core import filters, results, shown, wire
from duly.core.errors import InputError
from duly.core.filters import checked_id as _id
from duly.core.filters import checked_most
from duly.core.model import Placed, Status
from duly.core.results import Picture
from duly.core.shown import Row, ShownSchedule

J = TypeVar("J", bound=shown.JobItem)

__all__ = ["Client", "Placed", "Row", "ServiceError", "ShownSchedule"]


class Client(AbstractContextManager["Client"]):
    def __init__(self, url: str, key: str | None = None, timeout: float = 30.0) -> None:
        self.http = Connection(url, key, timeout)

    def close(self) -> None:
        self.http.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- items

    def put(
        self,
        task: str,
        args: Mapping[str, Any] | None = None,
        *,
        idempotency_key: str | None = None,
        **options: Unpack[filters.ItemOptions],
    ) -> Placed[Any]:
        """Put an item: now, `at` a time or after a `delay`; once while an item with this `key` is live.

        With an idempotency_key of your own you may ask again after an error, also from another process.
        """
        return self.http.post(Placed[Any], "/api/items", idempotency_key, task=task, args=dict(args or {}), **options)

    def again(
        self, item_id: int, *, idempotency_key: str | None = None, **options: Unpack[filters.AgainOptions]
    ) -> Placed[Any]:
        """Put an item that has ended again, as a new one."""
        return self.http.post(Placed[Any], f"/api/items/{_id(item_id, 'item_id')}/again", idempotency_key, **options)

    def item(self, item_id: int) -> Row:
        return self.http.get(Row, f"/api/items/{_id(item_id, 'item_id')}")

    def story(self, item_id: int) -> shown.Story:
        """An item with its failed tries and everything that happened to it."""
        answer = self.http.request("GET", f"/api/items/{_id(item_id, 'item_id')}")
        return wire.read(shown.Story, {**answer, "item": answer, "scheduleKey": (answer["schedule"] or {}).get("key")})

    def items(self, *, most: int | None = None, **filter: Unpack[filters.ItemFilter]) -> Iterator[Row]:
        """Items that fit, newest first."""
        return self.http.pages(Row, "/api/items", most, **_query(filter))

    def find_items(self, most: int, **filter: Unpack[filters.ItemFilter]) -> shown.ItemsFound:
        """At most this many items that fit, newest first, and how they were searched for."""
        rows: list[Row] = []
        query, scanned = wire.written(_query(filter)), 0
        checked_most(most)
        while True:
            page = self.http.request("GET", "/api/items", query={**query, "pageSize": min(most - len(rows), PAGE)})
            rows += wire.read(list[Row], page["items"])
            scanned += page["search"]["scanned"]
            query["after"] = page["next"]
            if page["next"] is None or len(rows) >= most:
                return shown.ItemsFound(rows, None, scanned, page["search"]["isIndexed"])

    def item_counts(self, **filter: Unpack[filters.ItemFilter]) -> shown.StateCounts:
        """How many items fit, by state, each counted up to ten thousand; `capped` marks states with more."""
        return self.http.get(shown.StateCounts, "/api/items/counts", **_query(filter))

    def cancel(self, *ids: int, reason: str = "") -> list[int]:
        """Cancel waiting and running items: all of them or, if that is not possible, none."""
        return self._act("cancel", ids, reason=reason)

    def retry(self, *ids: int, at: datetime | str | None = None, delay: float | timedelta | None = None) -> list[int]:
        """Retry failed or cancelled items with all their tries, and waiting ones sooner: all of them or none."""
        return self._act("retry", ids, at=at, delay=delay)

    def discard(self, *ids: int, reason: str = "") -> list[int]:
        """Take failed items out of review for good: all of them or none."""
        return self._act("discard", ids, reason=reason)

    def act_on(self, action: shown.Action, ids: Sequence[int], reason: str = "", skip: bool = False) -> list[int]:
        """Cancel, retry or discard these items: all or none; with `skip`, those that can be. Returns their ids."""
        return self._act(action, ids, reason=reason, skip=skip)

    def _act(self, action: shown.Action, ids: Sequence[int], **options: Any) -> list[int]:
        body = {"action": action, "ids": filters.checked_ids(ids), **wire.written(options)}
        return [int(item_id) for item_id in self.http.request("POST", "/api/items/act", body)["ids"]]

    def retask(self, old: str, new: str, *, skip: bool = False) -> results.Retasked:
        """Give waiting and failed items, schedules and jobs of the task `old` to `new`: all, or those that can be."""
        done = self.http.post(results.Retasked, "/api/items/retask", old=old, new=new, skip=skip)
        while done.is_more:  # all of it was checked
            done = done.plus(self.http.post(results.Retasked, "/api/items/retask", old=old, new=new, skip=True))
        return done

    def edit(self, item_id: int, **fields: Unpack[filters.ItemEdit]) -> Row:
        """Change an item that waits or is in review."""
        return self.http.patch(Row, f"/api/items/{_id(item_id, 'item_id')}", **fields)

    def tasks(self) -> Iterator[results.Signature]:
        """The tasks that the service can put, with their parameters."""
        return self.http.pages(results.Signature, "/api/tasks")

    # -- jobs

    def create_job(
        self, file: BinaryIO, name: str, *, idempotency_key: str | None = None, **options: Unpack[filters.UploadOptions]
    ) -> int:
        """Create a job of the rows of a file, which must be seekable; returns the id of the job."""
        return int(self.http.upload("/api/jobs", file, name, wire.written(options), idempotency_key)["jobId"])

    def fetch_job(self, source: str, **options: Unpack[filters.UploadOptions]) -> int:
        """The same with a file that the service fetches: s3://…, ftp://… or file:name."""
        return int(self.http.request("POST", "/api/jobs", {"source": source, **wire.written(options)})["jobId"])

    def preview_job(self, file: BinaryIO, name: str, **options: Unpack[filters.UploadOptions]) -> results.FilePreview:
        """How a job would read the first rows of a file. Nothing is stored."""
        return wire.read(
            results.FilePreview, self.http.upload("/api/jobs/preview", file, name, wire.written(options), None)
        )

    def jobs(
        self, *, job_type: str | None = None, user_id: str | None = None, most: int | None = None
    ) -> Iterator[shown.JobRow]:
        """Jobs, newest first."""
        return self.http.pages(shown.JobRow, "/api/jobs", most, job_type=job_type, user_id=user_id)

    def job(self, job_id: int) -> shown.JobRow:
        return self.http.get(shown.JobRow, f"/api/jobs/{_id(job_id, 'job_id')}")

    def job_items(
        self, job_id: int, *, statuses: Sequence[Status] = (), most: int | None = None
    ) -> Iterator[shown.JobItem]:
        """Rows of a job in the order of its file; with statuses, in the order in which they changed."""
        query = _query({"statuses": statuses})
        rows = self.http.pages(dict[str, Any], f"/api/jobs/{_id(job_id, 'job_id')}/items", most, **query)
        return (_job_item(shown.JobItem, row) for row in rows)

    def pending(
        self, *, statuses: Sequence[Status] = (), most: int | None = None, **filter: Unpack[filters.RowFilter]
    ) -> Iterator[shown.PendingItem]:
        """Rows of all jobs that wait or are being processed, or have these statuses; the oldest change first."""
        query = _query({**filter, "statuses": statuses})
        rows = self.http.pages(dict[str, Any], "/api/pending", most, **query)
        return (_job_item(shown.PendingItem, row) for row in rows)

    def pending_counts(self, **filter: Unpack[filters.RowFilter]) -> shown.RowCounts:
        """How many rows of all jobs there are, by status."""
        return self.http.get(shown.RowCounts, "/api/pending/counts", **_query(filter))

    def job_counts(self, job_id: int) -> shown.RowCounts:
        """How many rows of a job there are, by status."""
        return self.http.get(shown.RowCounts, f"/api/jobs/{_id(job_id, 'job_id')}/counts")

    def pause_job(self, job_id: int) -> shown.JobRow:
        """Start no more rows of this job until it is resumed."""
        return self.http.post(shown.JobRow, f"/api/jobs/{_id(job_id, 'job_id')}/pause")

    def resume_job(self, job_id: int) -> shown.JobRow:
        return self.http.post(shown.JobRow, f"/api/jobs/{_id(job_id, 'job_id')}/resume")

    def kick_off_job(self, job_id: int, seconds: float = 5.0) -> results.Kickoff:
        """Let the service itself process rows of this job for a while."""
        return self.http.post(
            results.Kickoff, f"/api/jobs/{_id(job_id, 'job_id')}/kickoff?durationMs={_milliseconds(seconds)}"
        )

    def cancel_job(self, job_id: int, reason: str = "") -> shown.JobRow:
        """Accept and start no more rows, and cancel all that have not ended."""
        return self.http.post(shown.JobRow, f"/api/jobs/{_id(job_id, 'job_id')}/cancel", reason=reason)

    def reprocess_job(self, job_id: int, **options: Unpack[filters.ReprocessOptions]) -> int:
        """Retry these rows, or all rows with these statuses; returns how many at most."""
        ids = options.get("item_ids")
        scope = {"scope": "job"} if ids is None else {"scope": "items", "item_ids": filters.checked_ids(ids, "itemIds")}
        body = wire.written({**options, "item_ids": None, **scope})
        return int(self.http.request("POST", f"/api/jobs/{_id(job_id, 'job_id')}/reprocess", body)["items"])

    def remove_job(self, job_id: int) -> None:
        """Delete a job with its rows and its file."""
        self.http.request("DELETE", f"/api/jobs/{_id(job_id, 'job_id')}")

    def check_job(self, job_id: int, *, fix: bool = False) -> results.JobCheck:
        """Compare the counters of a job with its rows; with `fix`, make them true."""
        return self.http.post(results.JobCheck, f"/api/jobs/{_id(job_id, 'job_id')}/check", fix=fix)

    def export_job(self, job_id: int, out: BinaryIO, format: str = "xlsx") -> None:
        """Write all rows of a job, with their input and result, to this file."""
        self.http.download(f"/api/jobs/{_id(job_id, 'job_id')}/export", {"format": format}, out)

    def export_rejects(self, job_id: int, out: BinaryIO, format: str = "xlsx") -> None:
        """Write the rows in error to this file, to be corrected and sent again."""
        self.http.download(f"/api/jobs/{_id(job_id, 'job_id')}/rejects", {"format": format}, out)

    def mend_job(self, job_id: int, file: BinaryIO, name: str) -> results.MendReport:
        """Retry rows in error with the corrected values of this file, which has the columns of the rejects."""
        return wire.read(
            results.MendReport, self.http.upload(f"/api/jobs/{_id(job_id, 'job_id')}/mend", file, name, {}, None)
        )

    def refused_row(self, job_id: int, row: int) -> results.RowInError:
        """A row in error as it came, by its number in the file."""
        return self.http.get(results.RowInError, f"/api/jobs/{_id(job_id, 'job_id')}/rows/{_id(row, 'row')}")

    def mend_row(self, job_id: int, row: int, values: Mapping[str, Any]) -> None:
        """Retry a row in error with these values, by column, in place of those that came."""
        self.http.request(
            "POST", f"/api/jobs/{_id(job_id, 'job_id')}/rows/{_id(row, 'row')}/mend", {"values": dict(values)}
        )

    def job_types(self) -> Iterator[results.JobTypeInfo]:
        """The types of jobs that the service has."""
        return self.http.pages(results.JobTypeInfo, "/api/jobs/types")

    def scan(self, again: bool = False) -> results.ScanReport:
        """Create a job of every new file in the sources of the service; `again`: also of those rejected before."""
        return self.http.post(results.ScanReport, "/api/ingestion/scan", again=again)

    # -- review, and acts on many items

    def groups(self, *, user_id: str | None = None, most: int | None = None) -> Iterator[shown.ShownGroup]:
        """Groups of similar failures in review, the largest first."""
        return self.http.pages(shown.ShownGroup, "/api/review", most, user_id=user_id)

    def review_totals(self, user_id: str | None = None) -> shown.ReviewTotals:
        """How many items are in review, and in how many groups."""
        return self.http.get(shown.ReviewTotals, "/api/review/totals", user_id=user_id)

    def group(self, group_id: str) -> shown.GroupStory:
        """One group, with the error of a sample and what people wrote about it."""
        return self.http.get(shown.GroupStory, f"/api/review/{_quoted(group_id, 'group_id')}")

    def write_note(self, group_id: str, text: str) -> shown.ReviewNote:
        return self.http.post(shown.ReviewNote, f"/api/review/{_quoted(group_id, 'group_id')}/notes", text=text)

    def canary(self, group_id: str) -> int:
        """Retry one item of a group, to see whether the cause is gone; returns its id."""
        (item_id,) = self.http.request("POST", f"/api/review/{_quoted(group_id, 'group_id')}/canary")["ids"]
        return int(item_id)

    def retry_group(self, group_id: str, rate: float | None = None, queue: str | None = None) -> shown.ShownAct:
        """Retry all items of a group: at most `rate` a second, in another `queue` if one is given."""
        self.group(group_id)
        return self.order("retry", {"states": ("failed",), "error_group": group_id}, rate=rate, queue=queue)

    def discard_group(self, group_id: str, reason: str = "") -> shown.ShownAct:
        """Take all items of a group out of review for good."""
        self.group(group_id)
        return self.order("discard", {"states": ("failed",), "error_group": group_id}, reason=reason)

    def count(self, action: shown.Action, filter: filters.ActOptions) -> int:
        """How many items an act would change, counted up to a million."""
        body = {"action": action, "filter": wire.written(_query(filter))}
        return int(self.http.request("POST", "/api/acts/count", body)["count"])

    def order(
        self,
        action: shown.Action,
        filter: filters.ActOptions,
        *,
        all: bool = False,
        rate: float | None = None,
        reason: str = "",
        queue: str | None = None,
    ) -> shown.ShownAct:
        """Cancel, retry or discard all items that fit, as durable work that a worker carries out.

        Without any filter, `all` must be set: every item is meant.
        Retries start at most `rate` a second, and wait in another `queue` if one is given.
        """
        body = {"action": action, "filter": wire.written(_query(filter)), "all": all, "reason": reason}
        return self.http.post(shown.ShownAct, "/api/acts", **body, rate=rate, queue=queue)

    def acts(self, *, user_id: str | None = None, most: int | None = None) -> Iterator[shown.ShownAct]:
        """Acts on many items, newest first."""
        return self.http.pages(shown.ShownAct, "/api/acts", most, user_id=user_id)

    def act(self, act_id: int) -> shown.ShownAct:
        return self.http.get(shown.ShownAct, f"/api/acts/{_id(act_id, 'act_id')}")

    def cancel_act(self, act_id: int) -> shown.ShownAct:
        """Stop an act where it is. What it has done stays done."""
        return self.http.post(shown.ShownAct, f"/api/acts/{_id(act_id, 'act_id')}/cancel")

    # -- schedules

    def schedule(
        self,
        task: str,
        rule: str,
        key: str,
        args: Mapping[str, Any] | None = None,
        **options: Unpack[filters.ScheduleFields],
    ) -> ShownSchedule:
        """Create a schedule, or change the one with this key."""
        given = {"task": task, "rule": rule, "key": key, "args": dict(args or {})}
        return self.http.post(ShownSchedule, "/api/schedules", **given, **options)

    def schedules(
        self, *, after: int = 0, most: int | None = None, **filter: Unpack[filters.ScheduleFilter]
    ) -> Iterator[ShownSchedule]:
        """Schedules by id; `after`: only those with a larger id."""
        return self.http.pages(ShownSchedule, "/api/schedules", most, **filter, after_id=after or None)

    def schedule_story(self, schedule_id: int, ahead: int = 5) -> shown.ScheduleStory:
        """A schedule with its next times, its items and its changes."""
        return self.http.get(shown.ScheduleStory, f"/api/schedules/{_id(schedule_id, 'schedule_id')}", ahead=ahead)

    def change_schedule(self, schedule_id: int, **fields: Unpack[filters.ScheduleChange]) -> ShownSchedule:
        """Change a schedule. With another rule or zone its next time is computed again."""
        return self.http.patch(ShownSchedule, f"/api/schedules/{_id(schedule_id, 'schedule_id')}", **fields)

    def act_on_schedules(self, action: results.ScheduleAction, *ids: int, skip: bool = False) -> list[int]:
        """Pause, resume, run, reactivate or remove schedules: all or none; with `skip`, those that can be."""
        body = {"action": action, "ids": filters.checked_ids(ids), "skip": skip}
        answer = self.http.request("POST", "/api/schedules/act", body)
        return [int(schedule_id) for schedule_id in answer["ids"]]

    def reactivate_all(self, *, task: str | None = None, cause: str | None = None, run: bool = False) -> int:
        """Reactivate all deactivated schedules, of a task or with this class of errors; returns how many."""
        body, count, is_more = wire.written({"task": task, "cause": cause, "run": run}), 0, True
        while is_more:
            answer = self.http.request("POST", "/api/schedules/reactivate", body)
            count, is_more = count + int(answer["reactivated"]), answer["isMore"]
        return count

    def preview(self, rule: str, zone: str = "UTC", n: int = 5) -> results.RulePreview:
        """A rule in words, and its next times."""
        return self.http.post(results.RulePreview, "/api/schedules/preview", rule=rule, zone=zone, n=n)

    def slots(self, ring: str | None = None) -> list[results.SlotLoad]:
        """How many active members each slot has."""
        return self.http.get(list[results.SlotLoad], "/api/slots", ring=ring)

    # -- users and keys

    def users(self) -> Iterator[shown.User]:
        return self.http.pages(shown.User, "/api/users")

    def user(self, user_id: str) -> shown.User:
        return self.http.get(shown.User, f"/api/users/{_quoted(user_id, 'user_id')}")

    def create_user(self, user_id: str, role: shown.Role = "user", password: str | None = None) -> shown.User:
        """Create a user; without a password the user can only use API keys."""
        return self.http.post(shown.User, "/api/users", id=user_id, role=role, password=password)

    def change_user(
        self, user_id: str, *, role: shown.Role | None = None, password: str | None = None, disabled: bool | None = None
    ) -> shown.User:
        """Set another role or password, or disable or enable the user."""
        return self.http.patch(
            shown.User, f"/api/users/{_quoted(user_id, 'user_id')}", role=role, password=password, disabled=disabled
        )

    def keys(self, user_id: str | None = None) -> Iterator[shown.KeyInfo]:
        """API keys without their secrets: of this user, or of all users that you may see."""
        return self.http.pages(shown.KeyInfo, "/api/keys", None, user_id=user_id)

    def make_key(
        self,
        name: str,
        *,
        user_id: str | None = None,
        scopes: Sequence[shown.Scope] = ("read", "write"),
        expires_at: datetime | None = None,
    ) -> shown.NewKey:
        """Create an API key, for yourself or another user. Its secret is returned this once."""
        options = {"user_id": user_id, "scopes": list(scopes), "expires_at": expires_at}
        return self.http.post(shown.NewKey, "/api/keys", name=name, **options)

    def revoke_key(self, key_id: str) -> shown.KeyInfo:
        return wire.read(shown.KeyInfo, self.http.request("DELETE", f"/api/keys/{_quoted(key_id, 'key_id')}"))

    # -- queues, limits, workers and what happens

    def queues(self) -> list[shown.QueueDepth]:
        return list(self.http.pages(shown.QueueDepth, "/api/queues"))

    def pause(self, queue: str) -> str | None:
        """Start nothing more of this queue until it is resumed; returns a note if nothing has this name yet."""
        answer = self.http.request("POST", f"/api/queues/{_quoted(queue, 'queue')}/pause")
        return answer["note"] if answer else None

    def resume(self, queue: str) -> None:
        self.http.request("POST", f"/api/queues/{_quoted(queue, 'queue')}/resume")

    def limits(self) -> list[shown.LimitUse]:
        """What limits have counted, and what a person set in place of the code's values."""
        return list(self.http.pages(shown.LimitUse, "/api/limits"))

    def set_limit(self, name: str, limit: str | None) -> None:
        """Set a limit, such as `2/1m` (calls in any minute) or `4` (at the same time); None: as in the code."""
        path = f"/api/limits/{_quoted(name, 'name')}"
        if limit is None:
            self.http.request("DELETE", path)
        else:
            self.http.request("PUT", path, {"limit": limit})

    def workers(self) -> Iterator[shown.WorkerLife]:
        """Workers that reported within a day and did not sign off."""
        return self.http.pages(shown.WorkerLife, "/api/workers")

    def alerts(self) -> list[shown.Alert]:
        """What is wrong now."""
        return self.http.get(list[shown.Alert], "/api/alerts")

    def late(self, grace: float = 300.0, most: int = 100) -> list[shown.LateItem]:
        """Done items of all owners that started more than `grace` seconds late, latest first."""
        return self.http.get(list[shown.LateItem], "/api/late", grace=grace, most=checked_most(most))

    def stuck(self, grace: float = 3_600.0, most: int = 100) -> list[shown.StuckItem]:
        """Items of all owners that are not done `grace` seconds after their time, oldest first."""
        return self.http.get(list[shown.StuckItem], "/api/stuck", grace=grace, most=checked_most(most))

    def silence(self) -> float | None:
        """Seconds since the last report of any worker; None if there never was one."""
        found: float | None = self.http.request("GET", "/api/alive")["ageSeconds"]
        return found

    def now(self) -> Picture:
        """The state of everything now: whether all is well, and why not."""
        return self.http.get(Picture, "/api/now")

    def history(
        self, *, minutes: int = 60, task: str | None = None, measure: str | None = None, job: int | None = None
    ) -> shown.Chart:
        """What happened in the last minutes, step by step: to all tasks and paces, to one task, or to one job."""
        return self.http.get(shown.Chart, "/api/history", minutes=minutes, task=task, measure=measure, job=job)

    def audit(self, subject: str | None = None, *, most: int | None = None) -> Iterator[shown.AuditLine]:
        """The audit log, newest first; of one subject, such as `item:7`, or of all."""
        return self.http.pages(shown.AuditLine, "/api/audit", most, subject=subject)

    def simulate(
        self,
        app: str,
        *,
        days: float | None = None,
        parameters: Mapping[str, int] | None = None,
        seed: int | None = None,
        down_hours: float | None = None,
        fail_rate: float | None = None,
        out_hours: float | None = None,
    ) -> results.SimulatedDays:
        """Simulate the next days of an app in virtual time."""
        asked = {"app": app, "days": days, "parameters": parameters, "seed": seed, "out_hours": out_hours}
        return self.http.post(
            results.SimulatedDays, "/api/simulate", **asked, down_hours=down_hours, fail_rate=fail_rate
        )

    def me(self) -> results.Me:
        """The user that the service knows you as, and what you may do."""
        return self.http.get(results.Me, "/api/me")


def _query(filter: Mapping[str, Any]) -> dict[str, Any]:
    """A filter with the names of the API: several states or ids by commas, and the times as `from` and `to`."""
    values = dict(filter)
    states = values.pop("states", None)
    joined = {"state": None if states is None else ",".join(map(str, states))}
    for ours, theirs in (("statuses", "statuses"), ("job_ids", "job_id")):
        joined[theirs] = ",".join(map(str, values.pop(ours, ()))) or None
    times = {"from": values.pop("since", None), "to": values.pop("until", None)}
    return {**joined, **times, **values, "where": list(values.get("where") or ()) or None}


def _milliseconds(seconds: float) -> str:
    if not isinstance(seconds, int | float):
        raise InputError("durationMs", f"must be a number, got {seconds!r:.80}")
    return f"{seconds * 1000:.0f}"


def _quoted(name: str, field: str) -> str:
    """A name as a part of a path."""
    if not isinstance(name, str) or not name:
        raise InputError(field, f"must be text that is not empty, got {name!r:.80}")
    try:
        return quote(name, safe="")
    except UnicodeEncodeError:
        raise InputError(field, "must be valid Unicode") from None


def _job_item(kind: type[J], row: Mapping[str, Any]) -> J:
    """A row of a job, which the API shows under names of its own."""
    names = {"rowNo": "row", "attempt": "attempts", "claimedBy": "lockedBy", "startedAt": "lockedAt"}
    renamed = {ours: row[theirs] for ours, theirs in {**names, "changedAt": "updatedAt"}.items()}
    return wire.read(kind, {"result": None, **row, **row["inputSummary"], **renamed})
