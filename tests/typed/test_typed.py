"""Type checkers accept every use in `correct.py`, and reject every line of `mistakes.py` that has a mistake."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
FILES = [str(HERE / "correct.py"), str(HERE / "mistakes.py")]
LINES = (HERE / "mistakes.py").read_text().splitlines()
MISTAKES = {number for number, line in enumerate(LINES, 1) if "# MISTAKE" in line}


def by_mypy(scratch: Path) -> set[tuple[str, int]]:
    """The lines that mypy rejects."""
    told = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--cache-dir", str(scratch), *FILES],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    found = re.findall(r"^(\S+?):(\d+): error:", told.stdout, re.MULTILINE)
    return {(Path(path).name, int(line)) for path, line in found}


def by_pyright(scratch: Path) -> set[tuple[str, int]]:
    """The lines that pyright rejects."""
    project = scratch / "pyrightconfig.json"
    project.write_text(json.dumps({"include": FILES, "typeCheckingMode": "strict"}))
    told = subprocess.run(
        [
            str(Path(sys.executable).with_name("basedpyright")), "--outputjson",
            "--pythonpath", sys.executable, "--project", str(project),
        ],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    found = json.loads(told.stdout)["generalDiagnostics"]
    return {
        (Path(each["file"]).name, each["range"]["start"]["line"] + 1) for each in found if each["severity"] == "error"
    }


@pytest.mark.parametrize("check", [by_mypy, by_pyright])
def test_every_mistake_is_rejected_and_nothing_else(check: object, tmp_path: Path) -> None:
    assert callable(check)
    rejected = check(tmp_path)
    assert sorted(line for name, line in rejected if name == "correct.py") == []
    missed = MISTAKES - {line for name, line in rejected if name == "mistakes.py"}
    assert sorted(LINES[line - 1] for line in missed) == []
    assert sorted(line for name, line in rejected if name == "mistakes.py" and line not in MISTAKES) == []


def test_there_are_enough_mistakes() -> None:
    assert len(MISTAKES) >= 25
