"""The command line has the last word about settings, while it lasts."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from duly import Duly
from duly.cli import words
from duly.config import COMMAND_LINE, imposed, load, sources
from duly.core.settings import Settings


def test_the_command_line_wins_over_code_environment_and_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DULY_CONCURRENCY", "3")
    assert Duly(concurrency=5).settings.concurrency == 5
    with imposed(concurrency=7, database_url=None):
        assert Duly(concurrency=5).settings.concurrency == 7
        assert load().database_url == Settings.database_url
        assert sources() == {"concurrency": "command line"}
        with imposed(sweep_seconds=1.0):
            assert (load().concurrency, load().sweep_seconds) == (7, 1.0)
        assert load().sweep_seconds == Settings.sweep_seconds
    assert Duly(concurrency=5).settings.concurrency == 5
    assert COMMAND_LINE not in os.environ


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.2, "0 s"),
        (59.6, "60 s"),
        (119.4, "119 s"),
        (119.9, "2 min"),
        (7_100, "118 min"),
        (7_200, "2 h"),
        (172_000, "2 d"),
        (9e9, "104167 d"),
    ],
)
def test_spans_are_said_in_one_unit(seconds: float, text: str) -> None:
    assert words.span(seconds) == text


def test_the_command_line_is_light_until_it_has_to_show_something() -> None:
    heavy = "{'rich', 'psycopg', 'duly.engine.worker', 'duly.apps.reminders', 'duly.apps.demo'}"
    code = f"import sys, duly.cli; sys.exit(sorted({heavy} & set(sys.modules)) or 0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
