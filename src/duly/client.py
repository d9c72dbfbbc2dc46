"""A typed client for the service, for programs and for the command line's `--url`. Synchronous, standard library only.

    from duly.client import Client
    duly = Client("https://duly.example", key="duly_…")
    placed = duly.put("http", {"url": "https://example.com/hook"}, at="2026-12-01T09:00+01:00", key="order-7")

A POST is sent with an Idempotency-Key of its own, so one whose answer was lost is safely repeated.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, IncompleteRead
from typing import Any, BinaryIO, TypeAlias
from urllib.parse import quote, urlencode, urlsplit
from uuid import uuid4

from msgspec import Struct, convert

from duly.core.errors import ConfigError, DulyError
from duly.core.urls import PORTS

TRIES = 4
PAUSE = 0.2
ANSWER_LIMIT = 64 * 1024 * 1024
PORTION = 256 * 1024  # of a file that is sent or written
# What a service that restarts, or its proxy, answers.
PASSING = frozenset((408, 429, 502, 503, 504))

Body: TypeAlias = bytes | Iterator[bytes] | None


class ServiceError(DulyError):
    """The service refused, or could not be reached; `status` is None then."""

    def __init__(self, detail: str, status: int | None = None, field: str | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.field = field


class Placed(Struct, frozen=True, rename="camel"):
    id: int
    execution_key: str
    fresh: bool


class Item(Struct, frozen=True, rename="camel"):
    id: int
    task: str
    queue: str
    lane: str
    rank: int
    state: str
    outcome: str | None
    planned_at: datetime
    due_at: datetime
    key: str | None
    execution_key: str
    args: Any
    result: Any
    attempt: int
    failures: int
    last_error: str | None
    error_group: str | None
    owner: str | None
    created_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None


class Schedule(Struct, frozen=True, rename="camel"):
    id: int
    task: str
    key: str
    rule: str
    describe: str
    zone: str
    state: str
    args: Any
    next_at: datetime | None
    failures: int
    owner: str | None


class Client:
    def __init__(self, url: str, key: str | None = None, timeout: float = 30.0) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError("url: must be http://host or https://host")
        self._parts = parts
        self.place = parts.netloc.rpartition("@")[2] if parts.port else f"{parts.hostname}:{PORTS[parts.scheme]}"
        self._key = key
        self._timeout = timeout
        self._connection: HTTPConnection | None = None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- items

    def put(
        self, task: str, args: Mapping[str, Any] | None = None, *, idempotency_key: str | None = None, **options: Any
    ) -> Placed:
        """Put an item; options are at, delay, key, rank, tries, max_lateness.

        With an idempotency_key of your own you may ask again after an error, also from another process.
        """
        body = {"task": task, "args": dict(args or {}), **_camel(options)}
        return convert(self.request("POST", "/api/items", body, idempotency_key=idempotency_key), Placed)

    def item(self, item_id: int) -> Item:
        return convert(self.request("GET", f"/api/items/{item_id}"), Item)

    def items(self, **filters: Any) -> Iterator[Item]:
        """All items that fit, newest first.

        Filters are state (one or more, by commas), task, queue, key, error_group, schedule_id, job_id, user_id, error
        (a part of it), min_tries, date_field (created, due, started, finished) with since and until, and where: a list
        of `name=value` of arguments, or `result.name=value`.
        """
        return (convert(each, Item) for each in self.pages("/api/items", _dated(filters)))

    def item_counts(self, **filters: Any) -> dict[str, dict[str, Any]]:
        """How many items fit, by state, each counted to ten thousand; `capped` says where there are more."""
        told: dict[str, dict[str, Any]] = self.request("GET", "/api/items/counts", query=_camel(_dated(filters)))
        return told

    def again(self, item_id: int, *, idempotency_key: str | None = None, **options: Any) -> Placed:
        """Put an item that has ended once more, as a new one; options are key, at, delay."""
        path = f"/api/items/{item_id}/again"
        return convert(self.request("POST", path, _camel(options), idempotency_key=idempotency_key), Placed)

    def act_on(self, action: str, ids: Sequence[int], reason: str = "", skip: bool = False) -> list[int]:
        """Cancel, retry or discard these items, all or none; with `skip`, those that can be. Returns the ids."""
        body = {"action": action, "ids": list(ids), "reason": reason, "skip": skip}
        return [int(item_id) for item_id in self._told("POST", "/api/items/act", body)["ids"]]

    def tasks(self) -> Iterator[dict[str, Any]]:
        """The tasks that the service can put, with their parameters."""
        return self.pages("/api/tasks", {"page_size": 500})

    def cancel(self, item_id: int, reason: str = "") -> None:
        self.request("POST", f"/api/items/{item_id}/cancel", {"reason": reason})

    def retry(self, item_id: int, at: datetime | str | None = None) -> None:
        self.request("POST", f"/api/items/{item_id}/retry", {"at": _text(at)} if at is not None else {})

    def discard(self, item_id: int, reason: str = "") -> None:
        """Take a failed item out of review for good."""
        self.request("POST", f"/api/items/{item_id}/discard", {"reason": reason})

    def edit(self, item_id: int, **fields: Any) -> Item:
        """Change an item that waits or is in review: args as a whole, at, queue, rank, tries."""
        return convert(self.request("PATCH", f"/api/items/{item_id}", _camel(fields)), Item)

    # -- jobs

    def create_job(self, file: BinaryIO, name: str, *, idempotency_key: str | None = None, **said: Any) -> int:
        """A job of the rows of a file that can be sought in; the number of the job.

        What may be said of the file: job_type, header, encoding, delimiter, sheet, mapping.
        """
        made = self._upload("/api/jobs", file, name, _camel(said), idempotency_key)
        return int(made["jobId"])

    def fetch_job(self, source: str, **said: Any) -> int:
        """The same of a file that the service finds by its address: s3://…, ftp://… or file:name."""
        return int(self._told("POST", "/api/jobs", {"source": source, **_camel(said)})["jobId"])

    def preview_job(self, file: BinaryIO, name: str, **said: Any) -> dict[str, Any]:
        """What would become of the first rows of a file; nothing is kept."""
        found: dict[str, Any] = self._upload("/api/jobs/preview", file, name, _camel(said), None)
        return found

    def jobs(self, **filters: Any) -> Iterator[dict[str, Any]]:
        """Jobs, the newest first; filters are user_id and job_type."""
        return self.pages("/api/jobs", filters)

    def job(self, job_id: int) -> dict[str, Any]:
        return self._told("GET", f"/api/jobs/{job_id}")

    def job_items(self, job_id: int, **filters: Any) -> Iterator[dict[str, Any]]:
        """Rows of a job in the order of its file; with statuses (by commas), by when they changed last."""
        return self.pages(f"/api/jobs/{job_id}/items", filters)

    def pending(self, **filters: Any) -> Iterator[dict[str, Any]]:
        """Rows of all jobs that wait or are worked on.

        Filters are statuses, user_id, job_type, job_id (one or more, by commas), since and until: when they changed.
        """
        return self.pages("/api/pending", _dated(filters))

    def pending_counts(self, **filters: Any) -> dict[str, Any]:
        """How many rows of all jobs there are, by status; the same filters, but for statuses."""
        told: dict[str, Any] = self.request("GET", "/api/pending/counts", query=_camel(_dated(filters)))
        return told

    def job_counts(self, job_id: int) -> dict[str, Any]:
        """How many rows of a job there are, by status."""
        return self._told("GET", f"/api/jobs/{job_id}/counts")

    def pause_job(self, job_id: int) -> dict[str, Any]:
        """Start no more of its rows until it is resumed."""
        return self._told("POST", f"/api/jobs/{job_id}/pause")

    def resume_job(self, job_id: int) -> dict[str, Any]:
        return self._told("POST", f"/api/jobs/{job_id}/resume")

    def kick_off_job(self, job_id: int, seconds: float = 5.0) -> dict[str, Any]:
        """Have rows of it worked off by the service itself, for so long; tells what came of it."""
        path = f"/api/jobs/{job_id}/kickoff?durationMs={round(seconds * 1000)}"
        return self._told("POST", path)

    def cancel_job(self, job_id: int, reason: str = "") -> dict[str, Any]:
        """Take and start no more rows, and cancel all that have not ended."""
        return self._told("POST", f"/api/jobs/{job_id}/cancel", {"reason": reason})

    def reprocess_job(self, job_id: int, item_ids: Sequence[int] | None = None, **options: Any) -> int:
        """Have rows tried once more, these or all of some statuses; how many are meant, at most.

        Options are statuses (default ERROR and NOT_FOUND) and reset.
        """
        scope = {"scope": "job"} if item_ids is None else {"scope": "items", "itemIds": list(item_ids)}
        return int(self._told("POST", f"/api/jobs/{job_id}/reprocess", {**scope, **_camel(options)})["items"])

    def remove_job(self, job_id: int) -> None:
        """Forget a job with its rows and its file."""
        self.request("DELETE", f"/api/jobs/{job_id}")

    def export_job(self, job_id: int, out: BinaryIO, format: str = "xlsx") -> None:
        """Write all rows of a job, with what came in and went out, to this file."""
        self.download(f"/api/jobs/{job_id}/export", {"format": format}, out)

    def job_rejects(self, job_id: int, out: BinaryIO, format: str = "xlsx") -> None:
        """Write the rows in error, to be mended and sent again, to this file."""
        self.download(f"/api/jobs/{job_id}/rejects", {"format": format}, out)

    def mend_job(self, job_id: int, file: BinaryIO, name: str) -> dict[str, Any]:
        """Have mended rejects tried in place of the rows in error that have the same numbers."""
        told: dict[str, Any] = self._upload(f"/api/jobs/{job_id}/mend", file, name, {}, None)
        return told

    def refused_row(self, job_id: int, row: int) -> dict[str, Any]:
        """A row in error as it came, by its number in the file."""
        return self._told("GET", f"/api/jobs/{job_id}/rows/{row}")

    def mend_row(self, job_id: int, row: int, **values: Any) -> None:
        """Have a row in error tried with these values, by column, in place of those that came."""
        self._told("POST", f"/api/jobs/{job_id}/rows/{row}/mend", {"values": values})

    def job_types(self) -> Iterator[dict[str, Any]]:
        """Which types of jobs the service knows."""
        return self.pages("/api/jobs/types", {})

    def scan(self, again: bool = False) -> dict[str, Any]:
        """Have a job made of every file that was dropped where the service looks; `again`: also what was refused."""
        return self._told("POST", "/api/ingestion/scan", {"again": again})

    # -- review, and acts on many items

    def groups(self, **filters: Any) -> Iterator[dict[str, Any]]:
        """Failures in review that look alike, the largest groups first."""
        return self.pages("/api/review", filters)

    def review_totals(self, user_id: str | None = None) -> dict[str, Any]:
        """How many items are in review, and in how many groups."""
        told: dict[str, Any] = self.request("GET", "/api/review/totals", query={"userId": user_id})
        return told

    def group(self, group_id: str) -> dict[str, Any]:
        """One group, with a sample's error and what people wrote about it."""
        return self._told("GET", f"/api/review/{quote(group_id, safe='')}")

    def write_note(self, group_id: str, text: str) -> dict[str, Any]:
        return self._told("POST", f"/api/review/{quote(group_id, safe='')}/notes", {"text": text})

    def canary(self, group_id: str) -> int:
        """Try one of a group again, to see whether the cause is gone; returns which."""
        (item_id,) = self._told("POST", f"/api/review/{quote(group_id, safe='')}/canary")["ids"]
        return int(item_id)

    def retry_group(self, group_id: str, rate: float | None = None, queue: str | None = None) -> dict[str, Any]:
        """Try all of a group again: so many a second, or all at once without a `rate`; in this queue, if given."""
        return self.order("retry", {"state": "failed", "error_group": group_id}, rate=rate, queue=queue)

    def discard_group(self, group_id: str, reason: str = "") -> dict[str, Any]:
        """Take all of a group out of review for good."""
        return self.order("discard", {"state": "failed", "error_group": group_id}, reason=reason)

    def count(self, action: str, filter: Mapping[str, Any]) -> int:
        """How many items an act would mean, up to a million; filters are those of `items`, but for user_id."""
        told = self._told("POST", "/api/acts/count", {"action": action, "filter": _camel(_dated(filter))})
        return int(told["count"])

    def order(
        self,
        action: str,
        filter: Mapping[str, Any],
        rate: float | None = None,
        reason: str = "",
        queue: str | None = None,
    ) -> dict[str, Any]:
        """Have all items of a filter cancelled, retried or discarded, as durable work.

        Retries come at so many a second (`rate`), and wait in another `queue` if one is given.
        """
        body = {"action": action, "filter": _camel(_dated(filter)), "rate": rate, "reason": reason, "queue": queue}
        return self._told("POST", "/api/acts", body)

    def acts(self, **filters: Any) -> Iterator[dict[str, Any]]:
        """Acts on many items, newest first."""
        return self.pages("/api/acts", filters)

    def act(self, act_id: int) -> dict[str, Any]:
        """How far it is."""
        return self._told("GET", f"/api/acts/{act_id}")

    def cancel_act(self, act_id: int) -> dict[str, Any]:
        """Stop it where it stands; what was done stays done."""
        return self._told("POST", f"/api/acts/{act_id}/cancel")

    # -- schedules

    def schedule(
        self, task: str, rule: str, key: str, args: Mapping[str, Any] | None = None, **options: Any
    ) -> Schedule:
        """Create a schedule, or change that under this key; options are zone, catch_up, max_lateness, overlap, rank."""
        body = {"task": task, "rule": rule, "key": key, "args": dict(args or {}), **_camel(options)}
        return convert(self.request("POST", "/api/schedules", body), Schedule)

    def schedules(self, **filters: Any) -> Iterator[Schedule]:
        return (convert(each, Schedule) for each in self.pages("/api/schedules", filters))

    def find_schedule(self, schedule_id: int) -> Schedule:
        return convert(self.request("GET", f"/api/schedules/{schedule_id}"), Schedule)

    def change_schedule(self, schedule_id: int, **fields: Any) -> Schedule:
        """Other values: rule, zone, args, catch_up, max_lateness, overlap, rank."""
        return convert(self.request("PATCH", f"/api/schedules/{schedule_id}", _camel(fields)), Schedule)

    def act_on_schedule(self, schedule_id: int, act: str) -> Schedule:
        """pause, resume, run or reactivate."""
        return convert(self.request("POST", f"/api/schedules/{schedule_id}/{quote(act, safe='')}"), Schedule)

    def act_on_schedules(self, action: str, *ids: int, skip: bool = False) -> list[int]:
        """pause, resume, run, reactivate or remove these schedules, all or none; with `skip`, those that can be."""
        body = {"action": action, "ids": list(ids), "skip": skip}
        return [int(schedule_id) for schedule_id in self._told("POST", "/api/schedules/act", body)["ids"]]

    def reactivate_schedules(self, task: str | None = None, cause: str | None = None, run: bool = False) -> int:
        """Reactivate all that were deactivated, by task and by the class of their last error; returns how many."""
        asked, count, is_more = {"task": task, "cause": cause, "run": run}, 0, True
        while is_more:
            told = self._told("POST", "/api/schedules/reactivate", asked)
            count, is_more = count + int(told["reactivated"]), told["isMore"]
        return count

    def remove_schedule(self, schedule_id: int) -> None:
        self.request("DELETE", f"/api/schedules/{schedule_id}")

    def preview(self, rule: str, zone: str = "UTC", n: int = 5) -> dict[str, Any]:
        """What a rule means, in words and in its next times."""
        return self._told("POST", "/api/schedules/preview", {"rule": rule, "zone": zone, "n": n})

    def slots(self, ring: str | None = None) -> list[dict[str, Any]]:
        """The load of each slot: its active members."""
        found: list[dict[str, Any]] = self.request("GET", "/api/slots", query={"ring": ring})
        return found

    # -- users and keys

    def users(self) -> Iterator[dict[str, Any]]:
        """The people and programs that may come in."""
        return self.pages("/api/users", {"page_size": 500})

    def user(self, user_id: str) -> dict[str, Any]:
        return self._told("GET", f"/api/users/{quote(user_id, safe='')}")

    def create_user(self, user_id: str, role: str = "user", password: str | None = None) -> dict[str, Any]:
        """A new person or program; without a password it comes in by keys only."""
        return self._told("POST", "/api/users", {"id": user_id, "role": role, "password": password})

    def change_user(self, user_id: str, **fields: Any) -> dict[str, Any]:
        """Another role or password, or disabled=True to shut them out."""
        return self._told("PATCH", f"/api/users/{quote(user_id, safe='')}", _camel(fields))

    def keys(self, user_id: str | None = None) -> Iterator[dict[str, Any]]:
        """API keys without their secrets: of this user, or of all whose keys you may see."""
        return self.pages("/api/keys", {"user_id": user_id, "page_size": 500})

    def make_key(self, name: str, **options: Any) -> dict[str, Any]:
        """A new key, with its `secret`, which nobody can show again; options are user_id, scopes, expires_at."""
        return self._told("POST", "/api/keys", {"name": name, **_camel(options)})

    def revoke_key(self, key_id: str) -> dict[str, Any]:
        return self._told("DELETE", f"/api/keys/{quote(key_id, safe='')}")

    # -- the rest

    def limits(self) -> Iterator[dict[str, Any]]:
        """What limits have counted, and what a person set in place of the code's values."""
        return self.pages("/api/limits", {"page_size": 500})

    def set_limit(self, name: str, limit: str | None) -> None:
        """Allow so much from now on: `2/1m`, `4`, or None for what the code says."""
        path = f"/api/limits/{quote(name, safe='')}"
        if limit is None:
            self.request("DELETE", path)
        else:
            self.request("PUT", path, {"limit": limit})

    def workers(self) -> Iterator[dict[str, Any]]:
        """Workers that gave a sign of life within a day and did not sign off."""
        return self.pages("/api/workers", {"page_size": 500})

    def alerts(self) -> list[dict[str, Any]]:
        """What is wrong now."""
        found: list[dict[str, Any]] = self.request("GET", "/api/alerts")
        return found

    def late(self, grace: float = 300.0, most: int = 100) -> list[dict[str, Any]]:
        """Done items of all owners that were started later than this after their time, latest first."""
        found: list[dict[str, Any]] = self.request("GET", "/api/late", query={"grace": grace, "most": most})
        return found

    def stuck(self, grace: float = 3_600.0, most: int = 100) -> list[dict[str, Any]]:
        """Items of all owners that are not done this long after their time, oldest first."""
        found: list[dict[str, Any]] = self.request("GET", "/api/stuck", query={"grace": grace, "most": most})
        return found

    def silence(self) -> float | None:
        """Seconds since the last sign of life of any worker; None when there never was one."""
        found: float | None = self.request("GET", "/api/alive")["ageSeconds"]
        return found

    def now(self) -> dict[str, Any]:
        """How it is now, whether all is well and why not."""
        found: dict[str, Any] = self.request("GET", "/api/now")
        return found

    def history(
        self, *, minutes: int = 60, task: str | None = None, measure: str | None = None, job: int | None = None
    ) -> dict[str, Any]:
        """What happened in the last minutes, step by step: of all tasks and paces, of one task, or of one job."""
        given = {"minutes": minutes, "task": task, "measure": measure, "job": job}
        found: dict[str, Any] = self.request("GET", "/api/history", query=given)
        return found

    def audit(self, subject: str | None = None) -> Iterator[dict[str, Any]]:
        """Who did what, newest first; a subject is such as `item:7`."""
        return self.pages("/api/audit", {"subject": subject})

    def queues(self) -> list[dict[str, Any]]:
        return list(self.pages("/api/queues", {"page_size": 500}))

    def pause(self, queue: str) -> str | None:
        """Start nothing more of this queue until it is resumed; a note when nothing has this name yet."""
        answer = self.request("POST", f"/api/queues/{quote(queue, safe='')}/pause")
        return answer["note"] if answer else None

    def resume(self, queue: str) -> None:
        self.request("POST", f"/api/queues/{quote(queue, safe='')}/resume")

    def simulate(self, app: str, **said: Any) -> dict[str, Any]:
        """The next days of an app in virtual time; options: days, parameters, seed, down_hours, fail_rate."""
        return self._told("POST", "/api/simulate", {"app": app, **_camel(said)})

    def me(self) -> dict[str, Any]:
        found: dict[str, Any] = self.request("GET", "/api/me")
        return found

    def _told(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        told: dict[str, Any] = self.request(method, path, body)
        return told

    def pages(self, path: str, filters: Mapping[str, Any] | None = None) -> Iterator[dict[str, Any]]:
        """All rows of a list, a page at a time."""
        after: str | None = None
        while True:
            page = self.request("GET", path, query={**_camel(filters or {}), "after": after})
            yield from page["items"]
            after = page["next"]
            if after is None:
                return

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        query: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
    ) -> Any:
        """One request, repeated while that is safe; the decoded answer."""
        headers = {"Accept": "application/json"}
        text = None
        if body is not None or method in ("POST", "PUT", "PATCH"):
            text = json.dumps(body if body is not None else {}, default=_text, allow_nan=False).encode()
            headers["Content-Type"] = "application/json"
        if method == "POST":
            headers["Idempotency-Key"] = idempotency_key or uuid4().hex
        return self._insist(method, self._target(path, query), lambda: text, headers)

    def _upload(
        self, path: str, file: BinaryIO, name: str, fields: Mapping[str, Any], idempotency_key: str | None
    ) -> Any:
        """Send a file as a form, as it is read; from its start again when that is needed."""
        boundary = uuid4().hex
        size = file.seek(0, 2)
        head, tail = _form(boundary, name, fields), f"\r\n--{boundary}--\r\n".encode()
        headers = {
            "Accept": "application/json",
            "Content-Type": f"multipart/form-data; boundary={boundary}",
            "Content-Length": str(len(head) + size + len(tail)),
            "Idempotency-Key": idempotency_key or uuid4().hex,
        }

        def whole() -> Iterator[bytes]:
            file.seek(0)
            yield head
            while portion := file.read(PORTION):
                yield portion
            yield tail

        return self._insist("POST", self._target(path, None), whole, headers)

    def download(self, path: str, query: Mapping[str, Any], out: BinaryIO) -> None:
        """Write what is at this path to a file, as it comes."""
        target = self._target(path, query)
        try:
            response, first = self._begun(target)
            if response.status >= 400:
                raise _refused(response.status, _decoded(response))
            out.write(first)
            while portion := response.read(PORTION):
                out.write(portion)
        except (OSError, HTTPException) as error:
            self.close()
            raise ServiceError(f"cannot reach {self.place}: {error}") from error

    def _begun(self, target: str) -> tuple[HTTPResponse, bytes]:
        """The answer with the first portion of its file, which is empty of a refusal."""
        is_kept = self._connection is not None
        try:
            response = self._asked("GET", target, None, {})
            return response, b"" if response.status >= 400 else response.read(PORTION)
        except (OSError, HTTPException):
            self.close()
            if not is_kept:
                raise
        return self._begun(target)  # the service may have closed a connection that was not in use for a while

    def _target(self, path: str, query: Mapping[str, Any] | None) -> str:
        given = {name: value for name, value in (query or {}).items() if value is not None}
        return self._parts.path.rstrip("/") + path + (f"?{urlencode(given, doseq=True)}" if given else "")

    def _insist(self, method: str, target: str, body: Callable[[], Body], headers: Mapping[str, str]) -> Any:
        """Send it until there is an answer, as far as that can help."""
        for number in range(1, TRIES + 1):
            try:
                response = self._asked(method, target, body(), headers)
                status, answer, wait = response.status, _decoded(response), _retry_after(response)
            except (OSError, HTTPException) as error:
                self.close()
                if number == TRIES:
                    raise ServiceError(f"cannot reach {self.place}: {error}") from error
                wait = None
            else:
                if status < 400:
                    return answer
                is_under_way = status == 409 and wait is not None  # an earlier one of ours, whose answer we lost
                if number == TRIES or not (status in PASSING or is_under_way):
                    raise _refused(status, answer)
            time.sleep(min(wait or PAUSE * 2**number, 30.0) * (0.5 + random.random() / 2))  # noqa: S311
        raise AssertionError  # the last try returned or raised

    def _asked(self, method: str, target: str, body: Body, headers: Mapping[str, str]) -> HTTPResponse:
        if self._connection is None:
            kind = HTTPSConnection if self._parts.scheme == "https" else HTTPConnection
            self._connection = kind(self._parts.hostname or "", self._parts.port, timeout=self._timeout)
        known = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        try:
            self._connection.request(method, target, body, {"User-Agent": "duly-client", **headers, **known})
        except ConnectionError as error:
            return self._refusal(self._connection, error)
        return self._connection.getresponse()

    def _refusal(self, connection: HTTPConnection, error: ConnectionError) -> HTTPResponse:
        """What a service said that would not take a request to its end; the error when it refused nothing."""
        if connection.sock is None:  # there was nobody to answer
            raise error
        try:
            response = connection.getresponse()
        except (OSError, HTTPException):
            raise error from None
        if not 400 <= response.status < 500:
            raise error
        # What was not sent is missing, so nothing else can go over this connection; the answer is still read from it.
        if connection.sock is not None:
            connection.sock.close()
            connection.sock = None
        self._connection = None
        return response


