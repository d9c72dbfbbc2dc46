"""Rows as people and programs see them in pages and lists, and with their whole story.

Each struct is the only list of its fields: the store's SQL is filled in from it, rows become it by the same order, and
its types say how a value is read (see `duly.store.records`). Fields of type `Any`, `dict` and `list` are kept as JSON.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import Struct, field

from duly.core.model import ItemFields, Lane, Schedule, State, Status, Tried
from duly.core.wire import Doc

Role = Literal["user", "admin"]
Scope = Literal["read", "write", "admin"]
Action = Literal["cancel", "retry", "discard"]
# What history is kept of, and the two lengths of its steps, in seconds.
HistoryKind = Literal["task", "pace", "job"]
HISTORY_SHORT, HISTORY_LONG = 10, 300
QueueState = Literal["QUEUED", "RUNNING", "PAUSED", "DONE", "FAILED"]
# What is measured about jobs for the metrics: how long reading a file took, how many rows were read and how many of
# them are bad, how long writing rows takes on average, how long a page of rows took, and whether that was slow.
Measure = Literal["file", "rows", "bad rows", "write", "page", "slow page"]


class Ending(Struct, frozen=True):
    """How an item has ended, for callers that wait for it."""

    id: int
    state: State
    result: object  # the decoded value, not its text
    last_error: str | None


class Row(ItemFields, frozen=True):
    """An item as people see it. Fields that `duly.core.model.Item` has too mean the same here."""

    outcome: str | None
    result: Any
    progress: Any
    finished_at: datetime | None
    last_error: str | None
    error_class: str | None
    created_at: datetime
    owner: str | None = None
    error_group: str | None = None  # the group of failures that it is in
    schedule_id: int | None = None  # the schedule that made it
    job_id: int | None = None  # the job that it is a row of
    excuses: int = 0
    cause: str | None = None  # why its last try was given back without being counted, such as a source that is down


class Event(Struct, frozen=True):
    """Something that happened to an item, or is to happen to it next."""

    at: datetime
    kind: str  # put, claimed, due, how a try or the item ended, or what a person did
    text: str
    attempt: int | None = None
    worker: str | None = None
    error: str | None = None  # its first line
    traceback: str | None = None  # the other lines


class Story(Struct, frozen=True):
    """One item with its lease, the tries that did not succeed, and all that happened to it."""

    item: Row
    lease_until: datetime | None
    tries: list[Tried]
    timeline: list[Event]  # oldest first
    trace_id: str | None  # of the trace in which it was put
    schedule_key: str | None  # of the schedule that created it, while that exists


class ScheduleName(Struct, frozen=True):
    id: int
    key: str


class AuditLine(Struct, frozen=True):
    """A line of the audit log."""

    id: int
    at: datetime
    actor: str
    action: str
    subject: str
    details: Any  # the service masks secrets in them


class Signs(Struct, frozen=True):
    """Health in a few numbers."""

    seen_at: datetime | None  # the last report of any worker
    alerts: list[str]  # the names of those that stand
    broken: int  # how many schedules are deactivated


class PlannedItem(Struct, frozen=True):
    """An item, as reports about its planned time show it."""

    id: int
    task: str
    queue: str
    key: str | None
    subject: Annotated[str | None, Doc("The key of the schedule that made it.")]
    state: State
    planned_at: datetime


class LateItem(PlannedItem, frozen=True):
    """A done item that was started late."""

    started_at: datetime
    finished_at: datetime
    lateness_seconds: float


class StuckItem(PlannedItem, frozen=True):
    """An item that is long past its time and not done."""

    lane: Lane
    due_at: datetime
    attempts: int
    last_error: str | None
    age_seconds: float


class Drift(Struct, frozen=True):
    """How late items were done in a stretch of time."""

    at: Annotated[int, Doc("The beginning, in seconds since 1970.")]
    mean_seconds: float
    most_seconds: float
    items: int


class NewAlert(Struct, frozen=True):
    """A reason for an alert, as it was found now."""

    name: str
    message: str
    details: dict[str, Any] = {}


class Alert(Struct, frozen=True):
    """Something that is wrong now. `told_at` is when the webhook took it."""

    name: str
    since: datetime
    message: str
    details: Any
    told_at: datetime | None


class LimitUse(Struct, frozen=True):
    """The recent use of a limit, and the values that a person set instead of those in code."""

    name: str
    most: int | None
    per_seconds: float | None
    granted: int
    last: datetime | None


class WorkerLife(Struct, frozen=True):
    """A worker, with its last report."""

    name: str
    tasks: list[str]
    started_at: datetime
    seen_at: datetime
    migration: int | None = None  # the newest one that it knows; None: it is older than migration 13
    hindrance: str | None = None  # why it claims nothing
    runaways: int = 0  # handlers that run on in it although they were stopped
    ailing: str | None = None  # what is wrong with it, in a few words


class ItemStory(Row, frozen=True, kw_only=True):
    """An item with everything that is known of it, as its page shows it."""

    tries: list[Tried]
    lease_until: datetime | None
    timeline: Annotated[list[Event], Doc("What happened to it, oldest first, and when it is due.")]
    trace_id: Annotated[str | None, Doc("The trace in which it was put.")]
    schedule: Annotated[ScheduleName | None, Doc("The schedule that made it, if it still exists.")]
    audit: Annotated[list[AuditLine], Doc("What people did to it lately, newest first.")]


class ItemsFound(Struct, frozen=True):
    """A page of items that fit a filter, and how they were looked for."""

    rows: list[Row]
    place: int | datetime | None  # where the next page begins; None: nothing more fits
    scanned: int  # how many items were looked at
    is_indexed: bool  # an index knew what fits, so nothing else was looked at


class StateCounts(Struct, frozen=True):
    """How many items fit a filter, by state, each counted up to a bound."""

    counts: dict[State, int]
    capped: Annotated[dict[State, bool], Doc("The count stopped at the bound; there may be more.")]


class Group(Struct, frozen=True):
    """Items in review with similar failures: same task, same class, same message apart from numbers and names."""

    id: str
    task: str
    error_class: str | None
    items: int
    first_at: datetime | None
    last_at: datetime | None
    sample: Annotated[int, Doc("The id of one of its items.")]


class ReviewTotals(Struct, frozen=True):
    """How much is in review; `is_more`: it was not counted further."""

    items: int
    groups: int
    is_more: bool


class ShownGroup(Group, frozen=True):
    """A group as lists show it."""

    message: Annotated[str | None, Doc("The first line of the sample's error.")] = None
    trend: Annotated[tuple[int, ...], Doc("Its newest items by the hour of their failure, for 24 hours.")] = ()


class ReviewNote(Struct, frozen=True):
    """What a person wrote about a group of failures."""

    id: int
    author: str
    text: str
    at: datetime


class GroupStory(ShownGroup, frozen=True, kw_only=True):
    """A group with what people wrote about it."""

    notes: list[ReviewNote]
    error: Annotated[str | None, Doc("The last error of the sample.")]


class Depth(Struct, frozen=True):
    """How many items of one queue, lane and state there are, and how many of them are due."""

    queue: str
    lane: Lane
    state: State
    items: int
    due: int
    oldest: datetime | None
    paused: bool


class QueueDepth(Struct, frozen=True, kw_only=True):
    """How many items of one queue wait, are due, run and are in review."""

    queue: str
    waiting: int
    retrying: int
    due: int
    running: int
    failed: int
    oldest_due_seconds: float | None
    paused: bool


class Measured(Struct, frozen=True):
    """The measurements of one subject since the last read."""

    kind: HistoryKind
    subject: str  # the name of a task or a pace, or the id of a job
    measure: str
    n: int  # how often it happened, or was measured
    total: float = 0.0  # of all values together
    most: float = 0.0  # the largest value


class HistoryRow(Struct, frozen=True):
    """The same of one step of time, by all workers."""

    bucket: datetime  # when that step begins
    kind: HistoryKind
    subject: str
    measure: str
    n: int
    total: float
    most: float


class Series(Struct, frozen=True):
    """One measure of one subject over time."""

    kind: HistoryKind
    subject: Annotated[str, Doc("The name of the task or pace, or the id of the job.")]
    measure: str
    # Only steps with values; the mean and the largest value are None for what is only counted.
    points: Annotated[
        list[tuple[int, int, float | None, float | None]],
        Doc("Start of a step (seconds since 1970), number of values, their mean, the largest."),
    ]
    task: Annotated[str | None, Doc("The name of the task, where the kind is task.")] = None


class Chart(Struct, frozen=True):
    """What happened in a stretch of time."""

    since: datetime = field(name="from")
    until: datetime = field(name="to")
    step_seconds: int
    series: list[Series]
    is_more: Annotated[bool, Doc("There are more points than fit; these are the latest.")]


class MeterRow(Struct, frozen=True):
    """A meter as a row: what a person set in place of the code's values, and when calls were granted under it."""

    name: str
    most: int | None
    per: float | None
    hits: list[datetime]


