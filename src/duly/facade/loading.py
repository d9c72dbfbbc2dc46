"""How a process finds an app: loads the one that a module or a file has under a name, and finds that name."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from duly.core.errors import BrokenApp, ConfigError
from duly.facade.app import Duly

T = TypeVar("T")


def load_app(spec: str) -> Duly:
    """The app that `module:name` or `path/to/file.py:name` means; the name defaults to app."""
    where, _, name = spec.rpartition(":") if ":" in spec else (spec, "", "app")
    if where.endswith(".py"):
        path = Path(where)
        found = importlib.util.spec_from_file_location(f"duly_app_{path.stem}", path)
        if found is None or found.loader is None or not path.exists():
            raise ConfigError(f"{spec}: there is no file {path}")
        module = importlib.util.module_from_spec(found)
        sys.modules[found.name] = module
        sys.path.insert(0, str(path.parent.resolve()))
        loader = found.loader
        _imported(spec, str(path), lambda: loader.exec_module(module))
    else:
        if "" not in sys.path and str(Path.cwd()) not in sys.path:
            sys.path.insert(0, str(Path.cwd()))
        module = _imported(spec, where, lambda: importlib.import_module(where))
    app = getattr(module, name, None)
    if not isinstance(app, Duly):
        raise ConfigError(f"{spec}: {name} in {where} is not a Duly app")
    app.internals.spec = spec
    return app


def _imported(spec: str, where: str, load: Callable[[], T]) -> T:
    """The result of `load`. An error in user code is reported with a traceback of the user's lines only."""
    try:
        return load()
    except ModuleNotFoundError as error:
        if error.name is not None and f"{where}.".startswith(f"{error.name}."):  # it, or a package that it is in
            raise ConfigError(f"{spec}: cannot import {where} ({error})") from error
        raise _broken(spec, error) from error
    except ConfigError:
        raise
    except Exception as error:
        raise _broken(spec, error) from error


def _broken(spec: str, error: Exception) -> BrokenApp:
    lines, ours = error.__traceback__, (__file__, importlib.__file__)
    while lines is not None and (
        lines.tb_frame.f_code.co_filename in ours or lines.tb_frame.f_code.co_filename.startswith("<frozen importlib")
    ):
        lines = lines.tb_next
    told = "".join(traceback.format_exception(type(error), error, lines, chain=error.__cause__ is not None))
    return BrokenApp(f"{spec}: cannot be imported\n{told.rstrip()}")


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
