"""`duly jobs`: create jobs from files, follow them, retry their rows, export and remove them."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar, Unpack, cast, get_args

import click

from duly.cli import options, words
from duly.cli.sides import side
from duly.core.errors import InputError
from duly.core.model import Status

if TYPE_CHECKING:
    from collections.abc import Iterator

    from duly.cli.sides import Side
    from duly.core.filters import UploadOptions
    from duly.core.shown import JobItem, JobRow

F = TypeVar("F", bound=Callable[..., Any])

FOLLOW_SECONDS = 0.3  # between two looks at a job that is waited for
DIFFERENCES = 100  # that are shown

job_id = click.argument("job_id", type=options.ID, metavar="ID")
file_in = click.argument("path", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE")
file_out = click.argument("path", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE")
file_format = click.option("--format", type=click.Choice(["csv", "xlsx"]), help="Default: by the suffix of FILE.")
most = options.most(500)
job_type = click.option("--type", "job_type", metavar="TYPE", help="The type of jobs: csv, image, …")
statuses = click.option("--status", "statuses", type=click.Choice(get_args(Status)), multiple=True, help="Repeatable.")


def _mapping(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> dict[str, str] | None:
    pairs = [each.partition("=") for each in given]
    if wrong := next((each for each in pairs if not each[1]), None):
        raise InputError("map", f"must be FIELD=COLUMN, got {wrong[0]!r}")
    return {field: column for field, _, column in pairs} or None


def file_options(command: F) -> F:
    """The options that say how a file is read."""
    for add in (
        click.option("--map", "mapping", multiple=True, callback=_mapping, metavar="FIELD=COLUMN",
                     help="The column of a field. Repeatable."),
        click.option("--sheet", help="Of a workbook; default: its first visible sheet."),
        click.option("--delimiter", metavar="CHARACTER", help="Between cells."),
        click.option("--encoding", help="Such as utf-8 or cp1252."),
        click.option("--header/--no-header", default=None, help="Whether the first row has the names of the columns."),
        click.option("--type", "job_type", default="csv", show_default=True, help="The type of the job."),
    ):  # fmt: skip
        command = add(command)
    return command


@options.listing(short_help="Files of rows: create, follow, retry, export, remove.")
@job_type
@most
@options.side
@options.as_json
def jobs(job_type: str | None, most: int, as_json: bool) -> None:
    """List jobs, newest first."""
    with side() as api:
        found = list(api.jobs(job_type=job_type, most=most))
    if words.is_all_told(found, as_json, "there are no jobs"):
        return
    rows = [
        [
            str(each.id), each.queue_state, words.cut(each.job_type or each.task, 20), str(each.total_items),
            str(each.processed_items), str(each.failed_items), words.cut(each.last_error, 40),
        ]
        for each in found
    ]  # fmt: skip
    titles = (("job", "right"), "state", "type", ("rows", "right"), ("ended", "right"), ("failed", "right"), "error")
    words.console().print(words.table(*titles, rows=rows, last=True))


@jobs.command(name="create")
@file_in
@file_options
@click.option("--wait", "is_waited", is_flag=True, help="Show the progress until all rows have ended.")
@options.app
@options.side
@options.as_json
def create_job(
    path: Path, is_waited: bool, spec: str | None, as_json: bool, **file_options: Unpack[UploadOptions]
) -> None:
    """Create a job of the rows of FILE, which workers read and process."""
    with side(spec, with_types=True) as api, path.open("rb") as file:
        made = api.create_job(file, path.name, **file_options)
        job = _followed(api, made, as_json) if is_waited else api.job(made)
    _print_job(job, as_json)
    if job.queue_state == "FAILED":
        sys.exit(1)


@jobs.command(name="preview")
@file_in
@file_options
@options.app
@options.side
@options.as_json
def preview_job(path: Path, spec: str | None, as_json: bool, **file_options: Unpack[UploadOptions]) -> None:
    """Show what a job would make of the first rows of FILE. Nothing is kept."""
    with side(spec, with_types=True) as api, path.open("rb") as file:
        seen = api.preview_job(file, path.name, **file_options)
    if as_json:
        words.print_json(seen)
        return
    for field, column in seen.mapping.items():
        click.echo(f"{field} is the column {column!r}")
    if seen.unused:
        click.echo(f"not used: {', '.join(seen.unused)}")
    for row in seen.rows:
        click.echo(f"line {row.line}: {'; '.join(row.problems) or 'is fine'}")
    click.echo(f"{seen.refused} of the first {len(seen.rows)} rows would be rejected")


@jobs.command(name="items")
@job_id
@statuses
@most
@options.side
@options.as_json
def list_items(job_id: int, statuses: tuple[Status, ...], most: int, as_json: bool) -> None:
    """List the rows of a job in the order of its file; with --status, in the order in which they changed."""
    with side() as api:
        found = list(api.job_items(job_id, statuses=statuses, most=most))
    _print_items(found, as_json)


@jobs.command(name="pending")
@statuses
@job_type
@click.option("--job", "job_ids", type=click.IntRange(1), multiple=True, metavar="ID", help="Of this job. Repeatable.")
@options.moment_option("--from", "since", help="Changed at or after this time.")
@options.moment_option("--to", "until", help="Changed before this time.")
@most
@options.side
@options.as_json
def list_pending(as_json: bool, **chosen: Any) -> None:
    """List rows of all jobs that wait or are being processed, those that changed longest ago first."""
    with side() as api:
        found = list(api.pending(**chosen))
    _print_items(found, as_json)


def _about_one(name: str, doc: str, act: Callable[[Side, int], JobRow]) -> None:
    """A command about one job, which prints the job."""

    @jobs.command(name=name, help=doc)
    @job_id
    @options.side
    @options.as_json
    def command(job_id: int, as_json: bool) -> None:
        with side() as api:
            found = act(api, job_id)
        _print_job(found, as_json)


_about_one("show", "Show the progress of a job.", lambda api, job_id: api.job(job_id))
_about_one("pause", "Start no more rows of a job until it is resumed.", lambda api, job_id: api.pause_job(job_id))
_about_one("resume", "Resume a paused job.", lambda api, job_id: api.resume_job(job_id))


@jobs.command(name="kickoff")
@job_id
@click.option("--seconds", type=click.FloatRange(0.1, 20), default=5.0, show_default=True, help="For how long.")
@options.app
@options.side
@options.as_json
def kick_off_job(job_id: int, seconds: float, spec: str | None, as_json: bool) -> None:
    """Process rows of a job in this process, or in the service, for a while."""
    with side(spec, with_types=True) as api:
        done = api.kick_off_job(job_id, seconds)
    if as_json:
        words.print_json(done)
        return
    ended = ", ".join(f"{count} {status}" for status, count in sorted(done.ended.items())) or "none"
    click.echo(f"{done.processed} rows in {done.seconds:.1f} s: {ended}; {done.tried_again} will be retried")
    _print_job(done.job, as_json=False)


@jobs.command(name="cancel")
@job_id
@click.option("--reason", default="", help="Kept with the rows.")
@options.side
@options.as_json
def cancel_job(job_id: int, reason: str, as_json: bool) -> None:
    """Start no more rows, and cancel all that have not ended, as durable work of a worker."""
    with side() as api:
        changed = api.cancel_job(job_id, reason)
    _print_job(changed, as_json)


@jobs.command(name="reprocess")
@job_id
@click.option("--item", "ids", type=options.ID, multiple=True, help="Only this row, by the id of its item.")
@click.option(
    "--status", "statuses", type=click.Choice(["ERROR", "NOT_FOUND", "SKIPPED"]), multiple=True,
    default=("ERROR", "NOT_FOUND"), show_default=True,
)  # fmt: skip
@click.option("--reset", is_flag=True, help="Also rows that were reprocessed as often as is allowed.")
@options.side
def reprocess_job(job_id: int, ids: tuple[int, ...], statuses: tuple[Status, ...], reset: bool) -> None:
    """Retry rows that failed or were not found."""
    with side() as api:
        count = api.reprocess_job(job_id, item_ids=ids, statuses=statuses, reset=reset)
    click.echo(f"{count} rows will be retried")


@jobs.command(name="remove")
@job_id
@options.side
def remove_job(job_id: int) -> None:
    """Delete a job with its rows and its file, as durable work of a worker."""
    with side() as api:
        api.remove_job(job_id)
    click.echo(f"job {job_id} is being removed")


@jobs.command(name="export")
@job_id
@file_out
@file_format
@options.side
def export_job(job_id: int, path: Path, format: str | None) -> None:
    """Write all rows, with their input and result, to FILE."""
    with side() as api, _written(path, format) as (out, chosen):
        api.export_job(job_id, out, chosen)


@jobs.command(name="rejects")
@job_id
@file_out
@file_format
@options.side
def export_rejects(job_id: int, path: Path, format: str | None) -> None:
    """Write the rows in error, with their columns as they came and the reason, to FILE."""
    with side() as api, _written(path, format) as (out, chosen):
        api.export_rejects(job_id, out, chosen)


@contextmanager
def _written(path: Path, format: str | None) -> Iterator[tuple[BinaryIO, str]]:
    """A file to write to and its format. It exists as a whole or not at all."""
    chosen = format or path.suffix.lower().removeprefix(".")
    if chosen not in ("csv", "xlsx"):
        raise InputError("format", f"{path.name} ends neither in .csv nor in .xlsx; use --format")
    aside = path.with_name(f".{path.name}.part")
    try:
        with aside.open("wb") as out:
            yield out, chosen
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
    click.echo(str(path))


@jobs.command(name="mend")
@job_id
@file_in
@options.app
@options.side
@options.as_json
def mend_job(job_id: int, path: Path, spec: str | None, as_json: bool) -> None:
    """Retry rows in error with the corrected values in FILE; exit code 1 if some rows are rejected."""
    with side(spec, with_types=True) as api, path.open("rb") as file:
        mended = api.mend_job(job_id, file, path.name)
    if as_json:
        words.print_json(mended)
    else:
        click.echo(f"{mended.mended} of {mended.rows} rows will be retried, {mended.refused} are rejected")
        for each in mended.refusals:
            click.echo(f"line {each.line}: {each.reason}")
    if mended.refused:
        sys.exit(1)


@jobs.command(name="scan")
@click.option("--again", is_flag=True, help="Also look at files that were rejected before.")
@options.app
@options.side
@options.as_json
def scan_sources(again: bool, spec: str | None, as_json: bool) -> None:
    """Create a job of every new file in the inbox and the allowed sources."""
    with side(spec, with_types=True) as api:
        found = api.scan(again)
    if as_json:
        words.print_json(found)
        return
    for each in found.taken:
        click.echo(f"{each.source}: job {each.job_id}")
    for each in (*found.passed, *found.refusals):
        click.echo(f"{each.source}: {each.reason}")
    click.echo(
        f"{found.found} files found, {found.took} taken, {found.passed_over} passed over, "
        f"{found.refused} rejected, {found.left} left for a worker"
    )
    if found.held:
        click.echo(found.held)


@jobs.command(name="diff")
@job_id
@file_in
@options.side
@options.as_json
def compare_job(job_id: int, path: Path, as_json: bool) -> None:
    """Compare a job with a file of the same rows, cell by cell; exit code 1 if they differ."""
    from duly.intake.exports import exported_differences

    with side() as api, tempfile.TemporaryFile() as spool, path.open("rb") as file:
        export = cast(BinaryIO, spool)
        api.export_job(job_id, export, "csv")
        export.seek(0)
        found = list(islice(exported_differences(export, file, path.name), DIFFERENCES + 1))
    if not words.is_all_told(found[:DIFFERENCES], as_json, "they are equal"):
        for each in found[:DIFFERENCES]:
            what = f"row {each.row}" if each.column is None else f"row {each.row}, {each.column}"
            click.echo(f"{what}: {each.ours!r} in the job, {each.theirs!r} in the file")
        if len(found) > DIFFERENCES:
            click.echo(f"and more; only the first {DIFFERENCES} are shown")
    if found:
        sys.exit(1)


def _followed(api: Side, made: int, as_json: bool) -> JobRow:
    """Show the progress of a job until it has ended. With --json, only the end is printed."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), disable=as_json) as bar:
        line = bar.add_task(f"job {made}", total=None)
        while (job := api.job(made)).queue_state not in ("DONE", "FAILED"):
            bar.update(line, completed=job.processed_items, total=job.total_items if job.is_complete else None)
            time.sleep(FOLLOW_SECONDS)
        bar.update(line, completed=job.processed_items, total=job.total_items)
    return job


def _print_job(job: JobRow, as_json: bool) -> None:
    if as_json:
        words.print_json(job)
        return
    parts = {
        "done": job.done_items, "not found": job.not_found_items, "failed": job.failed_items,
        "skipped": job.skipped_items,
    }  # fmt: skip
    ended = ", ".join(f"{count} {name}" for name, count in parts.items() if count) or "none ended yet"
    click.echo(f"job {job.id}: {job.queue_state}, {job.total_items} rows, {ended}")
    if job.duplicate_items:
        click.echo(f"{job.duplicate_items} rows are duplicates of earlier ones")
    if job.last_error:
        click.echo(job.last_error)


def _print_items(found: Sequence[JobItem], as_json: bool) -> None:
    if words.is_all_told(found, as_json, "no rows match"):
        return
    rows = [
        [
            str(each.row_no), str(each.id), each.status, str(each.attempt),
            words.cut(" ".join(filter(None, (each.brand, each.title, each.sku))), 30), words.cut(each.last_error, 40),
        ]
        for each in found
    ]  # fmt: skip
    titles = (("row", "right"), ("item", "right"), "status", ("tries", "right"), "what", "error")
    words.console().print(words.table(*titles, rows=rows, last=True))
