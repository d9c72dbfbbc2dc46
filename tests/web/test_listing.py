"""Lists of items under every filter, counts, selections, and items that are put again."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from duly.core.errors import InputError, WrongState
from duly.core.model import NewItem
from duly.verbs import LOCAL, listing
from duly.verbs.listing import Filter
from tests.web.conftest import LATER, START, House, TestClient, unreadable_rows

NOTHING = {"scanned": 0, "isDone": True, "isIndexed": True}


def page(who: TestClient, **query: Any) -> dict[str, Any]:
    named = {"job": "jobId", "schedule": "scheduleId", "since": "from", "until": "to"}
    answer = who.get("/api/items", params={named.get(name, name): value for name, value in query.items()})
    assert answer.status_code == 200, answer.text
    return answer.json()


def ids(who: TestClient, **query: Any) -> list[int]:
    return [row["id"] for row in page(who, **query)["items"]]


def refused(who: TestClient, **query: Any) -> tuple[int, str]:
    answer = who.get("/api/items", params=query)
    return answer.status_code, answer.json()["field"]


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page looks at no more than twenty items, five at a time."""
    monkeypatch.setattr(listing, "PORTION", 5)
    monkeypatch.setattr(listing, "SCANNED", 20)


def test_states_can_be_asked_for_together(house: House) -> None:
    failed, waiting, cancelled = house.fail(), house.put(), house.put()
    house.ana.post(f"/api/items/{cancelled}/cancel")
    assert ids(house.ana, state="failed") == [failed]
    assert ids(house.ana, state="failed,cancelled") == [cancelled, failed]
    assert ids(house.ana, state="waiting, failed") == [waiting, failed]
    assert refused(house.ana, state="failed,broken") == (422, "state")


def test_items_are_found_by_a_part_of_their_error_in_any_case(house: House) -> None:
    full, _ = house.fail(text="broken: the disk is 100% FULL"), house.fail(text="broken pipe")
    assert ids(house.ana, error="100% full") == [full]
    assert ids(house.ana, error="The DISK") == [full]
    assert ids(house.ana, error="100_") == ids(house.ana, error="100!") == []
    found = page(house.ana, error="full")["search"]
    assert found == {"scanned": 2, "isDone": True, "isIndexed": False}


def test_items_are_found_by_values_of_arguments_and_results(house: House) -> None:
    args = {"n": 7, "ok": True, "who": {"name": "Žana", "tags": ["a", "b"]}, "0": "zero", "price": 19.99}
    rich = house.put(house.root, task="keep", args=args)
    plain = house.put(args={"text": "hello"}, at=None)
    house.world.run()
    for where in (["n=7"], ["ok=true"], ["who.name=Žana"], ["who.tags.1=b"], ["0=zero"], ["price=19.99"],
                  ["n=7", "ok=true"]):  # fmt: skip
        assert ids(house.root, where=where) == [rich], where
    for where in (["n=8"], ["ok=1"], ["who.name=žana"], ["who.tags.1=a"], ["n=7", "ok=false"], ["nothing=1"]):
        assert ids(house.root, where=where) == [], where
    assert ids(house.root, where=["result.text=hello"]) == ids(house.root, where=["text=hello"]) == [plain]
    assert ids(house.root, where=["result.text=other"]) == []


@pytest.mark.parametrize("where", ["n", "=7", "a..b=1", 'a"b=1', "a\\b=1", "password=x", "deep.apiKey=1"])
def test_what_cannot_be_searched_for_is_refused(house: House, where: str) -> None:
    house.put(args={"text": "hello", "password": "x"})
    assert refused(house.ana, where=where) == (422, "where")
    assert house.ana.get("/api/items/counts", params={"where": where}).status_code == 422


def test_a_search_has_bounds(house: House) -> None:
    assert refused(house.ana, where=["n=1"] * 11) == (422, "where")
    assert refused(house.ana, minTries="0") == (422, "minTries")
    assert refused(house.ana, dateField="planned") == (422, "dateField")
    assert refused(house.ana, **{"from": LATER, "to": START.isoformat()}) == (422, "to")
    with pytest.raises(InputError, match="date_field"):
        Filter(date_field="planned")


