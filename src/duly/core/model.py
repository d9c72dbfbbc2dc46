"""The nouns, as frozen values: items and attempts, the outcomes that end a try, and the change that an outcome makes.

Nothing here knows a database, a clock or a thread. An outcome goes into `decide`, a `Change` comes out, and a store
applies it if the item is still in the state and under the fence that the change was decided for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Annotated, Any, Final, Generic, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

from msgspec import Struct, ValidationError, convert
from msgspec.json import decode
from msgspec.structs import force_setattr

from duly.core.errors import DulyError, WrongState
from duly.core.wire import Doc

R_co = TypeVar("R_co", covariant=True)

State = Literal["waiting", "running", "done", "failed", "cancelled"]
Lane = Literal["main", "retry"]
# The status of a row of a job.
Status = Literal["PENDING", "PROCESSING", "DONE", "ERROR", "NOT_FOUND", "SKIPPED"]

STATES: Final[tuple[State, ...]] = ("waiting", "running", "done", "failed", "cancelled")
LIVE: Final[frozenset[State]] = frozenset(("waiting", "running"))

# The longest error text that is kept on a row; the rest is cut with a mark.
ERROR_LIMIT: Final = 8_000


class Line(NamedTuple):
    """The items of one queue, task and owner, which wait behind one another. The owner is "" for items without one."""

    queue: str
    task: str
    owner: str = ""


class ItemFields(Struct, frozen=True):
    """What the engine and people see of an item: something that a task has to do once, and its state."""

    id: int  # unique, and higher for items that were put later
    task: str  # the name of the task whose handler runs it
    queue: str  # what it is paused with and shares workers with
    lane: Lane  # main until a try fails; failed items wait in retry, so that they do not delay new ones
    rank: int  # within a line, lower ranks start first
    state: State  # waiting, running, done, failed (given up, in review) or cancelled
    planned_at: datetime  # when it was first due; retries do not move it
    due_at: datetime  # when it may be started next
    key: str | None  # what the caller calls it; a task has at most one live item with the same key
    execution_key: str  # the same for every try, so that a callee can distinguish a retry from a new request
    args: Any  # the handler's arguments
    attempt: int  # the number of the current or last try; it is counted when the item is claimed
    max_attempts: int | None  # tries in all; None: the number of the retry policy of the task
    failures: int  # tries in which the handler failed
    crashes: int  # tries that ended with the process they ran in
    losses: int  # times that the worker vanished while it ran this
    fence: int  # the number of its last claim; a result with another number is rejected
    claimed_by: str | None  # the name of the worker that claimed it last
    started_at: datetime | None  # when it was last claimed

    @property
    def attempt_key(self) -> str:
        """Another key for each try, for audit trails. It ends with the fence, which is never used twice."""
        return f"{self.id}-{self.attempt}-{self.fence:08x}"


class Item(ItemFields, frozen=True, gc=False):
    """One due row, as the engine sees it."""

    args: bytes  # as JSON text
    trace: str | None  # the W3C traceparent of the code that put it
    schedule_id: int | None = None  # the schedule that made it, if one did
    streak: int | None = None  # how often that schedule had failed in a row when it made this item
    fingerprint: str | None = None  # the fingerprint that the schedule had when it made this item
    expires_at: datetime | None = None  # a first try is not started after this, unless a person requests it
    revivals: int = 0  # how often a person had it tried again after it had ended
    owner: str | None = None  # the user it belongs to; None: it was put by code
    job_id: int | None = None  # the job that it is a row of
    status: Status | None = None  # in a job: how the row stands, in the words of its lists
    excuses: int = 0  # failures that were not counted because its source was down, since it was put or retried

    @property
    def line(self) -> Line:
        return Line(self.queue, self.task, self.owner or "")

    @property
    def failures_in_a_row(self) -> int:
        """Failures of its schedule since the last success, with its own; just its own if no schedule made it."""
        return (self.streak or 0) + self.failures


class NewItem(Struct, frozen=True, gc=False):
    """What a put writes. The fields that an `Item` has too mean the same here."""

    task: str
    queue: str
    args: bytes
    due_at: datetime | None = None  # None: now, by the clock of the database
    key: str | None = None
    rank: int = 0
    max_attempts: int | None = None
    trace: str | None = None
    expires_at: datetime | None = None
    owner: str | None = None
    version: int | None = None  # for `arm`: the row keeps its key for ever, and a higher version starts it again
    is_relative: bool = False  # `due_at` comes from a delay, so the same put is allowed to name a later time


class NewRow(NewItem, frozen=True, gc=False):
    """What a job writes for one of its rows."""

    job_id: int = 0
    row_no: int = 0  # from 1, in the order of the rows
    status: Status = "PENDING"
    changed_at: datetime | None = None
    input: bytes | None = None  # the row as it was uploaded; `args` are the arguments made from it
    outcome: str | None = None
    state: State = "waiting"
    finished_at: datetime | None = None
    last_error: str | None = None  # of a row that could not be read: it comes as failed


class NewJob(Struct, frozen=True, gc=False):
    """What opening a job writes."""

    task: str
    queue: str  # without the part that is the job's own
    key: str | None  # opening it again under its key finds it
    owner: str | None
    then_item: bytes | None  # what is put when the last row has ended, as the JSON of an item
    options: bytes  # what else has to be known of it, such as how its file is read
    job_type: str | None  # of a job whose rows come from a file: by which it chose its task
    file_id: int | None  # the file that its rows come from
    ip_address: str | None  # where it was asked for


class Job(NewJob, frozen=True, gc=False):
    """A group of items with a queue of its own, and counters of their statuses, exact at every commit."""

    id: int
    then_id: int | None  # the item that was put when the last row had ended
    total: int  # rows so far
    done: int
    not_found: int
    failed: int
    skipped: int  # by the handler, by a person, or expired
    is_sealed: bool  # no more rows come
    duplicates: int  # rows of its file that repeat an earlier one
    attempts: int  # times that reading its file was begun
    last_error: str | None  # why reading its file was given up
    is_removed: bool  # it was removed; its rows and its file are being deleted
    created_at: datetime
    changed_at: datetime
    finished_at: datetime | None

    @property
    def is_cancelled(self) -> bool:
        """Whether someone cancelled it, and no row of it was tried anew after its end."""
        return b'"cancelled"' in self.options and bool(decode(self.options).get("cancelled"))

    @property
    def ended(self) -> int:
        return self.done + self.not_found + self.failed + self.skipped

    @property
    def is_over(self) -> bool:
        """Whether all its rows have ended and no more are accepted, or come because its file cannot be read."""
        return (self.is_sealed or self.is_given_up) and self.ended == self.total

    @property
    def is_given_up(self) -> bool:
        """Whether the reading of its file was given up. A person may have it read again."""
        return self.last_error is not None and not self.is_sealed

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
    owner: str | None


class StoredFile(NewFile, frozen=True, gc=False):
    """An uploaded file."""

    id: int
    created_at: datetime


class Armed(Struct, frozen=True, gc=False):
    """What `arm` answers for one item: its id, and whether its row is new, was armed again, or stays as it was."""

    id: int
    how: Literal["new", "again", "known"]
    # For "known": the row was claimed since it was armed and has not ended, so its handler may have acted already.
    is_begun: bool = False


class Waits(Protocol):
    """Knows when items end."""

    def ended(self, item_id: int, timeout: float | None, is_put: bool) -> Any: ...

    async def aended(self, item_id: int, timeout: float | None, is_put: bool) -> Any: ...


class Placed(Struct, Generic[R_co], frozen=True, dict=True):
    """What `put` returns: an item that is durable. `R_co` is what its handler returns."""

    id: int
    execution_key: str
    fresh: Annotated[bool, Doc("False: a live item with this key and content exists, and this is its id.")]

    def awaited_by(self, waits: Waits, is_put: bool = True) -> Placed[R_co]:
        """The same, able to be waited for. What it waits by is no part of its content.

        `is_put`: it is committed, so if it is not found, it is gone.
        """
        force_setattr(self, "_waits", waits)
        force_setattr(self, "_is_put", is_put)
        return self

    def read_by(self, returns: Any) -> Placed[R_co]:
        """The same, whose result is read as this type."""
        force_setattr(self, "_returns", returns)
        return self

    def wait(self, timeout: float | None = None) -> R_co:
        """Wait until it has ended, and return its result; None if it ended with Skip or NotFound.

        ItemFailed when it failed for good, was cancelled, or is gone. TimeoutError after `timeout` seconds. An item
        that was put on your own connection exists once you commit: until then it is waited for, and after a rollback
        until the timeout.
        """
        return self._read(self._ends().ended(self.id, timeout, self._is_committed))

    async def await_(self, timeout: float | None = None) -> R_co:
        """`wait` for async callers."""
        return self._read(await self._ends().aended(self.id, timeout, self._is_committed))

    @property
    def _is_committed(self) -> bool:
        is_put: bool = getattr(self, "_is_put", True)
        return is_put

    def _ends(self) -> Waits:
        waits: Waits | None = getattr(self, "_waits", None)
        if waits is None:
            raise WrongState("only items that were put by an app with this database can be waited for")
        return waits

    def _read(self, result: Any) -> R_co:
        returns = getattr(self, "_returns", None)
        try:  # a try that ended with an outcome such as Skip has no result
            read: R_co = result if returns is None or result is None else convert(result, returns, str_keys=True)
        except ValidationError as error:
            raise DulyError(f"the result of item {self.id} is not what its handler returns: {error}") from None
        return read


class Head(Struct, frozen=True, gc=False):
    """The earliest waiting item of one line, lane and rank. From heads the engine knows what to claim, and when."""

    line: Line
    lane: Lane
    rank: int
    due_at: datetime


class Share(Struct, frozen=True, gc=False):
    """How many items a claim may take from one line and lane, and of which ranks, the first to start first.

    `floors` has a due time for each rank, from which on the claim looks. Earlier items were claimed already, and a
    database may have to step over what is left of them one by one. Without floors a claim looks from the beginning.
    """

    line: Line
    lane: Lane
    ranks: tuple[int, ...]
    limit: int
    floors: tuple[datetime, ...] = ()
    is_fresh: bool = False  # only items that have just become due, which must not wait behind a backlog
    started_since: datetime | None = None  # only items that were started since then and released


class Meter(Struct, frozen=True, gc=False):
    """A counter shared by all workers, on which a claim must have room. A person may have changed `most`.

    With `per`, there may be at most `most` calls in any window of `per` seconds. With `since`, at most `most` items
    since then, and more from `until` on. With neither, at most `most` calls at the same time.
    """

    name: str
    most: int
    per: float | None = None
    since: datetime | None = None
    until: datetime | None = None

    @property
    def is_concurrency(self) -> bool:
        return self.per is None and self.since is None

    @property
    def is_rate(self) -> bool:
        return self.per is not None and self.since is None


class Ask(Struct, frozen=True, gc=False):
    """A share under limits: it may be claimed as far as all of these meters have room."""

    share: Share
    meters: tuple[Meter, ...]


class Suspects(Struct, frozen=True, gc=False):
    """How items are called that may have crashed a worker: apart from others, and together as long as that is safe.

    It is not when a crash of such a call would send all of its items to review.
    """

    crash_limit: int = 1
    tries: int = 1

    def is_alone(self, item: Item) -> bool:
        tries = item.max_attempts or self.tries
        return item.crashes > 0 and (item.crashes + 1 >= self.crash_limit or item.attempt + 1 >= tries)


ALONE: Final = Suspects()


class OwnStart(NamedTuple):
    """A call of this worker under a limit, by its own clock: by when it has to begin, and when it did."""

    by: datetime
    begun: datetime | None = None


# The calls of one meter, by the times that its row has for them: several calls may have the same time.
OwnStarts: TypeAlias = Mapping[datetime, Sequence[OwnStart]]
NO_STARTS: Final[OwnStarts] = {}


class StartTiming(Struct, frozen=True, gc=False):
    """What a worker knows of the time between a claim under limits and the start of its calls."""

    delay: timedelta = timedelta()  # until a call that may begin at once can begin here
    spread: timedelta = timedelta()  # how much later than the slack of a limit allows calls may begin
    ahead: timedelta = timedelta()  # how early to grant calls that may begin later
    blur: timedelta = timedelta()  # how much later the database's clock may be than this worker takes it for
    own: Mapping[str, OwnStarts] = {}  # its own calls under each meter that can still count


AT_ONCE: Final = StartTiming()


class MeterHit(NamedTuple):
    """What a meter with a sliding window counts for a call."""

    name: str
    at: datetime  # the time that its row has for it
    by: datetime  # the same by the clock of the worker that asked
    per: float  # the window of the meter, in seconds; the longest, if meters of this name differ


class CallStart(Struct, frozen=True, gc=False):
    """When a granted call may begin, and what it took of meters; by the clock of the worker that asked."""

    size: int = 1  # how many items it is for
    at: datetime | None = None  # not before this; None: at once
    by: datetime | None = None  # not after this; None: at any time
    hits: tuple[MeterHit, ...] = ()


class Grant(Struct, frozen=True, gc=False):
    """The result of an ask."""

    items: list[Item] = []  # what was claimed
    calls: int = 0  # how many calls of a handler were granted for these items
    is_asked: bool = True  # False: asks before this one took all the calls, so this one was not looked at
    is_short: bool = False  # there were fewer items than its meters had room for
    is_refused: bool = False  # a meter had no room
    until: datetime | None = None  # when to ask again after a refusal; None: unknown
    starts: tuple[CallStart, ...] = ()  # one for each call, in the order of the items
    seats: Mapping[int, tuple[str, datetime]] = {}  # of items that a retry window counted: its meter, and the time


class UnusedCall(Struct, frozen=True, gc=False):
    """A call that was granted and did not begin: what meters count for it, and its items, each with its fence."""

    hits: tuple[tuple[str, datetime], ...]
    items: tuple[tuple[int, int], ...]


class Verdict(Exception):
    """What a handler may return or raise to say how its try ended. Verdicts with the same content are equal."""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.args == other.args

    def __hash__(self) -> int:
        return hash((type(self), self.args))


class Snooze(Verdict):
    """Try again after `delay`. Counts neither as a failure nor as an attempt."""

    __match_args__ = ("delay",)

    def __init__(self, delay: float | timedelta) -> None:
        seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < 3.2e9:
            raise ValueError(f"delay: must be seconds between 0 and a hundred years or a timedelta, got {delay!r:.80}")
        super().__init__(float(seconds))
        self.delay = float(seconds)


class Throttled(Snooze):
    """The other side asked us to slow down: come back after `retry_after`. Not the item's own failure.

    `is_guess`: it gave no time. Other items of a task with a pace continue meanwhile, more slowly.
    """

    def __init__(self, retry_after: float | timedelta, *, is_guess: bool = False) -> None:
        super().__init__(retry_after)
        self.retry_after = self.delay
        self.is_guess = is_guess


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
    """Stop permanently; this is not a failure."""


class GiveUp(_Reasoned):
    """Retrying cannot help: to review at once."""


class Fingerprint(Verdict):
    """Done, and `value` says what the subject looks like now. If its schedule saw the same last time, nothing changed:
    the item is labelled `unchanged`, and nothing follows.

    `result` is kept on the item and `keep` on its schedule. `then` are items from `task.new`, which are put in the
    same transaction if something changed. `also` are other values that mean the same, such as the one that an earlier
    formula gives: where the schedule saw one of them, nothing changed either.
    """

    __match_args__ = ("value",)

    def __init__(
        self,
        value: str,
        *,
        result: Any = None,
        keep: Any = None,
        then: Sequence[NewItem] = (),
        also: Sequence[str] = (),
    ) -> None:
        super().__init__(value, result, keep, tuple(then), tuple(also))
        self.value = cut(str(value), 500)
        self.result = result
        self.keep = keep
        self.then = tuple(then)
        self.also = tuple(cut(str(each), 500) for each in also)


class Done(Struct, frozen=True, gc=False):
    """The handler returned. `result` is its JSON text, None when it returned nothing."""

    result: bytes | None = None


class Failed(Struct, frozen=True, gc=False):
    """The handler raised. `classes` are the names of the exception's class and its bases, nearest first."""

    error: str
    classes: tuple[str, ...] = ()


