"""duly: what falls due gets done, once, on time, evenly, and in spite of crashes."""

from duly import policy
from duly.core.model import Cancel, Fingerprint, GiveUp, NotFound, Placed, Skip, Snooze, Throttled
from duly.errors import DulyError, InputError, ItemFailed, KeyConflict
from duly.facade.app import Duly
from duly.policy import *  # noqa: F403 - all of its names are names of duly
from duly.tasks.attempt import Attempt
from duly.tasks.task import Task

__version__ = "0.2.0"

__all__ = [
    "Attempt",
    "Cancel",
    "Duly",
    "DulyError",
    "Fingerprint",
    "GiveUp",
    "InputError",
    "ItemFailed",
    "KeyConflict",
    "NotFound",
    "Placed",
    "Skip",
    "Snooze",
    "Task",
    "Throttled",
]
__all__ += policy.__all__
