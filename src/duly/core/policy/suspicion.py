"""Whether errors of a provider come with load: a test for more errors than usual, and a trial with fewer calls.

Some providers fail now and then, however little they are called. Such an error is no reason to call less. So the share
of errors that is usual is learned, and errors are suspicious only if there are clearly more of them: each error adds to
a score and each answer takes from it, by how much likelier they are with many errors than with the usual ones (CUSUM).

A suspicion starts a trial: fewer calls, for as long as it takes to see a few errors if nothing changes. If there are
fewer errors now, they came with load. If not, they are the usual ones from now on.
"""

from __future__ import annotations

import math

from msgspec import Struct, structs

from duly.core.policy.adapt import Average

LEAST_USUAL = 0.02  # a share of errors that is never suspicious
MOST_USUAL = 0.1  # more than that never counts as usual: what does not help one worker may help when all call less
MANY = 0.15  # a share that is suspicious where errors are rare
EDGE = 5.0  # the score of a suspicion
IN_A_ROW = 7  # errors without an answer between them, where errors are rare: the provider is down
UNLIKELY = 1e-5  # how likely so many in a row may be by chance
SIGNS = 4.0  # errors that a trial waits for, if it changes nothing
LONGEST = 80  # calls of a trial, at most


class Row(Struct, frozen=True):
    """Errors without an answer to a call that began after the first of them."""

    since: float
    errors: int = 1
    answers: int = 0  # to calls from before


class Errors(Struct, frozen=True):
    """The errors of one provider, apart from 429s."""

    usual: Average = Average(200.0, 0.0)  # share of calls at levels below that of the last trouble
    recent: Average = Average(20.0, 0.0)
    score: float = 0.0
    row: Row | None = None

    def answered(self, started: float, *, is_eased: bool) -> Errors:
        row = self.row
        if row is not None:
            row = None if started >= row.since else structs.replace(row, answers=row.answers + 1)
        return structs.replace(self._fed(is_error=False, is_eased=is_eased), row=row)

    def failed(self, ended: float, *, is_eased: bool) -> Errors:
        row = Row(ended) if self.row is None else structs.replace(self.row, errors=self.row.errors + 1)
        return structs.replace(self._fed(is_error=True, is_eased=is_eased), row=row)

    def _fed(self, *, is_error: bool, is_eased: bool) -> Errors:
        expected = max(1.5 * min(self.usual.get(0.0), MOST_USUAL), LEAST_USUAL)
        many = max(3 * expected, MANY)
        sign = math.log(many / expected) if is_error else math.log((1 - many) / (1 - expected))
        usual = self.usual.fed(is_error) if is_eased else self.usual
        return Errors(usual, self.recent.fed(is_error), max(self.score + sign, 0.0), self.row)

    def is_suspicious(self) -> bool:
        return self.score >= EDGE

    def is_down(self) -> bool:
        """Whether there is no answer at all: so many errors in a row are no chance."""
        if self.row is None:
            return False
        usual = min(max(self.usual.get(0.0), 0.09), 0.5)
        many = max(IN_A_ROW, math.log(UNLIKELY) / math.log(usual))
        return self.row.errors >= max(many, self.row.answers)

    def calm(self, usual: float | None = None) -> Errors:
        """Suspect nothing; with `usual`, this share of errors is the usual one from now on."""
        return structs.replace(self, score=0.0, usual=self.usual if usual is None else Average(self.usual.over, usual))

    def forget(self) -> Errors:
        """What comes now is new, as after an outage."""
        return structs.replace(self, row=None, recent=Average(self.recent.over, 0.0))


class Trial(Struct, frozen=True):
    """Fewer calls than before, to see whether there are fewer errors."""

    since: float
    share: float  # of errors before
    stage: int = 1
    calls: int = 0
    errors: int = 0

    def after(self, is_error: bool) -> Trial:
        return Trial(self.since, self.share, self.stage, self.calls + 1, self.errors + is_error)

    def verdict(self) -> bool | None:
        """Whether the errors came with load; None when it is too early to tell."""
        if self.errors >= SIGNS * 0.75:
            return False
        if self.calls >= min(SIGNS / self.share, LONGEST):
            return self.errors < 0.5 * self.share * self.calls
        return None
