"""The options of calls that `duly.client` and the command line share, and checks of ids."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from difflib import get_close_matches
from itertools import islice
from typing import Any, TypedDict, TypeVar

from duly.core.errors import DoesNotExist, InputError
from duly.core.model import CatchUp, Overlap, State, Status
from duly.core.results import DateField, ScheduleState

T = TypeVar("T")

LAST_ID = 2**63 - 1  # the largest number that a row can have as its id


def checked_id(number: Any, field: str) -> int:
    """The id of a row in this field, such as `item_id`; a number that no row can have as its id does not exist."""
    if type(number) is not int:
        raise InputError(field, f"must be an id, a whole number, got {number!r:.80}")
    if not is_id(number):
        raise DoesNotExist(f"there is no {field.removesuffix('_id')} {number}")
    return number


def is_id(number: int) -> bool:
    return 1 <= number <= LAST_ID


def checked_most(most: Any) -> int:
    """How many rows of a list are wanted, at most."""
    if isinstance(most, bool) or not isinstance(most, int) or not 1 <= most <= LAST_ID:
        raise InputError("most", f"must be a whole number from 1 on, got {most!r:.80}")
    return most


def first(rows: Iterable[T], most: int | None) -> Iterator[T]:
    """The first rows of a list, or all of them."""
    return islice(rows, most if most is None else checked_most(most))


def checked_ids(ids: Any, field: str = "ids") -> list[int]:
    """These ids, each once. An error names the place of the wrong one, as over HTTP."""
    if not isinstance(ids, Iterable) or isinstance(ids, str | bytes | Mapping):
        raise InputError(field, f"must be a list of ids, got {ids!r:.80}")
    wanted = list(ids)
    for place, each in enumerate(wanted):
        if type(each) is not int:
            raise InputError(f"{field}.{place}", f"must be an id, a whole number, got {each!r:.80}")
    return list(dict.fromkeys(wanted))


# Names that other task queues have for options of ours.
_ELSEWHERE = {
    "eta": "at", "run_at": "at", "scheduled_at": "at", "countdown": "delay", "schedule_in": "delay", "task_id": "key",
    "job_id": "key", "unique_key": "key", "priority": "rank", "max_retries": "tries", "max_attempts": "tries",
    "retries": "tries", "expires": "max_lateness", "timeout": "deadline", "time_limit": "deadline",
    "rate_limit": "limits",
}  # fmt: skip


def check_names(given: Mapping[str, Any], known: type, call: str) -> None:
    """Refuse a name that is not one of these options, as a function with such parameters does."""
    for name in given:
        if name not in known.__annotations__:
            raise TypeError(f"{call}() got an unexpected keyword argument {name!r}{meant(name, known)}")


def meant(name: str, known: type) -> str:
    """The end of an error about an unknown option: the name that was probably meant, and all that there are."""
    names = sorted(known.__annotations__)
    other = _ELSEWHERE.get(name)
    near = [other] if other in names else get_close_matches(name, names, 1)
    hint = "".join(f"did you mean {each}? " for each in near)
    return f"; {hint}options: {', '.join(names)}"


def option_of(name: str, known: type) -> str | None:
    """The option that this name is, here or in other task queues."""
    return name if name in known.__annotations__ else _ELSEWHERE.get(name)


class AgainOptions(TypedDict, total=False):
    """The options of an item that is put once more."""

    key: str | None
    at: datetime | str | None
    delay: float | timedelta | None


class ItemOptions(AgainOptions, total=False):
    """The options of an item; `Puttable.options` explains each. None counts as not given."""

    rank: int | None
    tries: int | None
    max_lateness: float | timedelta | None


class ActOptions(TypedDict, total=False):
    """Which items an act on many items means. An option that is not given does not matter."""

    states: Sequence[State] | None  # an empty one means no item; None, items in any state
    task: str | None
    queue: str | None
    key: str | None
    error_group: str | None
    schedule_id: int | None
    job_id: int | None
    error: str | None  # a part of the last error, in upper or lower case
    min_tries: int | None
    date_field: DateField | None  # which time `since` and `until` are about; default: created
    since: datetime | None
    until: datetime | None
    where: Sequence[str] | None  # `name=value` of an argument, or `result.name=value`


class ItemFilter(ActOptions, total=False):
    """Which items a list shows."""

    user_id: str | None
    below: int | None  # only items with a smaller id


class RowFilter(TypedDict, total=False):
    """A filter for rows of jobs."""

    job_type: str | None
    job_ids: Sequence[int]
    since: datetime | None
    until: datetime | None
    user_id: str | None


class ReprocessOptions(TypedDict, total=False):
    """Which rows of a job are retried: these, or all with these statuses."""

    item_ids: Sequence[int] | None  # an empty one means no row; None, all rows of the job
    statuses: Sequence[Status]  # default: ERROR and NOT_FOUND
    reset: bool  # also rows that were reprocessed as often as is allowed


class UploadOptions(TypedDict, total=False):
    """How a file is read. What is not given is found out."""

    job_type: str  # default: csv
    header: bool | None  # whether the first row has the names of the columns
    encoding: str | None
    delimiter: str | None
    sheet: str | None  # of a workbook; default: its first visible one
    mapping: Mapping[str, str] | None  # the column of each field


class ScheduleFields(TypedDict, total=False):
    """The options of a schedule."""

    zone: str | None
    catch_up: CatchUp | None
    max_lateness: float | timedelta | None
    overlap: Overlap | None
    rank: int | None


class ScheduleFilter(TypedDict, total=False):
    """Which schedules a list shows."""

    task: str | None
    key: str | None  # the whole key, or the key without the owner in front
    state: ScheduleState | None
    ring: str | None
    slot: int | None


class ScheduleChange(ScheduleFields, total=False):
    """What can be changed of a schedule."""

    rule: str | None
    args: Mapping[str, Any] | None


class ItemEdit(TypedDict, total=False):
    """What can be changed of an item."""

    args: Mapping[str, Any] | None  # as a whole
    at: datetime | str | None
    queue: str | None
    rank: int | None
    tries: int | None
