"""Job types: which task processes the rows of which files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from duly.bulk.mapping import Fields
from duly.bulk.read import FileKind
from duly.core.results import JobField, JobTypeInfo
from duly.tasks.task import Task

TABLES: tuple[FileKind, ...] = ("csv", "jsonl", "xlsx")
IMAGES: tuple[FileKind, ...] = ("image", "images")


@dataclass(frozen=True, kw_only=True)
class JobType:
    """The rows of a file of these kinds are items of this task."""

    name: str
    task: Task[..., Any]
    # What the columns are mapped to, which are the arguments then; None: the columns are the arguments.
    fields: Fields | None
    kinds: tuple[FileKind, ...]

    def info(self) -> JobTypeInfo:
        """What people see of it."""
        known = self.fields
        fields = None if known is None else [JobField(e.name, e.kind, e.name in known.any_of) for e in known.fields]
        return JobTypeInfo(self.name, self.task.name, self.kinds, fields)
