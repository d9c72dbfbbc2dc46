"""Loads an app that is given as a module or a file, and a name in it."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path

from duly.core.errors import ConfigError
from duly.facade.app import Duly


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
        found.loader.exec_module(module)
    else:
        if "" not in sys.path and str(Path.cwd()) not in sys.path:
            sys.path.insert(0, str(Path.cwd()))
        try:
            module = importlib.import_module(where)
        except ModuleNotFoundError as error:
            raise ConfigError(f"{spec}: cannot import {where} ({error})") from error
    app = getattr(module, name, None)
    if not isinstance(app, Duly):
        raise ConfigError(f"{spec}: {name} in {where} is not a Duly app")
    app.spec = spec
    return app
