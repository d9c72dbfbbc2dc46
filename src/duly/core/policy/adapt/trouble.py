"""What kind of failure it was, and when to try again.

throttled    429: the other side is overloaded; not the item's fault
server       other 5xx: it may recover soon
timeout      no answer in time, 408 and 504
network      no connection, or a broken one
not_found    404 and 410, or an empty answer: tried again rarely, in other words
refused      401, 403, 407, 451: a person has to act first
invalid      other 4xx, and values that are not possible: trying again cannot help
unknown      everything else
"""

from __future__ import annotations

from typing import Literal

from duly.core.policy.retry import Backoff, spread

Trouble = Literal["throttled", "server", "timeout", "network", "not_found", "refused", "invalid", "unknown"]

PERMANENT: frozenset[Trouble] = frozenset(("refused", "invalid"))
BACK_OFF: frozenset[Trouble] = frozenset(("throttled", "server", "timeout"))  # a reason to call less


class Spacing(Backoff, frozen=True, kw_only=True):
    """Pauses between tries: `base`, `base*factor`, … up to `cap` seconds, and up to `jitter` of that on top."""

    base: float
    cap: float = 3_600.0
    jitter: float = 0.25
    tries: int = 5

    def delay_for(self, failures: int, seed: str = "") -> float:
        return self.delay(failures) * (1 + self.jitter * spread(f"{seed}:{failures}"))


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


def classify(status: int) -> Trouble:
    """What kind of failure this HTTP status means."""
    if status == 429:
        return "throttled"
    if status in (408, 504):
        return "timeout"
    if status in (404, 410):
        return "not_found"
    if status in (401, 403, 407, 451):
        return "refused"
    if status in (409, 423, 425):  # another request is under way, or it is too early
        return "unknown"
    if 400 <= status < 500:
        return "invalid"
    return "server" if status >= 500 else "unknown"
