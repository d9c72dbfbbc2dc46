"""What goes in and out over HTTP, in camelCase. Strings are bounded, and hold nothing that a database refuses."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Generic, Literal, TypeVar

from fastapi import Path, Query
from msgspec.structs import fields
from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints
from pydantic.alias_generators import to_camel

from duly.core.shown import OwnedRow

DEPTH = 40  # how deeply arguments may be nested
BIG = 2**63 - 1
YEARS = range(1970, 9_801)  # with room for what is added to a time

T = TypeVar("T")


def clean(text: str) -> str:
    """Text that every database takes."""
    if "\x00" in text:
        raise ValueError("must not contain NUL characters")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("must be valid Unicode") from None
    return text


def _shallow(value: Any) -> Any:
    """JSON that is not nested too deeply to be looked at."""
    level, depth = [value], 0
    while level := [inner for each in level for inner in _inside(each)]:
        depth += 1
        if depth > DEPTH:
            raise ValueError(f"must not be nested more than {DEPTH} levels deep")
    return value


def _sane(moment: datetime) -> datetime:
    if moment.year not in YEARS:
        raise ValueError(f"must lie between the years {YEARS[0]} and {YEARS[-1]}")
    return moment


def _inside(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


Word = Annotated[str, StringConstraints(min_length=1, max_length=200), AfterValidator(clean)]
Sentence = Annotated[str, StringConstraints(max_length=2_000), AfterValidator(clean)]
Key = Annotated[str, StringConstraints(min_length=1, max_length=500), AfterValidator(clean)]
Args = Annotated[dict[str, Any], AfterValidator(_shallow)]
Rule = Annotated[str, StringConstraints(min_length=1, max_length=1_000), AfterValidator(clean)]
Password = Annotated[str, StringConstraints(min_length=8, max_length=1_024), AfterValidator(clean)]
Moment = Annotated[AwareDatetime, AfterValidator(_sane)]
Seconds = Annotated[float, Field(ge=0, le=3e9)]
Rank = Annotated[int, Field(ge=-100, le=100)]
Tries = Annotated[int, Field(ge=1, le=1_000_000)]

Id = Annotated[int, Path(ge=1, le=BIG)]
Name = Annotated[str, Path(min_length=1, max_length=200), AfterValidator(clean)]
GroupId = Annotated[str, Path(pattern=r"^[0-9a-f]{1,64}$")]
PageSize = Annotated[int, Query(alias="pageSize", ge=1, le=500)]
After = Annotated[str | None, Query(max_length=2_000, description="`next` of the page before.")]
WordFilter = Annotated[Word | None, Query()]

State = Literal["waiting", "running", "done", "failed", "cancelled"]


class Model(BaseModel):
    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, from_attributes=True, extra="forbid", allow_inf_nan=False
    )


class Out(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, from_attributes=True)


def example(**values: Any) -> ConfigDict:
    """The part of a model's configuration that shows readers of the API a body."""
    return ConfigDict(json_schema_extra={"examples": [values]})


class ProblemOut(BaseModel):
    """RFC 9457."""

    model_config = example(
        type="about:blank", title="Not found", status=404, detail="there is no item 7"
    )  # fmt: skip

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    field: str | None = None


class Page(Out, Generic[T]):
    items: list[T]
    next: str | None = Field(description="`after` of the next page; null on the last.")


# -- items


class ItemIn(Model):
    model_config = example(task="http", args={"url": "https://example.com/hook", "body": {"n": 1}}, key="hook-1")
    task: Word
    args: Args = Field(default_factory=dict)
    at: Moment | None = None
    delay: Seconds | None = Field(default=None, description="Seconds from now.")
    key: Key | None = Field(default=None, description="One live item per task and key.")
    rank: Rank | None = None
    tries: Tries | None = None
    max_lateness: Seconds | None = None


class PlacedOut(Out):
    id: int
    execution_key: str
    fresh: bool = Field(description="False: the item that has this key already.")


class ItemOut(Out):
    # The fields of `OwnedRow`, where each is named once; the fence is between the store and the worker.
    __annotations__ = {field.name: field.type for field in fields(OwnedRow) if field.name != "fence"}


