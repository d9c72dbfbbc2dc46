"""What verbs and the service answer that is not a row of one table: signatures, previews, reports.

Like `shown`, this is the only list of these fields: the service writes them, and the client reads them back.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Generic, Literal, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from duly.core.model import Status
from duly.core.shown import Alert, ClockNote, JobRow, QueueDepth, ReviewTotals, Scope, WorkerLife
from duly.core.wire import Doc

R_co = TypeVar("R_co", covariant=True)

LISTED = 100  # files of each kind that a scan lists one by one

DateField = Literal["created", "due", "started", "finished"]
ScheduleState = Literal["active", "paused", "broken"]
ScheduleAction = Literal["pause", "resume", "run", "reactivate", "remove"]
Level = Literal["ok", "warn", "bad"]
ParamType = Literal["string", "integer", "number", "boolean", "datetime", "json"]


# -- tasks, rules and slots


class Param(Struct, frozen=True):
    """An argument of a task."""

    name: str
    type: Annotated[ParamType, Doc("The type of its values; json: any other value, written as JSON.")]
    required: bool
    default: Any  # as JSON shows it; None also where there is none
    is_nullable: bool  # None is accepted


class Signature(Struct, frozen=True):
    """A task as shown to people who want to put it."""

    name: str
    queue: str
    doc: str
    params: list[Param]
    takes_more: bool  # arguments with other names are taken too
    retry: str  # in plain words
    limits: list[str]


class RulePreview(Struct, frozen=True):
    """A rule in words and in its next times."""

    rule: str
    describe: str
    next: list[datetime]
    notes: Annotated[list[ClockNote], Doc("Clock changes at these times.")]


class SlotLoad(Struct, frozen=True):
    """The load of one slot."""

    ring: str
    slot: int
    members: Annotated[int, Doc("Active schedules with this slot.")]


# -- files and jobs


class JobField(Struct, frozen=True):
    name: str
    kind: str
    is_needed: Annotated[bool, Doc("A row must have at least one of the fields that are needed.")]


class JobTypeInfo(Struct, frozen=True):
    """A job type, and how it maps the columns of a file."""

    name: str
    task: str
    kinds: Annotated[tuple[str, ...], Doc("The kinds of files that it takes.")]
    fields: Annotated[list[JobField] | None, Doc("What columns are mapped to; null: columns are the arguments.")]


class PreviewRow(Struct, frozen=True):
    """A row of the file, its fields, and why it would be rejected."""

    number: int
    line: int
    values: dict[str, Any]
    normal: Annotated[dict[str, str], Doc("The fields that the row would have.")]
    problems: Annotated[tuple[str, ...], Doc("Why it would be rejected.")]


class FilePreview(Struct, frozen=True, kw_only=True):
    """The preview of a file: its kind, the mapping of its columns, and its first rows."""

    kind: Annotated[str, Doc("csv, jsonl, xlsx, image, or images for a zip file of them.")]
    columns: tuple[str, ...]
    has_header: bool
    mapping: Annotated[dict[str, str], Doc("The column of each field.")]
    unused: Annotated[tuple[str, ...], Doc("Columns that no field takes.")]
    rows: tuple[PreviewRow, ...]
    refused: int  # of these rows


class ScannedFile(Struct, frozen=True):
    """The result for one file."""

    source: Annotated[str, Doc("The address of the file, or the place that could not be read.")]
    job_id: int | None = None
    reason: str | None = None


class ScanReport(Struct, kw_only=True):
    """What one look through all places found. Of each kind of files the first ones are listed one by one."""

    found: Annotated[int, Doc("Files that exist.")] = 0
    took: Annotated[int, Doc("Files that became jobs.")] = 0
    passed_over: Annotated[int, Doc("Files taken before or by others, or that may still be written.")] = 0
    refused: Annotated[int, Doc("Files that no type of jobs takes, and places that cannot be read.")] = 0
    left: Annotated[int, Doc("Files and places that there was no time for; a worker continues with them.")] = 0
    unsettled: Annotated[int, Doc("Files passed over because they may still be written.")] = 0
    held: Annotated[str | None, Doc("Why no more files are taken for now.")] = None
    taken: Annotated[list[ScannedFile], Doc("The first of them.")] = []
    passed: Annotated[
        list[ScannedFile], Doc("The first of them, without those of earlier scans; and those left for a reason.")
    ] = []
    refusals: Annotated[list[ScannedFile], Doc("The first of them.")] = []

    @property
    def is_complete(self) -> bool:
        return not self.left and not self.unsettled

    def take(self, source: str, job_id: int) -> None:
        self.took += 1
        _list(self.taken, ScannedFile(source, job_id))

    def pass_over(self, source: str, reason: str, job_id: int | None = None) -> None:
        self.passed_over += 1
        _list(self.passed, ScannedFile(source, job_id, reason))

    def leave(self, source: str, reason: str) -> None:
        self.left += 1
        _list(self.passed, ScannedFile(source, None, reason))

    def refuse(self, source: str, reason: str) -> None:
        self.refused += 1
        _list(self.refusals, ScannedFile(source, None, reason))


def _list(many: list[ScannedFile], one: ScannedFile) -> None:
    if len(many) < LISTED:
        many.append(one)


class RejectedRow(Struct, frozen=True):
    line: int
    reason: str


class MendReport(Struct, frozen=True):
    """The result of uploading a file of corrected rows."""

    rows: int
    mended: Annotated[int, Doc("Rows that are tried now.")]
    refused: Annotated[int, Doc("Rows that are still bad, or are not in error in this job.")]
    refusals: Annotated[tuple[RejectedRow, ...], Doc("The first of these, with the reason.")]


class RowInError(Struct, frozen=True):
    """A row in error as it came, and the columns that its file has."""

    row: int
    columns: tuple[str, ...]
    values: Annotated[dict[str, Any], Doc("What could be read of it, by its columns; secrets are masked.")]


class Kickoff(Struct, frozen=True):
    """What a kickoff did."""

    job: JobRow
    seconds: Annotated[float, Doc("How long it took.")]
    processed: Annotated[int, Doc("Rows that ended.")]
    ended: Annotated[dict[str, int], Doc("These rows by their status.")]
    tried_again: Annotated[int, Doc("Rows that failed and will be tried again.")]


class JobCheck(Struct, frozen=True):
    """The counters of a job beside its rows, counted off."""

    job_id: int
    is_true: Annotated[bool, Doc("Whether all of it agrees.")]
    rows: Annotated[dict[str, int], Doc("How many rows there are (total), and how many of them ended how.")]
    counters: Annotated[dict[str, int], Doc("What the counters of the job say.")]
    untrue_rows: Annotated[int, Doc("Rows whose status is not that of their state.")]
    fixed: Annotated[bool, Doc("Whether something was wrong and was made true.")] = False


# -- users and simulations


class Me(Struct, frozen=True):
    """Who makes the request, and what they may do."""

    user_id: str
    role: str
    scopes: list[Scope]
    via: str


class Summary(Struct, frozen=True, kw_only=True):
    """planned = done + late + in_review + deactivated + skipped + still_failing + waiting"""

    planned: int
    done: Annotated[int, Doc("In time.")]
    late: Annotated[int, Doc("Done later than `lateAfterSeconds` after their time.")]
    in_review: int
    deactivated: Annotated[int, Doc("Items whose failure deactivated their schedule.")]
    skipped: Annotated[int, Doc("Not made up for, not needed, or replaced by a newer one.")]
    still_failing: Annotated[int, Doc("They wait for a retry at the end.")]
    waiting: Annotated[int, Doc("They wait for their first try at the end, or run.")]
    recovered: Annotated[int, Doc("Of the done: after failures.")]
    calls: int
    max_calls_per_minute: int
    tries: int
    late_after_seconds: float
    late_p50_seconds: Annotated[float, Doc("Half of what was done was done within this time.")]
    late_p99_seconds: float
    late_most_seconds: float


class SimulatedSeries(Struct, frozen=True):
    name: str
    points: Annotated[list[tuple[float, float]], Doc("Seconds since 1970, and the value there.")]


class Interruption(Struct, frozen=True):
    """A downtime or an outage of simulated days, and what it took to make up for it."""

    what: Literal["down", "outage"]
    start: datetime
    end: datetime
    late: Annotated[int, Doc("Items that were planned before its end, and not done by then because of it.")]
    seconds: Annotated[float | None, Doc("From its end until the last of them was tried; null: not all of them were.")]
    in_review: Annotated[int, Doc("Items that went to review before its end because of it.")]


class SimulatedDays(Struct, frozen=True):
    summary: Summary
    series: list[SimulatedSeries]
    lines: Annotated[list[str], Doc("The same in plain words.")]
    interruptions: list[Interruption]


# -- how it is now, in one picture: whether all is well and why not, and the numbers behind that


class Reason(Struct, frozen=True):
    """Why all is not well, in plain words, and the page of the dashboard on which one acts on it."""

    level: Level
    text: str
    path: Annotated[str, Doc("The page of the dashboard on which to act.")]


class QueueNow(QueueDepth, frozen=True, kw_only=True):
    lateness_seconds: Annotated[float | None, Doc("Mean lateness of starts of its tasks in the last minutes.")]
    per_minute: Annotated[float | None, Doc("Items of its tasks done lately; null where no task has this queue.")]


class ItemsNow(Struct, frozen=True):
    waiting: int
    due: int
    retrying: int
    running: int
    failed: int
    late: Annotated[int, Doc("For admins as the alert of late items counts them: 0 while there is none.")]
    capped: Annotated[bool, Doc("Only the newest items were counted.")]


class Run(Struct, frozen=True):
    """An item that runs."""

    id: int
    task: str
    key: str | None
    started_at: Annotated[datetime, Doc("When its current attempt began.")]


class WorkerNow(WorkerLife, frozen=True):
    running: int = 0
    runs: list[Run] = field(default_factory=list)  # some of them, the longest first


class LimitNow(Struct, frozen=True):
    name: str
    most: int | None  # None if set neither by a person nor by a task of this process
    per_seconds: float | None  # None: at the same time
    used: int
    fill: float  # from 0 to 1
    free_at: datetime | None  # when a limit that is full has room again, if that is known


class Recovery(Struct, frozen=True):
    """Late items are being made up for."""

    late: int
    since: datetime
    per_minute: float
    seconds: Annotated[float | None, Doc("Until nothing is late, at this rate; null while nothing is done.")]


class SchedulesNow(Struct, frozen=True):
    active: int
    paused: int
    broken: int
    next_at: datetime | None
    capped: bool


class UnservedTask(Struct, frozen=True):
    """A task with waiting items that no running worker has."""

    task: str
    items: Annotated[int, Doc("How many items of it wait, as far as they were counted.")]
    since: Annotated[datetime, Doc("Since when nobody has run it.")]
    seen_at: Annotated[datetime | None, Doc("The last report of a worker that had it; null: none in the last day.")]
    near: Annotated[str | None, Doc("The task of a running worker with the most similar name; null: none is similar.")]


class JobResult(Struct, Generic[R_co], frozen=True):
    """A row of a job with its result. `R_co` is what its handler returns."""

    number: int  # from 1, in the order in which the rows were given
    status: Status
    args: dict[str, Any]
    result: R_co  # None, which the type does not say, if it has none or has not ended
    error: str | None  # why it failed, was skipped or found nothing


class NotMoved(Struct, frozen=True):
    """An item, a schedule or a job that cannot get another task, and why."""

    kind: Literal["item", "schedule", "job"]
    id: int
    reason: str


class Retasked(Struct, frozen=True):
    """What was given another task."""

    items: Annotated[int, Doc("Items that waited or were in review.")]
    schedules: int
    jobs: Annotated[int, Doc("Jobs whose rows, or whose next step, were of the old task.")]
    running: Annotated[int, Doc("Items that run now: they keep the old task, also if they have to be tried again.")]
    refused: Annotated[list[NotMoved], Doc("What cannot be moved: the first 100.")] = []
    refused_count: int = 0
    is_more: Annotated[bool, Doc("There are more items; send the request again.")] = False

    def plus(self, later: Retasked) -> Retasked:
        """This and what was moved later; what still runs and what was refused is as it was then."""
        return replace(
            later,
            items=self.items + later.items,
            schedules=self.schedules + later.schedules,
            jobs=self.jobs + later.jobs,
        )


class Picture(Struct, frozen=True, kw_only=True):
    at: datetime
    health: Level
    reasons: list[Reason]
    totals: ItemsNow
    review: ReviewTotals
    schedules: SchedulesNow
    # What follows is about all owners, and empty for users who are not admins.
    queues: list[QueueNow] = []
    more_queues: int = 0
    workers: list[WorkerNow] = []
    more_workers: int = 0
    limits: list[LimitNow] = []
    more_limits: int = 0
    recovery: Recovery | None = None
    alerts: list[Alert] = []
    unserved: Annotated[list[UnservedTask], Doc("Tasks with waiting items that no running worker has.")] = []
