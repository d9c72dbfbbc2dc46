"""The apps that the setting `apps` selects, on one app: `duly up` and `duly serve` run them by default."""

from __future__ import annotations

from duly.apps import app_with
from duly.config import load
from duly.plugin import chosen, plugins

app = app_with(*chosen(load().apps))
if not app.settings.apps:
    # Apps that need a setting, such as messages a broker: the dashboard explains how to set it.
    app.internals.offered.update(
        (name, plugin) for name, plugin in plugins().items() if name not in app.internals.plugins
    )
