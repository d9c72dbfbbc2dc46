"""The apps that come with duly. Each is a package with a `plugin`, as anybody's may be; docs/apps.md builds one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from duly import Duly
from duly.plugin import Plugin

T = TypeVar("T")


def alone(module: dict[str, Any], plugin: Plugin[Any, T], name: str, **names: Callable[[T], Any]) -> Any:
    """What a package's `__getattr__` answers: `app`, which has nothing but this plug-in on it, and `names` of that.

    It is made when someone first asks, as `duly worker duly.apps.catalog:app` does, and kept among the names of the
    module, where other processes find it too.
    """
    if name != "app" and name not in names:
        raise AttributeError(f"module {module['__name__']!r} has no attribute {name!r}")
    app = Duly()
    made = plugin.on(app)
    module.update(app=app, **{each: pick(made) for each, pick in names.items()})
    return module[name]
