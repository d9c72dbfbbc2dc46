"""`duly jobs`: create jobs from files, follow them, retry their rows, export and remove them."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Unpack, cast, get_args

import click

from duly.cli import options, words
from duly.cli.session import Session, acting, printing, session
from duly.core.errors import InputError
from duly.core.filters import UploadOptions
from duly.core.model import Status
from duly.core.results import JobCheck
from duly.core.shown import JobItem, JobRow

if TYPE_CHECKING:
    from duly.client import Client

FOLLOW_SECONDS = 0.3  # between two looks at a job that is waited for
DIFFERENCES = 100  # that are shown

job_id = click.argument("job_id", type=options.ID, metavar="ID")
file_in = click.argument("path", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE")
most = options.most(500)
job_type = click.option("--type", "job_type", metavar="TYPE", help="The type of jobs: csv, image, …")
statuses = click.option("--status", "statuses", type=click.Choice(get_args(Status)), multiple=True, help="Repeatable.")
with_types = session(options.as_json, with_types=True)


def _mapping(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> dict[str, str] | None:
    pairs = [each.partition("=") for each in given]
    if wrong := next((each for each in pairs if not each[1]), None):
        raise InputError("map", f"must be FIELD=COLUMN, got {wrong[0]!r}")
    return {field: column for field, _, column in pairs} or None


# How a file is read.
file_options = options.together(
    click.option("--type", "job_type", default="csv", show_default=True, help="The type of the job."),
    click.option("--header/--no-header", default=None, help="Whether the first row has the names of the columns."),
    click.option("--encoding", help="Such as utf-8 or cp1252."),
    click.option("--delimiter", metavar="CHARACTER", help="Between cells."),
    click.option("--sheet", help="Of a workbook; default: its first visible sheet."),
    click.option("--map", "mapping", multiple=True, callback=_mapping, metavar="FIELD=COLUMN",
                 help="The column of a field. Repeatable."),
)  # fmt: skip


@options.listing(short_help="Files of rows: create, follow, retry, export, remove.")
@job_type
@most
@printing
def jobs(session: Session, job_type: str | None, most: int) -> None:
    """List jobs, newest first."""
    session.print_table(
        list(session.api.jobs(job_type=job_type, most=most)),
        "there are no jobs",
        (">job", "state", "type", ">rows", ">ended", ">failed", "~error"),
        lambda job: [job.id, job.queue_state, job.job_type or job.task, job.total_items,
                     job.processed_items, job.failed_items, words.cut(job.last_error, 200)],
    )  # fmt: skip


@jobs.command(name="create")
@file_in
@file_options
@click.option("--wait", "is_waited", is_flag=True, help="Show the progress until all rows have ended.")
@with_types
def create_job(session: Session, path: Path, is_waited: bool, **file_options: Unpack[UploadOptions]) -> None:
    """Create a job of the rows of FILE, which workers read and process."""
    with path.open("rb") as file:
        made = session.api.create_job(file, path.name, **file_options)
    job = _followed(session, made) if is_waited else session.api.job(made)
    _print_job(session, job)
    if job.queue_state == "FAILED":
        sys.exit(1)


@jobs.command(name="preview")
@file_in
@file_options
@with_types
def preview_job(session: Session, path: Path, **file_options: Unpack[UploadOptions]) -> None:
    """Show how a job would read the first rows of FILE. Nothing is stored."""
    with path.open("rb") as file:
        seen = session.api.preview_job(file, path.name, **file_options)
    lines = [f"{field} is the column {column!r}" for field, column in seen.mapping.items()]
    lines += [f"not used: {', '.join(seen.unused)}"] if seen.unused else []
    lines += [f"line {row.line}: {'; '.join(row.problems) or 'is fine'}" for row in seen.rows]
    session.print_one(seen, [*lines, f"{seen.refused} of the first {len(seen.rows)} rows would be rejected"])


@jobs.command(name="items")
@job_id
@statuses
@most
@printing
def list_items(session: Session, job_id: int, statuses: tuple[Status, ...], most: int) -> None:
    """List the rows of a job in the order of its file; with --status, in the order in which they changed."""
    _print_items(session, list(session.api.job_items(job_id, statuses=statuses, most=most)))


@jobs.command(name="pending")
@statuses
@job_type
@click.option("--job", "job_ids", type=click.IntRange(1), multiple=True, metavar="ID", help="Of this job. Repeatable.")
@options.moment_option("--from", "since", help="Changed at or after this time.")
@options.moment_option("--to", "until", help="Changed before this time.")
@most
@printing
def list_pending(session: Session, **chosen: Any) -> None:
    """List rows of all jobs that wait or are being processed, those that changed longest ago first."""
    _print_items(session, list(session.api.pending(**chosen)))


def _about_one(name: str, doc: str, act: Callable[[Client, int], JobRow]) -> None:
    """A command about one job, which prints the job."""

    @jobs.command(name=name, help=doc)
    @job_id
    @printing
    def command(session: Session, job_id: int) -> None:
        _print_job(session, act(session.api, job_id))


_about_one("show", "Show the progress of a job.", lambda api, job_id: api.job(job_id))
_about_one("pause", "Start no more rows of a job until it is resumed.", lambda api, job_id: api.pause_job(job_id))
_about_one("resume", "Resume a paused job.", lambda api, job_id: api.resume_job(job_id))


@jobs.command(name="kickoff")
@job_id
@click.option("--seconds", type=click.FloatRange(0.1, 20), default=5.0, show_default=True, help="For how long.")
@with_types
def kick_off_job(session: Session, job_id: int, seconds: float) -> None:
    """Process rows of a job in this process, or in the service, for a while."""
    done = session.api.kick_off_job(job_id, seconds)
    ended = ", ".join(f"{count} {status}" for status, count in sorted(done.ended.items())) or "none"
    text = f"{done.processed} rows in {done.seconds:.1f} s: {ended}; {done.tried_again} will be retried"
    session.print_one(done, text)
    if not session.as_json:
        _print_job(session, done.job)


@jobs.command(name="cancel")
@job_id
@click.option("--reason", default="", help="Kept with the rows.")
@printing
def cancel_job(session: Session, job_id: int, reason: str) -> None:
    """Start no more rows, and cancel all that have not ended, as durable work of a worker."""
    _print_job(session, session.api.cancel_job(job_id, reason))


@jobs.command(name="reprocess")
@job_id
@click.option("--item", "ids", type=options.ID, multiple=True, help="Only this row, by the id of its item.")
@click.option(
    "--status", "statuses", type=click.Choice(["ERROR", "NOT_FOUND", "SKIPPED"]), multiple=True,
    default=("ERROR", "NOT_FOUND"), show_default=True,
)  # fmt: skip
@click.option("--reset", is_flag=True, help="Also rows that were reprocessed as often as is allowed.")
@acting
def reprocess_job(
    session: Session, job_id: int, ids: tuple[int, ...], statuses: tuple[Status, ...], reset: bool
) -> None:
    """Retry rows that failed or were not found."""
    count = session.api.reprocess_job(job_id, item_ids=ids or None, statuses=statuses, reset=reset)
    click.echo(f"{count} rows will be retried")


@jobs.command(name="remove")
@job_id
@acting
def remove_job(session: Session, job_id: int) -> None:
    """Delete a job with its rows and its file, as durable work of a worker."""
    session.api.remove_job(job_id)
    click.echo(f"job {job_id} is being removed")


@jobs.command(name="check")
@click.argument("job_id", type=options.ID, metavar="[ID]", required=False)
@click.option("--fix", is_flag=True, help="Make the counters and the statuses of rows true.")
@printing
def check_jobs(session: Session, job_id: int | None, fix: bool) -> None:
    """Compare the counters of a job, or of all jobs, with their rows; exit code 1 if some are wrong."""
    ids = [job_id] if job_id is not None else [job.id for job in session.api.jobs()]
    found = [session.api.check_job(each, fix=fix) for each in ids]
    wrong = [each for each in found if not each.is_true or each.fixed]

    def line(each: JobCheck) -> str:
        off = [
            f"{name} {each.counters[name]} of {count}"
            for name, count in each.rows.items()
            if count != each.counters[name]
        ]
        what = "was wrong and is true now" if each.fixed and each.is_true else "is wrong"
        rows = [f"{each.untrue_rows} rows with another status"] if each.untrue_rows else []
        return f"job {each.job_id} {what}" + (f": {', '.join([*off, *rows])}" if off or rows else "")

    of = f"job {job_id}" if job_id is not None else f"all jobs, {len(found)},"
    session.print_lines(wrong, f"the counters of {of} are true", line)
    if any(not each.is_true for each in found):
        sys.exit(1)


def _exporting(name: str, doc: str, write: Callable[[Client, int, BinaryIO, str], None]) -> None:
    """A command that writes rows of a job to a file."""

    @jobs.command(name=name, help=doc)
    @job_id
    @click.argument("path", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE")
    @click.option("--format", type=click.Choice(["csv", "xlsx"]), help="Default: by the suffix of FILE.")
    @acting
    def export(session: Session, job_id: int, path: Path, format: str | None) -> None:
        chosen = format or path.suffix.lower().removeprefix(".")
        if chosen not in ("csv", "xlsx"):
            raise InputError("format", f"{path.name} ends neither in .csv nor in .xlsx; use --format")
        session.api.job(job_id)  # if there is none, say so before anything about the file
        with _whole(path) as out:
            write(session.api, job_id, out, chosen)
        click.echo(str(path))


_exporting(
    "export",
    "Write all rows, with their input and result, to FILE.",
    lambda api, job_id, out, format: api.export_job(job_id, out, format),
)
_exporting(
    "rejects",
    "Write the rows in error, with their columns as they came and the reason, to FILE.",
    lambda api, job_id, out, format: api.export_rejects(job_id, out, format),
)


@contextmanager
def _whole(path: Path) -> Iterator[BinaryIO]:
    """A file to write to, which exists as a whole or not at all."""
    aside = path.with_name(f".{path.name}.part")
    try:
        with aside.open("wb") as out:
            yield out
        aside.replace(path)
    except OSError as error:
        raise InputError("FILE", f"cannot write {path}: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            aside.unlink()


@jobs.command(name="mend")
@job_id
@file_in
@with_types
def mend_job(session: Session, job_id: int, path: Path) -> None:
    """Retry rows in error with the corrected values in FILE; exit code 1 if some rows are rejected."""
    with path.open("rb") as file:
        mended = session.api.mend_job(job_id, file, path.name)
    text = f"{mended.mended} of {mended.rows} rows will be retried, {mended.refused} are rejected"
    session.print_one(mended, [text, *(f"line {each.line}: {each.reason}" for each in mended.refusals)])
    if mended.refused:
        sys.exit(1)


@jobs.command(name="scan")
@click.option("--again", is_flag=True, help="Also look at files that were rejected before.")
@with_types
def scan_sources(session: Session, again: bool) -> None:
    """Create a job of every new file in the inbox and the allowed sources."""
    found = session.api.scan(again)
    lines = [f"{each.source}: job {each.job_id}" for each in found.taken]
    lines += [f"{each.source}: {each.reason}" for each in (*found.passed, *found.refusals)]
    lines.append(
        f"{found.found} files found, {found.took} taken, {found.passed_over} passed over, "
        f"{found.refused} rejected, {found.left} left for a worker"
    )
    session.print_one(found, [*lines, found.held] if found.held else lines)


@jobs.command(name="diff")
@job_id
@file_in
@printing
def compare_job(session: Session, job_id: int, path: Path) -> None:
    """Compare a job with a file of the same rows, cell by cell; exit code 1 if they differ."""
    from duly.intake.exports import Difference, exported_differences

    with tempfile.TemporaryFile() as spool, path.open("rb") as file:
        export = cast(BinaryIO, spool)
        session.api.export_job(job_id, export, "csv")
        export.seek(0)
        found = list(islice(exported_differences(export, file, path.name), DIFFERENCES + 1))

    def line(each: Difference) -> str:
        what = f"row {each.row}" if each.column is None else f"row {each.row}, {each.column}"
        return f"{what}: {each.ours!r} in the job, {each.theirs!r} in the file"

    session.print_lines(found[:DIFFERENCES], "they are equal", line)
    if len(found) > DIFFERENCES and not session.as_json:
        click.echo(f"and more; only the first {DIFFERENCES} are shown")
    if found:
        sys.exit(1)


def _followed(session: Session, made: int) -> JobRow:
    """Show the progress of a job until it has ended. With --json, only the end is printed."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), disable=session.as_json) as bar:
        line = bar.add_task(f"job {made}", total=None)
        while (job := session.api.job(made)).queue_state not in ("DONE", "FAILED"):
            bar.update(line, completed=job.processed_items, total=job.total_items if job.is_complete else None)
            time.sleep(FOLLOW_SECONDS)
        bar.update(line, completed=job.processed_items, total=job.total_items)
    return job


def _print_job(session: Session, job: JobRow) -> None:
    parts = {
        "done": job.done_items, "not found": job.not_found_items, "failed": job.failed_items,
        "skipped": job.skipped_items,
    }  # fmt: skip
    ended = ", ".join(f"{count} {name}" for name, count in parts.items() if count) or "none ended yet"
    state = f"{job.queue_state}, cancelled" if job.cancelled else job.queue_state
    lines = [f"job {job.id}: {state}, {job.total_items} rows, {ended}"]
    if job.duplicate_items:
        lines.append(f"{job.duplicate_items} rows are duplicates of earlier ones")
    if job.last_error:
        lines.append(job.last_error)
    session.print_one(job, lines)


def _print_items(session: Session, found: Sequence[JobItem]) -> None:
    session.print_table(
        found,
        "no rows match",
        (">row", ">item", "status", ">tries", "~what", "~error"),
        lambda row: [row.row_no, row.id, row.status, row.attempt,
                     words.cut(" ".join(filter(None, (row.brand, row.title, row.sku))), 200),
                     words.cut(row.last_error, 200)],
    )  # fmt: skip
