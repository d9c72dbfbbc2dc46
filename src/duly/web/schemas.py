"""What goes in and out over HTTP, in camelCase. Strings are bounded, and hold nothing that a database refuses."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Generic, Literal, TypeVar

from fastapi import Path, Query
from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints
from pydantic.alias_generators import to_camel

DEPTH = 40  # how deeply arguments may be nested
BIG = 2**63 - 1

T = TypeVar("T")


def _clean(text: str) -> str:
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


def _inside(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


Word = Annotated[str, StringConstraints(min_length=1, max_length=200), AfterValidator(_clean)]
Sentence = Annotated[str, StringConstraints(max_length=2_000), AfterValidator(_clean)]
Key = Annotated[str, StringConstraints(min_length=1, max_length=500), AfterValidator(_clean)]
Args = Annotated[dict[str, Any], AfterValidator(_shallow)]

Id = Annotated[int, Path(ge=1, le=BIG)]
PageSize = Annotated[int, Query(alias="pageSize", ge=1, le=500)]
After = Annotated[str | None, Query(max_length=500, description="`next` of the page before.")]
WordFilter = Annotated[
    Annotated[str, StringConstraints(min_length=1, max_length=200), AfterValidator(_clean)] | None, Query()
]

State = Literal["waiting", "running", "done", "failed", "cancelled"]


class Model(BaseModel):
    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, from_attributes=True, extra="forbid", allow_inf_nan=False
    )


class Out(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, from_attributes=True)


class ProblemOut(BaseModel):
    """RFC 9457."""

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
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"task": "http", "args": {"url": "https://example.com/hook", "body": {"n": 1}}}]
        }
    )
    task: Word
    args: Args = Field(default_factory=dict)
    at: AwareDatetime | None = None
    delay: Annotated[float, Field(ge=0, le=3e9)] | None = Field(default=None, description="Seconds from now.")
    key: Key | None = Field(default=None, description="One live item per task and key.")
    rank: Annotated[int, Field(ge=-100, le=100)] | None = None
    tries: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    max_lateness: Annotated[float, Field(ge=0, le=3e9)] | None = None


class PlacedOut(Out):
    id: int
    execution_key: str
    fresh: bool = Field(description="False: the item that has this key already.")


class ItemOut(Out):
    id: int
    task: str
    queue: str
    lane: str
    rank: int
    state: State
    outcome: str | None
    planned_at: datetime
    due_at: datetime
    key: str | None
    execution_key: str
    args: Any
    result: Any
    progress: Any
    attempt: int
    max_attempts: int | None
    failures: int
    crashes: int
    claimed_by: str | None
    started_at: datetime | None
    finished_at: datetime | None
    last_error: str | None
    error_class: str | None
    error_group: str | None
    schedule_id: int | None
    owner: str | None
    created_at: datetime


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
    args: Args | None = None
    due_at: AwareDatetime | None = None
    rank: Annotated[int, Field(ge=-100, le=100)] | None = None


class Reason(Model):
    reason: Sentence = ""


class RetryIn(Model):
    at: AwareDatetime | None = None


class Changed(Out):
    ids: list[int]


# -- schedules


class ScheduleIn(Model):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"task": "http", "key": "nightly", "rule": "daily 02:30", "zone": "Europe/Zagreb",
                 "args": {"url": "https://example.com/hook"}}
            ]
        }
    )  # fmt: skip
    task: Word
    key: Key
    rule: Annotated[str, StringConstraints(min_length=1, max_length=1_000), AfterValidator(_clean)] = Field(
        description="`daily 09:00`, `weekly mon,fri 08:00`, `every 15m`, five fields of cron, or `slots 24`."
    )
    zone: Word = "UTC"
    args: Args = Field(default_factory=dict)
    catch_up: Literal["all", "latest", "skip"] | None = None
    max_lateness: Annotated[float, Field(ge=0, le=3e9)] | None = None
    overlap: Literal["allow", "skip", "supersede"] | None = None
    rank: Annotated[int, Field(ge=-100, le=100)] | None = None


class ScheduleEdit(Model):
    rule: Annotated[str, StringConstraints(min_length=1, max_length=1_000), AfterValidator(_clean)] | None = None
    zone: Word | None = None
    args: Args | None = None
    catch_up: Literal["all", "latest", "skip"] | None = None
    max_lateness: Annotated[float, Field(ge=0, le=3e9)] | None = None
    overlap: Literal["allow", "skip", "supersede"] | None = None
    rank: Annotated[int, Field(ge=-100, le=100)] | None = None


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
    failures: int
    last_at: datetime | None
    last_item: int | None
    last_success_at: datetime | None
    last_error: str | None
    unchanged: int
    skipped: int
    keep: Any
    owner: str | None
    created_at: datetime


class PreviewIn(Model):
    rule: Annotated[str, StringConstraints(min_length=1, max_length=1_000), AfterValidator(_clean)]
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


class LimitOut(Out):
    name: str
    most: int | None
    per_seconds: float | None
    granted: int
    last: datetime | None


class LimitIn(Model):
    limit: Annotated[str, StringConstraints(min_length=1, max_length=40), AfterValidator(_clean)] = Field(
        description="`2/1m`: calls in any minute; `4`: at the same time.", examples=["2/1m"]
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


class NoteOut(Out):
    """A line of the audit log."""

    id: int
    at: datetime
    actor: str
    action: str
    subject: str
    details: Any


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
    text: Annotated[str, StringConstraints(min_length=1, max_length=4_000), AfterValidator(_clean)]


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
    state: State | None = None
    task: Word | None = None
    queue: Word | None = None
    error_group: Word | None = None


class BulkIn(Model):
    action: Literal["cancel", "retry", "discard"]
    filter: Filter
    rate: Annotated[float, Field(gt=0, le=10_000)] | None = Field(
        default=None, description="Items per second; null: as fast as it goes."
    )
    reason: Sentence = ""


class CountIn(Model):
    action: Literal["cancel", "retry", "discard"]
    filter: Filter


class CountOut(Out):
    count: int
    is_more: bool = Field(description="The count stopped here; there are more.")


class BulkOut(Out):
    id: int
    owner: str | None
    author: str
    action: str
    filter: Any
    state: Literal["running", "done", "cancelled"]
    total: int
    seen: int
    changed: int
    created_at: datetime
    finished_at: datetime | None


# -- people


class SignIn(Model):
    user_id: Word
    password: Annotated[str, StringConstraints(max_length=1_024)]


class MeOut(Out):
    user_id: str
    role: str
    scopes: list[str]
    via: str


class UserIn(Model):
    id: Annotated[str, StringConstraints(min_length=1, max_length=100), AfterValidator(_clean)]
    role: Literal["user", "admin"] = "user"
    password: Annotated[str, StringConstraints(min_length=8, max_length=1_024), AfterValidator(_clean)] | None = None


class UserEdit(Model):
    role: Literal["user", "admin"] | None = None
    password: Annotated[str, StringConstraints(min_length=8, max_length=1_024), AfterValidator(_clean)] | None = None
    disabled: bool | None = None


class UserOut(Out):
    id: str
    role: str
    created_at: datetime
    disabled_at: datetime | None
    has_password: bool


class KeyIn(Model):
    name: Annotated[str, StringConstraints(min_length=1, max_length=100, pattern=r"\S"), AfterValidator(_clean)]
    scopes: list[Literal["read", "write", "admin"]] = Field(default=["read", "write"], min_length=1, max_length=3)
    expires_at: AwareDatetime | None = None
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


# -- the apps' own


class ReminderIn(Model):
    phone: Annotated[str, StringConstraints(min_length=1, max_length=100), AfterValidator(_clean)]
    message: Annotated[str, StringConstraints(min_length=1, max_length=4_000), AfterValidator(_clean)]
    at: AwareDatetime
    key: Key | None = None


class ProductIn(Model):
    user_id: Word | None = Field(default=None, description="Whose product; others than yourself are for admins.")
    sku: Word


class PersonIn(Model):
    id: Word
    first_name: Word
    last_name: Word
    birthday: Annotated[str, StringConstraints(min_length=5, max_length=10), AfterValidator(_clean)]
    zone: Word
    leap: Literal["feb28", "mar1", "skip"] = "feb28"


class PersonEdit(Model):
    first_name: Word | None = None
    last_name: Word | None = None
    birthday: Annotated[str, StringConstraints(min_length=5, max_length=10), AfterValidator(_clean)] | None = None
    zone: Word | None = None
    leap: Literal["feb28", "mar1", "skip"] | None = None
