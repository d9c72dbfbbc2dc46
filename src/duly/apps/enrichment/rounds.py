"""Asks the provider on behalf of items.

A try is one round: one variant of the question, put to one retailer after the other until one has the product. When
none has it, the row waits, and its next try asks in the next variant, because the same question would get the same
answer; when its rounds are used up, it is not found. Retailers are asked in the order of their priority; one that finds
more than it was expected to moves up, one that finds nothing moves down.
What was asked is written down with how the try ends, so a try that comes again goes on where the one before it stood.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace
from prometheus_client import Counter, Histogram

from duly import Attempt, Backoff, ByError, Duly, GiveUp, NotFound, Snooze, Throttled
from duly.apps.enrichment.provider import NoAnswer, Product, ask
from duly.apps.enrichment.searches import Question, Searches, SearchEvent
from duly.apps.enrichment.settings import EnrichmentSettings, listed
from duly.bulk.files import FileGone
from duly.core.errors import DulyError
from duly.core.model import Verdict
from duly.core.policy.adapt import PERMANENT, SPACINGS, Average, Trouble
from duly.core.policy.retry import Retry

log = logging.getLogger("duly.enrichment")

ANYBODY = ("",)  # the retailers to ask where none are named
UNCONFIGURED = 60.0  # seconds after which a row is tried again if there is no provider
SECONDS = (0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)  # buckets of how long answers take
EVER = 1_000_000  # tries: this module decides when to stop because nothing was found

Result = dict[str, str | None]
Ask = Callable[[str], tuple[str, Mapping[str, Any]]]  # the path and the words of a variant
Fits = Callable[[str, Product], bool]  # whether a product is what a variant asked for


class LookUpFailed(DulyError):
    """The provider could not be asked; later it may be."""


class ServerFailed(LookUpFailed):
    pass


class AnswerTimedOut(LookUpFailed):
    pass


class ConnectionFailed(LookUpFailed):
    pass


class NothingFound(LookUpFailed):
    """No retailer has the product in this variant; another variant is tried later."""


FAILURES: dict[Trouble, type[LookUpFailed]] = {
    "server": ServerFailed, "timeout": AnswerTimedOut, "network": ConnectionFailed,
}  # fmt: skip


class Turn(Struct, frozen=True):
    """One look-up: the variant of the question, and the retailers in order."""

    variant: str
    retailers: tuple[str, ...]


class Rotation(Struct, frozen=True, kw_only=True):
    variants: tuple[str, ...]  # of the query, the most specific first
    retailers: tuple[str, ...] = ()  # by priority
    tries: int = 3  # MAX_ATTEMPTS_NOT_FOUND
    found: Mapping[str, Average] = {}

    def turn(self, not_found: int, available: tuple[str, ...] | None = None) -> Turn | None:
        """The next look-up after `not_found` of them found nothing; None when there are no more.

        `available` are the variants that this item has values for; the others are skipped.
        """
        usable = [variant for variant in self.variants if available is None or variant in available]
        if not usable or not_found >= self.tries:
            return None
        # When every variant has been tried, the best one is tried again, beginning with another retailer.
        rounds, place = divmod(not_found, len(usable))
        order = self.order()
        return Turn(usable[place], order[rounds % len(order) :] + order[: rounds % len(order)] if order else ())

    def after(self, retailer: str, was_found: bool) -> Rotation:
        """The same, after this retailer was asked."""
        seen = self.found.get(retailer, Average(100.0, 0.5)).fed(was_found)
        return replace(self, found={**self.found, retailer: seen})

    def order(self) -> tuple[str, ...]:
        """Retailers by how much they find, where the given priority decides between those that find alike."""
        shares = {name: round(self.found[name].get(0.5) if name in self.found else 0.5, 1) for name in self.retailers}
        return tuple(sorted(self.retailers, key=lambda name: -shares[name]))


class Metrics:
    """How look-ups end, and how long they take. The plug-in registers both on the app."""

    def __init__(self) -> None:
        help = "Questions to the provider, by how they ended."
        self.lookups = Counter("duly_lookups", help, ["variant", "status"], registry=None)
        self.seconds = Histogram("duly_lookup_seconds", "How long an answer took.", buckets=SECONDS, registry=None)


class Rounds:
    """The rounds of one task."""

    def __init__(self, app: Duly, settings: EnrichmentSettings, metrics: Metrics, variants: Sequence[str]) -> None:
        self._searches = Searches(app)
        self._settings = settings
        self._most = app.internals.verbs.context.job_settings.max_attempts_not_found
        self._metrics = metrics
        self._lock = threading.Lock()
        self._rotation = Rotation(variants=tuple(variants), retailers=listed(settings.retailers))

    def run(
        self, attempt: Attempt, available: tuple[str, ...], question: Ask, fits: Fits = lambda _, __: True
    ) -> Result | Verdict:
        """One round. `available` are the variants that there are words for, and `question` says what one asks where."""
        if not self._settings.base_url:
            log.warning("there is no provider to ask: set enrichment_base_url")
            return Snooze(UNCONFIGURED)
        # A reprocessed row continues with the variants that were not used yet.
        rotation = replace(self._rotation, tries=self._most * (attempt.revivals + 1))
        number, turn, retailers = _standing(rotation, available, self._searches.of(attempt.item))
        if turn is None:
            return NotFound("there is nothing left to ask for")
        asked: list[Question] = []
        try:
            path, said = question(turn.variant)
            for retailer in retailers:
                body = {"by": turn.variant, **said, "retailer": retailer or None}
                product = self._ask(asked, path, body, fits)
                if product is not None:
                    self._searches.note(attempt.item, number, asked, attempt.connection)
                    return product.result(turn.variant, retailer)
        except FileGone as error:
            return GiveUp(str(error))
        except NoAnswer as error:
            return self._trouble(attempt, number, asked, error)
        where = f"nothing was found by {turn.variant}" + (f" at {', '.join(turn.retailers)}" if turn.retailers else "")
        if rotation.turn(number + 1, available) is None:
            self._searches.note(attempt.item, number, asked, attempt.connection)
            return NotFound(f"{where}, which was the last of {number + 1} rounds")
        self._searches.note(attempt.item, number, asked)
        raise NothingFound(where)

    def _ask(self, asked: list[Question], path: str, question: Mapping[str, Any], fits: Fits) -> Product | None:
        variant, retailer = question["by"], question["retailer"] or ""
        begun = time.monotonic()
        try:
            product = ask(self._settings, path, question, lambda product: fits(variant, product))
        except NoAnswer as error:
            asked.append(self._answered(variant, retailer, error.trouble, begun))
            raise
        asked.append(self._answered(variant, retailer, "not_found" if product is None else "found", begun))
        if retailer:
            with self._lock:
                self._rotation = self._rotation.after(retailer, product is not None)
        return product

    def _answered(self, variant: str, retailer: str, status: str, begun: float) -> Question:
        milliseconds = round(1000 * (time.monotonic() - begun))
        self._metrics.lookups.labels(variant, status).inc()
        self._metrics.seconds.observe(milliseconds / 1000)
        return Question(variant, retailer, status, milliseconds)

    def _trouble(self, attempt: Attempt, number: int, asked: Sequence[Question], error: NoAnswer) -> Verdict:
        if error.trouble == "throttled":
            self._searches.note(attempt.item, number, asked, attempt.connection)
            return Throttled(error.retry_after, is_guess=error.is_guess)
        if error.trouble in PERMANENT:
            self._searches.note(attempt.item, number, asked, attempt.connection)
            return GiveUp(error.reason)
        self._searches.note(attempt.item, number, asked)
        raise FAILURES.get(error.trouble, LookUpFailed)(error.reason)


def _standing(
    rotation: Rotation, available: tuple[str, ...], before: Sequence[SearchEvent]
) -> tuple[int, Turn | None, list[str]]:
    """The number of the round to continue or start, its turn, and the retailers that were not asked yet."""
    number = max((event.round for event in before), default=0)
    turn = rotation.turn(number, available)
    if turn is None:
        return number, None, []
    done = {
        event.retailer
        for event in before
        if (event.round, event.variant, event.status) == (number, turn.variant, "not_found")
    }
    left = [retailer for retailer in turn.retailers or ANYBODY if retailer not in done]
    if left:
        return number, turn, left
    following = rotation.turn(number + 1, available)
    return number + 1, following, list(following.retailers or ANYBODY) if following else []


def retries(app: Duly, settings: EnrichmentSettings) -> ByError:
    """Each kind of trouble has its own delays; the number of attempts is `max_attempts_error`."""
    tries = app.internals.verbs.context.job_settings.max_attempts_error

    def spaced(trouble: Trouble, tries: int = tries, base: float | None = None) -> Backoff:
        spacing = SPACINGS[trouble]
        first = spacing.base if base is None else base
        return Backoff(base=first, factor=spacing.factor, cap=spacing.cap, jitter=first * spacing.jitter, tries=tries)

    policies: dict[type[BaseException] | str, Retry] = {kind: spaced(trouble) for trouble, kind in FAILURES.items()}
    policies[NothingFound] = spaced("not_found", EVER, settings.not_found_seconds)
    return ByError(policies, default=spaced("unknown"))
