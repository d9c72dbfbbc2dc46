"""The nouns, as frozen values: items and attempts, the outcomes that end a try, and the change that an outcome makes.

Nothing here knows a database, a clock or a thread. An outcome goes into `decide`, a `Change` comes out, and a store
applies it if the item is still in the state and under the fence that the change was decided for.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from msgspec import Struct

State = Literal["waiting", "running", "done", "failed", "cancelled"]
Lane = Literal["main", "retry"]
# How a row of a job stands, in the words of its lists.
Status = Literal["PENDING", "PROCESSING", "DONE", "ERROR", "NOT_FOUND", "SKIPPED"]

STATES: Final[tuple[State, ...]] = ("waiting", "running", "done", "failed", "cancelled")
LIVE: Final[frozenset[State]] = frozenset(("waiting", "running"))

# The longest error text that is kept on a row; the rest is cut with a mark.
ERROR_LIMIT: Final = 8_000


class Line(NamedTuple):
    """Items that wait behind one another: of one queue, task and owner ("" for nobody's)."""

    queue: str
    task: str
    owner: str = ""


class Item(Struct, frozen=True, gc=False):
    """One due row, as the engine sees it. `args` is the raw JSON text."""

    id: int
    task: str
    queue: str
    lane: Lane
    rank: int
    state: State
    planned_at: datetime
    due_at: datetime
    key: str | None
    execution_key: str
    args: bytes
    attempt: int
    max_attempts: int | None
    failures: int
    crashes: int
    losses: int
    fence: int
    claimed_by: str | None
    started_at: datetime | None
    trace: str | None
    schedule_id: int | None = None
    streak: int | None = None  # failures in a row of its schedule when it was made
    fingerprint: str | None = None  # what its schedule last saw when it was made
    expires_at: datetime | None = None  # not to be started after this
    revivals: int = 0  # times a person had it tried again after it had ended
    owner: str | None = None  # whose it is, where users have work of their own
    job_id: int | None = None  # the job that it is a row of
    status: Status | None = None  # in a job: how the row stands, in the words of its lists

    @property
    def line(self) -> Line:
        return Line(self.queue, self.task, self.owner or "")

    @property
    def failures_in_a_row(self) -> int:
        """Of its schedule, over days; of the item itself when it has none."""
        return (self.streak or 0) + self.failures

    @property
    def attempt_key(self) -> str:
        """One key per try, for audit trails: the fence makes it unique without chance."""
        return f"{self.id}-{self.attempt}-{self.fence:08x}"


class NewItem(Struct, frozen=True, gc=False):
    """What a put writes. `due_at` None: the database stamps its own time."""

    task: str
    queue: str
    args: bytes
    due_at: datetime | None = None
    key: str | None = None
    rank: int = 0
    max_attempts: int | None = None
    trace: str | None = None
    expires_at: datetime | None = None
    owner: str | None = None
    version: int | None = None  # for `arm`: the key is the item's for good, and a higher version arms it again
    is_relative: bool = False  # `due_at` was counted from now, so the same put said later gives another time


class NewRow(NewItem, frozen=True, gc=False):
    """What a job writes for one of its rows."""

    job_id: int = 0
    row_no: int = 0  # from 1, in the order of the rows
    status: Status = "PENDING"
    changed_at: datetime | None = None
    input: bytes | None = None  # the row as it came, where `args` is what was made of it
    outcome: str | None = None
    state: State = "waiting"
    finished_at: datetime | None = None
    last_error: str | None = None  # of a row that could not be read: it comes as failed


class NewJob(Struct, frozen=True, gc=False):
    """What opening a job writes."""

    task: str
    queue: str  # without the part that is the job's own
    key: str | None = None  # opening it again under its key finds it
    owner: str | None = None
    then_item: bytes | None = None  # what is put when the last row has ended, as the JSON of an item
    options: bytes = b"{}"  # what else has to be known of it, such as how its file is read
    job_type: str | None = None  # of a job whose rows come from a file: by which it chose its task
    file_id: int | None = None  # the file that its rows come from
    ip_address: str | None = None  # where it was asked for


class Job(Struct, frozen=True, gc=False):
    """A group of items with a queue of its own, and how many of them stand how: exact at every commit."""

    id: int
    task: str
    queue: str
    key: str | None
    owner: str | None
    then_item: bytes | None
    then_id: int | None  # the item that was put when the last row had ended
    options: bytes
    total: int  # rows so far
    done: int
    not_found: int
    failed: int
    skipped: int  # by the handler, by a person, or too late to be worth starting
    is_sealed: bool  # no more rows come
    duplicates: int  # rows of its file that say what an earlier one said
    job_type: str | None  # by which a file's job chose its task
    file_id: int | None  # the file that its rows come from
    ip_address: str | None  # where it was asked for
    attempts: int  # times that reading its file was begun
    last_error: str | None  # why reading its file was given up
    is_removed: bool  # someone removed it; its rows and its file are on their way out
    created_at: datetime
    changed_at: datetime
    finished_at: datetime | None

    @property
    def ended(self) -> int:
        return self.done + self.not_found + self.failed + self.skipped

    @property
    def is_over(self) -> bool:
        """Whether all its rows have ended, and no more come."""
        return self.is_sealed and self.ended == self.total

    @property
    def rows_queue(self) -> str:
        """The queue of its rows, below that of its task: pausing that one holds for its jobs too."""
        return f"{self.queue}/job-{self.id}"


class NewFile(Struct, frozen=True, gc=False):
    """What keeping a file writes."""

    name: str  # as its sender calls it
    size: int  # bytes
    type: str  # what it turned out to be: csv, jsonl, xlsx, image or images
    sha256: str
    place: str  # its key in the file store
    owner: str | None = None


class File(Struct, frozen=True, gc=False):
    """A file that someone sent."""

    id: int
    name: str
    size: int
    type: str
    sha256: str
    place: str
    owner: str | None
    created_at: datetime


class Armed(Struct, frozen=True, gc=False):
    """What an arm answers: the item, and whether it is new, armed again, or known already."""

    id: int
    how: Literal["new", "again", "known"]
    # Of what is known: its row was claimed since it was armed and has not ended, so its effect may be out already.
    is_begun: bool = False


class Placed(Struct, frozen=True, gc=False):
    """What a put answers: the item's id, and whether this put made it or found it under its key."""

    id: int
    execution_key: str
    fresh: bool


class Head(Struct, frozen=True, gc=False):
    """The earliest waiting item of one line, lane and rank: enough to know what to claim and when to wake."""

    line: Line
    lane: Lane
    rank: int
    due_at: datetime


class Share(Struct, frozen=True, gc=False):
    """How many items a claim may take from one line and lane, and its ranks, best first.

    `floors`, one per rank, say from which due time on to look: what lies before was claimed already, but a database may
    have to step over its remains one by one. Without them a claim looks from the beginning.
    """

    line: Line
    lane: Lane
    ranks: tuple[int, ...]
    limit: int
    floors: tuple[datetime, ...] = ()
    is_fresh: bool = False  # the part of a backlog's line that is for what has just become due
    started_since: datetime | None = None  # under limits: only what was started since then, and given back

    @property
    def queue(self) -> str:
        return self.line.queue


class Meter(Struct, frozen=True, gc=False):
    """A counter that a claim must have room on, over the whole fleet. `most` may have been changed by a person.

    `per` seconds: at most `most` calls in any window that long. `since`: at most `most` items since then, more from
    `until` on. Neither: at most `most` calls at the same time.
    """

    name: str
    most: int
    per: float | None = None
    since: datetime | None = None
    until: datetime | None = None

    @property
    def is_concurrency(self) -> bool:
        return self.per is None and self.since is None


class Ask(Struct, frozen=True, gc=False):
    """A share that is limited: it may be had while all of these meters have room."""

    share: Share
    meters: tuple[Meter, ...]


class Grant(Struct, frozen=True, gc=False):
    """What became of an ask: its items, and how many calls of a handler were granted for them.

    `until`: a meter had no room, and when to ask again (None: nobody knows). `per`: the shortest window among its
    limits as they stand now, which says how soon the calls must begin.
    """

    items: list[Item] = []
    calls: int = 0
    is_asked: bool = True  # False: others took what there was before it came to this one
    is_short: bool = False  # there was less than its meters had room for
    is_refused: bool = False  # a meter had no room
    until: datetime | None = None
    per: float | None = None


class Verdict(Exception):
    """What a handler may return or raise to say how its try ended. Equal when kind and content are equal."""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.args == other.args

    def __hash__(self) -> int:
        return hash((type(self), self.args))


class Snooze(Verdict):
    """Not now: come back after `delay`. Neither a failure nor an attempt."""

    __match_args__ = ("delay",)

    def __init__(self, delay: float | timedelta) -> None:
        seconds = delay.total_seconds() if isinstance(delay, timedelta) else float(delay)
        if not 0 <= seconds < 3.2e9:
            raise ValueError(f"delay: must be between 0 and a hundred years, got {delay!r}")
        super().__init__(seconds)
        self.delay = seconds


class Throttled(Snooze):
    """The other side asked us to slow down: come back after `retry_after`. Not the item's own failure."""

    def __init__(self, retry_after: float | timedelta) -> None:
        super().__init__(retry_after)
        self.retry_after = self.delay


class _Reasoned(Verdict):
    __match_args__ = ("reason",)

    def __init__(self, reason: object = "") -> None:
        super().__init__(reason)
        self.reason = cut(str(reason))


class Skip(_Reasoned):
    """Nothing to do: done, and labelled as skipped."""


class NotFound(_Reasoned):
    """The subject is gone: done, and labelled as not found."""


class Cancel(_Reasoned):
    """Stop for good, without blame."""


class GiveUp(_Reasoned):
    """Retrying cannot help: to review at once."""


class Fingerprint(Verdict):
    """Done, and this is what the subject looks like now. The same as last time: labelled `unchanged`, no follow-up.

    `result` is kept on the item, `keep` on its schedule; `then` (items from `task.new`) is put with the settle if
    something changed.
    """

    __match_args__ = ("value",)

    def __init__(self, value: str, *, result: Any = None, keep: Any = None, then: Sequence[NewItem] = ()) -> None:
        super().__init__(value, result, keep, tuple(then))
        self.value = cut(str(value), 500)
        self.result = result
        self.keep = keep
        self.then = tuple(then)


class Done(Struct, frozen=True, gc=False):
    """The handler returned. `result` is its JSON text, None when it returned nothing."""

    result: bytes | None = None


class Failed(Struct, frozen=True, gc=False):
    """The handler raised. `classes` are the names of the exception's class and its bases, nearest first."""

    error: str
    classes: tuple[str, ...] = ()


class Crashed(Struct, frozen=True, gc=False):
    """The process that ran this item alone died under it."""

    error: str


class Lost(Struct, frozen=True, gc=False):
    """The lease ran out: its worker vanished, or could not tell that it lives."""


class Superseded(Struct, frozen=True, gc=False):
    """A newer occurrence takes the place of one that still waits."""


class Expired(Struct, frozen=True, gc=False):
    """Too late to be worth starting."""


class Discarded(Struct, frozen=True, gc=False):
    """A person looked at it in review and wants no more of it."""


class Released(Struct, frozen=True, gc=False):
    """A worker that shuts down, or could not keep its lease, gives the attempt back."""


class Revived(Struct, frozen=True, gc=False):
    """A person wants it tried again, with all its tries, at `due_at`."""

    due_at: datetime


Outcome: TypeAlias = Done | Failed | Verdict | Crashed | Lost | Released | Revived | Superseded | Expired | Discarded


class Tried(Struct, frozen=True, gc=False):
    """The record of one try that did not succeed."""

    number: int
    attempt_key: str
    worker: str | None
    started_at: datetime | None
    ended_at: datetime
    outcome: str
    error: str | None
    error_class: str | None


class Member(Struct, frozen=True, gc=False):
    """What the end of a try means for the schedule that its item came from."""

    schedule_id: int
    failures: int  # in a row, from now on
    at: datetime
    error: str | None = None
    is_success: bool = False
    is_broken: bool = False  # too many failures in a row: deactivated until a person says otherwise
    is_unchanged: bool = False
    fingerprint: str | None = None
    keep: bytes | None = None


class Change(Struct, frozen=True, gc=False):
    """What an outcome makes of an item; void unless the item is still `was` and under `fence`."""

    id: int
    task: str
    was: State
    fence: int
    state: State
    outcome: str | None
    lane: Lane
    due_at: datetime
    attempt: int
    failures: int
    crashes: int
    losses: int
    finished_at: datetime | None
    result: bytes | None = None
    error: str | None = None
    error_class: str | None = None
    tried: Tried | None = None
    # Only while the lease is still expired at this time: a worker that came back in time keeps its item.
    expired_at: datetime | None = None
    rank: int | None = None  # None: as it was
    member: Member | None = None
    then: tuple[NewItem, ...] = ()
    # Of a row of a job: how it stood and stands now, since when.
    job_id: int | None = None
    was_status: Status | None = None
    status: Status | None = None
    changed_at: datetime | None = None

    @property
    def error_group(self) -> str | None:
        """Failures that look alike have the same: by task, class and the words of the error without what varies."""
        if self.tried is None:
            return None
        words = _VARYING.sub("#", (self.error or "").partition("\n")[0][:500])
        return sha256(f"{self.task}\n{self.error_class}\n{words}".encode()).hexdigest()[:16]

    @property
    def is_plain_success(self) -> bool:
        """Done with nothing to keep: the common end, which stores settle by the thousand."""
        return self.outcome == "done" and self.result is None and self.member is None and not self.then


CatchUp = Literal["all", "latest", "skip"]
Overlap = Literal["allow", "skip", "supersede"]


class NewSchedule(Struct, frozen=True, gc=False):
    """What creating a schedule writes. `ring` and `slots`: a seat among so many, its `slot`, is found when it joins."""

    task: str
    key: str
    queue: str
    args: bytes
    rule: str
    zone: str
    next_at: datetime | None
    rank: int = 0
    catch_up: CatchUp = "latest"
    max_lateness: float | None = None
    overlap: Overlap = "allow"
    ring: str | None = None
    slots: int | None = None
    is_declared: bool = False
    owner: str | None = None
    slot: int | None = None


class Schedule(Struct, frozen=True, gc=False):
    """A recurrence that makes items, as a row. `rule` is its text; `next_at` None: nothing to come."""

    id: int
    task: str
    key: str
    queue: str
    rank: int
    args: bytes
    rule: str
    zone: str
    catch_up: CatchUp
    max_lateness: float | None
    overlap: Overlap
    ring: str | None
    slot: int | None
    is_declared: bool
    next_at: datetime | None
    paused_at: datetime | None
    broken_at: datetime | None
    failures: int  # in a row
    last_at: datetime | None  # the last occurrence that became an item
    last_item: int | None
    last_success_at: datetime | None
    last_error: str | None
    fingerprint: str | None
    unchanged: int
    skipped: int
    keep: bytes | None
    created_at: datetime
    owner: str | None = None  # whose it is, where users have work of their own

    @property
    def is_active(self) -> bool:
        return self.paused_at is None and self.broken_at is None


class Note(Struct, frozen=True, gc=False):
    """A line of the audit log: who did what to whom."""

    actor: str
    action: str
    subject: str
    details: bytes = b"{}"


class Revision(Struct, frozen=True, gc=False):
    """What becomes of a schedule: its new values, the occurrences that become items, and what goes with it."""

    schedule: Schedule
    occurrences: tuple[datetime, ...] = ()
    changes: tuple[Change, ...] = ()
    notes: tuple[Note, ...] = ()
    is_removed: bool = False


# What differs between failures of the same kind: numbers, ids, quoted words.
_VARYING = re.compile(r"0x[0-9a-f]+|[0-9a-f]{8}-[0-9a-f-]{27}|\d+|'[^']*'|\"[^\"]*\"", re.IGNORECASE)


def cut(text: str, limit: int = ERROR_LIMIT) -> str:
    """Text that a row can hold: bounded, valid Unicode, and without the NUL that PostgreSQL refuses."""
    text = text.replace("\x00", "\\x00").encode("utf8", "backslashreplace").decode()
    return text if len(text) <= limit else f"{text[: limit - 20]}… ({len(text)} characters)"
