"""Where commands about jobs do their work: on the database itself, or through a service; both give the same values."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from msgspec import convert

from duly.cli import options
from duly.cli.serve import BUILT_IN
from duly.cli.sides import translating
from duly.cli.there import snake
from duly.core.model import Status
from duly.core.shown import JobItem, JobRow, PendingItem

if TYPE_CHECKING:
    from duly import Duly
    from duly.client import Client
    from duly.intake.exports import Difference

PAGE_MOST = 500


class JobsHere:
    def __init__(self, app: Duly) -> None:
        self._app = app

    def create(self, path: Path, job_type: str, said: dict[str, Any]) -> int:
        from duly.intake.intake import PORTION, FileOptions, kept_by

        with path.open("rb") as file, self._app.intake.receive() as writer:
            while portion := file.read(PORTION):
                writer.write(portion)
        job = self._app.intake.create(
            options.who(), kept_by(writer), path.name, job_type=job_type, file_options=convert(said, FileOptions)
        )
        return job.id

    def preview(self, path: Path, job_type: str, said: dict[str, Any]) -> dict[str, Any]:
        from msgspec import to_builtins

        from duly.intake.intake import FileOptions

        with path.open("rb") as file:
            seen = self._app.intake.preview(
                options.who(), file, path.name, job_type=job_type, file_options=convert(said, FileOptions)
            )
        told: dict[str, Any] = to_builtins(seen)
        return told

    def page(self, job_type: str | None, most: int) -> list[JobRow]:
        return self._app.verbs.jobs.page(options.who(), job_type=job_type, most=most)

    def show(self, job_id: int) -> JobRow:
        return self._app.verbs.jobs.show(options.who(), job_id)

    def items(self, job_id: int, statuses: Sequence[Status], most: int) -> list[JobItem]:
        rows = self._app.verbs.job_rows
        if statuses:
            return rows.page(options.who(), job_id, statuses, most=most)
        return rows.by_number(options.who(), job_id, most=most)

    def pending(self, statuses: Sequence[Status], **chosen: Any) -> Sequence[JobItem]:
        return self._app.verbs.job_rows.pending(options.who(), None, statuses, **chosen)

    def pause(self, job_id: int) -> JobRow:
        return self._app.verbs.jobs.pause(options.who(), job_id)

    def resume(self, job_id: int) -> JobRow:
        return self._app.verbs.jobs.resume(options.who(), job_id)

    def kickoff(self, job_id: int, seconds: float) -> Any:
        return self._app.kickoffs.run(options.who(), job_id, seconds)

    def cancel(self, job_id: int, reason: str) -> JobRow:
        return self._app.verbs.jobs.cancel(options.who(), job_id, reason)

    def reprocess(self, job_id: int, ids: Sequence[int], statuses: Sequence[Status], is_reset: bool) -> int:
        return self._app.verbs.jobs.reprocess(
            options.who(), job_id, ids=ids or None, statuses=statuses, is_reset=is_reset
        )

    def remove(self, job_id: int) -> None:
        self._app.verbs.jobs.remove(options.who(), job_id)

    def export(self, job_id: int, out: BinaryIO, format: str, is_rejects: bool) -> None:
        exports = self._app.exports
        for portion in (exports.rejects if is_rejects else exports.whole)(options.who(), job_id, format):
            out.write(portion)

    def mend(self, job_id: int, path: Path) -> dict[str, Any]:
        from msgspec import to_builtins

        from duly.intake.mending import mend

        with path.open("rb") as file:
            told: dict[str, Any] = to_builtins(mend(self._app.intake, options.who(), job_id, file, path.name))
        return told

    def scan(self, is_again: bool) -> dict[str, Any]:
        from msgspec import to_builtins

        told: dict[str, Any] = to_builtins(self._app.intake.scanner.scan(options.who(), is_again))
        return told

    def differences(self, job_id: int, path: Path) -> Iterator[Difference]:
        with path.open("rb") as file:
            yield from self._app.exports.differences(options.who(), job_id, file, path.name)


class JobsThere:
    def __init__(self, client: Client) -> None:
        self._client = client

    def create(self, path: Path, job_type: str, said: dict[str, Any]) -> int:
        with path.open("rb") as file:
            return self._client.create_job(file, path.name, job_type=job_type, **said)

    def preview(self, path: Path, job_type: str, said: dict[str, Any]) -> dict[str, Any]:
        with path.open("rb") as file:
            return snake(self._client.preview_job(file, path.name, job_type=job_type, **said))

    def page(self, job_type: str | None, most: int) -> list[JobRow]:
        found = self._client.jobs(job_type=job_type, page_size=min(most, PAGE_MOST))
        return [_job(each) for each in islice(found, most)]

    def show(self, job_id: int) -> JobRow:
        return _job(self._client.job(job_id))

    def items(self, job_id: int, statuses: Sequence[Status], most: int) -> list[JobItem]:
        chosen = {"statuses": ",".join(statuses) or None, "page_size": min(most, PAGE_MOST)}
        return [_item(each) for each in islice(self._client.job_items(job_id, **chosen), most)]

    def pending(
        self, statuses: Sequence[Status], *, most: int, job_ids: Sequence[int], **chosen: Any
    ) -> Sequence[JobItem]:
        named = {"statuses": ",".join(statuses), "job_id": ",".join(map(str, job_ids)) or None}
        rows = self._client.pending(**named, **chosen, page_size=min(most, PAGE_MOST))
        return [_item(each, PendingItem) for each in islice(rows, most)]

    def pause(self, job_id: int) -> JobRow:
        return _job(self._client.pause_job(job_id))

    def resume(self, job_id: int) -> JobRow:
        return _job(self._client.resume_job(job_id))

    def kickoff(self, job_id: int, seconds: float) -> Any:
        from duly.facade.kickoff import Kickoff

        told = self._client.kick_off_job(job_id, seconds)
        return convert({**snake(told), "job": snake(told["job"]), "ended": told["ended"]}, Kickoff)

    def cancel(self, job_id: int, reason: str) -> JobRow:
        return _job(self._client.cancel_job(job_id, reason))

    def reprocess(self, job_id: int, ids: Sequence[int], statuses: Sequence[Status], is_reset: bool) -> int:
        return self._client.reprocess_job(job_id, ids or None, statuses=list(statuses), reset=is_reset)

    def remove(self, job_id: int) -> None:
        self._client.remove_job(job_id)

    def export(self, job_id: int, out: BinaryIO, format: str, is_rejects: bool) -> None:
        (self._client.job_rejects if is_rejects else self._client.export_job)(job_id, out, format)

    def mend(self, job_id: int, path: Path) -> dict[str, Any]:
        with path.open("rb") as file:
            return self._client.mend_job(job_id, file, path.name)

    def scan(self, is_again: bool) -> dict[str, Any]:
        told = snake(self._client.scan(is_again))
        return {**told, **{kind: list(map(snake, told[kind])) for kind in ("taken", "passed", "refusals")}}

    def differences(self, job_id: int, path: Path) -> Iterator[Difference]:
        from duly.intake.exports import exported_differences

        with tempfile.TemporaryFile() as export, path.open("rb") as file:
            self._client.export_job(job_id, cast(BinaryIO, export), "csv")
            export.seek(0)
            yield from exported_differences(cast(BinaryIO, export), file, path.name)


@contextmanager
def jobs_side(spec: str | None = None, *, with_types: bool = False) -> Iterator[JobsHere | JobsThere]:
    """The side that the command line chose.

    `with_types`: here, an app that knows its types of jobs is needed; if none is said, the installed ones are it.
    """
    client = options.remote()
    if client is not None:
        with client, translating():
            yield JobsThere(client)
    elif with_types:
        from duly.facade.loading import load_app

        app = load_app(spec or BUILT_IN)
        try:
            if not app.job_types:
                options.app_spec(spec)  # no app that is installed has any, so one has to be said
            yield JobsHere(app)
        finally:
            app.close()
    else:
        with options.opened() as app:
            yield JobsHere(app)


def _job(told: dict[str, Any]) -> JobRow:
    return convert(snake(told), JobRow)


def _item(told: dict[str, Any], kind: type[JobItem] = JobItem) -> JobItem:
    flat = snake(told)
    names = {"row_no": "row", "attempt": "attempts", "claimed_by": "locked_by", "started_at": "locked_at"}
    renamed = {name: flat[theirs] for name, theirs in {**names, "changed_at": "updated_at"}.items()}
    if "progress" in flat:  # of all jobs
        renamed["ended"] = round(flat["progress"] * flat["total"])
    return convert({**flat, **renamed, **flat["input_summary"], "result": flat.get("result")}, kind)
