"""What kind of failure it was, and when to try again.

throttled    429, or 503 that says when: the other side has enough; not the item's fault
server       5xx: it may be well again soon
timeout      no answer in time, 408 and 504
network      no connection, or it broke
not_found    404 and 410, or an empty answer: asked conservatively again, in other words
refused      401, 403, 407, 451: somebody has to do something about it first
invalid      the other 4xx, and values that cannot be: asking again cannot help
unknown      everything else
"""

from __future__ import annotations

from typing import Literal
from zlib import crc32

from msgspec import Struct

Trouble = Literal["throttled", "server", "timeout", "network", "not_found", "refused", "invalid", "unknown"]

PERMANENT: frozenset[Trouble] = frozenset(("refused", "invalid"))
BACK_OFF: frozenset[Trouble] = frozenset(("throttled", "server", "timeout"))  # a reason to call less


class Spacing(Struct, frozen=True, kw_only=True):
    """Pauses between tries: `base`, `base*factor`, … up to `cap` seconds, and up to `jitter` of that on top."""

    base: float
    factor: float = 2.0
    cap: float = 3_600.0
    jitter: float = 0.25
    tries: int = 5

    def delay(self, failures: int, seed: str = "") -> float:
        """Seconds to wait after the n-th failure. The same seed gives the same jitter."""
        # The exponent is bounded before it is raised, so no count of failures overflows a float.
        pause = min(self.base * self.factor ** min(max(failures, 1) - 1, 60), self.cap)
        return pause * (1 + self.jitter * crc32(f"{seed}:{failures}".encode()) / 2**32)


SPACINGS: dict[Trouble, Spacing] = {
    "throttled": Spacing(base=5, cap=300, tries=20),
    "server": Spacing(base=15, cap=900, tries=6),
    "timeout": Spacing(base=30, cap=900, tries=5),
    "network": Spacing(base=10, cap=600, tries=8),
    "not_found": Spacing(base=900, factor=4, cap=86_400, tries=3),
    "unknown": Spacing(base=30, cap=3_600, tries=4),
    "refused": Spacing(base=0, tries=1),
    "invalid": Spacing(base=0, tries=1),
}


def classify(status: int | None = None, error: BaseException | None = None, says_when: bool = False) -> Trouble:
    """What kind of failure this status, or this exception, means. `says_when`: the answer had a Retry-After."""
    if status is not None:
        return _by_status(status, says_when)
    match error:
        case TimeoutError():
            return "timeout"
        case OSError():
            return "network"
        case LookupError():
            return "not_found"
        case ValueError() | TypeError():
            return "invalid"
        case _:
            return "unknown"


def _by_status(status: int, says_when: bool) -> Trouble:
    if status == 429 or (status == 503 and says_when):
        return "throttled"
    if status in (408, 504):
        return "timeout"
    if status in (404, 410):
        return "not_found"
    if status in (401, 403, 407, 451):
        return "refused"
    if status in (409, 423, 425):  # somebody else is at it, or it is too early: soon it is not
        return "unknown"
    if 400 <= status < 500:
        return "invalid"
    return "server" if status >= 500 else "unknown"


def next_try(trouble: Trouble, failures: int, seed: str = "", stretched: float = 1.0) -> float | None:
    """Seconds until the next try after the n-th failure of this kind; None when that was the last one."""
    spacing = SPACINGS[trouble]
    return None if failures >= spacing.tries else spacing.delay(failures, seed) * stretched