class TryOut(Out):
    number: int
    attempt_key: str
    worker: str | None
    started_at: datetime | None
    ended_at: datetime
    outcome: str
    error: str | None
    error_class: str | None


class ItemStoryOut(ItemOut):
    tries: list[TryOut]
    lease_until: datetime | None


class ItemEdit(Model):
    model_config = example(args={"url": "https://example.com/hook"}, at="2026-12-01T09:00:00+01:00", rank=-1)

    args: Args | None = None
    at: Moment | None = None
    due_at: Moment | None = Field(default=None, description="An older name of `at`.")
    queue: Annotated[str, StringConstraints(min_length=1, max_length=200), AfterValidator(clean)] | None = None
    rank: Rank | None = None
    tries: Tries | None = None


class Reason(Model):
    model_config = example(reason="ordered twice")

    reason: Sentence = ""


class RetryIn(Model):
    model_config = example(at="2026-12-01T09:00:00+01:00")

    at: Moment | None = None


class Changed(Out):
    ids: list[int]


# -- schedules


class ScheduleIn(Model):
    model_config = example(
        task="http", key="nightly", rule="daily 02:30", zone="Europe/Zagreb", args={"url": "https://example.com/hook"}
    )
    task: Word
    key: Key
    rule: Rule = Field(
        description="`daily 09:00`, `weekly mon,fri 08:00`, `every 15m`, five fields of cron, or `slots 24`."
    )
    zone: Word = "UTC"
    args: Args = Field(default_factory=dict)
    catch_up: Literal["all", "latest", "skip"] | None = None
    max_lateness: Seconds | None = None
    overlap: Literal["allow", "skip", "supersede"] | None = None
    rank: Rank | None = None


class ScheduleEdit(Model):
    model_config = example(rule="daily 03:30", overlap="skip")

    rule: Rule | None = None
    zone: Word | None = None
    args: Args | None = None
    catch_up: Literal["all", "latest", "skip"] | None = None
    max_lateness: Seconds | None = None
    overlap: Literal["allow", "skip", "supersede"] | None = None
    rank: Rank | None = None


class ScheduleOut(Out):
    id: int
    task: str
    key: str
    queue: str
    rank: int
    args: Any
    rule: str
    describe: str
    zone: str
    state: Literal["active", "paused", "broken"]
    catch_up: str
    max_lateness: float | None
    overlap: str
    ring: str | None
    slot: int | None
    is_declared: bool
    next_at: datetime | None
    paused_at: datetime | None
    broken_at: datetime | None
    failures: int
    last_at: datetime | None
    last_item: int | None
    last_success_at: datetime | None
    last_error: str | None
    fingerprint: str | None
    unchanged: int
    skipped: int
    keep: Any
    owner: str | None
    created_at: datetime


class OccurrenceOut(Out):
    id: int
    state: State
    outcome: str | None
    planned_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    attempt: int
    last_error: str | None


class NoteOut(Out):
    """A line of the audit log."""

    id: int
    at: datetime
    actor: str
    action: str
    subject: str
    details: Any


class ScheduleStoryOut(ScheduleOut):
    next: list[datetime] = Field(description="Its next times; none while it is paused or broken.")
    items: list[OccurrenceOut] = Field(description="What it made lately, newest first.")
    audit: list[NoteOut] = Field(description="What was done to it lately, newest first.")


class PreviewIn(Model):
    model_config = example(rule="weekly mon,fri 08:00", zone="Europe/Zagreb", n=3)

    rule: Rule
    zone: Word = "UTC"
    n: Annotated[int, Field(ge=1, le=100)] = 5


class PreviewOut(Out):
    rule: str
    describe: str
    next: list[datetime]


class SlotOut(Out):
    ring: str
    slot: int
    members: int


class MoveOut(Out):
    schedule_id: int
    key: str
    slot: int
    to: int


# -- queues, limits, workers, alerts


class QueueOut(Out):
    queue: str
    waiting: int
    retrying: int
    due: int
    running: int
    failed: int
    oldest_due_seconds: float | None
    paused: bool


class QueueNote(Out):
    note: str


