"""Events over HTTP, in the client and at the command line: the same for all, and only for whoever may see the job."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from duly.client import Client
from duly.core.errors import DoesNotExist, InputError
from duly.core.model import Job
from duly.verbs import LOCAL
from duly.web.server import Service
from tests.apps.enrichment.conftest import Desk, Open, Shop, told
from tests.cli.conftest import call
from tests.intake.conftest import someone


@pytest.fixture
def job(desk: Desk, shop: Shop) -> Job:
    """A job of five rows, all of which were looked up."""
    shop.has.update({(f"P-{n}", ""): told({"title": f"product {n}"}) for n in range(5)})
    return desk.send("sku\n" + "".join(f"P-{n}\n" for n in range(5)))


@pytest.fixture
def served(desk: Desk) -> Iterator[str]:
    with Service(desk.app, "127.0.0.1", 0) as service:
        yield service.url


def test_events_are_paged_in_their_order(desk: Desk, job: Job, served: str) -> None:
    known = [event.id for event in desk.events(job)]
    with Client(served) as client:
        found = list(client.http.pages(dict[str, Any], f"/api/jobs/{job.id}/events"))
    assert [event["id"] for event in found] == known
    assert found[0].keys() == {
        "id", "itemId", "jobId", "attempt", "round", "variant", "retailer", "status", "milliseconds", "createdAt",
    }  # fmt: skip
    assert [event.id for event in desk.enrichment.events(job.id, known[1], 2)] == known[2:4]
    with pytest.raises(InputError, match="most"):
        desk.enrichment.events(job.id, most=-1)


def test_commands_tell_the_same_on_both_sides(desk: Desk, job: Job, served: str) -> None:
    url = desk.app.settings.database_url
    sides: list[dict[str, str]] = [{"DULY_DATABASE_URL": url}, {"DULY_URL": served}]
    for env in sides:
        ended = call("lookups", str(job.id), "--limit", "3", **env)
        assert ended.exit_code == 0, ended.output
        lines = ended.stdout.splitlines()
        assert len(lines) == 3
        assert ", try 1: by sku: found, " in lines[0]
        assert len(json.loads(call("lookups", str(job.id), "--json", **env).stdout)) == 5
        assert call("lookups", "999", **env).exit_code == 1


def test_an_event_says_whose_products_were_asked_for(open_desk: Open, shop: Shop) -> None:
    desk = open_desk(enrichment_retailers="acme")
    job = desk.send("sku\nP-1\n")
    said = call("lookups", str(job.id), DULY_DATABASE_URL=desk.app.settings.database_url).stdout
    assert ", try 1: by sku at acme: not_found, " in said


def test_nobody_else_sees_the_events_of_a_job(desk: Desk, shop: Shop) -> None:
    job = desk.send("sku\nP-1\n", who=someone("ana"))
    assert len(desk.enrichment.events(job.id, who=someone("ana"))) == 1
    with pytest.raises(DoesNotExist):
        desk.enrichment.events(job.id, who=someone("bob"))
    desk.app.internals.verbs.jobs.remove(LOCAL, job.id)
    with pytest.raises(DoesNotExist):
        desk.enrichment.events(job.id)
