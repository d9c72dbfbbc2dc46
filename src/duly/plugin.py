"""What a plug-in imports, together with `duly` itself: docs/apps.md builds one with nothing else.

Names that need an extra, such as those for routes (`duly[server]`), are loaded when they are first used, so a plug-in
imports them inside the function that needs them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from duly.core.section import Section, setting
from duly.core.shown import NewAlert
from duly.plugins import Finding, Panel, Parameter, Plugin, Screen, Simulated, chosen, plugins, query

if TYPE_CHECKING:
    from duly.bulk.sources import Address, Changed, FileSource, Found, NotThere, SourceError
    from duly.cli import options, words
    from duly.core.settings import JobSettings
    from duly.outbound.http import attempt_headers, post_json
    from duly.virtual.simulation import Simulation
    from duly.web.auth import Admin, Reader, Writer
    from duly.web.desk import Pages, serving
    from duly.web.routing import Router, Transaction, repeatable
    from duly.web.schemas import Id, Model, Out, Page, Word, example

__all__ = [
    "Address",
    "Admin",
    "Changed",
    "FileSource",
    "Finding",
    "Found",
    "Id",
    "JobSettings",
    "Model",
    "NewAlert",
    "NotThere",
    "Out",
    "Page",
    "Pages",
    "Panel",
    "Parameter",
    "Plugin",
    "Reader",
    "Router",
    "Screen",
    "Section",
    "Simulated",
    "Simulation",
    "SourceError",
    "Transaction",
    "Word",
    "Writer",
    "attempt_headers",
    "chosen",
    "example",
    "options",
    "plugins",
    "post_json",
    "query",
    "repeatable",
    "serving",
    "setting",
    "words",
]

_LATER = {
    "duly.bulk.sources": ("Address", "Changed", "FileSource", "Found", "NotThere", "SourceError"),
    "duly.cli": ("options", "words"),
    "duly.core.settings": ("JobSettings",),
    "duly.outbound.http": ("attempt_headers", "post_json"),
    "duly.virtual.simulation": ("Simulation",),
    "duly.web.auth": ("Admin", "Reader", "Writer"),
    "duly.web.desk": ("Pages", "serving"),
    "duly.web.routing": ("Router", "Transaction", "repeatable"),
    "duly.web.schemas": ("Id", "Model", "Out", "Page", "Word", "example"),
}


def __getattr__(name: str) -> Any:
    for module, names in _LATER.items():
        if name in names:
            import_module(f"{module}.{name}" if module == "duly.cli" else module)
            found = getattr(import_module(module), name)
            globals()[name] = found
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
