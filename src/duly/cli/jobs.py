"""`duly jobs`: files become jobs, whose rows are followed, tried again, exported and removed."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from duly.cli import options
from duly.core.model import Status

if TYPE_CHECKING:
    from collections.abc import Sequence

    from duly.cli.job_sides import JobsHere, JobsThere
    from duly.core.shown import JobItem, JobRow

# Seconds between two looks at a job that is waited for.
LOOK = 0.3
DIFFERENCES = 100  # that are shown

job_id = click.argument("job_id", type=options.ID, metavar="ID")
file_in = click.argument("path", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE")
file_out = click.argument("path", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE")
most = click.option("--limit", "most", type=click.IntRange(1, 500), default=20, show_default=True)
job_type = click.option("--type", "job_type", metavar="TYPE", help="Which task takes the rows: csv, image, …")
statuses = click.option("--status", "statuses", type=click.Choice(get_args(Status)), multiple=True, help="Only these.")


def told_of_a_file(command: Any) -> Any:
    """Options by which the sender tells how a file is to be read."""
    for option in (
        click.option("--map", "mapping", multiple=True, metavar="FIELD=COLUMN", help="The column of a field."),
        click.option("--sheet", help="Of a workbook; else its first visible one."),
        click.option("--delimiter", metavar="CHARACTER", help="Between cells."),
        click.option("--encoding", help="Such as utf-8 or cp1252."),
        click.option("--header/--no-header", default=None, help="Whether the first row has the names of the columns."),
    ):
        command = option(command)
    return command


@click.group(invoke_without_command=True, short_help="Files of rows: create, follow, try again, export, remove.")
@job_type
@most
@options.database_url
@options.service
@options.as_json
@click.pass_context
def jobs(ctx: click.Context, job_type: str | None, most: int, as_json: bool) -> None:
    """List jobs, the newest first."""
    if ctx.invoked_subcommand is not None:
        return
    from duly.cli import words
    from duly.cli.job_sides import jobs_side

    with jobs_side() as there:
        found = there.page(job_type, most)
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
@click.option("--type", "job_type", default="csv", show_default=True, help="Which task takes the rows.")
@told_of_a_file
@click.option("--wait", "is_waited", is_flag=True, help="Show how far it is, until all rows have ended.")
@options.app
@options.database_url
@options.service
@options.as_json
def create_job(
    path: Path, job_type: str, is_waited: bool, spec: str | None, as_json: bool, mapping: tuple[str, ...], **said: Any
) -> None:
    """Make a job of the rows of FILE, for workers to read and work off."""
    from duly.cli.job_sides import jobs_side

    with jobs_side(spec, with_types=True) as there:
        made = there.create(path, job_type, {**said, "mapping": _mapping(mapping)})
        job = _followed(there, made, as_json) if is_waited else there.show(made)
    _tell(job, as_json)
    if job.queue_state == "FAILED":
        sys.exit(1)


@jobs.command(name="preview")
@file_in
@click.option("--type", "job_type", default="csv", show_default=True, help="Which task would take the rows.")
@told_of_a_file
@options.app
@options.database_url
@options.service
@options.as_json
def preview_job(
    path: Path, job_type: str, spec: str | None, as_json: bool, mapping: tuple[str, ...], **said: Any
) -> None:
    """Show what would become of the first rows of FILE; nothing is kept."""
    from duly.cli import words
    from duly.cli.job_sides import jobs_side

    with jobs_side(spec, with_types=True) as there:
        seen = there.preview(path, job_type, {**said, "mapping": _mapping(mapping)})
    if as_json:
        words.print_json(seen)
        return
    for field, column in seen["mapping"].items():
        click.echo(f"{field} is the column {column!r}")
    if seen["unused"]:
        click.echo(f"not used: {', '.join(seen['unused'])}")
    for row in seen["rows"]:
        click.echo(f"line {row['line']}: {'; '.join(row['problems']) or 'is fine'}")
    click.echo(f"{seen['refused']} of the first {len(seen['rows'])} rows would be refused")


@jobs.command(name="show")
@job_id
@options.database_url
@options.service
@options.as_json
def show_job(job_id: int, as_json: bool) -> None:
    """How far it is."""
    from duly.cli.job_sides import jobs_side

    with jobs_side() as there:
        found = there.show(job_id)
    _tell(found, as_json)


@jobs.command(name="items")
@job_id
@statuses
@most
@options.database_url
@options.service
@options.as_json
def list_items(job_id: int, statuses: tuple[Status, ...], most: int, as_json: bool) -> None:
    """List rows in the order of the file; with --status, by when they changed last."""
    from duly.cli.job_sides import jobs_side

    with jobs_side() as there:
        found = there.items(job_id, statuses, most)
    _tell_items(found, as_json)


@jobs.command(name="pending")
@statuses
@job_type
@click.option("--job", "job_ids", type=click.IntRange(1), multiple=True, metavar="ID", help="Of this job. Repeatable.")
@click.option("--from", "since", metavar="TIME", help="Changed at or after this time.")
@click.option("--to", "until", metavar="TIME", help="Changed before this time.")
@most
@options.database_url
@options.service
@options.as_json
def list_pending(
    statuses: tuple[Status, ...], most: int, as_json: bool, since: str | None, until: str | None, **chosen: Any
) -> None:
    """List rows of all jobs that wait or are worked on, those that changed longest ago first."""
    from duly.cli.job_sides import jobs_side

    times: dict[str, Any] = {"since": options.moment(since, "from"), "until": options.moment(until, "to")}
    with jobs_side() as there:
        found = there.pending(statuses or ("PENDING", "PROCESSING"), most=most, **times, **chosen)
    _tell_items(found, as_json)


@jobs.command(name="pause")
@job_id
@options.database_url
@options.service
@options.as_json
def pause_job(job_id: int, as_json: bool) -> None:
    """Start no more of its rows until it is resumed."""
    from duly.cli.job_sides import jobs_side

    with jobs_side() as there:
        changed = there.pause(job_id)
    _tell(changed, as_json)


@jobs.command(name="resume")
@job_id
@options.database_url
@options.service
@options.as_json
def resume_job(job_id: int, as_json: bool) -> None:
    """Go on with a paused job."""
    from duly.cli.job_sides import jobs_side

    with jobs_side() as there:
        changed = there.resume(job_id)
    _tell(changed, as_json)


@jobs.command(name="kickoff")
@job_id
@click.option("--seconds", type=click.FloatRange(0.1, 20), default=5.0, show_default=True, help="For so long.")
@options.app
@options.database_url
@options.service
@options.as_json
def kick_off_job(job_id: int, seconds: float, spec: str | None, as_json: bool) -> None:
    """Work off rows of it in this process, or in the service, for a while."""
    from duly.cli import words
    from duly.cli.job_sides import jobs_side

    with jobs_side(spec, with_types=True) as there:
        done = there.kickoff(job_id, seconds)
    if as_json:
        words.print_json(done)
        return
    ended = ", ".join(f"{count} {status}" for status, count in sorted(done.ended.items())) or "none"
    click.echo(f"{done.processed} rows in {done.seconds:.1f} s: {ended}; {done.tried_again} to be tried again")
    _tell(done.job, as_json=False)


@jobs.command(name="cancel")
@job_id
@click.option("--reason", default="", help="Kept with the rows.")
@options.database_url
@options.service
@options.as_json
def cancel_job(job_id: int, reason: str, as_json: bool) -> None:
    """Take and start no more rows, and cancel all that have not ended; a worker does that."""
    from duly.cli.job_sides import jobs_side

    with jobs_side() as there:
        changed = there.cancel(job_id, reason)
    _tell(changed, as_json)


@jobs.command(name="reprocess")
@job_id
@click.option("--item", "ids", type=options.ID, multiple=True, help="Only this row, by the id of its item.")
@click.option(
    "--status", "statuses", type=click.Choice(["ERROR", "NOT_FOUND", "SKIPPED"]), multiple=True,
    default=("ERROR", "NOT_FOUND"), show_default=True,
)  # fmt: skip
@click.option("--reset", "is_reset", is_flag=True, help="Also rows that were tried anew as often as is allowed.")
@options.database_url
@options.service
def reprocess_job(job_id: int, ids: tuple[int, ...], statuses: tuple[Status, ...], is_reset: bool) -> None:
    """Have rows tried once more that failed, or for which nothing was found."""
    from duly.cli.job_sides import jobs_side

    with jobs_side() as there:
        count = there.reprocess(job_id, ids, statuses, is_reset)
    click.echo(f"{count} rows are tried once more")


@jobs.command(name="remove")
@job_id
@options.database_url
@options.service
def remove_job(job_id: int) -> None:
    """Forget a job with its rows and its file; a worker does that."""
    from duly.cli.job_sides import jobs_side

    with jobs_side() as there:
        there.remove(job_id)
    click.echo(f"job {job_id} is being removed")


@jobs.command(name="export")
@job_id
@file_out
@click.option("--format", type=click.Choice(["csv", "xlsx"]), help="Default: as the name of the file ends.")
@options.database_url
@options.service
def export_job(job_id: int, path: Path, format: str | None) -> None:
    """Write all rows, with what came in and went out, to FILE."""
    _write(job_id, path, format, is_rejects=False)


@jobs.command(name="rejects")
@job_id
@file_out
@click.option("--format", type=click.Choice(["csv", "xlsx"]), help="Default: as the name of the file ends.")
@options.database_url
@options.service
def export_rejects(job_id: int, path: Path, format: str | None) -> None:
    """Write the rows in error, with their columns as they came and why, to FILE."""
    _write(job_id, path, format, is_rejects=True)


@jobs.command(name="mend")
@job_id
@file_in
@options.app
@options.database_url
@options.service
@options.as_json
def mend_job(job_id: int, path: Path, spec: str | None, as_json: bool) -> None:
    """Have the mended rejects in FILE tried in place of the rows in error; exit code 1 when some are refused."""
    from duly.cli import words
    from duly.cli.job_sides import jobs_side

    with jobs_side(spec, with_types=True) as there:
        told = there.mend(job_id, path)
    if as_json:
        words.print_json(told)
    else:
        click.echo(f"{told['mended']} of {told['rows']} rows are tried once more, {told['refused']} are refused")
        for each in told["refusals"]:
            click.echo(f"line {each['line']}: {each['reason']}")
    if told["refused"]:
        sys.exit(1)


@jobs.command(name="scan")
@click.option("--again", "is_again", is_flag=True, help="Also look at files that were refused before.")
@options.app
@options.database_url
@options.service
@options.as_json
def scan_sources(is_again: bool, spec: str | None, as_json: bool) -> None:
    """Make a job of every file that was dropped in the inbox or an allowed source, each once."""
    from duly.cli import words
    from duly.cli.job_sides import jobs_side

    with jobs_side(spec, with_types=True) as there:
        told = there.scan(is_again)
    if as_json:
        words.print_json(told)
        return
    for each in told["taken"]:
        click.echo(f"{each['source']}: job {each['job_id']}")
    for each in (*told["passed"], *told["refusals"]):
        click.echo(f"{each['source']}: {each['reason']}")
    click.echo(
        f"{told['found']} files found, {told['took']} taken, {told['passed_over']} passed over, "
        f"{told['refused']} refused, {told['left']} left for a worker"
    )
    if told["held"]:
        click.echo(told["held"])


@jobs.command(name="diff")
@job_id
@file_in
@options.database_url
@options.service
@options.as_json
def compare_job(job_id: int, path: Path, as_json: bool) -> None:
    """Compare a job with a file of the same rows, cell by cell; exit code 1 when they differ."""
    from itertools import islice

    from duly.cli import words
    from duly.cli.job_sides import jobs_side

    with jobs_side() as there:
        found = list(islice(there.differences(job_id, path), DIFFERENCES + 1))
    if not words.is_all_told(found[:DIFFERENCES], as_json, "they say the same"):
        for each in found[:DIFFERENCES]:
            what = f"row {each.row}" if each.column is None else f"row {each.row}, {each.column}"
            click.echo(f"{what}: {each.ours!r} here, {each.theirs!r} there")
        if len(found) > DIFFERENCES:
            click.echo(f"and more than these {DIFFERENCES}")
    if found:
        sys.exit(1)


def _write(job_id: int, path: Path, format: str | None, is_rejects: bool) -> None:
    """A file is there as a whole or not at all."""
    from duly.cli.job_sides import jobs_side
    from duly.core.errors import InputError

    chosen = format or path.suffix.lower().removeprefix(".")
    if chosen not in ("csv", "xlsx"):
        raise InputError("format", f"{path.name} ends neither in .csv nor in .xlsx; say --format")
    aside = path.with_name(f".{path.name}.part")
    try:
        with jobs_side() as there, aside.open("wb") as out:
            there.export(job_id, out, chosen, is_rejects)
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
    click.echo(str(path))


def _mapping(said: tuple[str, ...]) -> dict[str, str] | None:
    from duly.core.errors import InputError

    pairs = [each.partition("=") for each in said]
    if wrong := next((each for each in pairs if not each[1]), None):
        raise InputError("map", f"{wrong[0]!r} is not like FIELD=COLUMN")
    return {field: column for field, _, column in pairs} or None


def _followed(there: JobsHere | JobsThere, made: int, as_json: bool) -> JobRow:
    """Show how far it is until it is over; as JSON, nothing but the end is told."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), disable=as_json) as bar:
        line = bar.add_task(f"job {made}", total=None)
        while (job := there.show(made)).queue_state not in ("DONE", "FAILED"):
            bar.update(line, completed=job.processed_items, total=job.total_items if job.is_complete else None)
            time.sleep(LOOK)
        bar.update(line, completed=job.processed_items, total=job.total_items)
    return job


def _tell(job: JobRow, as_json: bool) -> None:
    from duly.cli import words

    if as_json:
        words.print_json(job)
        return
    parts = {
        "done": job.done_items, "not found": job.not_found_items, "failed": job.failed_items,
        "skipped": job.skipped_items,
    }  # fmt: skip
    said = ", ".join(f"{count} {name}" for name, count in parts.items() if count) or "none ended yet"
    click.echo(f"job {job.id}: {job.queue_state}, {job.total_items} rows, {said}")
    if job.duplicate_items:
        click.echo(f"{job.duplicate_items} rows say what an earlier one says")
    if job.last_error:
        click.echo(job.last_error)


def _tell_items(found: Sequence[JobItem], as_json: bool) -> None:
    from duly.cli import words

    if words.is_all_told(found, as_json, "there are no such rows"):
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
