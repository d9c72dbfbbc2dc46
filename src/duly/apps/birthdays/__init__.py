"""Birthday messages at nine in the morning in each person's time zone, also after days of downtime.

    from duly.apps.birthdays import birthdays
    birthdays.add("user-456", "Ana", "Horvat", birthday="1990-03-15", zone="Europe/Zagreb")

    WEBHOOK_URL=https://… duly worker duly.apps.birthdays:app      # on as many servers as you like

`birthdays_on(app)` puts the same on an app of your own. A person is a yearly schedule; an event is its next time, and
then an item:

    PENDING ──▶ PROCESSING ──▶ COMPLETED
                  │    ▲
                  ▼    │  in 1, 2, 4 … 60 minutes
                 FAILED                      after two days of that it stays there, in review

It differs from its original specification (docs/requirements.md) in five ways:

- Next year's event is not made after this year's has succeeded, which forgets a person when a process dies in between:
  the schedule moves on in the transaction that makes the item, and exists whatever becomes of it.
- FAILED events are really tried again, and those of a process that died while PROCESSING run elsewhere in seconds.
- There is no recovery run at start-up: due items are claimed, after five minutes or after five days.
- A person's zone and the 29th of February are rules, not a timestamp that was computed a year ahead with the daylight
  saving rules of that day.
- The clock of the database decides what is due.

The year of birth is not kept: nothing needs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from duly import Duly
from duly.apps import alone, shipped
from duly.apps.birthdays.greetings import Birthdays, Person, PersonEvent, install, simulated
from duly.apps.birthdays.settings import BirthdaysSettings, checks
from duly.plugin import Parameter, Screen, Simulated
from duly.tasks.task import Task

if TYPE_CHECKING:
    app: Duly
    birthdays: Birthdays
    birthday: Task[..., Any]

__all__ = ["Birthdays", "BirthdaysSettings", "Person", "PersonEvent", "birthdays_on", "plugin", "simulated"]


plugin = shipped(
    __name__, "Birthday messages at nine in each person's time zone.", BirthdaysSettings, install, checks=checks,
    simulation=Simulated(
        parameters=(Parameter(name="people", label="People", default=10_000, shown=2_000),), fill=simulated
    ),
    screens=(Screen(path="people", title="People", script="people.js"),),
)  # fmt: skip

# Registers the task `birthday` on an app.
birthdays_on = plugin.on
__getattr__ = alone(globals(), plugin, birthdays=lambda made: made, birthday=lambda made: made.task)
