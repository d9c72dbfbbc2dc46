"""How another process can import an app: `module:name`, or the path of a file and the name in it."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import Any


def find_spec(app: object) -> str | None:
    """How another process can import this app; None when it cannot (a REPL, a local variable)."""
    main = sys.modules["__main__"]
    for key, module in list(sys.modules.items()):
        if module is not main and (name := _name_of(app, module)):  # multiprocessing has main under another name too
            return f"{key}:{name}"
    path = getattr(main, "__file__", None)
    name = _name_of(app, main)
    if name is None or path is None or not _is_bound(name, Path(path)):
        return None
    started_as = getattr(getattr(main, "__spec__", None), "name", "__main__")  # with python -m, its name
    return f"{Path(path).resolve() if started_as == '__main__' else started_as}:{name}"


def _name_of(app: object, module: Any) -> str | None:
    names = list(getattr(module, "__dict__", {}).items())
    return next((name for name, value in names if value is app), None)


def _is_bound(name: str, path: Path) -> bool:
    """Whether a script sets this name when it is imported too, and not only under `__name__ == "__main__"`."""
    try:
        nodes: list[ast.AST] = list(ast.parse(path.read_bytes()).body)
    except (OSError, SyntaxError, ValueError):
        return False
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.If) and "__main__" in ast.dump(node.test):
            nodes.extend(node.orelse)
        elif _binds(node, name):
            return True
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            nodes.extend(ast.iter_child_nodes(node))
    return False


def _binds(node: ast.AST, name: str) -> bool:
    match node:
        case ast.alias():
            return (node.asname or node.name) in (name, "*")
        case ast.Name(id=bound, ctx=ast.Store()):
            return bound == name
    return False
