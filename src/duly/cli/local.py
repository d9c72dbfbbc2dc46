"""The database behind the same methods as `duly.client.Client`, so that a command is written once for both.

It calls the verbs as the user of this machine. A test compares its signatures with those of the client.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar, Unpack

from msgspec import convert
from msgspec.structs import asdict

from duly.cli import options
from duly.core.errors import InputError
from duly.core.filters import ActOptions, ItemEdit, ItemFilter, ScheduleChange, ScheduleFields, UploadOptions
from duly.core.model import Placed, Status
from duly.core.picture import Picture
from duly.core.results import FilePreview, Kickoff, MendReport, ScanReport, ScheduleAction, ScheduleState
from duly.core.shown import (
    Action,
    Alert,
    Chart,
    GroupStory,
    ItemsFound,
    JobItem,
    JobRow,
    KeyInfo,
    LateItem,
    LimitUse,
    NewKey,
    PendingItem,
    QueueDepth,
    ReviewNote,
    Role,
    Row,
    ScheduleStory,
    Scope,
    ShownAct,
    ShownAuditLine,
    ShownGroup,
    ShownSchedule,
    Story,
    StuckItem,
    User,
)
from duly.verbs.acts import shown
from duly.verbs.audit import line_shown

if TYPE_CHECKING:
    from duly import Duly
    from duly.tasks.puttable import Options

T = TypeVar("T")

PAGE = 500  # rows that are read at a time


class Local:
    def __init__(self, app: Duly) -> None:
        self.app = app
        self._verbs = app.verbs
        self._who = options.who()

    # -- items

    def put(
        self,
        task: str,
        args: Mapping[str, Any] | None = None,
        *,
        at: datetime | str | None = None,
        delay: float | timedelta | None = None,
        key: str | None = None,
        rank: int | None = None,
        tries: int | None = None,
        max_lateness: float | timedelta | None = None,
    ) -> Placed[Any]:
        given: Options = {
            "at": at, "delay": delay, "key": key, "rank": rank, "tries": tries, "max_lateness": max_lateness,
        }  # fmt: skip
        new = self.app.task_named(task).make_item(dict(args or {}), given, self.app.telemetry.traceparent())
        return self._verbs.items.put(self._who, new)

    def again(
        self,
        item_id: int,
        *,
        key: str | None = None,
        at: datetime | str | None = None,
        delay: float | timedelta | None = None,
    ) -> Placed[Any]:
        trace = self.app.telemetry.traceparent()
        return self._verbs.items.again(self._who, item_id, key=key, at=at, delay=delay, trace=trace)

    def item(self, item_id: int) -> Row:
        return self._verbs.items.find(self._who, item_id)

    def story(self, item_id: int) -> Story:
        return self.app.read.story(item_id)

    def find_items(self, most: int, **filter: Unpack[ItemFilter]) -> ItemsFound:
        from duly.verbs.listing import Filter

        given = _given(filter)
        owner, states, where = given.pop("user_id", None), given.pop("states", ()), given.pop("where", ())
        fits = Filter(**given, states=tuple(states), where=tuple(where))
        rows: list[Row] = []
        scanned, after = 0, None
        while True:
            page = self._verbs.listing.page(self._who, fits, owner=owner, after=after, most=most - len(rows))
            rows += page.rows
            scanned, after = scanned + page.scanned, page.place
            if after is None or len(rows) >= most:
                return ItemsFound(rows, None, scanned, page.is_indexed)

    def cancel(self, *ids: int, reason: str = "") -> list[int]:
        return self._verbs.items.cancel(self._who, *ids, reason=reason)

    def retry(self, *ids: int, at: datetime | str | None = None, delay: float | timedelta | None = None) -> list[int]:
        return self._verbs.items.retry(self._who, *ids, at=at, delay=delay)

    def discard(self, *ids: int, reason: str = "") -> list[int]:
        return self._verbs.items.discard(self._who, *ids, reason=reason)

    def edit(self, item_id: int, **fields: Unpack[ItemEdit]) -> Row:
        return self._verbs.items.edit(self._who, item_id, **fields)

    # -- jobs

    def create_job(self, file: BinaryIO, name: str, **options: Unpack[UploadOptions]) -> int:
        from duly.intake.intake import PORTION, kept_by

        with self.app.intake.receive() as writer:
            while portion := file.read(PORTION):
                writer.write(portion)
        return self.app.intake.create(self._who, kept_by(writer), name, **_file_options(options)).id

    def preview_job(self, file: BinaryIO, name: str, **options: Unpack[UploadOptions]) -> FilePreview:
        return self.app.intake.preview(self._who, file, name, **_file_options(options))

    def jobs(
        self, *, job_type: str | None = None, user_id: str | None = None, most: int | None = None
    ) -> Iterator[JobRow]:
        jobs = self._verbs.jobs
        return _walk(most, lambda last, n: jobs.page(self._who, user_id, job_type, last.id if last else None, n))

    def job(self, job_id: int) -> JobRow:
        return self._verbs.jobs.show(self._who, job_id)

    def job_items(self, job_id: int, *, statuses: Sequence[Status] = (), most: int | None = None) -> Iterator[JobItem]:
        rows = self._verbs.job_rows
        if statuses:
            return _walk(most, lambda last, n: rows.page(self._who, job_id, statuses, _place(last), n))
        return _walk(most, lambda last, n: rows.by_number(self._who, job_id, last.row_no if last else 0, n))

    def pending(
        self,
        *,
        statuses: Sequence[Status] = (),
        job_type: str | None = None,
        job_ids: Sequence[int] = (),
        since: datetime | None = None,
        until: datetime | None = None,
        user_id: str | None = None,
        most: int | None = None,
    ) -> Iterator[PendingItem]:
        def find(last: PendingItem | None, n: int) -> list[PendingItem]:
            return self._verbs.job_rows.pending(
                self._who, user_id, statuses or ("PENDING", "PROCESSING"), job_type, _place(last), n,
                job_ids=job_ids, since=since, until=until,
            )  # fmt: skip

        return _walk(most, find)

    def pause_job(self, job_id: int) -> JobRow:
        return self._verbs.jobs.pause(self._who, job_id)

    def resume_job(self, job_id: int) -> JobRow:
        return self._verbs.jobs.resume(self._who, job_id)

    def kick_off_job(self, job_id: int, seconds: float = 5.0) -> Kickoff:
        return self.app.kickoffs.run(self._who, job_id, seconds)

    def cancel_job(self, job_id: int, reason: str = "") -> JobRow:
        return self._verbs.jobs.cancel(self._who, job_id, reason)

    def reprocess_job(
        self,
        job_id: int,
        *,
        item_ids: Sequence[int] = (),
        statuses: Sequence[Status] = ("ERROR", "NOT_FOUND"),
        reset: bool = False,
    ) -> int:
        chosen = {"ids": item_ids or None, "statuses": statuses, "is_reset": reset}
        return self._verbs.jobs.reprocess(self._who, job_id, **chosen)  # type: ignore[arg-type]

    def remove_job(self, job_id: int) -> None:
        self._verbs.jobs.remove(self._who, job_id)

    def export_job(self, job_id: int, out: BinaryIO, format: str = "xlsx") -> None:
        out.writelines(self.app.exports.whole(self._who, job_id, format))

    def export_rejects(self, job_id: int, out: BinaryIO, format: str = "xlsx") -> None:
        out.writelines(self.app.exports.rejects(self._who, job_id, format))

    def mend_job(self, job_id: int, file: BinaryIO, name: str) -> MendReport:
        from duly.intake.mending import mend

        return mend(self.app.intake, self._who, job_id, file, name)

    def scan(self, again: bool = False) -> ScanReport:
        return self.app.intake.scanner.scan(self._who, again)

    # -- review, and acts on many items

    def groups(self, *, user_id: str | None = None, most: int | None = None) -> Iterator[ShownGroup]:
        def find(last: ShownGroup | None, n: int) -> list[ShownGroup]:
            return self._verbs.review.groups(self._who, user_id, n, (last.items, last.id) if last else None)

        return _walk(most, find)

    def group(self, group_id: str) -> GroupStory:
        return self._verbs.review.story(self._who, group_id)

    def write_note(self, group_id: str, text: str) -> ReviewNote:
        return self._verbs.review.write_note(self._who, group_id, text)

    def canary(self, group_id: str) -> int:
        return self._verbs.review.canary(self._who, group_id)

    def retry_group(self, group_id: str, rate: float | None = None, queue: str | None = None) -> ShownAct:
        return shown(self._verbs.review.retry(self._who, group_id, rate, queue))

    def discard_group(self, group_id: str, reason: str = "") -> ShownAct:
        return shown(self._verbs.review.discard(self._who, group_id, reason))

    def count(self, action: Action, filter: ActOptions) -> int:
        return self._verbs.acts.count(self._who, _act_filter(filter)).items

    def order(
        self,
        action: Action,
        filter: ActOptions,
        *,
        rate: float | None = None,
        reason: str = "",
        queue: str | None = None,
    ) -> ShownAct:
        made = self._verbs.acts.order(self._who, action, _act_filter(filter), rate=rate, reason=reason, queue=queue)
        return shown(made)

    def acts(self, *, user_id: str | None = None, most: int | None = None) -> Iterator[ShownAct]:
        acts = self._verbs.acts
        return map(shown, _walk(most, lambda last, n: acts.page(self._who, user_id, last.id if last else None, n)))

    def act(self, act_id: int) -> ShownAct:
        return shown(self._verbs.acts.get(self._who, act_id))

    def cancel_act(self, act_id: int) -> ShownAct:
        return shown(self._verbs.acts.cancel(self._who, act_id))

    # -- schedules

    def schedule(
        self,
        task: str,
        rule: str,
        key: str,
        args: Mapping[str, Any] | None = None,
        **options: Unpack[ScheduleFields],
    ) -> ShownSchedule:
        schedules = self._verbs.schedules
        made = schedules.create(self._who, task, _rule(rule), args or {}, key=key, **_given(options))
        return schedules.shown(made)

    def schedules(
        self,
        *,
        task: str | None = None,
        key: str | None = None,
        state: ScheduleState | None = None,
        ring: str | None = None,
        slot: int | None = None,
        after: int = 0,
        most: int | None = None,
    ) -> Iterator[ShownSchedule]:
        def find(last: ShownSchedule | None, n: int) -> list[ShownSchedule]:
            found = schedules.page(
                task=task, key=key, state=state, ring=ring, slot=slot, after=last.id if last else after, most=n
            )
            return [schedules.shown(each) for each in found]

        schedules = self._verbs.schedules
        return _walk(most, find)

    def schedule_story(self, schedule_id: int, ahead: int = 5) -> ScheduleStory:
        schedules = self._verbs.schedules
        return schedules.story(schedules.reached(self._who, schedule_id), ahead)

    def change_schedule(self, schedule_id: int, **fields: Unpack[ScheduleChange]) -> ShownSchedule:
        schedules = self._verbs.schedules
        return schedules.shown(schedules.change(self._who, schedule_id, **_given(fields)))

    def act_on_schedules(self, action: ScheduleAction, *ids: int, skip: bool = False) -> list[int]:
        return self._verbs.schedules.act(self._who, action, ids, skip=skip)

    def reactivate_all(self, *, task: str | None = None, cause: str | None = None, run: bool = False) -> int:
        count, is_more = 0, True
        while is_more:  # in portions, so that a long one can be interrupted and repeated
            done, is_more = self._verbs.schedules.reactivate_all(self._who, task, cause=cause, run_now=run)
            count += done
        return count

    # -- users and keys

    def users(self) -> Iterator[User]:
        return _walk(None, lambda last, n: self._verbs.users.page(self._who, last.id if last else "", n))

    def user(self, user_id: str) -> User:
        return self._verbs.users.get(self._who, user_id)

    def create_user(self, user_id: str, role: Role = "user", password: str | None = None) -> User:
        return self._verbs.users.create(self._who, user_id, role, password)

    def change_user(
        self, user_id: str, *, role: Role | None = None, password: str | None = None, disabled: bool | None = None
    ) -> User:
        return self._verbs.users.change(self._who, user_id, role=role, password=password, is_disabled=disabled)

    def keys(self, user_id: str | None = None) -> Iterator[KeyInfo]:
        return _walk(None, lambda last, n: self._verbs.users.keys(self._who, user_id, last.id if last else "", n))

    def make_key(
        self,
        name: str,
        *,
        user_id: str | None = None,
        scopes: Sequence[Scope] = ("read", "write"),
        expires_at: datetime | None = None,
    ) -> NewKey:
        if user_id is None:
            raise InputError("user_id", "is required: the local admin needs no key")
        made, secret = self._verbs.users.make_key(self._who, user_id, name, tuple(scopes), expires_at)
        return NewKey(**asdict(made), secret=secret)

    def revoke_key(self, key_id: str) -> KeyInfo:
        return self._verbs.users.revoke_key(self._who, key_id)

    # -- queues, limits and what happens

    def queues(self) -> list[QueueDepth]:
        return convert(self.app.read.queues(), list[QueueDepth])

    def pause(self, queue: str) -> str | None:
        return self._verbs.queues.pause(self._who, queue)

    def resume(self, queue: str) -> None:
        self._verbs.queues.resume(self._who, queue)

    def limits(self) -> list[LimitUse]:
        return self.app.read.limits()

    def set_limit(self, name: str, limit: str | None) -> None:
        self._verbs.limits.set(self._who, name, limit)

    def alerts(self) -> list[Alert]:
        return self.app.read.alerts()

    def late(self, grace: float = 300.0, most: int = 100) -> list[LateItem]:
        return self.app.read.late(grace, most)

    def stuck(self, grace: float = 3_600.0, most: int = 100) -> list[StuckItem]:
        return self.app.read.stuck(grace, most)

    def silence(self) -> float | None:
        return self.app.read.silence()

    def now(self) -> Picture:
        return self._verbs.now.look(self._who)

    def history(
        self, *, minutes: int = 60, task: str | None = None, measure: str | None = None, job: int | None = None
    ) -> Chart:
        return self._verbs.history.look(self._who, minutes=minutes, task=task, measure=measure, job_id=job)

    def audit(self, subject: str | None = None, *, most: int | None = None) -> Iterator[ShownAuditLine]:
        audit = self._verbs.audit
        return map(line_shown, _walk(most, lambda last, n: audit.page(subject, last.id if last else None, n)))


def _walk(most: int | None, find: Callable[[T | None, int], Sequence[T]]) -> Iterator[T]:
    """The rows of a list, at most `most`, read page by page. `find` gets the last row before, and how many to find."""

    def rows() -> Iterator[T]:
        size = min(most or PAGE, PAGE)
        found = find(None, size)
        while found:
            yield from found
            found = find(found[-1], size) if len(found) >= size else ()

    return islice(rows(), most)


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _place(last: JobItem | None) -> tuple[datetime, int]:
    from duly.verbs.job_rows import START

    return (last.changed_at, last.id) if last else START


def _act_filter(filter: ActOptions) -> dict[str, Any]:
    values = _given(filter)
    states, where = values.pop("states", ()), values.pop("where", ())
    return {**values, "state": ",".join(states) or None, "where": list(where) or None}


def _file_options(given: UploadOptions) -> dict[str, Any]:
    from duly.intake.intake import FileOptions

    values = dict(given)
    return {"job_type": values.pop("job_type", "csv"), "file_options": convert(values, FileOptions)}


def _rule(text: str) -> Any:
    """A rule, or a seat in the task's ring: `slots 24`."""
    from duly.core.policy.recur import Slots

    word, _, number = text.partition(" ")
    try:
        return Slots(int(number)) if word == "slots" and number.isdecimal() else text
    except ValueError as error:
        raise InputError("rule", str(error)) from None
