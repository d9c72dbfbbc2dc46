"""Filters and acts on many items are checked alike in Python and through a service."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from typing import Any

import pytest

from duly import Duly
from duly.client import Client
from duly.core.errors import InputError, KeyConflict
from duly.verbs import LOCAL
from duly.verbs.listing import Filter
from duly.web.server import Service
from tests.cli.conftest import call


def add(n: int = 1) -> int:
    return n


@pytest.fixture
def app(database_url: str) -> Iterator[Duly]:
    app = Duly(database_url)
    app.migrate()
    app.task(name="add")(add).options(delay=3_600).put()
    yield app
    app.close()


@pytest.fixture(params=["python", "http"])
def client(app: Duly, request: pytest.FixtureRequest) -> Iterator[Any]:
    if request.param == "python":
        yield app.client
        return
    with Service(app, "127.0.0.1", 0) as service, Client(service.url) as client:
        yield client


def test_an_empty_text_in_a_filter_is_refused_at_every_door(client: Any) -> None:
    for name in ("task", "queue", "key", "error", "error_group"):
        for look in (lambda **filter: list(client.items(**filter)), client.item_counts):
            with pytest.raises(InputError):
                look(**{name: ""})
        with pytest.raises(InputError):
            client.order("cancel", {name: ""})


@pytest.mark.parametrize("most", [-1, 0, 2**63, 1.5, "3", True])
def test_a_list_of_less_than_one_row_is_refused_by_its_field_at_every_door(client: Any, most: Any) -> None:
    lists = (client.items, client.jobs, client.pending, client.groups, client.acts, client.schedules, client.audit)
    for read in (*lists, client.late, client.stuck, lambda most: client.find_items(most)):
        with pytest.raises(InputError) as refused:
            list(read(most=most))
        assert refused.value.field == "most"


@pytest.mark.parametrize("most", [-1, 0, 2**63])
def test_so_it_is_by_the_verbs_themselves(app: Duly, most: int) -> None:
    verbs, who = app.internals.verbs, LOCAL
    pages: list[Callable[..., object]] = [
        app.read.page, partial(app.schedules.occurrences, 1), app.schedules.page, partial(app.schedules.search, None),
        partial(verbs.jobs.page, who), partial(verbs.users.page, who), partial(verbs.users.keys, who), verbs.audit.page,
        partial(verbs.acts.page, who), partial(verbs.review.groups, who), partial(verbs.job_rows.pending, who),
        partial(verbs.listing.page, who, Filter()), partial(app.read.owned_planned, None, "add"),
    ]  # fmt: skip
    for page in pages:
        with pytest.raises(InputError, match="most"):
            page(most=most)


def test_no_states_mean_no_items_at_every_door(client: Any) -> None:
    assert list(client.items(states=[])) == []
    assert sum(client.item_counts(states=[]).counts.values()) == 0
    assert client.count("cancel", {"states": []}) == 0
    assert client.order("cancel", {"states": []}).total == 0
    assert len(list(client.items(states=None, task="add"))) == 1


def test_an_act_on_every_item_must_be_asked_for_at_every_door(client: Any) -> None:
    for filter in ({}, {"task": None}):
        with pytest.raises(InputError) as refused:
            client.order("cancel", filter)
        assert refused.value.field == "filter"
    with pytest.raises(InputError) as refused:
        client.order("cancel", {"task": "add"}, all=True)
    assert refused.value.field == "all"
    assert client.order("cancel", {}, all=True).total == 1


@pytest.mark.parametrize("rate", [0, -1, float("nan"), float("inf"), "x", 10_001])
def test_a_rate_that_is_no_rate_is_refused_in_python(app: Duly, rate: Any) -> None:
    with pytest.raises(InputError) as refused:
        app.client.order("retry", {"task": "add"}, rate=rate)
    assert refused.value.field == "rate"


NAIVE = datetime(2026, 1, 1)  # noqa: DTZ001 - what is refused


@pytest.mark.parametrize(
    "filter", [{"min_tries": "a"}, {"since": "x"}, {"since": NAIVE}, {"job_id": 0}, {"where": ["a"]}]
)
def test_a_wrong_filter_or_action_of_an_act_is_refused_at_every_door(client: Any, filter: dict[str, Any]) -> None:
    for ask in (client.order, client.count):
        with pytest.raises(InputError):
            ask("retry", filter)
        with pytest.raises(InputError) as refused:
            ask("retri", {"task": "add"})
        assert refused.value.field == "action"


def test_a_key_conflict_names_the_item_that_has_the_key_at_every_door(client: Any) -> None:
    first = client.put("add", {"n": 1}, key="k", delay=3_600)
    with pytest.raises(KeyConflict) as refused:
        client.put("add", {"n": 2}, key="k", delay=3_600)
    assert refused.value.item_id == first.id


def test_an_unset_variable_or_a_missing_filter_does_not_mean_every_item(app: Duly, database_url: str) -> None:
    with Service(app, "127.0.0.1", 0) as service:
        for side in ({"DULY_DATABASE_URL": database_url}, {"DULY_URL": service.url}):
            for name in ("--task", "--key", "--queue", "--error", "--error-group"):
                assert call("items", name, "", **side).exit_code == 2, name
            refused = call("acts", "order", "cancel", **side)
            assert (refused.exit_code, "filter: must not be empty" in refused.stderr) == (2, True)
            assert call("acts", "order", "retry", "--all", **side).exit_code == 0
