"""PostgreSQL away for longer than a minute: whatever came before, work goes on within seconds of its return."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.process.outage import server
from tests.process.test_outage import SOON, recovery


@pytest.mark.parametrize("away", [5, 70, 130])
def test_everything_works_again_within_seconds_of_the_servers_return(tmp_path: Path, away: float) -> None:
    with server() as database:
        times = recovery(database, tmp_path, away)
    print(f"\naway for {away} s; seconds after the return: {times}")
    assert max(times.values()) < SOON, times
