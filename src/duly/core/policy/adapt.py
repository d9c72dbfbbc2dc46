"""Controllers that find the right size and pace by what they see: pure values, with time and chance handed in.

Each has a state that is a frozen value: given what was seen, it returns the next state. None keeps a clock, a
thread or a lock, so any task can use them, and tests run days of them in a moment. `pace` has one more: `Pacing`.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, structs

from duly.core.policy.retry import Backoff, spread


class Average(Struct, frozen=True):
    """The exponentially weighted moving average (EWMA) of about the last `over` values; None before the first.

    >>> Average(3).fed(10).fed(20).value
    15.0
    """

    over: float = 20.0
    value: float | None = None

    def fed(self, value: float) -> Average:
        if self.value is None:
            return Average(self.over, float(value))
        return Average(self.over, self.value + (value - self.value) * 2 / (self.over + 1))

    def get(self, otherwise: float) -> float:
        return otherwise if self.value is None else self.value


# The kind of a failure, which decides when to try again:
#
# throttled    429: the other side is overloaded; not the item's fault
# server       other 5xx: it may recover soon
# timeout      no answer in time, 408 and 504
# network      no connection, or a broken one
# not_found    404 and 410, or an empty answer: tried again rarely, in other words
# refused      401, 403, 407, 451: a person has to act first
# invalid      other 4xx, and values that are not possible: trying again cannot help
# unknown      everything else
Trouble = Literal["throttled", "server", "timeout", "network", "not_found", "refused", "invalid", "unknown"]

PERMANENT: frozenset[Trouble] = frozenset(("refused", "invalid"))
BACK_OFF: frozenset[Trouble] = frozenset(("throttled", "server", "timeout"))  # a reason to call less


class Spacing(Backoff, frozen=True, kw_only=True):
    """Pauses between tries: `base`, `base*factor`, … up to `cap` seconds, and up to `jitter` of that on top."""

    base: float
    cap: float = 3_600.0
    jitter: float = 0.25
    tries: int = 5

    def delay_for(self, failures: int, seed: str = "") -> float:
        return self.delay(failures) * (1 + self.jitter * spread(f"{seed}:{failures}"))


SPACINGS: dict[Trouble, Spacing] = {
    "throttled": Spacing(base=5, cap=300, tries=20),
    "server": Spacing(base=15, cap=900, tries=6),
    "timeout": Spacing(base=30, cap=900, tries=5),
    "network": Spacing(base=10, cap=600, tries=8),
    "not_found": Spacing(base=900, factor=4, cap=86_400, tries=3),
    "unknown": Spacing(base=30, cap=3_600, tries=4),
    "refused": Spacing(base=0, tries=1),
    "invalid": Spacing(base=0, tries=1),
}


def classify(status: int) -> Trouble:
    """What kind of failure this HTTP status means."""
    if status == 429:
        return "throttled"
    if status in (408, 504):
        return "timeout"
    if status in (404, 410):
        return "not_found"
    if status in (401, 403, 407, 451):
        return "refused"
    if status in (409, 423, 425):  # another request is under way, or it is too early
        return "unknown"
    if 400 <= status < 500:
        return "invalid"
    return "server" if status >= 500 else "unknown"


class BatchBounds(Struct, frozen=True, kw_only=True):
    """Bounds; the actual sizes between them follow from measurements."""

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
    """How many rows are written to the database in the next batch.

    It starts small and doubles with every batch that went well, until a soft limit trips for the first time: writing
    takes longer than it usually should, a connection had to be waited for, a write failed, or the bytes are at their
    bound. From then on it grows by an eighth at most, so that it settles instead of swinging.

        latency at most p50     grow
        between p50 and p95     stay
        above p95, or waited    halve
        failed                  quarter, and wait a while before the next one: longer each time, and never all at once
    """

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
        if seen.rows < self.rows:  # it was not full, so it gives no information about a larger one
            return self.rows, True
        return (self.rows * 2 if self.is_searching else self.rows + max(self.rows // 8, 1)), True


def _clamp(value: int, least: int, most: int) -> int:
    return max(least, min(value, most))


class SliceBounds(Struct, frozen=True, kw_only=True):
    target: float = 5.0  # seconds; WORKER_TARGET_SLICE_MS
    least: int = 1  # CLAIM_MIN
    most: int = 500  # CLAIM_MAX
    safety: float = 0.7  # SAFETY_FACTOR
    easy: float = 0.8  # share of CPU or memory up to which nothing is held back
    hard: float = 0.95  # share at which only a tenth is claimed
    rush: float = 0.3  # share of errors above which half is claimed, and retries are spaced out


class Load(Struct, frozen=True):
    """How much of the machine is in use, each from 0 to 1."""

    cpu: float = 0.0
    memory: float = 0.0


class Slice(Struct, frozen=True):
    """What is known of the items so far, by which a worker claims as many as fit into one slice of time.

        claim = clamp(target / average * safety, least, most)

    It claims fewer while the machine is short of CPU or memory, or while many items fail.
    """

    seconds: Average = Average(50.0)
    errors: Average = Average(50.0)

    def after(self, seconds: float, is_error: bool = False) -> Slice:
        """One item has taken so long."""
        return structs.replace(self, seconds=self.seconds.fed(max(seconds, 0.0)), errors=self.errors.fed(is_error))

    def claim(self, bounds: SliceBounds, load: Load | None = None, concurrency: float = 1.0) -> int:
        """How many items to claim for one slice, if `concurrency` of them run at the same time."""
        if self.seconds.value is None:
            return bounds.least
        each = max(self.seconds.value, 1e-6) / max(concurrency, 1e-6)
        wanted = bounds.target / each * bounds.safety * _share(load or Load(), bounds)
        if self.is_rush(bounds):
            wanted /= 2
        return int(max(bounds.least, min(wanted, bounds.most)))

    def is_rush(self, bounds: SliceBounds) -> bool:
        """Whether too many items fail."""
        return self.errors.get(0.0) > bounds.rush

    def spacing(self, bounds: SliceBounds) -> float:
        """By how much the pauses before retries are stretched."""
        return 1.0 + 3.0 * self.errors.get(0.0) if self.is_rush(bounds) else 1.0


def _share(load: Load, bounds: SliceBounds) -> float:
    """From 1 where there is room to a tenth where there is none."""
    used = max(load.cpu, load.memory)
    if used <= bounds.easy:
        return 1.0
    if used >= bounds.hard:
        return 0.1
    return 1.0 - 0.9 * (used - bounds.easy) / (bounds.hard - bounds.easy)
