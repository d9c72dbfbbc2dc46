"""The task that carries out acts on many rows, which every worker has beside the app's own."""

from __future__ import annotations

from typing import Any

from duly.core.decide import Rules
from duly.core.policy.retry import Backoff
from duly.tasks.attempt import Attempt
from duly.tasks.puttable import TaskBackend
from duly.tasks.task import Task
from duly.verbs import LOCAL, Verbs
from duly.verbs.acts import TASK, portions


def acts_task(backend: TaskBackend, verbs: Verbs) -> Task[..., Any]:
    def carry_out(attempt: Attempt, act_id: int) -> dict[str, int]:
        for act in portions(verbs.context, act_id):
            attempt.progress(act.seen, max(act.total, act.seen))
        done = verbs.acts.get(LOCAL, act_id)
        return {"seen": done.seen, "changed": done.changed}

    rules = Rules(retry=Backoff(base=10, tries=100), is_trusted=True)
    return Task(
        backend, carry_out, name=TASK, queue=TASK, rules=rules, deadline=6 * 3600.0, cpu=False, batch=None, rank=0,
        label=None,
    )  # fmt: skip