class Crashed(Struct, frozen=True, gc=False):
    """The process that ran only this item died."""

    error: str


class Lost(Struct, frozen=True, gc=False):
    """The lease ran out: its worker vanished, or could not reach the database to extend it."""


class Superseded(Struct, frozen=True, gc=False):
    """A newer occurrence takes the place of one that still waits."""


class Expired(Struct, frozen=True, gc=False):
    """It expired before it was started."""


class Discarded(Struct, frozen=True, gc=False):
    """A person discarded it in review."""


class Released(Struct, frozen=True, gc=False):
    """The attempt is given back, for a reason that is not the item's: its worker shuts down, or has no slot for it."""

    reason: str = ""


class Revived(Struct, frozen=True, gc=False):
    """A person retries it at `due_at`, with all its tries."""

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
    is_broken: bool = False  # there were too many failures in a row: it is deactivated until a person reactivates it
    is_excused: bool = False  # failures are taken back: there were no more than `failures` in a row
    is_unchanged: bool = False
    fingerprint: str | None = None
    keep: bytes | None = None


class Change(Struct, frozen=True, gc=False):
    """The change of an item by an outcome. It applies only if the item is still in the state `was`, under `fence`."""

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
    # If set, the change is applied only if the lease had expired by then: a worker that extended it keeps its item.
    expired_at: datetime | None = None
    # If set, the change is applied only if the item still has this time and rank: changes by a person are kept.
    was_due_at: datetime | None = None
    was_rank: int | None = None
    rank: int | None = None  # None: the rank stays as it was
    excuses: int = 0
    cause: str | None = None  # why the try was given back without being counted; None: it was not
    member: Member | None = None  # what changes on the schedule that made the item
    then: tuple[NewItem, ...] = ()  # items that are put in the same transaction
    # Of a row of a job: how it stood and stands now, since when.
    job_id: int | None = None
    was_status: Status | None = None
    status: Status | None = None
    changed_at: datetime | None = None

    @property
    def error_group(self) -> str | None:
        """The group of failures that this one belongs to: same task, class and message, apart from variable parts."""
        if self.tried is None:
            return None
        return sha256(f"{self.task}\n{self.error_class}\n{gist(self.error or '')}".encode()).hexdigest()[:16]

    @property
    def is_plain_success(self) -> bool:
        """Whether it is just done, with nothing to keep: the common case, which stores settle by the thousand."""
        return self.outcome == "done" and self.result is None and self.member is None and not self.then


