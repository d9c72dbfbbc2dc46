"""How many rows are written to the database at a time.

It starts small and doubles with every batch that went well, until a soft limit trips for the first time: writing takes
longer than it usually should, a connection had to be waited for, a write failed, or the bytes are at their bound. From
then on it grows by an eighth at most, so that it settles instead of swinging.

    latency at most p50     grow
    between p50 and p95     stay
    above p95, or waited    halve
    failed                  quarter, and wait a while before the next one: longer each time, and never all at once
"""

from __future__ import annotations

from msgspec import Struct, structs

from duly.core.policy.adapt.average import Average
from duly.core.policy.adapt.trouble import Spacing


class BatchBounds(Struct, frozen=True, kw_only=True):
    """Bounds, not sizes: what is chosen between them follows from what is seen."""

    min_rows: int = 16  # INGEST_MIN_ROWS
    max_rows: int = 8_192  # INGEST_MAX_ROWS
    max_bytes: int = 4 * 1024 * 1024  # INGEST_MAX_BATCH_BYTES
    p50: float = 0.1  # seconds; DB_P50_MS
    p95: float = 0.5  # seconds; DB_P95_MS
    start: int = 64
    after_failure: Spacing = Spacing(base=0.5, cap=30.0, jitter=0.5, tries=10)


class Written(Struct, frozen=True, kw_only=True):
    """What was seen of one batch."""

    rows: int
    bytes: int
    seconds: float  # that the database took
    waited: float = 0.0  # seconds for a connection
    has_failed: bool = False


class Batch(Struct, frozen=True, kw_only=True):
    """How the next batch should be."""

    rows: int
    pause: float = 0.0  # seconds before it, after a failure
    latency: Average = Average(10.0)
    row_bytes: Average = Average(10.0)
    failures: int = 0  # in a row
    is_searching: bool = True  # no soft limit has tripped yet

    @classmethod
    def first(cls, bounds: BatchBounds) -> Batch:
        return cls(rows=_clamp(bounds.start, bounds.min_rows, bounds.max_rows))

    def is_full(self, rows: int, size: int, bounds: BatchBounds) -> bool:
        """Whether a batch with this many rows and bytes should be written now."""
        return rows >= self.rows or size >= bounds.max_bytes

    def after(self, seen: Written, bounds: BatchBounds, seed: str = "") -> Batch:
        """The next batch, after this was seen. `seed` makes the jitter of a pause reproducible."""
        row_bytes = self.row_bytes.fed(seen.bytes / seen.rows) if seen.rows else self.row_bytes
        if seen.has_failed:
            failures = self.failures + 1
            return structs.replace(
                self,
                rows=_clamp(self.rows // 4, bounds.min_rows, bounds.max_rows),
                pause=bounds.after_failure.delay_for(failures, seed),
                row_bytes=row_bytes,
                failures=failures,
                is_searching=False,
            )
        latency = self.latency.fed(seen.seconds)
        rows, is_free = self._sized(latency.get(0.0), seen, bounds)
        fitting = max(1, int(bounds.max_bytes / max(row_bytes.get(1.0), 1.0)))
        return Batch(
            rows=min(_clamp(rows, bounds.min_rows, bounds.max_rows), fitting),
            latency=latency,
            row_bytes=row_bytes,
            is_searching=self.is_searching and is_free and rows < fitting,
        )

    def _sized(self, latency: float, seen: Written, bounds: BatchBounds) -> tuple[int, bool]:
        """How many rows, and whether no soft limit trips."""
        slowest = max(latency, seen.seconds)  # the average lags behind while sizes double
        if seen.waited > 0 or slowest > bounds.p95:
            return self.rows // 2, False
        if slowest > bounds.p50:
            return self.rows, False
        if seen.rows < self.rows:  # it was not full, so it says nothing about a larger one
            return self.rows, True
        return (self.rows * 2 if self.is_searching else self.rows + max(self.rows // 8, 1)), True


def _clamp(value: int, least: int, most: int) -> int:
    return max(least, min(value, most))
