"""Duly's own tasks, which every worker has in addition to those of the app.

They read files of jobs, act on all rows of a job or of a filter, scan for dropped files, and remove what has expired.
Every app has them, so what they need is imported when they run.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from duly.core import codec
from duly.core.decide import Rules
from duly.core.model import Job, Snooze
from duly.core.policy.retry import Backoff
from duly.tasks.attempt import Attempt
from duly.tasks.puttable import TaskBackend
from duly.tasks.task import Task
from duly.verbs import LOCAL, Verbs, acts
from duly.verbs.files import SCAN
from duly.verbs.job_walks import cancel_rows, find_job, remove_rows, revive_rows
from duly.verbs.jobs import INGEST, TASK, TIDY, TIDY_EVERY, Action

if TYPE_CHECKING:
    from duly.intake.intake import Intake

RULES = Rules(retry=Backoff(base=10, tries=100), is_trusted=True)
# For tasks that read files: a file that crashes its reader must not do so over and over.
UNTRUSTED = Rules(retry=RULES.retry)
DEADLINE = 6 * 3600.0
# Seconds after which a scan goes on that had to stop: its owner has too many jobs, files may still be written, or this
# worker knows no places or not the types of jobs, as another one may.
SCAN_LATER = 30.0
# Jobs that are looked up at a time to be removed.
EXPIRED = 100


class OwnTasks:
    def __init__(self, verbs: Verbs, open_intake: Callable[[], Intake]) -> None:
        self._verbs = verbs
        self._open_intake = open_intake

    def tasks(self, backend: TaskBackend) -> list[Task[..., Any]]:
        """The tasks, each with a queue of its own name."""
        handlers: dict[str, tuple[Callable[..., Any], Rules]] = {
            INGEST: (self.read_file, UNTRUSTED),
            TASK: (self.carry_out, RULES),
            SCAN: (self.look_through, UNTRUSTED),
            TIDY: (self.tidy_up, RULES),
            acts.TASK: (self.act_on_items, RULES),
        }
        return [
            Task(backend, handler, name=name, queue=name, rules=rules, deadline=DEADLINE)
            for name, (handler, rules) in handlers.items()
        ]

    def read_file(self, attempt: Attempt, job_id: int) -> dict[str, int]:
        from duly.intake.ingest import ingest

        return ingest(self._open_intake(), job_id, attempt.progress, attempt.item.failures)

    def carry_out(self, attempt: Attempt, job_id: int, action: Action, options: dict[str, Any]) -> dict[str, int]:
        intake = self._open_intake()
        context = intake.verbs.context
        job = find_job(context, job_id)
        if job is None:
            return {"rows": 0}
        match action:
            case "cancel":
                counts = cancel_rows(context, job, options["reason"])
            case "reprocess":
                until = datetime.fromisoformat(options["until"])
                counts = revive_rows(context, job, options["statuses"], until, options["is_reset"])
            case "remove":
                _remove_files(intake, job)
                counts = remove_rows(context, job)
        rows = 0
        for rows in counts:
            attempt.progress(rows, job.total)
        return {"rows": rows}

    def act_on_items(self, attempt: Attempt, act_id: int) -> dict[str, int]:
        for act in acts.portions(self._verbs.context, act_id):
            attempt.progress(act.seen, max(act.total, act.seen))
        done = self._verbs.acts.get(LOCAL, act_id)
        return {"seen": done.seen, "changed": done.changed}

    def look_through(self, attempt: Attempt) -> dict[str, int]:
        intake, took = self._open_intake(), 0
        if not intake.settings.db_ingest_enabled:
            return {"taken": took}
        has_places = intake.settings.inbox or intake.settings.sources_allowed
        if not has_places or intake.scanner.hindrance:
            raise Snooze(SCAN_LATER)
        while True:
            report = intake.scanner.portion()
            took += report.took
            attempt.progress(took, took + report.left)
            if report.is_complete:
                return {"taken": took}
            if report.held or not report.left or not report.took:
                raise Snooze(SCAN_LATER)

    def tidy_up(self) -> None:
        intake = self._open_intake()
        if keep := intake.settings.jobs_keep_seconds:
            before = intake.verbs.context.now() - timedelta(seconds=keep)
            while intake.verbs.jobs.expire(before, EXPIRED):
                pass
        intake.sweep()
        raise Snooze(TIDY_EVERY)  # it is the same item for good: one that ends might miss a job that is just made


def _remove_files(intake: Intake, job: Job) -> None:
    """Before its rows, for as long as those are there it is known which files it has."""
    from duly.intake.types import IMAGES

    if job.file_id is None:
        return
    if codec.decode(job.options).get("kind") in IMAGES:
        intake.files.delete_below(intake.thumbnails(job))
    intake.files.delete(intake.verbs.files.of(job).place)
