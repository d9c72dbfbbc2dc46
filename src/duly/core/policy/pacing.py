"""How many calls a provider gets at a time, and how far apart: the controller behind `Pace`.

One number says both: `level`, the calls that are under way on average. As many calls run at the same time, and one
starts every `latency / level` seconds, so a level may also be 3.4, or 0.1 for a provider that should be left alone.

What a call shows decides what happens to the level:

    answer            the level may grow, if the last growth brought more answers and not just a longer queue
    429               fewer calls: less than what was answered; after `Retry-After` or a breather. Refused again: shut
    error             nothing at first: some providers always have a few. With clearly more of them than usual, fewer
                      calls on trial; fewer errors then: they came with load, and the level stays down. As many errors:
                      they did not, and the level goes back to where it was
    errors only       shut: the provider is down. One probe now and then, and with the first answer most of the level
                      from before at once

After a decrease the level grows along a cubic curve (CUBIC): quickly at first, slowly near the level of the trouble,
where it stays for a while, and only then further, faster the longer it goes well:

     level
       │        trouble                          no trouble for long: there is more room than there was
       │          ╱│                          ╱
   top │─ ─ ─ ─ ─ ─│─ ─ ─ ─ ─____──────────╱─ ─
       │           │    ╱‾
       │           │ ╱          top * (1 + (1 - kept) * ((t - recovery) / recovery)³)
       │           │╱ kept * top
       └───────────┴────────────────────────────── t
                   0          recovery

Calls that started before the last decrease say nothing new. Growth ends a little above what is really used, so a quiet
night does not end in a burst.
"""

from __future__ import annotations

import math

from msgspec import Struct, structs

from duly.core.policy.adapt import BACK_OFF, Average
from duly.core.policy.pace import Call, Pace
from duly.core.policy.suspicion import Errors, Trial

STEP = 1.2  # growth by this factor is judged: whether it brought more answers
WORTH = 0.4  # the part of a growth that has to show in the answers
SAMPLE = 20  # how many answers it takes to judge a small growth
REOPEN = 0.7  # of the level before an outage, with the first answer after it
EASED = 0.3  # the part of a recovery in which the level is clearly below that of the trouble
STAGES = 3  # of a trial, each with fewer calls: other workers may have to call less too
LONGEST = 600.0  # seconds of a recovery
MADE_UP = 3  # gaps by which a call may begin late, without a delay of those after it: otherwise jitter costs calls
PATIENCE = 10.0  # times that an answer takes, in which a level recovers at least: a late signal must not be hurried
PROBES = 4  # calls to a provider that is down which may hang at the same time
LEAST = 1 / 16  # of the level before, with which a provider is called again at least
RELAPSE = 10.0  # seconds after an outage in which another one shows that the level was too much


class Curve(Struct, frozen=True):
    """How the level grows after trouble."""

    top: float  # the level of the trouble
    since: float
    kept: float = 1.0  # of `top`, at `since`; 1 before the first trouble
    recovery: float = 30.0  # seconds until `top` is reached again
    rate: float = 0.0  # calls a second at `top`, if the trouble was about calls a second

    def level(self, now: float, latency: float) -> float:
        # A 429 is about calls a second: where answers take longer by now, more calls at a time are as many a second.
        top = self.rate * latency if self.rate else self.top
        passed = max(now - self.since, 0.0) / self.recovery - 1.0
        return top * (1.0 + (1.0 - self.kept) * passed**3)


class Proof(Struct, frozen=True):
    """The highest level that is known to be worth it, and the calls by which a higher one is judged."""

    level: float = 0.5
    latency: float = 0.0  # there
    since: float = 0.0  # calls that started before do not count
    calls: int = 0
    seconds: float = 0.0
    used: int = 0


class Before(Struct, frozen=True):
    """What a trial has changed."""

    curve: Curve
    proof: Proof
    level: float


class Shut(Struct, frozen=True):
    """The provider gets one probe now and then, until one is answered."""

    since: float
    level: float  # from before
    borne: float = 0.0  # seconds that it took calls before it refused them; 0 if it is down
    probes: int = 0


