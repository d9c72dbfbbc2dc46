"""`duly lookups`: what was asked of the provider for the rows of a job, on a database or through a service."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from duly.apps.enrichment import plugin
from duly.apps.enrichment.searches import SearchEvent
from duly.cli import options, words
from duly.cli.sides import chosen, read_as

if TYPE_CHECKING:
    from duly import Duly
    from duly.client import Client

PAGE_MOST = 500


class _Here:
    """On the database that the settings name."""

    def __init__(self, app: Duly) -> None:
        self._searches = plugin.on(app).searches

    def events(self, job_id: int, most: int) -> list[SearchEvent]:
        return self._searches.page(options.who(), job_id, most=most)


class _There:
    """Through a service."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def events(self, job_id: int, most: int) -> list[SearchEvent]:
        found = self._client.pages(f"/api/jobs/{job_id}/events", {"page_size": min(most, PAGE_MOST)})
        return [read_as(SearchEvent, each) for each in islice(found, most)]


@click.command(short_help="What was asked of the provider for the rows of a job.")
@click.argument("job_id", type=options.ID, metavar="JOB")
@options.most()
@options.side
@options.as_json
def lookups(job_id: int, most: int, as_json: bool) -> None:
    """List look-ups for the rows of a job, in the order in which they were made."""
    side: Any = chosen(_Here, _There)
    with side as place:
        found: list[SearchEvent] = place.events(job_id, most)
    words.print_lines(found, as_json, "nothing was asked yet", _line)


def _line(each: SearchEvent) -> str:
    where = f" at {each.retailer}" if each.retailer else ""
    return f"item {each.item_id}, try {each.attempt}: by {each.variant}{where}: {each.status}, {each.milliseconds} ms"


COMMANDS = (lookups,)
