"""Folders in memory: those of removed clones are swept, those of runs under way are not, wherever their clone is."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

import private


def test_the_memory_of_a_removed_clone_is_freed_but_not_while_a_run_holds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(private, "MEMORY", tmp_path)
    folders = {name: tmp_path / f"duly-{os.geteuid()}-{name}" for name in ("gone", "running", "here")}
    for name, folder in folders.items():
        folder.mkdir()
        (folder / private.OWNER).write_text(str(tmp_path if name == "here" else "/no/such/clone"))
    with (folders["running"] / private.OWNER).open() as note:
        fcntl.flock(note, fcntl.LOCK_SH)
        private._sweep_orphans()
        assert {name for name, folder in folders.items() if folder.exists()} == {"running", "here"}
    private._sweep_orphans()
    assert {name for name, folder in folders.items() if folder.exists()} == {"here"}
