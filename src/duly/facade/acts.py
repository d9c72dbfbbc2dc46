"""The task that carries out acts on many rows, which every worker has beside the app's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from duly.core.decide import Rules
from duly.core.policy.retry import Backoff
from duly.tasks.attempt import Attempt
from duly.tasks.task import Task
from duly.verbs import LOCAL
from duly.verbs.acts import TASK, portions

if TYPE_CHECKING:
    from duly.facade.app import Duly


def acts_on(app: Duly) -> Task[..., Any]:
    def carry_out(act_id: int, attempt: Attempt) -> dict[str, int]:
        for act in portions(app.verbs.ground, act_id):
            attempt.progress(act.seen, act.total)
        done = app.verbs.acts.get(LOCAL, act_id)
        return {"seen": done.seen, "changed": done.changed}

    rules = Rules(retry=Backoff(base=10, tries=100), is_trusted=True)
    return Task(
        app, carry_out, name=TASK, queue=TASK, rules=rules, deadline=6 * 3600.0, cpu=False, batch=None, rank=0,
        label=None,
    )  # fmt: skip
