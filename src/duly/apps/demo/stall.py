"""Sends the demo's file of products, and sends it again when it was worked off."""

from __future__ import annotations

from datetime import datetime

from duly.apps.demo.market import sheet
from duly.apps.demo.scene import LENGTH
from duly.facade.app import Duly
from duly.verbs import LOCAL


class Stall:
    def __init__(self, app: Duly) -> None:
        self._app = app
        self._again_at: datetime | None = None
        self._job = 0

    def play(self) -> None:
        """Send the file, as an upload does, unless it was sent a moment ago or is still being worked off."""
        now = self._app.clock.now()
        if self._again_at is not None and (now < self._again_at or not self._is_worked_off()):
            return
        self._again_at = now + LENGTH
        with self._app.intake.receive() as writer:
            writer.write(sheet())
        assert writer.kept is not None
        self._job = self._app.intake.create(LOCAL, writer.kept, "products.csv", job_type="csv").id

    def _is_worked_off(self) -> bool:
        return self._app.verbs.jobs.get(LOCAL, self._job).is_over
