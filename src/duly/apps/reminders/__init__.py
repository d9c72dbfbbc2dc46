"""Reminders that become phone calls.

    from duly.apps.reminders import reminders
    reminders.schedule("+385 1 234", "Dentist at 9", at="2026-12-01T09:00+01:00")

    duly worker duly.apps.reminders:app        # on as many servers as you like

`reminders_on(app)` puts the same on an app of your own. A reminder is an item; its states and fields are read from it:

    scheduled ──▶ processing ──▶ completed
                    │    ▲  └──▶ failed           tries used up, or the provider says that asking again cannot help
                    ▼    │
                  pending_retry                   after 60, 120, 240, … seconds; also when the provider is busy

It differs from its original specification (docs/requirements.md) in four ways:

- One execution key for all tries of a reminder goes out as `Idempotency-Key` and in the call's metadata. A key per
  attempt defeats deduplication exactly when a call timed out but went through. The attempt's own key
  (`{id}-{attempt}-{suffix}`, unique) goes along for the audit trail.
- A worker wakes when a reminder is due. It neither polls ahead by the interval, which calls early, nor waits for the
  next poll, which calls late; SCHEDULER_POLL_INTERVAL_SECONDS is only the safety net.
- A claim is a lease: the reminders of a server that died are called by another within seconds, not left `processing`.
- The clock of the database decides what is due, so the clocks of servers need not be right.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from duly import Duly
from duly.apps import alone, shipped
from duly.apps.reminders.calls import Reminder, Reminders, Status, install, simulated
from duly.apps.reminders.settings import RemindersSettings, checks
from duly.plugin import Parameter, Screen, Simulated
from duly.tasks.task import Task

if TYPE_CHECKING:
    app: Duly
    reminders: Reminders
    remind: Task[..., Any]

__all__ = ["Reminder", "Reminders", "RemindersSettings", "Status", "plugin", "reminders_on", "simulated"]


plugin = shipped(
    __name__, "Reminders that become phone calls.", RemindersSettings, install, checks=checks,
    simulation=Simulated(
        parameters=(Parameter(name="reminders", label="Reminders", default=1_000),), fill=simulated
    ),
    screens=(Screen(path="reminders", title="Reminders", script="reminders.js"),),
    aliases={
        "SCHEDULER_BATCH_SIZE": "concurrency", "SCHEDULER_POLL_INTERVAL_SECONDS": "poll_seconds",
        "RETRY_MAX_ATTEMPTS": "retry_tries", "RETRY_BASE_DELAY_SECONDS": "retry_base_seconds",
    },
)  # fmt: skip

# Registers the task `remind` on an app. Retries are the app's settings: 3 tries, 60 s and doubling by default.
reminders_on = plugin.on
__getattr__ = alone(globals(), plugin, reminders=lambda made: made, remind=lambda made: made.task)
