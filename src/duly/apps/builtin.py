"""The apps that the setting `apps` chooses, on one app: what `duly up` and `duly serve` run by themselves."""

from __future__ import annotations

from duly.apps import app_with
from duly.config import load
from duly.plugin import chosen, plugins

app = app_with(*chosen(load().apps))
if not app.settings.apps:
    # What would be on if it were set up, such as messages with a broker: the dashboard says how.
    app.internals.offered.update(
        (name, plugin) for name, plugin in plugins().items() if name not in app.internals.plugins
    )
