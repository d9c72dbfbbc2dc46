"""A minute of puts over HTTP while the service is killed twenty times: what `tests/process` shows in ten seconds."""

from __future__ import annotations

from pathlib import Path

from tests.process.test_service import end_under_load


def test_twenty_kills_of_the_service_lose_and_double_nothing(database_url: str, tmp_path: Path) -> None:
    load = end_under_load(database_url, tmp_path, rate=200, kills=20, between=550)
    print(f"{len(load.accepted)} accepted; {load.repeated} given up by the client and asked again with their key")