class ShownSchedule(Schedule, frozen=True, kw_only=True):
    """A schedule as people see it."""

    args: Any  # decoded, with secrets masked; so is `keep`
    keep: Any
    catch_up: str  # type: ignore[assignment]  # a worker of a later version may know more words
    overlap: str  # type: ignore[assignment]
    state: Literal["active", "paused", "broken"]
    describe: Annotated[str, Doc("Its rule in plain English.")]


class ClockNote(Struct, frozen=True):
    """What the clocks do at a time of a schedule."""

    at: datetime
    note: Annotated[str, Doc("Such as: 02:30 does not exist that day; runs 03:30.")]


class Occurrence(Struct, frozen=True):
    """An item that a schedule made."""

    id: int
    state: State
    outcome: str | None
    planned_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    attempt: int
    last_error: str | None


class ScheduleStory(ShownSchedule, frozen=True, kw_only=True):
    """A schedule with its next times, its items, and its changes."""

    next: Annotated[list[datetime], Doc("Its next times; none while it is paused or broken.")]
    notes: Annotated[list[ClockNote], Doc("Clock changes at these times.")]
    items: Annotated[list[Occurrence], Doc("The items that it made lately, newest first.")]
    audit: Annotated[list[AuditLine], Doc("What was done to it lately, newest first.")]


