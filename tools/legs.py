"""The two legs in which tools/test runs the whole suite: under coverage, and without it, which is half as long again.

A test is measured unless its file is in FILES, or it runs on PostgreSQL outside the places in ON_BOTH: code that does
not know the database is measured on SQLite.
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VARIABLE = "DULY_TEST_LEG"  # has the name of the leg, and is not set where a part of the suite runs
MEASURED, UNMEASURED = "measured", "unmeasured"

ON_BOTH = (
    "tests/borrow",
    "tests/conformance",
    "tests/front",
    "tests/process/test_forks.py",
    "tests/store",
    "tests/virtual/test_transactions.py",
)
PROCESSES = sorted((ROOT / "tests" / "process").glob("test_*.py"))
# What takes long, or waits for browsers and processes, and is not needed to reach the thresholds.
FILES = (
    "tests/browser",
    "tests/docs",
    *(f"tests/process/{path.name}" for path in PROCESSES if path.name != "test_forks.py"),
    "tests/typed",
    "tests/apps/test_own_package.py",
    "tests/bulk/read/test_hostile.py",
    "tests/bulk/read/test_hostile_zips.py",
    "tests/core/test_machine.py",
    "tests/core/test_schedule_machine.py",
    "tests/core/test_zones.py",
    "tests/intake/test_retention.py",
    "tests/tools/test_extras.py",
    "tests/virtual/test_outages.py",
    "tests/virtual/test_quiet.py",
    "tests/web/test_fuzz.py",
    "tests/web/test_matrix.py",
)


def ignored(leg: str) -> tuple[str, ...]:
    """The files and folders of which this leg has no test."""
    return FILES if leg == MEASURED else ON_BOTH


def leg_of(path: Path, on_postgres: bool) -> str:
    """The leg of a test in this file."""
    places = {path.as_posix(), *(folder.as_posix() for folder in path.parents)}
    is_plain = not places.isdisjoint(FILES) or (on_postgres and places.isdisjoint(ON_BOTH))
    return UNMEASURED if is_plain else MEASURED
