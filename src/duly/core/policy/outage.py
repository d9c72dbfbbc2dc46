"""When a source is down: nearly everything that asks it fails for one cause. That is one fact, and nobody's failure.

A source is whatever the tries of a task depend on: a supplier's API, a mail server. While it is down, one call now and
then finds out whether it is back, and what fails meanwhile is given back, without blame.

One that fails alone says nothing about its source. So only failures since the last success count, of several calls and
several items, and not of those that had failed before while the source was well.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from msgspec import Struct

from duly.core.model import Failed, gist
from duly.core.policy.retry import class_name

# How many calls must have failed, and how many different items: two may each fail for a reason of their own.
SEVERAL = 3
# The part of the failures that must have the same cause.
SHARE = 0.9
# The cause of all failures that mean that nobody answers, because one outage shows itself in many words.
AWAY = "no answer"

# The last words of the names of classes which say that there was no connection, or no answer in time.
_NOBODY_THERE = ("ConnectionError", "ConnectError", "Unreachable", "NetworkError", "gaierror")
_NOT_IN_TIME = ("TimeoutError", "Timeout", "TimedOut")
# How errors tell of a status from 500 to 599.
_BROKEN = re.compile(r"\b(?:answered|status|code|http|error)\b\D{0,20}\b5\d\d\b|\b5\d\d server error\b", re.IGNORECASE)


class Source(Struct, frozen=True):
    """`Source("supplier")`: what the tries of a task depend on. Tasks with the same source share its fate.

    It is down when its last `tries` tries failed, nearly all for the same cause, and none succeeded in between. From
    then on there is one call in `probe` seconds, over the whole fleet, until one succeeds. `own` are exceptions, or
    names of their classes, that are about single items: such a failure says nothing about the source.
    """

    name: str
    tries: int = 10
    probe: float = 60.0
    own: tuple[type[BaseException] | str, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not 1 <= len(self.name) <= 100:
            raise ValueError(f"name: must be 1 to 100 characters, got {self.name!r:.80}")
        if isinstance(self.tries, bool) or not isinstance(self.tries, int) or not SEVERAL <= self.tries <= 1_000:
            raise ValueError(f"tries: must be a whole number from {SEVERAL} to 1,000, got {self.tries!r:.80}")
        is_number = isinstance(self.probe, int | float) and not isinstance(self.probe, bool)
        if not is_number or not 0.5 <= self.probe <= 86_400:
            raise ValueError(f"probe: must be a number of seconds from 0.5 to 86,400, got {self.probe!r:.80}")
        for each in self.own if isinstance(self.own, tuple) else (None,):
            if not isinstance(each, str) and not (isinstance(each, type) and issubclass(each, BaseException)):
                raise ValueError(f"own: must be a tuple of exceptions or names of them, got {self.own!r:.80}")

    def is_blamed(self, failed: Failed) -> bool:
        """Whether this failure may be the source's."""
        own = {each if isinstance(each, str) else class_name(each) for each in self.own}
        return own.isdisjoint(failed.classes)


class Failure(Struct, frozen=True, gc=False):
    """One failed try, as far as it tells of its source."""

    subject: int  # what was tried: the same number for all tries of an item, and for all items of a schedule
    call: int  # which call it was in: the same number for all items of a batch
    cause: str
    is_new: bool = True  # it had not failed before in a row, so it is not known for failures of its own
    is_last: bool = False  # it would be given up, or its schedule be deactivated


def cause_of(failed: Failed) -> str:
    """The cause of a failure: that nobody answers, or else its class and message, but for what varies."""
    words = failed.error.partition("\n")[0]
    names = [name.rpartition(".")[2] for name in failed.classes]
    if any(name.endswith((*_NOBODY_THERE, *_NOT_IN_TIME)) for name in names) or _BROKEN.search(words):
        return AWAY
    return f"{failed.classes[0] if failed.classes else ''} {gist(words)}"


def common_cause(source: Source, failures: Sequence[Failure]) -> str | None:
    """The cause for which nearly everything fails, by the failures since the last success, oldest first; or None.

    Fewer failures will do if one of them would be the last of its item: before anybody is blamed for good, it must be
    clear that the source is not to blame.
    """
    last: list[Failure] = []
    calls: set[int] = set()
    for failure in reversed(failures):
        if len(last) >= source.tries and len(calls) >= SEVERAL:
            break
        if failure.is_new:
            last.append(failure)
            calls.add(failure.call)
    if len(calls) < SEVERAL or len({failure.subject for failure in last}) < SEVERAL:
        return None
    cause, count = Counter(failure.cause for failure in last).most_common(1)[0]
    is_enough = len(last) >= source.tries or any(each.is_last for each in failures if each.cause == cause)
    return cause if is_enough and count >= SHARE * len(last) else None