class Pacing(Struct, frozen=True, kw_only=True):
    """What is known of a provider."""

    curve: Curve
    proof: Proof = Proof()
    errors: Errors = Errors()
    trial: Trial | None = None
    before: Before | None = None  # what a trial has found
    shut: Shut | None = None
    borne: float = 0.0  # seconds that calls were taken before the last one was refused; 0 after an answer
    reopened_at: float = -math.inf
    next_at: float = 0.0  # when the next call may begin
    not_before: float = 0.0  # the provider is to be left alone until then
    latency: Average = Average(150.0)
    throttled: Average = Average(200.0)  # share of calls that ended in trouble: `api_throttle_rate`

    @classmethod
    def first(cls, now: float, bounds: Pace) -> Pacing:
        """Nothing is known: begin with one call, and double them as long as it is worth it."""
        return cls(curve=Curve(bounds.most, now))

    # -- what may begin

    def level(self, now: float, bounds: Pace) -> float:
        latency = self._latency()
        if self.shut is not None:
            return min(latency / self.gap(now, bounds), PROBES, bounds.most)
        least = max(latency / bounds.longest_gap, 1e-6)
        return min(max(least, min(self.curve.level(now, latency), 2 * self.proof.level)), bounds.most)

    def _proved_level(self, now: float, bounds: Pace) -> float:
        """The level, or before the first trouble the last one that was worth it: it doubles until there is trouble."""
        level = self.level(now, bounds)
        return min(level, self.proof.level) if self.curve.kept == 1.0 else level

    def concurrency(self, now: float, bounds: Pace) -> int:
        if self.shut is not None:
            return min(PROBES, math.ceil(bounds.most))
        return math.ceil(self.level(now, bounds))

    def gap(self, now: float, bounds: Pace) -> float:
        """Seconds between the starts of two calls."""
        if self.shut is not None:
            return min(bounds.breather * 2.0**self.shut.probes, bounds.probe)
        return min(self._latency() / self.level(now, bounds), bounds.longest_gap)

    def turn(self, now: float, bounds: Pace) -> tuple[float, Pacing]:
        """0 if a call may begin now, with what is known then; otherwise the seconds to wait before the next try."""
        begin = max(self.next_at, self.not_before)
        if begin > now:
            return begin - now, self
        gap = self.gap(now, bounds)
        late = min(now - begin, MADE_UP * gap) if self.shut is None else 0.0
        return 0.0, structs.replace(self, next_at=now - late + gap)

    # -- what calls show

    def _is_eased(self, now: float) -> bool:
        """Whether the level is below that of the last trouble, so that errors do not come from too much load."""
        return self.shut is None and self.curve.kept < 1.0 and now < self.curve.since + EASED * self.curve.recovery

    def after(self, call: Call, bounds: Pace) -> Pacing:
        is_trouble = call.trouble in BACK_OFF
        seen = structs.replace(self, throttled=self.throttled.fed(is_trouble))
        if call.trouble == "throttled":
            return seen._refused(call, bounds)
        if is_trouble:
            return seen._failed(call, bounds)
        return seen._answered(call, bounds)

    def _is_new(self, call: Call) -> bool:
        """Whether this call started after the last change, so that its end is about the present level."""
        return call.started >= (self.curve.since if self.shut is None else self.shut.since)

    def _answered(self, call: Call, bounds: Pace) -> Pacing:
        is_new = self._is_new(call)
        seen = structs.replace(
            self,
            latency=self.latency.fed(call.ended - call.started),
            errors=self.errors.answered(call.started, is_eased=is_new and self._is_eased(call.ended)),
            borne=0.0 if is_new else self.borne,
        )
        if self.shut is not None:
            return seen._reopened(self.shut, call, bounds) if is_new else seen
        return seen._judged(call, bounds)._proved(call, bounds) if is_new else seen

    def _refused(self, call: Call, bounds: Pace) -> Pacing:
        wait = max(min(call.retry_after, bounds.longest_wait), bounds.breather)
        seen = structs.replace(self, not_before=max(self.not_before, call.ended + wait))
        if not self._is_new(call):
            return seen
        if self.shut is not None:
            return structs.replace(seen, shut=structs.replace(self.shut, probes=self.shut.probes + 1))
        if self.borne:
            shut = Shut(call.ended, self.curve.top, self.borne)
            return structs.replace(seen, shut=shut, trial=None, before=None)
        level = self._proved_level(call.ended, bounds)
        if self._is_eased(call.ended):  # again so soon: it was not enough
            level *= bounds.keep
        borne = max(call.ended - self.curve.since, 1e-6)
        least = LEAST if self.curve.kept == 1.0 else 0.5
        lasting = max(borne / (borne + wait), least) if wait > bounds.breather else 1.0
        lowered = seen._lowered(level * lasting, bounds.keep, call.ended, bounds, is_rate=True)
        return structs.replace(lowered, borne=borne)

    def _failed(self, call: Call, bounds: Pace) -> Pacing:
        is_new = self._is_new(call)
        errors = self.errors.failed(call.ended, is_eased=is_new and self._is_eased(call.ended))
        seen = structs.replace(self, errors=errors)
        if self.shut is not None:
            # What refused calls may be down by now: then its refusals say nothing of how much it takes.
            borne = 0.0 if is_new else self.shut.borne
            shut = structs.replace(self.shut, probes=self.shut.probes + is_new, borne=borne)
            return structs.replace(seen, shut=shut)
        if seen.errors.is_down():
            return seen._closed(call, bounds)
        if is_new and self.trial is not None:
            return seen._judged(call, bounds)
        if self.trial is None and is_new and seen.errors.is_suspicious():
            return seen._on_trial(call.ended, bounds)
        return seen

    # -- 429s

    def _lowered(self, top: float, kept: float, now: float, bounds: Pace, *, is_rate: bool) -> Pacing:
        rate = top / self._latency() if is_rate and self._latency() else 0.0
        return structs.replace(
            self,
            curve=Curve(top, now, kept, max(bounds.recovery, min(PATIENCE * self._latency(), LONGEST)), rate),
            proof=Proof(max(kept * top, 0.5), self._latency(), now),
            errors=self.errors.calm(),
            borne=0.0,
            trial=None,
            before=None,
        )

    # -- a provider that is down

    def _closed(self, call: Call, bounds: Pace) -> Pacing:
        level = self._proved_level(call.ended, bounds) if self.before is None else self.before.level
        if call.ended < self.reopened_at + RELAPSE:
            level /= 2
        return structs.replace(
            self,
            shut=Shut(call.ended, level),
            errors=self.errors.calm().forget(),
            next_at=call.ended + bounds.breather,
            trial=None,
            before=None,
        )

    def _reopened(self, shut: Shut, call: Call, bounds: Pace) -> Pacing:
        now = call.ended
        opened = structs.replace(self, shut=None, reopened_at=now, next_at=now)
        if shut.borne:  # it takes calls for a part of the time, so in the long run it takes that part of them
            lasting = max(shut.borne / (shut.borne + now - self.curve.since), LEAST)
            return opened._lowered(shut.level * lasting, bounds.keep, now, bounds, is_rate=True)
        return opened._lowered(shut.level, REOPEN, now, bounds, is_rate=False)

    # -- errors that may come with load

    def _on_trial(self, now: float, bounds: Pace, stage: int = 1) -> Pacing:
        share = self.errors.recent.get(0.0) if self.trial is None else self.trial.errors / self.trial.calls
        level = self.level(now, bounds)
        before = self.before or Before(self.curve, self.proof, level)
        level = level / 2 if share > 0.5 else self._proved_level(now, bounds)
        one_less = (math.ceil(level) - 1) / level or bounds.keep  # at a time, or nothing would change
        lowered = self._lowered(level, min(bounds.keep, one_less), now, bounds, is_rate=False)
        # Calls that began earlier are still under way for the time of an answer.
        return structs.replace(lowered, trial=Trial(now + self._latency(), max(share, 0.05), stage), before=before)

    def _judged(self, call: Call, bounds: Pace) -> Pacing:
        if self.trial is None or self.before is None or call.started < self.trial.since:
            return self
        trial = self.trial.after(call.trouble is not None)
        verdict = trial.verdict()
        if verdict is None:
            return structs.replace(self, trial=trial)
        if verdict:
            usual = min(trial.errors / trial.calls, self.errors.usual.get(0.0))
            return structs.replace(self, trial=None, before=None, errors=self.errors.calm(usual))
        if trial.stage < STAGES:
            return structs.replace(self, trial=trial)._on_trial(call.ended, bounds, trial.stage + 1)
        before, proof, now = self.before.curve, self.before.proof, call.ended
        if before.kept < 1.0:
            level = self.before.level
            rate = level / self._latency() if before.rate else 0.0
            before = Curve(level, now - self.curve.recovery, bounds.keep, self.curve.recovery, rate)
        share = max(trial.errors / trial.calls, self.errors.usual.get(0.0))
        return structs.replace(
            self,
            curve=before,
            trial=None,
            before=None,
            errors=self.errors.calm(share),
            proof=Proof(proof.level, proof.latency, now),
        )

    # -- growth

    def _proved(self, call: Call, bounds: Pace) -> Pacing:
        """Count this answer for the present level; with enough of them, judge whether it is worth it."""
        proof = self.proof
        if call.started < proof.since:
            return self
        proof = structs.replace(
            proof,
            calls=proof.calls + 1,
            seconds=proof.seconds + call.ended - call.started,
            used=max(proof.used, call.in_flight),
        )
        level = min(self.level(call.started, bounds), proof.used)
        is_search = self.curve.kept == 1.0
        if proof.calls < (level if is_search else max(2 * level, SAMPLE)):
            return structs.replace(self, proof=proof)
        latency = proof.seconds / proof.calls
        grown = level / proof.level
        if grown < STEP:
            return structs.replace(self, proof=Proof(max(level, proof.level), latency, call.ended))
        slower = latency / proof.latency if proof.latency else 1.0
        # With few calls, latencies vary. Under a limit of calls a second, the level grows because answers are slower.
        if self.curve.rate or grown / slower >= 1.0 + WORTH * (grown - 1.0) - 1.0 / math.sqrt(proof.calls):
            return structs.replace(self, proof=Proof(level, latency, call.ended))
        return self._lowered(proof.level, bounds.keep, call.ended, bounds, is_rate=False)

    def _latency(self) -> float:
        """Seconds that an answer takes; a guess where nothing but trouble was seen."""
        return self.latency.get(0.0 if self.curve.kept == 1.0 and self.shut is None else 1.0)
