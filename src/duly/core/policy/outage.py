"""When a source is down: nearly everything that asks it fails for one cause. That is one fact, and nobody's failure.

A source is whatever the tries of a task depend on: a supplier's API, a mail server. While it is down, one call now and
then finds out whether it is back, and what fails meanwhile is given back, without blame.

One that fails alone says nothing about its source. So only failures since the last success count, of several calls and
several items, and not of those that had failed before while the source was well. There are three causes:

- nobody answers (`AWAY`): no connection, no answer in time, or a status from 500 to 599. Fewer failures will do before
  anybody is given up. Any other failure means that the source answers again.
- the same class and message, but for what varies. It may be the source's fault, or that of all these items. So while it
  is down for such a cause, each item is excused a few times (`MERCY`), and then its failures are its own.
- all sorts of causes (`MIXED`), if so many items have failed that it does not matter which.
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
# When so many times the tries of a source have failed, all of different items, they need not have the same cause.
MANIFOLD = 3
# The cause of all failures that mean that nobody answers, because one outage shows itself in many words.
AWAY = "no answer"
MIXED = "several causes"
# How often an item is excused in one outage, unless nobody answers.
MERCY = 5
# Seconds that an item waits at most for its next probe, if probes are not rarer than that anyway.
LONGEST = 3_600.0

# The last words of the names of classes which say that there was no connection, or no answer in time.
_NOBODY_THERE = ("ConnectionError", "ConnectError", "Unreachable", "NetworkError", "gaierror")
_NOT_IN_TIME = ("TimeoutError", "Timeout", "TimedOut")
# How errors mention a status from 500 to 599. Other numbers from 500 to 599 are none, so the words must be beside it.
_BROKEN = re.compile(
    r"""\b(?:answered|http(?:/\d(?:\.\d)?)?(?:[ ]error)?|status(?:[ _]?code)?|server[ ]error)[ :='"]{1,3}5\d\d\b
    |\b5\d\d[ ](?:(?:internal[ ])?server[ ]error|bad[ ]gateway|service[ ](?:temporarily[ ])?unavailable)\b
    |\b5\d\d[ ]gateway[ ]time-?out\b
    |\b5\d\d,[ ]message=""",
    re.IGNORECASE | re.VERBOSE,
)
# Addresses and paths, which name items.
_ADDRESS = re.compile(r"""\b[a-z][a-z0-9+.-]*://[^\s'"]+|(?<![\w/])/[^\s'"]+""", re.IGNORECASE)


class Source(Struct, frozen=True):
    """`Source("supplier")`: what the tries of a task depend on. Tasks with sources of the same name share its fate.

    It is down when its last `tries` tries failed, nearly all for the same cause, and none succeeded in between. From
    then on there is one call in `probe` seconds, over the whole fleet, until one succeeds. `own` are exceptions, or
    names of their classes, that are about single items: such a failure is never excused, nor takes the source down.
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
    """One failed try, as evidence about its source."""

    subject: int  # what was tried: the same number for all tries of an item, and for all items of a schedule
    call: int  # which call it was in: the same number for all items of a batch
    cause: str
    is_new: bool = True  # it had not failed before in a row, so it is not known for failures of its own
    is_last: bool = False  # it would be given up, or its schedule be deactivated


def cause_of(failed: Failed) -> str:
    """The cause of a failure: that nobody answers, or else its class and message, but for what varies."""
    words = failed.error.partition("\n")[0][:500]
    names = [name.rpartition(".")[2] for name in failed.classes]
    is_away = any(name.endswith((*_NOBODY_THERE, *_NOT_IN_TIME)) for name in names) or _BROKEN.search(words)
    if is_away or names[:1] == ["OSError"]:  # there is no class of its own for a network that cannot be reached
        return AWAY
    return f"{failed.classes[0] if failed.classes else ''} {gist(_ADDRESS.sub('#', words))}"


def explains(outage: str, cause: str) -> bool:
    """Whether a source that is down for the cause `outage` explains a failure for this cause."""
    return outage == MIXED or cause in (outage, AWAY)


def common_cause(source: Source, failures: Sequence[Failure], doubt: int = 1) -> str | None:
    """The cause of nearly all failures since the last success (oldest first); None when there is no such cause.

    Fewer failures will do if nobody answers and one of them would be the last of its item: before anybody is blamed for
    good, it must be clear that the source is not to blame. With `doubt`, it takes so many times as many.
    """
    tries = source.tries * doubt
    new = [failure for failure in failures if failure.is_new]
    last: list[Failure] = []
    calls: set[int] = set()
    for failure in reversed(new):
        if len(last) >= tries and len(calls) >= SEVERAL:
            break
        last.append(failure)
        calls.add(failure.call)
    if len(calls) < SEVERAL or len({failure.subject for failure in last}) < SEVERAL:
        return None
    cause, count = Counter(failure.cause for failure in last).most_common(1)[0]
    if count >= SHARE * len(last):
        is_urgent = cause == AWAY and any(each.is_last for each in failures if each.cause == cause)
        return cause if len(last) >= (SEVERAL * doubt if is_urgent else tries) else None
    return MIXED if len({failure.subject for failure in new}) >= MANIFOLD * tries else None


def pause(source: Source, excused: int, waiting: int) -> float:
    """Seconds until an item is tried again that has failed in a probe, and was excused so often before.

    It grows, so that the next probe is another item: one that never succeeds must not be all probes, however good its
    rank is. It takes half of the turns at most if so many are `waiting`, so few items still make for frequent probes.
    """
    turns = min(1 << min(excused, 20), 2 * waiting)
    return min(source.probe * turns, max(source.probe, LONGEST))