class User(Struct, frozen=True):
    """A person or a program that may use the service."""

    id: str
    role: Role
    created_at: datetime
    disabled_at: datetime | None
    has_password: bool


class KeyInfo(Struct, frozen=True):
    """An API key, without its secret."""

    id: str
    user_id: str
    name: str
    scopes: list[Scope]
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None


class NewKey(KeyInfo, frozen=True, kw_only=True):
    """An API key that was just made, with its secret."""

    secret: Annotated[str, Doc("Shown this once.")]


class ActFields(Struct, frozen=True):
    """One action on all items that fit a filter, and how far it is."""

    id: int
    owner: str | None
    author: str
    action: Action
    filter: Any
    state: Literal["running", "done", "cancelled"]
    total: int
    seen: int
    changed: int
    created_at: datetime
    finished_at: datetime | None


class Act(ActFields, frozen=True):
    """The same as a row. It walks the items by id, from `place` to `until`."""

    filter: dict[str, Any]
    options: dict[str, Any]
    place: int
    until: int


class ActFilter(Struct, frozen=True, kw_only=True):
    """Which items an act is about."""

    state: Annotated[str | None, Doc("One or more states, separated by commas.")] = None
    task: str | None = None
    queue: str | None = None
    key: str | None = None
    error_group: str | None = None
    schedule_id: int | None = None
    job_id: int | None = None
    error: str | None = None
    min_tries: int | None = None
    date_field: str | None = None
    since: datetime | None = field(default=None, name="from")
    until: datetime | None = field(default=None, name="to")
    where: tuple[str, ...] | None = None


class ShownAct(ActFields, frozen=True, kw_only=True):
    """An act as people see it."""

    filter: ActFilter


class JobRow(Struct, frozen=True):
    """A job as people see it."""

    id: int
    task: str
    job_type: str | None
    queue_state: QueueState
    total_items: int
    processed_items: int
    failed_items: int
    done_items: int
    not_found_items: int
    skipped_items: int
    duplicate_items: int  # rows of its file that repeat an earlier one
    is_complete: bool  # all rows of its file are in
    attempts: int
    last_error: str | None
    last_heartbeat: datetime
    user_id: str | None
    ip_address: str | None
    file_id: int | None
    created_at: datetime
    finished_at: datetime | None
    name: str | None  # of its file
    per_minute: float | None  # recent rate of rows that ended; None: unknown, or it is over
    forecast_at: datetime | None  # when the last row ends at this rate; None: unknown, or it is over
    paused: bool
    cancelled: bool = False  # by someone; false again when a row of it is tried anew


class InputSummary(Struct, frozen=True):
    title: str | None = None
    brand: str | None = None
    sku: str | None = None


class JobItem(Struct, frozen=True):
    """A row of a job in a list: a short summary, never the whole input."""

    id: int
    job_id: int
    row_no: int
    status: Status
    attempt: int
    last_error: str | None
    claimed_by: str | None  # while it is worked on
    started_at: datetime | None
    changed_at: datetime
    title: str | None
    brand: str | None
    sku: str | None
    result: Any

    @property
    def input_summary(self) -> InputSummary:
        """Its input in texts of at most 120 characters. The database returns one more, so that a cut can be marked."""
        texts = (self.title, self.brand, self.sku)
        return InputSummary(*(text and (text if len(text) <= 120 else f"{text[:119]}…") for text in texts))


class PendingItem(JobItem, frozen=True):
    """A row of any job in a list, with facts about its job."""

    job_type: str | None = None
    user_id: str | None = None
    total: int = 0  # rows of its job
    ended: int = 0  # of these

    @property
    def progress(self) -> float:
        """How much of its job has ended, from 0 to 1."""
        return self.ended / self.total if self.total else 0.0


class RowCounts(Struct, frozen=True):
    """How many rows of jobs there are, by status; `capped`: there are more of some, which were not counted further."""

    counts: dict[Status, int]
    capped: Annotated[bool, Doc("Some statuses have more rows, which were not counted.")]


class ExportRow(Struct, frozen=True):
    """A row of a job with all that came in and went out."""

    row_no: int
    status: Status
    attempt: int
    last_error: str | None
    args: Any
    input: Any
    result: Any
