"""A look at the machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from duly.engine.gate import measure


def test_this_machine_says_how_busy_it_is() -> None:
    load = measure()
    assert 0.0 <= load.cpu <= 1.0
    assert 0.0 < load.memory < 1.0


def test_the_tighter_of_machine_and_container_counts(tmp_path: Path) -> None:
    memory = tmp_path / "meminfo"
    memory.write_text("MemTotal:       1000 kB\nMemFree:         100 kB\nMemAvailable:    750 kB\n")
    assert measure(memory, tmp_path).memory == pytest.approx(0.25)
    for name, said in (
        ("memory.max", "1000"),
        ("memory.current", "900"),
        ("memory.stat", "anon 1\ninactive_file 100\n"),
    ):
        (tmp_path / name).write_text(said)
    assert measure(memory, tmp_path).memory == pytest.approx(0.8)
    (tmp_path / "memory.max").write_text("max\n")
    assert measure(memory, tmp_path).memory == pytest.approx(0.25)


def test_a_system_that_does_not_say_is_taken_for_idle(tmp_path: Path) -> None:
    assert measure(tmp_path / "nothing", tmp_path).memory == 0.0