def test_items_are_found_by_tries_and_times(house: House) -> None:
    tried, later = house.fail(), house.put()
    house.clock.move(3600)
    young = house.put()
    assert ids(house.ana, minTries=1) == [tried]
    assert ids(house.ana, minTries=2) == []
    assert ids(house.ana, dateField="due", since=LATER) == [young, later]
    assert ids(house.ana, dateField="finished", until=LATER) == ids(house.ana, dateField="started", until=LATER)
    assert ids(house.ana, dateField="started", until=LATER) == [tried]
    assert ids(house.ana, dateField="due", until=LATER) == [tried]
    everything = ids(house.ana, since="2020-01-01T00:00:00Z", until="2099-01-01T00:00:00Z")
    assert everything == [young, later, tried]


def test_rows_of_a_job_and_items_of_a_schedule_are_paged(house: House) -> None:
    job = house.app.job("echo", ({"text": str(n)} for n in range(5)), owner="ana").id
    made = house.ana.post(
        "/api/schedules", json={"task": "echo", "key": "k", "rule": "every 1h", "args": {"text": "t"}}
    )
    for _ in range(3):
        house.clock.move(3600)
        house.world.run()
    for query in ({"job": job}, {"schedule": made.json()["id"]}):
        rows: list[dict[str, Any]] = []
        after: dict[str, str] = {}
        while True:
            told = page(house.ana, **query, pageSize=2, **after)
            rows += told["items"]
            assert told["search"]["isIndexed"]
            if told["next"] is None:
                break
            after = {"after": told["next"]}
        assert len(rows) == (5 if "job" in query else 3)
        assert [row["plannedAt"] for row in rows] == sorted((row["plannedAt"] for row in rows), reverse=True)
        assert len({row["id"] for row in rows}) == len(rows)
        assert page(house.bob, **query) == {"items": [], "next": None, "search": {**NOTHING, "isIndexed": False}}
    assert {row["jobId"] for row in page(house.ana, job=job)["items"]} == {job}
    gone = made.json()["id"]
    house.ana.delete(f"/api/schedules/{gone}")
    assert len(ids(house.ana, schedule=gone)) == 3, "what a schedule made is found after it is gone"


@pytest.mark.usefixtures("few")
def test_a_search_that_no_index_answers_is_bounded_and_goes_on(house: House) -> None:
    wanted = house.put(args={"text": "needle"})
    for n in range(43):
        house.put(args={"text": str(n)})
    pages, after = [], {}
    while True:
        told = page(house.ana, where="text=needle", **after)
        pages.append((told["search"]["scanned"], [row["id"] for row in told["items"]]))
        assert not told["search"]["isIndexed"]
        assert told["search"]["isDone"] == (told["next"] is None)
        if told["next"] is None:
            break
        after = {"after": told["next"]}
    assert pages == [(20, []), (20, []), (4, [wanted])]