CatchUp = Literal["all", "latest", "skip"]
Overlap = Literal["allow", "skip", "supersede"]


class NewSchedule(Struct, frozen=True, gc=False):
    """What creating a schedule writes. The fields that a `Schedule` has too mean the same here."""

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
    slots: int | None = None  # how many slots the ring has
    is_declared: bool = False
    owner: str | None = None
    slot: int | None = None  # with a ring and no slot, it gets the one with the fewest members when it is written
    # What it remembers from another system that had it until now.
    failures: int = 0
    fingerprint: str | None = None
    keep: bytes | None = None
    last_error: str | None = None
    last_success_at: datetime | None = None
    broken_at: datetime | None = None


class Schedule(Struct, frozen=True, gc=False):
    """A recurrence that makes items, as a row."""

    id: int
    task: str  # the name of the task whose items it makes
    key: str  # what the caller calls it; unique for the task
    queue: str  # of the items that it makes
    rank: int  # of the items that it makes
    args: bytes  # of the items that it makes, as JSON text
    rule: str  # when it is due, as text, such as `daily 09:00`
    zone: str  # the time zone that the rule is read in, such as `Europe/Zagreb`
    catch_up: CatchUp  # which missed occurrences become items later: all, only the latest, or none (skip)
    max_lateness: float | None  # seconds after which no item is made for an occurrence, and its item is not started
    overlap: Overlap  # what happens while its last item is live: make another, skip, or supersede the waiting one
    ring: str | None  # with `Slots`: the schedules that share the same slots
    slot: int | None  # its slot in the ring, counted from 0
    is_declared: bool  # the code declares it, and it is removed when the code no longer does
    next_at: datetime | None  # when it is due next; None: it is paused, deactivated, or there is nothing to come
    paused_at: datetime | None  # when a person paused it
    broken_at: datetime | None  # when it was deactivated after too many failures in a row
    failures: int  # failures in a row, over all items since the last success
    last_at: datetime | None  # the last occurrence that became an item
    last_item: int | None  # the id of that item
    last_success_at: datetime | None
    last_error: str | None
    fingerprint: str | None  # what its subject looked like at the last success; see `Fingerprint`
    unchanged: int  # how often the subject looked as before
    skipped: int  # how many occurrences did not become items
    keep: bytes | None  # the value of `Fingerprint(keep=…)`, as JSON text
    created_at: datetime
    owner: str | None = None  # the user it belongs to; None: code made it

    @property
    def is_active(self) -> bool:
        return self.paused_at is None and self.broken_at is None


