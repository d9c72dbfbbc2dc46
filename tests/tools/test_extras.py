"""duly from its wheel, in a fresh environment with each subset of its extras: no command shows a traceback."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from itertools import chain, combinations
from pathlib import Path

import pytest

from tests.apps.test_package import wheel

ROOT = Path(__file__).resolve().parents[2]
EXTRAS = sorted(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
SUBSETS = list(chain.from_iterable(combinations(EXTRAS, size) for size in range(len(EXTRAS) + 1)))

# What each command needs beside the core, and its exit code where it has that.
COMMANDS: tuple[tuple[str, tuple[str, ...], int], ...] = (
    ("migrate", (), 0),
    ("--help", (), 0),
    ("itmes", (), 2),
    ("items --json", (), 0),
    ("settings --json", (), 0),
    ("review", (), 0),
    ("doctor", (), 0),
    ("plan", (), 0),
    ("people", (), 0),
    ("messages list", ("rabbitmq",), 0),
    ("retry-service --help", (), 0),
    ("serve --http-host 0.0.0.0", ("server",), 2),
    ("items --database-url postgresql://nobody@127.0.0.1:1/x", ("postgres",), 1),
)
# Runs each command in a fork, because Python and the packages that all of them need take long to start.
DRIVER = """
import json, os, sys, tempfile
import duly.cli, duly.plugins

for plugin in duly.plugins.plugins().values():
    try:
        plugin.commands()
    except ImportError:
        pass
found = []
for line in json.loads(sys.argv[1]):
    with tempfile.TemporaryFile("w+") as output:
        child = os.fork()
        if child == 0:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
            sys.argv = ["duly", *line.split()]
            code = 3
            try:
                duly.cli.main()
                code = 0
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else int(end.code is not None)
            except BaseException:
                import traceback
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        output.seek(0)
        found.append((line, code, output.read()))
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = tmp_path_factory.mktemp("duly")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__"))
    return wheel(source, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where environments are made: always in the same place, so that modules are compiled once and not for each."""
    return tmp_path_factory.mktemp("environment") / "venv"


def install(built: Path, extras: tuple[str, ...], place: Path) -> Path:
    """A fresh environment with duly from its wheel, and what these extras bring in the versions of uv.lock."""
    shutil.rmtree(place, ignore_errors=True)
    uv = shutil.which("uv") or ROOT / ".scratch" / "uv" / "bin" / "uv"
    env = {**os.environ, "UV_PROJECT_ENVIRONMENT": str(place), "UV_PYTHON": sys.executable, "UV_LINK_MODE": "hardlink"}
    env.pop("VIRTUAL_ENV", None)
    wanted = chain.from_iterable(("--extra", each) for each in extras)
    sync = [uv, "sync", "--quiet", "--frozen", "--no-dev", "--no-install-project", *wanted]
    subprocess.run(sync, cwd=ROOT, env=env, check=True, timeout=300)
    python = place / "bin" / "python"
    subprocess.run(
        [uv, "pip", "install", "--quiet", "--offline", "--no-deps", "--python", python, built], check=True, timeout=120
    )
    return python


@pytest.mark.parametrize("extras", SUBSETS, ids=lambda extras: ",".join(extras) or "none")
def test_every_command_works_or_names_the_extra_that_it_needs(
    built: Path, environment: Path, extras: tuple[str, ...], tmp_path: Path
) -> None:
    python = install(built, extras, environment)
    env = {name: value for name, value in os.environ.items() if not name.startswith(("DULY_", "PYTHON", "COVERAGE"))}
    env |= {"HOME": str(tmp_path), "DULY_DATABASE_URL": f"sqlite:///{tmp_path / 'duly.db'}"}
    lines = [line for line, _, _ in COMMANDS]
    ran = subprocess.run(
        [python, "-I", "-X", f"pycache_prefix={environment.parent}", "-c", DRIVER, json.dumps(lines)],
        cwd=tmp_path, env=env, check=True, capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    found = {line: (code, text) for line, code, text in json.loads(ran.stdout)}
    for line, needs, expected in COMMANDS:
        code, text = found[line]
        words = " ".join(text.split())
        assert "Traceback" not in text, (line, text)
        if set(needs) <= set(extras):
            assert code == expected, (line, text)
            assert "pip install" not in words, (line, text)
        else:
            assert code == 2, (line, text)
            assert f"pip install 'duly[{needs[0]}]'" in words, (line, text)
    assert "did you mean 'items'?" in found["itmes"][1].lower(), found["itmes"]
