"""Four workers on one database: all the work, each effect once."""

from __future__ import annotations

from pathlib import Path

from tests.process.fleet import fleet, until
from tests.process.workload import app as workload

ITEMS = 20_000


def test_four_workers_drain_twenty_thousand_items_and_each_effect_happens_once(
    database_url: str, tmp_path: Path
) -> None:
    with fleet(database_url, tmp_path) as ours:
        rows = ({"n": n} for n in range(ITEMS))
        ours.app.internals.store.load(workload.tasks["mark"].new(**row) for row in rows)
        ours.start(4)
        until(lambda: ours.states() == {"done": ITEMS}, 120, lambda: (ours.states(), ours.logs()[-2000:]))
        assert ours.stop() == [0, 0, 0, 0]
        marks = ours.per_key("marks")
        assert len(marks) == ITEMS
        assert set(marks.values()) == {1}
        assert len({line[3] for line in ours.lines("marks")}) > 1, "one worker did everything"
        assert "locked" not in ours.logs()
        assert "Traceback" not in ours.logs()