class NewAuditLine(Struct, frozen=True, gc=False):
    """A line to be written to the audit log: who did what to what."""

    actor: str
    action: str
    subject: str
    details: bytes = b"{}"


class Revision(Struct, frozen=True, gc=False):
    """The change of a schedule. All of it is written in one transaction."""

    schedule: Schedule  # with its new values
    occurrences: tuple[datetime, ...] = ()  # which become items
    changes: tuple[Change, ...] = ()  # to items that it made before
    notes: tuple[NewAuditLine, ...] = ()
    is_removed: bool = False


# What differs between the messages of failures of the same kind: numbers, ids, quoted words.
_VARYING = re.compile(r"0x[0-9a-f]+|[0-9a-f]{8}-[0-9a-f-]{27}|\d+|'[^']*'|\"[^\"]*\"", re.IGNORECASE)


def gist(error: str) -> str:
    """The first line of an error, without the parts that vary between failures of the same kind."""
    return _VARYING.sub("#", error.partition("\n")[0][:500])


def cut(text: str, limit: int = ERROR_LIMIT) -> str:
    """The text as a row can hold it: not too long, valid Unicode, and without NUL, which PostgreSQL refuses."""
    text = text.replace("\x00", "\\x00").encode("utf8", "backslashreplace").decode()
    return text if len(text) <= limit else f"{text[: limit - 20]}… ({len(text)} characters)"
