"""Which query to try next after nothing was found: other words first, then other places to look.

Asking the same question again gives the same answer, so each try turns to the next variant. Retailers are asked in the
order of their priority; one that finds more than it was expected to moves up, one that finds nothing moves down.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from duly.core.policy.adapt import Average


class Turn(Struct, frozen=True):
    """One look-up: in which words, and whom to ask in which order."""

    variant: str
    retailers: tuple[str, ...]


class Rotation(Struct, frozen=True, kw_only=True):
    variants: tuple[str, ...]  # of the query, the most telling first
    retailers: tuple[str, ...] = ()  # by priority
    tries: int = 3  # MAX_ATTEMPTS_NOT_FOUND
    found: Mapping[str, Average] = {}

    def turn(self, not_found: int, available: tuple[str, ...] | None = None) -> Turn | None:
        """What to try after so many look-ups that found nothing; None when that is enough.

        `available` are the variants that this item has words for; the others are passed over.
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