def _form(boundary: str, name: str, fields: Mapping[str, Any]) -> bytes:
    """What stands before the bytes of the file."""
    parts = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="{field}"\r\n\r\n{_said(value)}\r\n'
        for field, value in fields.items()
        if value is not None
    ]
    quoted = "".join("_" if letter in '"\\\r\n' else letter for letter in name)
    file = f'Content-Disposition: form-data; name="file"; filename="{quoted}"'
    return f"{''.join(parts)}--{boundary}\r\n{file}\r\nContent-Type: application/octet-stream\r\n\r\n".encode()


def _said(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _decoded(response: HTTPResponse) -> Any:
    text = response.read(ANSWER_LIMIT)
    if response.length:  # cut off, which a read of at most so many bytes does not mind
        raise IncompleteRead(text, response.length)
    if not text or "json" not in response.headers.get("content-type", ""):
        return text.decode("utf8", "replace") if text else None
    try:
        return json.loads(text)
    except ValueError as error:
        raise HTTPException(f"the answer is not JSON: {error}") from None


def _retry_after(response: HTTPResponse) -> float | None:
    text = response.headers.get("retry-after", "")
    return float(text) if text.isdecimal() else None


def _refused(status: int, answer: Any) -> ServiceError:
    if isinstance(answer, dict):
        return ServiceError(str(answer.get("detail") or answer.get("title") or status), status, answer.get("field"))
    return ServiceError(f"the service answered {status}", status)


def _camel(options: Mapping[str, Any]) -> dict[str, Any]:
    found = {}
    for name, value in options.items():
        first, *rest = name.split("_")
        found[first + "".join(part.capitalize() for part in rest)] = (
            _text(value) if isinstance(value, datetime) else value
        )
    return found


def _dated(filters: Mapping[str, Any]) -> dict[str, Any]:
    """Filters with the names that Python keeps for itself: from and to."""
    return {{"since": "from", "until": "to"}.get(name, name): value for name, value in filters.items()}


def _text(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else str(value)
