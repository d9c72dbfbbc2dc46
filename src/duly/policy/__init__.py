"""Pure values that say when and how much: no clock, no database, no thread."""

from duly.policy.limits import Limit
from duly.policy.recur import Cron, Daily, Every, Monthly, Slots, Weekly, Yearly
from duly.policy.retry import NEVER, Backoff, ByError, Retry, Windows

__all__ = [
    "NEVER",
    "Backoff",
    "ByError",
    "Cron",
    "Daily",
    "Every",
    "Limit",
    "Monthly",
    "Retry",
    "Slots",
    "Weekly",
    "Windows",
    "Yearly",
]
