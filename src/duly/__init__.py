"""duly: what falls due gets done, once, on time, evenly, and in spite of crashes."""

from duly.core.model import Cancel, Fingerprint, GiveUp, NotFound, Placed, Skip, Snooze, Throttled
from duly.errors import DulyError, InputError, KeyConflict
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
    Slots,
    Source,
    Weekly,
    Windows,
    Yearly,
)
from duly.tasks.attempt import Attempt

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
    "KeyConflict",
    "Limit",
    "Monthly",
    "NotFound",
    "Pace",
    "Placed",
    "Skip",
    "Slots",
    "Snooze",
    "Source",
    "Throttled",
    "Weekly",
    "Windows",
    "Yearly",
]
