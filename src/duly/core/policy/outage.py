"""When a source is down: nearly all calls to it fail for one cause. Such failures do not count as failures of items.

A source is what the tries of a task depend on: a supplier's API, a mail server. While it is down, it is probed now and
then, and items that fail meanwhile are released without counting the failure.

Every end of a try says something about the source, or nothing (`meaning`). Whatever is not a failure that the source
may have caused is an answer, and after an answer only newer failures count. `evidence` collects them. They must come
from several calls and several items, without items that failed before while others succeeded. There are four causes:

- no answer (`AWAY`): no connection, a time-out, or a status from 500 to 599. Fewer failures suffice when an item is
  about to be given up. Any other failure means that the source answers again.
- past the deadline (`HUNG`): a try was stopped by duly. The source may hang, or the handler by itself. It counts as no
  answer if others fail so too.
- the same class and message, apart from variable parts. The source may be the cause, or all these items.
- different causes (`MIXED`), if very many items have failed.

Mercy has an end: only failures without any answer are excused as long as the source gives none. Others are excused a
few times for each item (`MERCY`), over all outages and workers; after that they count.
"""

from __future__ import annotations

import re
from typing import Literal

from msgspec import Struct

from duly.core.model import Cancel, Done, Failed, Fingerprint, GiveUp, NotFound, Outcome, Skip, Snooze, Verdict, gist
from duly.core.policy.retry import class_name

# How many calls must have failed, and how many different items: two may each fail for a reason of their own.
SEVERAL = 3
# The part of the failures that must have the same cause.
SHARE = 0.9
# After this many times the tries of a source, all of different items, the failures need not have the same cause.
MANIFOLD = 3
# The common cause of all failures without an answer, because one outage has many error messages.
AWAY = "no answer"
HUNG = "deadline exceeded"
MIXED = "several causes"
# The causes that are no answer at all.
SILENT = frozenset((AWAY, HUNG))
# How many failures of an item are excused, apart from those without an answer while the source gives none.
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
# Failures of duly or of its use, which say nothing about a source, and the root of those of calls to one.
_OURS = frozenset(("duly.errors.DulyError", "duly.InputError", "duly.NoProcess"))
_OUTBOUND = "duly.outbound.http.OutboundError"
DEADLINE = "duly.DeadlineExceeded"
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


# What the end of a try says about the source.
Meaning = Literal["answer", "failure", "nothing"]


def meaning(source: Source, outcome: Outcome) -> Meaning:
    """What the end of a try says about its source."""
    match outcome:
        case Failed() if not _OURS.isdisjoint(outcome.classes) and _OUTBOUND not in outcome.classes:
            return "nothing"
        case Failed() if source.is_blamed(outcome):
            return "failure"
        case Failed():  # about a single item; without an answer it says nothing about the source either
            return "nothing" if cause_of(outcome) in SILENT else "answer"
        case Done() | Fingerprint() | NotFound() | Skip() | GiveUp() | Snooze() | Cancel() | Verdict():
            return "answer"
        case _:  # it crashed, was lost, released, expired, or a person ended it
            return "nothing"


def cause_of(failed: Failed) -> str:
    """The cause of a failure: no answer, past the deadline, or else its class and message without variable parts."""
    if DEADLINE in failed.classes:
        return HUNG
    words = failed.error.partition("\n")[0][:500]
    names = [name.rpartition(".")[2] for name in failed.classes]
    is_away = any(name.endswith((*_NOBODY_THERE, *_NOT_IN_TIME)) for name in names) or _BROKEN.search(words)
    if is_away or names[:1] == ["OSError"]:  # there is no class of its own for a network that cannot be reached
        return AWAY
    return f"{failed.classes[0] if failed.classes else ''} {gist(_ADDRESS.sub('#', words))}"


def explains(outage: str, cause: str) -> bool:
    """Whether a source that is down for the cause `outage` explains a failure for this cause."""
    return outage == MIXED or cause in (outage, AWAY) or (outage in SILENT and cause in SILENT)


def is_answer(outage: str, cause: str) -> bool:
    """Whether a failure for this cause shows that a source, which is down for the cause `outage`, answers again."""
    return outage in SILENT and cause not in SILENT


def is_bounded(outage: str, cause: str) -> bool:
    """Whether an item is excused only a few times for failures of this cause."""
    return not (outage in SILENT and cause == AWAY)


def pause(source: Source, excused: int, waiting: int, cause: str = AWAY) -> float:
    """Seconds until an item that failed in a probe is tried again, after it was `excused` this often before.

    The pause grows, so that the next probe is another item: one that never succeeds must not be every probe, even with
    a better rank. The pause is bounded by the number of items `waiting`, so that a few items are still probed often. An
    item that ran past its deadline waits for a round of all the others.
    """
    turns = min(1 << min(excused, 20), 2 * waiting)
    if cause == HUNG:
        turns = 2 * max(waiting, 1)
    return min(source.probe * turns, max(source.probe, LONGEST))