class LimitOut(Out):
    name: str
    most: int | None
    per_seconds: float | None
    granted: int
    last: datetime | None


class LimitIn(Model):
    model_config = example(limit="2/1m")

    limit: Annotated[str, StringConstraints(min_length=1, max_length=40), AfterValidator(clean)] = Field(
        description="`2/1m`: calls in any minute; `4`: at the same time."
    )


class WorkerOut(Out):
    name: str
    tasks: list[str]
    started_at: datetime
    seen_at: datetime


class AlertOut(Out):
    name: str
    since: datetime
    message: str
    details: Any
    told_at: datetime | None


# -- review


class GroupOut(Out):
    id: str
    task: str
    error_class: str | None
    items: int
    first_at: datetime | None
    last_at: datetime | None
    sample: int = Field(description="An item of this group.")


class ReviewNoteIn(Model):
    model_config = example(text="The supplier changed its certificate.")

    text: Annotated[str, StringConstraints(min_length=1, max_length=4_000), AfterValidator(clean)]


class ReviewNoteOut(Out):
    id: int
    author: str
    text: str
    at: datetime


class GroupStoryOut(GroupOut):
    notes: list[ReviewNoteOut]
    error: str | None = Field(description="The last error of the sample.")


# -- bulk


class Filter(Model):
    model_config = example(state="failed", task="http")

    state: State | None = None
    task: Word | None = None
    queue: Word | None = None
    error_group: Word | None = None


class BulkIn(Model):
    model_config = example(
        action="retry", filter={"state": "failed", "task": "http"}, rate=10, reason="the receiver is back"
    )

    action: Literal["cancel", "retry", "discard"]
    filter: Filter
    rate: Annotated[float, Field(gt=0, le=10_000)] | None = Field(
        default=None, description="Items per second; null: as fast as it goes."
    )
    reason: Sentence = ""


class CountIn(Model):
    model_config = example(action="retry", filter={"state": "failed", "task": "http"})

    action: Literal["cancel", "retry", "discard"]
    filter: Filter


class CountOut(Out):
    count: int
    is_more: bool = Field(description="The count stopped here; there are more.")


class FilterOut(Out):
    state: State | None
    task: str | None
    queue: str | None
    error_group: str | None


class BulkOut(Out):
    id: int
    owner: str | None
    author: str
    action: Literal["cancel", "retry", "discard"]
    filter: FilterOut
    state: Literal["running", "done", "cancelled"]
    total: int
    seen: int
    changed: int
    created_at: datetime
    finished_at: datetime | None


# -- people


class SignIn(Model):
    model_config = example(userId="ana", password="correct horse battery")  # noqa: S106 - an example

    user_id: Word
    password: Annotated[str, StringConstraints(max_length=1_024)]


class MeOut(Out):
    user_id: str
    role: str
    scopes: list[str]
    via: str


class UserIn(Model):
    model_config = example(id="ana", role="user", password="correct horse battery")  # noqa: S106 - an example

    id: Annotated[str, StringConstraints(min_length=1, max_length=100), AfterValidator(clean)]
    role: Literal["user", "admin"] = "user"
    password: Password | None = None


class UserEdit(Model):
    model_config = example(role="admin")

    role: Literal["user", "admin"] | None = None
    password: Password | None = None
    disabled: bool | None = None


class UserOut(Out):
    id: str
    role: str
    created_at: datetime
    disabled_at: datetime | None
    has_password: bool


class KeyIn(Model):
    model_config = example(name="shop", scopes=["read", "write"], expiresAt="2027-12-01T00:00:00Z")

    name: Annotated[str, StringConstraints(min_length=1, max_length=100, pattern=r"\S"), AfterValidator(clean)]
    scopes: list[Literal["read", "write", "admin"]] = Field(default=["read", "write"], min_length=1, max_length=3)
    expires_at: Moment | None = None
    user_id: Word | None = Field(default=None, description="For whom; others than yourself are for admins.")


class KeyOut(Out):
    id: str
    user_id: str
    name: str
    scopes: list[str]
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None


class NewKeyOut(KeyOut):
    secret: str = Field(description="Shown this once.")
