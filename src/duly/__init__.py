"""duly: what falls due gets done, once, on time, evenly, and in spite of crashes."""

from duly.core.model import Cancel, Fingerprint, GiveUp, NotFound, Placed, Skip, Snooze, Throttled
from duly.errors import DulyError, InputError, ItemFailed, KeyConflict
from duly.facade.app import Duly
from duly.policy import (
    NEVER,
    Backoff,
    ByError,
    Cron,
    Daily,
    Every,
    Limit,
    Monthly,
    Pace,
    Retry,
    Slots,
    Source,
    Weekly,
    Windows,
    Yearly,
)
from duly.tasks.attempt import Attempt
from duly.tasks.task import Task

__version__ = "0.1.0"

__all__ = [
    "NEVER",
    "Attempt",
    "Backoff",
    "ByError",
    "Cancel",
    "Cron",
    "Daily",
    "Duly",
    "DulyError",
    "Every",
    "Fingerprint",
    "GiveUp",
    "InputError",
    "ItemFailed",
    "KeyConflict",
    "Limit",
    "Monthly",
    "NotFound",
    "Pace",
    "Placed",
    "Retry",
    "Skip",
    "Slots",
    "Snooze",
    "Source",
    "Task",
    "Throttled",
    "Weekly",
    "Windows",
    "Yearly",
]
