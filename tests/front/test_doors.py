"""The doors between the rooms: who may know whom. docs/architecture.md draws the same picture."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

from duly.store.sql import sections

SOURCE = Path(__file__).resolve().parents[2] / "src" / "duly"

BELOW: dict[str, set[str]] = {
    "errors": set(),
    "model": set(),
    "shown": {"model"},
    "policy": {"model"},
    "forks": set(),
    "clock": {"forks"},
    "section": {"errors"},
    "plugin": {"errors", "section"},
    "config": {"errors", "plugin", "section"},
    "codec": {"errors"},
    "decide": {"errors", "model", "policy"},
    "advance": {"decide", "errors", "model", "policy"},
    "store": {"clock", "errors", "forks", "model", "policy", "shown"},
    "attempt": {"codec", "errors", "model"},
    "depths": {"shown"},
    "task": {"attempt", "codec", "decide", "errors", "model", "policy"},
    "passwords": {"errors"},
    "verbs": {
        "advance", "clock", "codec", "decide", "errors", "model", "passwords", "policy", "shown", "store", "task",
    },
    "acts": {"attempt", "decide", "policy", "task", "verbs"},
    "client": {"errors"},
    "schedules": {"errors", "model", "policy", "task", "verbs"},
    "patience": {"errors", "forks"},
    "telemetry": {"depths", "errors", "model", "patience", "shown", "store"},
    "app": {
        "acts", "clock", "codec", "config", "decide", "errors", "forks", "model", "policy",
        "schedules", "section", "shown", "store", "task", "telemetry", "verbs",
    },
    "engine": {
        "advance", "app", "attempt", "clock", "codec", "config", "decide", "errors", "model", "outbound",
        "patience", "policy", "store", "task", "telemetry",
    },
    "outbound": {"attempt", "codec", "errors", "model"},
    "bridge": {"codec", "errors"},
    "bulk": {"errors"},
}  # fmt: skip
FRONT = {"web", "cli", "apps", "testing", "doctor", "sim"}
# The facade starts a worker, a task puts through its app, and alembic's own process asks the settings where the
# database is: all at run time, none when it is imported.
LATE = {
    ("acts", "app"),
    ("app", "engine"),
    ("plugin", "app"),
    ("store", "config"),
    ("task", "app"),
    ("task", "schedules"),
    ("telemetry", "app"),
    ("telemetry", "task"),
}


def rooms() -> dict[str, set[str]]:
    known: dict[str, set[str]] = defaultdict(set)
    for path in SOURCE.rglob("*.py"):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        room = parts[0]
        if room == "__init__":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf8"))):
            names = []
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("duly"):
                base = node.module or ""
                names = [base] if base != "duly" else [f"duly.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names if alias.name.startswith("duly")]
            for name in names:
                target = name.split(".")[1] if "." in name else "__init__"
                if target != room:
                    known[room].add(target)
    return known


def test_every_room_knows_only_the_rooms_below_it() -> None:
    for room, targets in rooms().items():
        if room in FRONT:
            continue
        assert room in BELOW, f"{room} is a new room: say here and in docs/architecture.md whom it may know"
        climbs = {target for target in targets - BELOW[room] if (room, target) not in LATE}
        assert not climbs, f"{room} may not know {sorted(climbs)}"


def test_nothing_but_the_front_knows_the_front() -> None:
    for room, targets in rooms().items():
        if room not in FRONT:
            assert not targets & FRONT, f"{room} reaches up to {sorted(targets & FRONT)}"


def test_the_pure_rooms_import_no_database_clock_or_thread() -> None:
    for name in (
        "model.py",
        "decide.py",
        "advance.py",
        *(f"policy/{path.name}" for path in (SOURCE / "policy").glob("*.py")),
    ):
        tree = ast.parse((SOURCE / name).read_text(encoding="utf8"))
        imported = {
            alias.name.partition(".")[0]
            for node in ast.walk(tree)
            if isinstance(node, ast.Import)
            for alias in node.names
        } | {(node.module or "").partition(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        assert not imported & {"sqlite3", "psycopg", "threading", "asyncio", "time", "random", "os"}, name


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
