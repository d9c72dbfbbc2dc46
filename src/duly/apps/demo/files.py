"""Sends a file of products as a job, and sends it again when the job is finished."""

from __future__ import annotations

from datetime import datetime

from duly.apps.demo.products import products_csv
from duly.apps.demo.reminders import LENGTH
from duly.facade.app import Duly
from duly.verbs import LOCAL


class FileDemo:
    def __init__(self, app: Duly) -> None:
        self._app = app
        self._again_at: datetime | None = None
        self._job = 0

    def step(self) -> None:
        """Send the file like an upload, unless it was sent a moment ago or its job is not finished."""
        now = self._app.clock.now()
        if self._again_at is not None and (now < self._again_at or not self._is_finished()):
            return
        self._again_at = now + LENGTH
        with self._app.intake.receive() as writer:
            writer.write(products_csv())
        assert writer.kept is not None
        self._job = self._app.intake.create(LOCAL, writer.kept, "products.csv", job_type="csv").id

    def _is_finished(self) -> bool:
        return self._app.verbs.jobs.get(LOCAL, self._job).is_over
