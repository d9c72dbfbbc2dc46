"""Controllers that find the right size and pace by what they see: pure values, with time and chance handed in.

Each has a state that is a frozen value: given what was seen, it returns the next state. None keeps a clock, a
thread or a lock, so any task can use them, and tests run days of them in a moment.

    Average    of recent values, in which the newest weigh most
    Batch      how many rows are written at a time
    Slice      how many items are claimed for a stretch of time; when a lock on them may be taken for lost
    Pacing     how many calls a provider gets at a time, and how far apart
    Trouble    what kind of failure it was, and when to try again

Only `machine` looks at the world: it measures the load that a Slice is given.
"""

from __future__ import annotations

from duly.core.policy.adapt.average import Average
from duly.core.policy.adapt.batch import Batch, BatchBounds, Written
from duly.core.policy.adapt.pace import Call, Pace, Pacing
from duly.core.policy.adapt.slices import Load, Slice, SliceBounds
from duly.core.policy.adapt.trouble import SPACINGS, Spacing, Trouble, classify

__all__ = [
    "SPACINGS", "Average", "Batch", "BatchBounds", "Call", "Load", "Pace", "Pacing", "Slice", "SliceBounds", "Spacing",
    "Trouble", "Written", "classify",
]  # fmt: skip
