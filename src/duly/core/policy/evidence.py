"""The failures of a source since its last answer, and the cause that nearly all of them have.

Failures fade. Those of the last hour count; of the hours before, one call each; and none after a day. So a source that
is asked once an hour is found to be down in time, and a few failures in the morning are no evidence in the evening.

Every addition takes about as long, however many failures are remembered: what a finding needs is counted as failures
come and go.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TypeVar

from msgspec import Struct

from duly.core.policy.outage import AWAY, HUNG, MANIFOLD, MIXED, SEVERAL, SHARE, Source

K = TypeVar("K")

# All failures count for this long; later, only one call in each such time does.
FRESH = timedelta(hours=1)
# Nothing counts after this time.
FADED = timedelta(days=1)
# How many failures are remembered at most, for each that a source needs to be down.
REMEMBERED = 20


class Failure(Struct, frozen=True, gc=False):
    """One failed try, as evidence about its source."""

    subject: int  # what was tried: the same number for all tries of an item, and for all items of a schedule
    cause: str
    is_new: bool = True  # it had not failed before in a row, so it is not known for failures of its own
    is_last: bool = False  # it would be given up, or its schedule be deactivated


class _FailedCall:
    """The failures of one call: one item, or those of a batch."""

    __slots__ = ("at", "failures")

    def __init__(self, at: datetime, failures: Sequence[Failure]) -> None:
        self.at = at
        self.failures = failures


class _CauseCounts:
    """How often each cause occurs, and which one most often."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._by_count: dict[int, dict[str, None]] = {0: {}}
        self._most = 0

    def __getitem__(self, cause: str) -> int:
        return self._counts.get(cause, 0)

    def add(self, cause: str, by: int = 1) -> None:
        count = self._counts.get(cause, 0)
        self._by_count[count].pop(cause, None)
        self._counts[cause] = new = count + by
        if new:
            self._by_count.setdefault(new, {})[cause] = None
        else:
            del self._counts[cause]
        self._most = max(self._most, new)
        if not self._by_count[self._most]:  # it has just become rarer by one
            self._most = new

    def most_common(self) -> tuple[str, int]:
        return next(iter(self._by_count[self._most])), self._most


class Evidence:
    """Failures of one source without an answer in between.

    `doubt`: how many times as many failures it takes as the source says.
    """

    def __init__(self, source: Source, doubt: int = 1) -> None:
        self._doubt = doubt
        self._tries = source.tries * doubt
        self._fresh: deque[_FailedCall] = deque()
        self._old: deque[_FailedCall] = deque()  # one for each hour
        self._size = 0
        self._largest = 0  # how many failures there were in one call
        self._subjects: Counter[int] = Counter()  # of new failures
        self._last: Counter[str] = Counter()  # the causes of those that would be given up
        self._begin()

    def __len__(self) -> int:
        """How many failures are remembered."""
        return self._size

    def __contains__(self, subject: int) -> bool:
        """Whether this subject has a failure that is not known to be its own."""
        return subject in self._subjects

    def add(self, at: datetime, failures: Sequence[Failure]) -> None:
        """Add the failures of one call."""
        call = _FailedCall(at, failures)
        self._fresh.append(call)
        self._size += len(failures)
        self._largest = max(self._largest, len(failures))
        for failure in failures:
            self._remember(failure, 1)
        self._include(call)
        self._fade(at)
        while self._size > self.most:
            self._drop(self._old.popleft() if self._old else self._fresh.popleft())

    def cause(self) -> str | None:
        """The cause of nearly all the latest failures; None when there is no such cause, or there are too few.

        Fewer failures suffice if there is no answer and one of them would be the last of its item: before an item is
        given up, it must be clear that the source is not the cause.
        """
        count = len(self._window)
        if len(self._calls) < SEVERAL or len(self._window_subjects) < SEVERAL:
            return None
        away, hung = self._causes[AWAY], self._causes[HUNG]
        if away + hung >= SHARE * count:
            is_urgent = away >= hung and AWAY in self._last
            if count < (SEVERAL * self._doubt if is_urgent else self._tries):
                return None
            return AWAY if away >= hung else HUNG
        cause, same = self._causes.most_common()
        if same >= SHARE * count:
            return cause if count >= self._tries else None
        return MIXED if len(self._subjects) >= MANIFOLD * self._tries else None

    @property
    def most(self) -> int:
        """How many failures are remembered at most: enough for any finding."""
        return max(self._tries * max(REMEMBERED // self._doubt, MANIFOLD + 1), SEVERAL * self._largest)

    # -- the latest new failures: as few as can show that the source is down

    def _begin(self) -> None:
        self._window: deque[tuple[Failure, _FailedCall]] = deque()
        self._causes = _CauseCounts()
        self._calls: Counter[int] = Counter()
        self._window_subjects: Counter[int] = Counter()

    def _include(self, call: _FailedCall) -> None:
        for failure in call.failures:
            if failure.is_new:
                self._window.append((failure, call))
                self._tally(failure, call, 1)
        while len(self._window) > self._tries and self._has_calls_to_spare():
            self._tally(*self._window.popleft(), -1)

    def _has_calls_to_spare(self) -> bool:
        """Whether there are failures of several calls without the earliest one."""
        is_last_of_call = self._calls[id(self._window[0][1])] == 1
        return len(self._calls) - is_last_of_call >= SEVERAL

    def _tally(self, failure: Failure, call: _FailedCall, by: int) -> None:
        self._causes.add(failure.cause, by)
        _add(self._calls, id(call), by)
        _add(self._window_subjects, failure.subject, by)

    # -- forgetting

    def _remember(self, failure: Failure, by: int) -> None:
        if failure.is_new:
            _add(self._subjects, failure.subject, by)
        if failure.is_last:
            _add(self._last, failure.cause, by)

    def _fade(self, now: datetime) -> None:
        while self._fresh and self._fresh[0].at <= now - FRESH:
            call = self._fresh.popleft()
            if not self._old or call.at >= self._old[-1].at + FRESH:
                self._old.append(call)
            else:
                self._drop(call)
        while self._old and self._old[0].at <= now - FADED:
            self._drop(self._old.popleft())

    def _drop(self, call: _FailedCall) -> None:
        self._size -= len(call.failures)
        for failure in call.failures:
            self._remember(failure, -1)
        if id(call) in self._calls:
            self._begin_again()

    def _begin_again(self) -> None:
        """A call that counted is gone: earlier ones take its place. It is rare, and only when few are remembered."""
        self._begin()
        for call in (*self._old, *self._fresh):
            self._include(call)


def _add(counts: Counter[K], key: K, by: int) -> None:
    counts[key] += by
    if not counts[key]:
        del counts[key]
