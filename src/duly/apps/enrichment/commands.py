"""`duly lookups`: what was asked of the provider for the rows of a job, on a database or through a service."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import click

from duly.apps.enrichment import plugin
from duly.apps.enrichment.searches import SearchEvent
from duly.cli import options, words
from duly.cli.sides import chosen

if TYPE_CHECKING:
    from duly import Duly
    from duly.client import Client


class LocalLookups:
    def __init__(self, app: Duly) -> None:
        self._searches = plugin.on(app).searches

    def events(self, job_id: int, most: int) -> Iterator[SearchEvent]:
        return iter(self._searches.page(options.who(), job_id, most=most))


class LookupsClient:
    def __init__(self, client: Client) -> None:
        self._http = client.http

    def events(self, job_id: int, most: int) -> Iterator[SearchEvent]:
        return self._http.pages(SearchEvent, f"/api/jobs/{job_id}/events", most)


@click.command(short_help="What was asked of the provider for the rows of a job.")
@click.argument("job_id", type=options.ID, metavar="JOB")
@options.most()
@options.side
@options.as_json
def lookups(job_id: int, most: int, as_json: bool) -> None:
    """List look-ups for the rows of a job, in the order in which they were made."""
    side: AbstractContextManager[LocalLookups | LookupsClient] = chosen(LocalLookups, LookupsClient)
    with side as api:
        found = list(api.events(job_id, most))
    words.print_lines(found, as_json, "nothing was asked yet", _line)


def _line(each: SearchEvent) -> str:
    where = f" at {each.retailer}" if each.retailer else ""
    return f"item {each.item_id}, try {each.attempt}: by {each.variant}{where}: {each.status}, {each.milliseconds} ms"


COMMANDS = (lookups,)
