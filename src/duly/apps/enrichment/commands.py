"""`duly lookups`: the requests to the provider for the rows of a job, on a database or through a service."""

from __future__ import annotations

import click

from duly.apps.enrichment import plugin
from duly.apps.enrichment.searches import SearchEvent
from duly.cli import options
from duly.cli.session import Session, printing


@click.command(short_help="Requests to the provider for the rows of a job.")
@click.argument("job_id", type=options.ID, metavar="JOB")
@options.most()
@printing
def lookups(session: Session, job_id: int, most: int) -> None:
    """List look-ups for the rows of a job, in the order in which they were made."""
    found = session.either(
        lambda app: list(plugin.on(app).searches.page(options.who(), job_id, most=most)),
        lambda client: list(client.http.pages(SearchEvent, f"/api/jobs/{job_id}/events", most)),
    )
    session.print_lines(found, "nothing was asked yet", _line)


def _line(each: SearchEvent) -> str:
    where = f" at {each.retailer}" if each.retailer else ""
    return f"item {each.item_id}, try {each.attempt}: by {each.variant}{where}: {each.status}, {each.milliseconds} ms"


COMMANDS = (lookups,)