@pytest.mark.usefixtures("few")
def test_a_search_ends_when_its_time_is_over(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(12):
        house.put()
    monkeypatch.setattr(listing, "SECONDS", 0.0)
    told = page(house.ana, where="text=needle")
    assert (told["search"]["scanned"], told["next"] is None) == (5, False)


@pytest.mark.usefixtures("few")
def test_nobody_learns_how_much_of_others_was_in_the_way(house: House) -> None:
    for _ in range(8):
        house.fail(house.bob)
    mine = house.fail()
    for _ in range(8):
        house.fail(house.bob)
    told = page(house.ana, state="failed")
    assert ([row["id"] for row in told["items"]], told["search"]["scanned"]) == ([mine], 1)


@pytest.mark.usefixtures("few")
def test_no_place_to_go_on_from_tells_of_others(house: House) -> None:
    group = house.group(house.fail())
    for _ in range(25):
        house.fail(house.bob)
    for query in ({"state": "failed"}, {"state": "failed", "errorGroup": group}):
        told = page(house.ana, **query)
        assert (len(told["items"]), told["next"], told["search"]["isDone"]) == (1, None, True)


def _put_days_ago(house: House, *days: int) -> list[int]:
    """Items of Ana's that were put so many days ago, those put first with the smallest ids."""
    made = []
    for ago in days:
        made.append(house.put())
        day = "interval '1 day'" if house.app.internals.store.url.startswith("postgres") else "86400000000"
        with house.app.internals.store.transaction() as connection:
            connection.execute(f"update duly_item set created_at = created_at - {ago} * {day} where id = {made[-1]}")
    return made


@pytest.mark.usefixtures("few")
def test_a_search_by_when_items_were_put_leaves_out_what_is_much_older_or_newer(house: House) -> None:
    old = _put_days_ago(house, *[40] * 30)
    wanted = _put_days_ago(house, *[30] * 3)
    _put_days_ago(house, *[10] * 30)
    now = house.app.internals.store.now()
    since, until = ((now - timedelta(days=days)).isoformat() for days in (31, 29))
    for who in (house.ana, house.root):
        told = page(who, since=since, until=until)
        assert ([row["id"] for row in told["items"]], told["search"]["isDone"]) == (wanted[::-1], True)
        assert told["search"]["scanned"] <= 5, "not the sixty others"
    assert counts(house.ana, **{"from": since, "to": until})["counts"]["waiting"] == 3
    assert not any(counts(house.ana, **{"from": since, "to": until})["capped"].values())
    earlier = (now - timedelta(days=39)).isoformat()
    found, after = [], {}
    while True:
        told = page(house.ana, until=earlier, **after)
        found += [row["id"] for row in told["items"]]
        if told["next"] is None:
            break
        after = {"after": told["next"]}
    assert found == old[::-1]
    assert ids(house.ana, since=(now + timedelta(days=9)).isoformat()) == []
    assert ids(house.ana, until="2001-01-01T00:00:00Z") == []


def test_an_empty_database_is_searched_by_time(house: House) -> None:
    assert ids(house.ana, since="2001-01-01T00:00:00Z", until="2099-01-01T00:00:00Z") == []


def test_a_full_page_is_followed_by_one_only_if_there_is_more(house: House) -> None:
    for _ in range(4):
        house.put()
    assert page(house.ana, pageSize=4)["next"] is None
    first = page(house.ana, pageSize=3, task="echo")
    assert first["next"] is not None
    assert len(page(house.ana, pageSize=3, task="echo", after=first["next"])["items"]) == 1
    crossed = house.ana.get("/api/items", params={"pageSize": 3, "after": first["next"]})
    assert crossed.status_code == 422, "a cursor is good for one filter"


def test_a_group_in_review_is_found_by_its_index(house: House) -> None:
    failed = house.fail(text="broken one")
    house.fail(text="broken differently")
    told = page(house.root, errorGroup=house.group(failed), state="failed")
    assert [row["id"] for row in told["items"]] == [failed]
    assert told["search"] == {"scanned": 1, "isDone": True, "isIndexed": True}


# -- counts


def counts(who: TestClient, **query: Any) -> dict[str, Any]:
    answer = who.get("/api/items/counts", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_counts_by_state_follow_the_filters(house: House) -> None:
    house.fail()
    house.fail(house.bob)
    for _ in range(2):
        house.put()
    none = {"waiting": 0, "running": 0, "done": 0, "failed": 0, "cancelled": 0}
    told = counts(house.ana)
    assert told["counts"] == {**none, "waiting": 2, "failed": 1}
    assert not any(told["capped"].values())
    assert counts(house.root)["counts"]["failed"] == 2
    assert counts(house.root, userId="bob")["counts"] == {**none, "failed": 1}
    assert counts(house.ana, state="waiting")["counts"] == {**none, "waiting": 2}
    assert counts(house.ana, task="remind")["counts"] == none


@pytest.mark.usefixtures("few")
def test_what_waits_runs_or_failed_is_counted_among_any_number_of_ended_items(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed, waiting = house.fail(), house.put()
    claimed = house.put(at=None)
    house.app.internals.store.claim([_share(house)], "w1", house.clock.now(), timedelta(seconds=20))
    for _ in range(25):
        house.ana.post(f"/api/items/{house.put()}/cancel")
    told = counts(house.ana)
    assert told["counts"] == {"waiting": 1, "running": 1, "done": 0, "failed": 1, "cancelled": 20}
    assert told["capped"] == {"waiting": False, "running": False, "done": True, "failed": False, "cancelled": True}
    assert (failed, waiting, claimed) == tuple(sorted((failed, waiting, claimed)))
    only = counts(house.ana, state="failed")
    assert (only["counts"]["failed"], only["capped"]["cancelled"]) == (1, False)
    monkeypatch.setattr(listing, "COUNTED", 5)
    assert (counts(house.ana)["counts"]["cancelled"], counts(house.ana)["capped"]["cancelled"]) == (5, True)


def _share(house: House) -> Any:
    from tests.support import share

    return share("echo", limit=1, task="echo", owner="ana")


# -- again


def test_an_ended_item_is_put_again_as_a_new_one_of_its_owner(house: House) -> None:
    first = house.fail()
    answer = house.root.post(f"/api/items/{first}/again")
    assert answer.status_code == 201
    new, old = (house.app.read.row(each, None) for each in (answer.json()["id"], first))
    assert new is not None
    assert old is not None
    assert (new.owner, new.task, new.args, new.queue, new.rank) == ("ana", old.task, old.args, old.queue, old.rank)
    assert (new.state, new.key, new.attempt, old.state) == ("waiting", None, 0, "failed")
    assert new.execution_key != old.execution_key
    (note,) = house.audit(f"item:{new.id}")
    assert (note["action"], note["actor"], note["details"]) == ("item.again", "root", {"task": "echo", "of": first})


def test_a_key_for_the_new_one_is_its_owners(house: House) -> None:
    first = house.fail()
    url = f"/api/items/{first}/again"
    made = house.root.post(url, json={"key": "k", "at": LATER})
    assert (made.status_code, house.ana.post(url, json={"key": "k", "at": LATER}).status_code) == (201, 200)
    assert ids(house.ana, key="k") == [made.json()["id"]]
    assert house.app.read.row(made.json()["id"], None).key == "ana/k"  # type: ignore[union-attr]
    assert len(house.audit(f"item:{made.json()['id']}")) == 1
    other = house.ana.post(url, json={"key": "k", "at": "2026-12-03T08:00:00Z"})
    assert other.status_code == 409


def test_only_what_has_ended_is_put_again(house: House) -> None:
    waiting = house.put()
    assert house.ana.post(f"/api/items/{waiting}/again").status_code == 409
    order = house.app.internals.verbs.acts.order(LOCAL, "cancel", {}, all=True)
    house.world.run()
    (own,) = house.app.read.page(task="duly.acts")
    assert order.id
    assert house.root.post(f"/api/items/{own.id}/again").status_code == 422, "it cannot be put through the service"
    with pytest.raises(WrongState, match="part of duly"):
        house.app.again(own.id)


def test_what_expires_and_rows_of_jobs_come_as_items_of_their_own(house: House) -> None:
    short = house.put(maxLateness=60.0)
    job = house.app.job("echo", [{"text": "row"}], owner="ana")
    (row,) = ids(house.ana, job=job.id)
    house.ana.post(f"/api/items/{short}/cancel")
    job.cancel()
    house.world.run()
    new = {each: house.app.again(each, delay=10).id for each in (short, row)}
    expiring, alone = house.app.internals.store.fetch(sorted(new.values()))
    assert expiring.expires_at == expiring.due_at + timedelta(seconds=60)
    assert (alone.job_id, alone.queue, alone.owner) == (None, "echo", "ana")
    assert house.app.internals.verbs.jobs.show(LOCAL, job.id).total_items == 1


def test_a_new_item_can_be_waited_for_where_it_was_put_again(house: House) -> None:
    first = house.put(at=None)
    house.world.run()
    placed = house.app.again(first)
    house.world.run()
    assert placed.wait(0) == {"text": "hello", "password": ""}


def test_a_key_that_looks_like_a_users_is_told_nobody(house: House) -> None:
    house.app.internals.store.put([NewItem("echo", "echo", b'{"text":"x"}', START + timedelta(days=9), key="ana/k")])
    answer = house.ana.post(f"/api/items/{house.fail()}/again", json={"key": "k"})
    assert (answer.status_code, "'k' is already used" in answer.json()["detail"]) == (409, True)


# -- selections


def act(who: TestClient, action: str, *ids: int, **more: Any) -> Any:
    return who.post("/api/items/act", json={"action": action, "ids": ids, **more})


def test_a_selection_is_changed_as_a_whole_or_each_that_cannot_be_is_named(house: House) -> None:
    failed, waiting, other, theirs = house.fail(), house.put(), house.put(), house.put(house.bob)
    refused = act(house.ana, "cancel", waiting, failed, theirs, other)
    assert refused.status_code == 409
    assert refused.json()["detail"] == (
        f"item {failed} is failed and cannot be cancelled; there is no item {theirs}"
    )  # fmt: skip
    assert {house.app.read.item(each).state for each in (waiting, other, theirs)} == {"waiting"}
    missing = act(house.ana, "cancel", waiting, theirs, 9_999_999)
    assert (missing.status_code, missing.json()["detail"]) == (
        404, f"there is no item {theirs}; there is no item 9999999",
    )  # fmt: skip
    assert act(house.ana, "cancel", waiting, other, waiting).json() == {"ids": [waiting, other]}
    many = act(house.ana, "cancel", *range(9_000_001, 9_000_031)).json()["detail"]
    assert many.endswith("there is no item 9000020; and 10 more")


def test_a_selection_that_skips_changes_what_it_can_and_says_what(house: House) -> None:
    failed, waiting, theirs = house.fail(), house.put(), house.put(house.bob)
    ended = house.put()
    house.ana.post(f"/api/items/{ended}/cancel")
    told = act(house.ana, "cancel", failed, waiting, theirs, ended, 9_999_999, waiting, reason="too many", skip=True)
    assert told.json() == {"ids": [waiting]}
    assert house.app.read.item(theirs).state == "waiting"
    assert house.app.read.item(waiting).last_error == "too many"
    assert house.audit(f"item:{waiting}")[0]["action"] == "item.cancelled"
    assert house.audit(f"item:{failed}")[0]["action"] == "item.put"
    assert act(house.ana, "discard", failed, waiting, skip=True).json() == {"ids": [failed]}
    assert act(house.ana, "retry", waiting, ended).json() == {"ids": [waiting, ended]}
    assert [house.app.read.item(each).state for each in (waiting, ended)] == ["waiting", "waiting"]
    before = len(house.audit())
    assert act(house.bob, "cancel", waiting, skip=True).json() == {"ids": []}
    assert len(house.audit()) == before


def test_a_selection_is_all_or_nothing_where_one_is_refused(house: House) -> None:
    """Two that had the same key cannot both live again."""
    twins = []
    for _ in range(2):
        twins.append(house.put(key="same"))
        house.ana.post(f"/api/items/{twins[-1]}/cancel")
    assert act(house.ana, "retry", *twins).status_code == 409
    assert [house.app.read.item(each).state for each in twins] == ["cancelled", "cancelled"]


def test_a_selection_leaves_alone_what_cannot_live_again(house: House) -> None:
    """A row that could not be read, and an item whose key a live one has, are no reason to leave the others."""
    failed, (unread,) = house.fail(), unreadable_rows(house, 1)
    old = house.put(key="same")
    house.ana.post(f"/api/items/{old}/cancel")
    live = house.put(key="same")
    refused = act(house.root, "retry", unread, old, failed, live)
    assert refused.status_code == 409
    for reason in (f"item {unread} could not be read", f"item {old} cannot be retried: another live item has its key"):
        assert reason in refused.json()["detail"]
    assert act(house.root, "retry", unread, old, failed, live, skip=True).json() == {"ids": [failed, live]}
    assert [house.app.read.item(each).state for each in (unread, old, failed, live)] == [
        "failed", "cancelled", "waiting", "waiting",
    ]  # fmt: skip
    assert act(house.root, "discard", unread).json() == {"ids": [unread]}


def test_a_selection_has_bounds(house: House) -> None:
    assert act(house.ana, "retry").status_code == 422
    assert act(house.ana, "retry", *range(1, 1_002)).status_code == 422
    assert act(house.ana, "retry", 0).status_code == 404  # no row can have this id
    assert act(house.ana, "forget", 1).status_code == 422
    with pytest.raises(InputError, match="ids"):
        house.app.internals.verbs.items.act(LOCAL, "retry", [])


# -- tasks


def test_tasks_are_told_with_what_a_form_has_to_know(house: House) -> None:
    told = house.ana.get("/api/tasks").json()
    tasks = {task["name"]: task for task in told["items"]}
    assert list(tasks) == sorted(tasks)
    assert "message_retry" not in tasks, "nobody may put it through the service"
    text, password = tasks["echo"]["params"]
    assert text == {"name": "text", "type": "string", "required": True, "default": None, "isNullable": False}
    assert (password["required"], password["default"]) == (False, "")
    assert tasks["echo"]["retry"] == "2 tries, 1 minute after the first failure"
    assert (tasks["keep"]["params"], tasks["keep"]["takesMore"], tasks["echo"]["takesMore"]) == ([], True, False)
    assert tasks["http"]["doc"]

    @house.app.task
    def pay(amount: int = 3, api_key: str = "sk-secret") -> None: ...

    (paid,) = [task for task in house.ana.get("/api/tasks").json()["items"] if task["name"] == "pay"]
    assert [param["default"] for param in paid["params"]] == [3, "***"]
    del house.app.tasks["pay"]
    first = house.ana.get("/api/tasks", params={"pageSize": 2}).json()
    rest = house.ana.get("/api/tasks", params={"pageSize": 100, "after": first["next"]}).json()
    assert [task["name"] for task in first["items"] + rest["items"]] == list(tasks)
