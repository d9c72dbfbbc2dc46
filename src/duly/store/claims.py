"""Lines and leases on every database: finding waiting items, claiming them under limits, and finding lost leases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from functools import lru_cache, partial
from operator import attrgetter
from typing import Any, NamedTuple

from duly.core.model import ALONE, AT_ONCE, Ask, Grant, Head, Item, Line, Share, StartTiming, Suspects, UnusedCall
from duly.core.shown import MeterRow
from duly.store.granting import Hits, Leases, MeterBudget, grant_calls, leases_for, under
from duly.store.records import ITEM
from duly.store.statements import START, C, Statements, SurveyPlace

# The order in which items start.
in_order = attrgetter("rank", "due_at", "id")


class Terms(NamedTuple):
    """What a claim under limits is given beside its asks."""

    worker: str
    now: datetime | None
    lease: timedelta
    calls: int
    batch: int
    timing: StartTiming
    suspects: Suspects


class Claims(Statements[C]):
    def survey(self, after: SurveyPlace = START, most: int = 1_000) -> tuple[list[Head], SurveyPlace | None]:
        """The earliest waiting item of each line, lane and rank after this place, without those of paused queues.

        It looks at `most` of them, and also returns the place to continue from, or None at the end.
        """
        names = ("queue", "lane", "rank", "task", "owner")
        heads = heads_of(self._run("survey", {**dict(zip(names, after, strict=True)), "most": most}))
        if len(heads) < most:
            return self._open(heads), None
        line, last = heads[-1].line, heads[-1]
        return self._open(heads), (line.queue, last.lane, last.rank, line.task, line.owner)

    def glance(self, now: datetime, most: int) -> tuple[list[Head], datetime | None]:
        """The items that fell due last and those due for longest, `most` of each, and when the next one falls due."""
        given = {"now": now, "most": most}
        newest = heads_of(self._run("newest", given))
        oldest = heads_of(self._run("oldest", given)) if len(newest) == most else []
        return self._open([*newest, *oldest]), self._run("next_due", {"now": now})[0][0]

    def _open(self, heads: list[Head]) -> list[Head]:
        queues = self.open_queues(head.line.queue for head in heads)
        return [head for head in heads if head.line.queue in queues]

    def open_queues(self, names: Iterable[str], connection: C | None = None) -> set[str]:
        """Those of these queues that are neither paused nor below one that is."""
        queues = set(names)
        if not queues:
            return queues
        wanted = sorted({name for queue in queues for name in family(queue)})
        return are_open(queues, {row[0] for row in self._run("paused", {"names": wanted}, connection)})

    def pause(self, queue: str, now: datetime, connection: C | None = None) -> None:
        self._run("pause", {"queue": queue, "now": now}, connection)

    def resume(self, queue: str, connection: C | None = None) -> None:
        self._run("resume", {"queue": queue}, connection)

    def claim_metered(
        self,
        asks: Sequence[Ask],
        worker: str,
        now: datetime | None,
        lease: timedelta,
        calls: int,
        batch: int,
        timing: StartTiming = AT_ONCE,
        suspects: Suspects = ALONE,
    ) -> list[Grant]:
        """`claim` under limits: for at most `calls` calls of up to `batch` items, as far as the meters have room.

        The first asks are served first. A call under a limit on calls at the same time gets a lease of its own, because
        such limits count leases. There is an answer for each ask, in their order.
        """
        with self._writing() as connection:
            return self._grants(asks, Terms(worker, now, lease, calls, batch, timing, suspects), connection)

    def _grants(self, asks: Sequence[Ask], terms: Terms, connection: C) -> list[Grant]:
        meters, now = self._meters(meter_names(asks), terms.now, connection)
        budget = MeterBudget(asks, meters, self._under_way(asks, connection), now, terms.timing)
        pick = partial(self._pick, now, connection, clean_first=terms.batch > 1)
        grants = grant_calls(asks, budget, terms.calls, terms.batch, pick, terms.suspects)
        if leases := leases_for(asks, grants):
            until = now + terms.lease
            fences = self._start(leases, dict(budget.hits()), terms.worker, now, until, connection)
            grants = under(fences, grants, claimed_by=terms.worker, started_at=now)
        return grants

    def give_back(self, unused: Sequence[UnusedCall]) -> None:
        """Calls that were granted did not begin: their meters and their retry window count them no longer.

        Their items still run under their leases, and are settled next.
        """
        with self._writing() as connection:
            gone = Counter(hit for call in unused for hit in call.hits)
            rows, _ = self._meters(sorted({name for name, _ in gone}), None, connection)
            left: dict[str, list[datetime]] = {}
            for row in rows:
                of_row = Counter({at: count for (name, at), count in gone.items() if name == row.name})
                left[row.name] = sorted((Counter(row.hits) - of_row).elements())
            self._keep_hits(left, connection)
            pairs = [pair for call in unused for pair in call.items]
            self._run_many("unstart", connection, id=[item for item, _ in pairs], fence=[fence for _, fence in pairs])

    def _meters(self, names: list[str], now: datetime | None, connection: C) -> tuple[list[MeterRow], datetime]:
        """Lock these meters until the end of the transaction; returns them and the time of the lock."""
        raise NotImplementedError

    def _under_way(self, asks: Sequence[Ask], connection: C) -> dict[str, int]:
        """How many leases there are under each meter of calls at the same time."""
        names = sorted({meter.name for ask in asks for meter in ask.meters if meter.is_concurrency})
        return dict(self._run("under_way", {"names": names}, connection)) if names else {}

    def _pick(
        self, now: datetime, connection: C, shares: Sequence[Share], clean_first: bool = False
    ) -> list[list[Item]]:
        """The due items of each share in their order, without those of paused queues.

        `clean_first`: those that may have crashed a worker come last, for they share no call with others.
        """
        raise NotImplementedError

    def _keep_hits(self, hits: Hits, connection: C) -> None:
        """Write the hits of these meters, which are locked."""
        raise NotImplementedError

    def _start(
        self, leases: Leases, hits: Hits, worker: str, now: datetime, lease_until: datetime, connection: C
    ) -> dict[int, int]:
        """Mark these items as running, and keep the hits of meters; returns the fence of each item by its id."""
        raise NotImplementedError

    def running(self, ids: Sequence[int]) -> list[tuple[int, int]]:
        """Which of these items run, each with the fence that it runs under."""
        return self._run("held", {"ids": list(ids)})

    def leases(self) -> list[tuple[int, str, datetime]]:
        """Every lease: its fence, its worker, and until when it holds.

        It answers only when a heartbeat could be written too. Reads may succeed while all writers have to wait, and
        then a lease that is not prolonged does not mean that its worker is dead.
        """
        return self._run("leases", {})

    def expired(self, now: datetime, most: int) -> tuple[list[Item], list[int]]:
        """What `under` gives for the `most` oldest leases that ran out by the clock; their workers may still live."""
        return self.under([row[0] for row in self._run("expired", {"now": now, "most": most})])

    def under(self, fences: Sequence[int]) -> tuple[list[Item], list[int]]:
        """Running items under these leases, and the fences among them with nothing left."""
        rows = self._run("under", {"fences": list(fences)})  # each begins with a fence; a lease may have no item
        items = [Item(*row) for _, *row in rows if row[0] is not None]
        return items, sorted({row[0] for row in rows} - {item.fence for item in items})

    def fetch(self, ids: Sequence[int], connection: C | None = None) -> list[Item]:
        return self._all(ITEM, "fetch", {"ids": list(ids)}, connection)


def meter_names(asks: Iterable[Ask]) -> list[str]:
    return sorted({meter.name for ask in asks for meter in ask.meters})


@lru_cache(20_000)
def family(queue: str) -> tuple[str, ...]:
    """The queues whose pause holds for this one: `a`, `a/b` and `a/b/c` for `a/b/c`."""
    parts = queue.split("/")
    return tuple("/".join(parts[: n + 1]) for n in range(len(parts)))


def families(shares: Iterable[Share]) -> set[str]:
    """The queues whose pause holds for any of these shares."""
    return {name for queue in {share.line.queue for share in shares} for name in family(queue)}


def are_open(queues: set[str], paused: set[str]) -> set[str]:
    """These queues without the paused ones and those below them."""
    return {queue for queue in queues if paused.isdisjoint(family(queue))} if paused else queues


def heads_of(rows: Iterable[tuple[Any, ...]]) -> list[Head]:
    return [Head(Line(queue, task, owner), lane, rank, due_at) for queue, task, owner, lane, rank, due_at in rows]
