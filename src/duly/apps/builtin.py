"""The apps that the setting `apps` chooses, on one app: what `duly up` and `duly serve` run by themselves."""

from __future__ import annotations

from duly import Duly
from duly.plugin import chosen

app = Duly()
for plugin in chosen(app.settings.apps):
    plugin.on(app)
