"""The doors between the rooms: who may know whom. docs/architecture.md draws the same picture."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from duly.store.sql import sections

SOURCE = Path(__file__).resolve().parents[2] / "src" / "duly"

# The rooms from top to bottom, each with those that it may know. Every import counts, also one that is made late or
# for type checkers only. What users import from (`duly`, `duly.errors`, …) is a room too.
ROOMS: dict[str, set[str]] = {
    "apps": {
        "duly", "bridge", "bulk", "cli", "client", "config", "core", "engine", "facade", "outbound", "plugin", "tasks",
        "verbs", "virtual", "web",
    },
    "plugin": {"bulk", "cli", "core", "outbound", "plugins", "virtual", "web"},
    "cli": {
        "duly", "client", "config", "core", "engine", "facade", "intake", "outbound", "plugins", "store", "tasks",
        "telemetry", "verbs", "virtual", "web",
    },
    "web": {"duly", "core", "facade", "intake", "plugins", "store", "tasks", "verbs"},
    "testing": {"virtual"},
    "virtual": {"core", "engine", "facade", "store", "tasks", "verbs"},
    "duly": {"core", "errors", "facade", "policy", "tasks"},
    "facade": {
        "bulk", "client", "config", "core", "engine", "intake", "plugins", "store", "tasks", "telemetry", "verbs",
    },
    "intake": {"bulk", "core", "tasks", "verbs"},
    "config": {"core", "plugins"},
    "plugins": {"bulk", "core"},
    "engine": {"core", "outbound", "store", "tasks", "telemetry"},
    "telemetry": {"core", "store", "tasks"},
    "verbs": {"core", "store", "tasks"},
    "outbound": {"core", "tasks"},
    "bridge": {"core"},
    "bulk": {"core"},
    "client": {"core"},
    "tasks": {"core"},
    "store": {"core"},
    "errors": {"core"},
    "policy": {"core"},
    "core": set(),
}  # fmt: skip


def known_rooms() -> dict[str, set[str]]:
    """The rooms that each room imports from, wherever in a file it does so."""
    known: dict[str, set[str]] = defaultdict(set)
    for path in SOURCE.rglob("*.py"):
        room = room_of(path.relative_to(SOURCE).with_suffix("").parts)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf8"))):
            if isinstance(node, ast.ImportFrom):
                assert not node.level, f"{path}:{node.lineno} imports by a relative path, which this test does not read"
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            else:
                continue
            ours = [name.split(".")[1:] for name in names if name.partition(".")[0] == "duly"]
            known[room].update(room_of(parts) for parts in ours)
        known[room].discard(room)
    return known


def room_of(parts: Sequence[str]) -> str:
    """The room that a module, or a name in one, belongs to: a folder or module of the package, or its front page."""
    inside = parts and ((SOURCE / parts[0]).is_dir() or (SOURCE / f"{parts[0]}.py").exists())
    return parts[0] if inside and parts[0] != "__init__" else "duly"


def test_every_room_knows_only_the_rooms_that_it_may_know() -> None:
    known = known_rooms()
    assert sorted(known) == sorted(ROOMS), "say here and in docs/architecture.md whom a new room may know"
    for room, targets in known.items():
        assert targets <= ROOMS[room], f"{room} may not know {sorted(targets - ROOMS[room])}"
        assert targets >= ROOMS[room], f"{room} does not need {sorted(ROOMS[room] - targets)} any more: shut the door"


def test_all_doors_lead_downwards() -> None:
    order = list(ROOMS)
    for room, targets in ROOMS.items():
        climbs = {target for target in targets if order.index(target) <= order.index(room)}
        assert not climbs, f"{room} stands below {sorted(climbs)}, so it may not know them"


def test_the_pure_rooms_import_no_database_clock_or_thread() -> None:
    core = SOURCE / "core"
    for path in (core / "model.py", core / "decide.py", core / "advance.py", *(core / "policy").glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf8"))
        imported = {
            alias.name.partition(".")[0]
            for node in ast.walk(tree)
            if isinstance(node, ast.Import)
            for alias in node.names
        } | {(node.module or "").partition(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert not imported & {"sqlite3", "psycopg", "threading", "asyncio", "time", "random", "os"}, path.name


def test_named_sections_are_run_by_the_store_the_verbs_and_the_engine_only() -> None:
    names = {*sections("postgres"), *sections("sqlite")}
    for path in SOURCE.rglob("*.py"):
        if path.relative_to(SOURCE).parts[0] in ("store", "verbs", "engine"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            said = {each.value for each in node.args[:2] if isinstance(each, ast.Constant)}
            is_section = node.func.attr in ("read", "write", "run") and (said & names or _is_store(node.func.value))
            assert not is_section, f"{path.name}:{node.lineno} runs a section by its name: make it a verb"


def _is_store(node: ast.expr) -> bool:
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return name.lstrip("_") == "store"


HEAVY = {"click", "email", "fastapi", "http.server", "pika", "prometheus_client", "psycopg", "rich", "uvicorn"}


def test_import_duly_loads_nothing_that_only_servers_databases_and_commands_need() -> None:
    """It is what a web application pays at its start for being able to put an item."""
    asked = [sys.executable, "-c", "import duly, sys; print(*sys.modules)"]
    loaded = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split()
    assert HEAVY & set(loaded) == set()
