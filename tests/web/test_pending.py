"""Rows of all jobs: narrowed by job, type and time, counted by status; and how fast jobs are."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from duly.client import Client
from duly.verbs import LOCAL, job_rows, jobs
from duly.web.server import Service
from tests.web.conftest import START, House, TestClient


def rows(who: TestClient, **query: Any) -> list[dict[str, Any]]:
    answer = who.get("/api/pending", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()["items"]


def counts(who: TestClient, path: str = "/api/pending/counts", **query: Any) -> dict[str, int]:
    answer = who.get(path, params=query)
    assert answer.status_code == 200, answer.text
    return {status: count for status, count in answer.json()["counts"].items() if count}


def job(house: House, *texts: str, owner: str = "ana") -> int:
    return house.app.job("echo", [{"text": text} for text in texts], owner=owner).id


def test_rows_say_what_is_known_of_their_job(house: House) -> None:
    made = house.ana.post("/api/jobs", files={"file": ("texts.csv", "text\nhello\nbroken\nlast\n")}).json()["jobId"]
    house.world.run()
    (row,) = rows(house.ana, statuses="ERROR")
    assert (row["jobId"], row["jobType"], row["userId"], row["progress"], row["total"]) == (made, "csv", "ana", 1.0, 3)
    waiting = job(house, "a", "b")
    house.app.internals.verbs.jobs.pause(LOCAL, waiting)
    assert [(row["jobId"], row["jobType"], row["progress"]) for row in rows(house.ana)] == [(waiting, None, 0.0)] * 2


def test_rows_are_narrowed_by_job(house: House) -> None:
    first, second, theirs = job(house, "a"), job(house, "b"), job(house, "c", owner="bob")
    assert [row["jobId"] for row in rows(house.ana, jobId=first)] == [first]
    assert {row["jobId"] for row in rows(house.ana, jobId=f"{first}, {second},{theirs}")} == {first, second}
    assert rows(house.bob, jobId=first) == []
    assert counts(house.ana, jobId=f"{first},{theirs}") == {"PENDING": 1}
    assert counts(house.root, jobId=f"{first},{theirs}") == {"PENDING": 2}
    assert counts(house.root, userId="bob") == {"PENDING": 1}
    for strange in ("x", "0", "1,-2", str(2**63)):
        refused = house.ana.get("/api/pending", params={"jobId": strange})
        assert (refused.status_code, refused.json()["field"]) == (422, "jobId")


def test_rows_are_narrowed_by_when_they_changed(house: House) -> None:
    first = job(house, "broken")
    house.world.run()
    house.clock.move(3600)
    second = job(house, "broken", "broken too")
    house.world.run()
    noon = (START + timedelta(minutes=30)).isoformat()
    ended = {"statuses": "ERROR"}
    assert [row["jobId"] for row in rows(house.ana, **ended, to=noon)] == [first]
    assert [row["jobId"] for row in rows(house.ana, **ended, **{"from": noon})] == [second, second]
    assert counts(house.ana, **{"from": noon}) == {"ERROR": 2}
    assert counts(house.ana, to=noon) == {"ERROR": 1}
    page = house.ana.get("/api/pending", params={**ended, "from": noon, "pageSize": 1}).json()
    rest = rows(house.ana, **ended, **{"from": noon, "pageSize": 1, "after": page["next"]})
    assert len({page["items"][0]["id"], *(row["id"] for row in rest)}) == 2
    refused = house.ana.get("/api/pending", params={"from": noon, "to": noon})
    assert (refused.status_code, refused.json()["field"]) == (422, "to")


def test_rows_are_counted_by_status(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    made = job(house, "a", "b", "broken")
    path = f"/api/jobs/{made}/counts"
    assert counts(house.ana, path) == {"PENDING": 3}
    house.world.run()
    assert counts(house.ana, path) == counts(house.ana) == {"DONE": 2, "ERROR": 1}
    assert house.bob.get(path).status_code == 404
    assert counts(house.bob) == {}
    assert not house.ana.get(path).json()["capped"]
    monkeypatch.setattr(job_rows, "COUNTED", 1)
    told = house.ana.get("/api/pending/counts", params={"from": START.isoformat()}).json()
    assert (told["counts"]["DONE"], told["counts"]["ERROR"], told["capped"]) == (1, 1, True)


def test_rows_that_are_worked_on_are_counted_off(house: House) -> None:
    from tests.support import share

    made = job(house, "a", "b", "c")
    line = share(f"echo/job-{made}", limit=2, task="echo", owner="ana")
    house.app.internals.store.claim([line], "w1", house.clock.now(), timedelta(seconds=20))
    assert counts(house.ana, f"/api/jobs/{made}/counts") == {"PENDING": 1, "PROCESSING": 2}


def test_counts_are_turned_off_with_the_list(house: House) -> None:
    settings = house.app.internals.verbs.context.job_settings
    object.__setattr__(settings, "pending_enabled", False)
    try:
        assert house.ana.get("/api/pending/counts").status_code == 404
        assert house.ana.get(f"/api/jobs/{job(house, 'a')}/counts").status_code == 200
    finally:
        object.__setattr__(settings, "pending_enabled", True)


# -- how fast


def test_a_job_says_its_files_name_its_speed_and_when_it_will_be_over(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = house.ana.post("/api/jobs", files={"file": ("texts.csv", "text\na\n")}).json()["jobId"]
    house.world.run()
    shown = house.ana.get(f"/api/jobs/{made}").json()
    assert (shown["name"], shown["perMinute"], shown["forecastAt"], shown["paused"]) == ("texts.csv", None, None, False)

    slow = job(house, *"abcdef")
    assert house.ana.get(f"/api/jobs/{slow}").json()["perMinute"] is None, "nothing has ended yet"
    house.clock.move(60)
    cancelled = [row["id"] for row in rows(house.ana, jobId=slow)][:3]
    house.app.cancel(*cancelled)
    shown = house.ana.get(f"/api/jobs/{slow}").json()
    assert (shown["name"], shown["perMinute"]) == (None, 3.0)
    assert shown["forecastAt"] == (START + timedelta(minutes=2)).isoformat().replace("+00:00", "Z")

    house.ana.post(f"/api/jobs/{slow}/pause")
    (listed,) = [each for each in house.ana.get("/api/jobs").json()["items"] if each["id"] == slow]
    assert (listed["paused"], listed["forecastAt"], listed["perMinute"]) == (True, None, 3.0)

    house.clock.move(3600)
    assert house.ana.get(f"/api/jobs/{slow}").json()["perMinute"] == 0.0, "nothing ended lately"
    monkeypatch.setattr(jobs, "LATEST", 2)
    monkeypatch.setattr(jobs, "LATELY", timedelta(hours=2))
    # The last two of three ended an hour ago.
    assert house.ana.get(f"/api/jobs/{slow}").json()["perMinute"] == round(2 / 60, 1)


def test_the_client_asks_for_the_same(house: House) -> None:
    made = job(house, "a", "b")
    with Service(house.app, "127.0.0.1", 0) as service, Client(service.url) as client:
        assert client.job_counts(made).counts["PENDING"] == 2
        assert client.pending_counts(job_ids=[made], since=START - timedelta(days=365)).counts["PENDING"] == 2
        assert [row.progress for row in client.pending(job_ids=[made], until=START + timedelta(days=1))] == [0, 0]
        assert client.item_counts(job_id=made).counts["waiting"] == 2
        first = next(client.items(job_id=made, where=["text=a"], date_field="due", since=START - timedelta(days=1))).id
        assert client.act_on("cancel", [first], "enough") == [first]
        assert client.again(first, delay=5).fresh
        assert "echo" in {task.name for task in client.tasks()}
