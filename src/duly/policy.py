"""Pure values that decide when and how much: when to retry, when to repeat, and the maximum number of calls."""

from duly.core.policy.limits import Limit
from duly.core.policy.outage import Source
from duly.core.policy.pace import Pace
from duly.core.policy.recur import Cron, Daily, Every, Monthly, Slots, Weekly, Yearly
from duly.core.policy.retry import NEVER, Backoff, ByError, Retry, Windows

__all__ = [
    "NEVER",
    "Backoff",
    "ByError",
    "Cron",
    "Daily",
    "Every",
    "Limit",
    "Monthly",
    "Pace",
    "Retry",
    "Slots",
    "Source",
    "Weekly",
    "Windows",
    "Yearly",
]
