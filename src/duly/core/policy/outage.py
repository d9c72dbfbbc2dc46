"""When a source is down: nearly all calls to it fail for one cause. Such failures do not count as failures of items.

A source is what the tries of a task depend on: a supplier's API, a mail server. While it is down, it is probed now and
then, and items that fail meanwhile are released without counting the failure.

A single failing item does not prove that the source is down. So only failures since the last success are considered.
They must come from several calls and several items, without items that failed before while others succeeded. There are
three causes:

- no answer (`AWAY`): no connection, a time-out, or a status from 500 to 599. Fewer failures suffice when an item is
  about to be given up. Any other failure means that the source answers again.
- the same class and message, apart from variable parts. The source may be the cause, or all these items. So while it is
  down for such a cause, each item is excused a few times (`MERCY`); after that its failures count.
- different causes (`MIXED`), if very many items have failed.
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
# After this many times the tries of a source, all of different items, the failures need not have the same cause.
MANIFOLD = 3
# The common cause of all failures without an answer, because one outage has many error messages.
AWAY = "no answer"
MIXED = "several causes"
# How often an item is excused in one outage, unless the cause is `AWAY`.
MERCY = 5
# The most seconds that an item waits for its next probe, unless probes are rarer anyway.
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
    """The cause of a failure: no answer, or else its class and message, apart from variable parts."""
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

    Fewer failures suffice if there is no answer and one of them would be the last of its item: before an item is given
    up, it must be clear that the source is not the cause. The number of failures is multiplied by `doubt`.
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
    """Seconds until an item that failed in a probe is tried again, after it was `excused` this often before.

    The pause grows, so that the next probe is another item: one that never succeeds must not be every probe, even with
    a better rank. The pause is bounded by the number of items `waiting`, so that a few items are still probed often.
    """
    turns = min(1 << min(excused, 20), 2 * waiting)
    return min(source.probe * turns, max(source.probe, LONGEST))
