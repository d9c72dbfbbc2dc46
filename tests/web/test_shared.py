"""Reads that many dashboards share: what they cost, who gets which answer, and what is never shared."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from duly.core.errors import StoreUnavailable
from duly.verbs import LOCAL, local
from duly.web import feed as feeds
from duly.web import shared as room
from duly.web.feed import Listener, feed_of
from duly.web.shared import Answer, Cache, SharedReads
from tests.support import together
from tests.web.conftest import House, TestClient, api_on

RECENT = {"Cache-Control": "max-age=1"}


def size_of(answer: Answer) -> int:
    return len(answer.body)


class Seconds:
    """A clock that moves when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def seconds(house: House) -> Seconds:
    seconds = Seconds()
    house.api.state.shared = SharedReads(house.api.state.authenticator, seconds)
    return seconds


def ask(client: TestClient, url: str = "/api/workers", **headers: str) -> Any:
    return client.get(url, headers={**RECENT, **headers})


def test_twenty_dashboards_cost_one_statement_a_second(house: House, seconds: Seconds, statements: list[str]) -> None:
    assert house.root.get("/api/workers").status_code == 200  # the first use of a key and of a list write something
    statements.clear()
    texts: set[str] = set()
    for _ in range(10):
        together(*[lambda: texts.add(ask(house.root).text)] * 20)
        seconds.now += 1.0
    assert len(texts) == 1
    assert len(statements) == 10, "one for who asks and one for the answer, every other second"


def test_an_answer_has_its_age_and_is_not_given_for_longer_than_is_asked_for(house: House, seconds: Seconds) -> None:
    house.app.internals.verbs.queues.pause(LOCAL, "echo")
    house.put()
    first = house.root.get("/api/audit", headers={"Cache-Control": "max-age=3"})
    assert first.headers["age"] == "0"
    assert first.headers["cache-control"] == "no-store", "a browser must not keep it beside us"
    house.app.internals.verbs.queues.resume(LOCAL, "echo")
    seconds.now += 2.5
    again = house.root.get("/api/audit", headers={"Cache-Control": "max-age=3"})
    assert (again.json(), again.headers["age"]) == (first.json(), "2")
    newer = house.root.get("/api/audit", headers={"Cache-Control": "max-age=2"})
    assert newer.headers["age"] == "0"
    assert len(newer.json()["items"]) == len(first.json()["items"]) + 1


@pytest.mark.parametrize(
    "said", ["", "max-age=0", "no-cache, max-age=5", "max-age=x", "max-age=1, max-age=2", "no-store"]
)
def test_who_does_not_take_an_old_answer_gets_a_new_one(house: House, seconds: Seconds, said: str) -> None:
    before = ask(house.root, "/api/audit").json()
    house.app.internals.verbs.queues.pause(LOCAL, "echo")
    assert ask(house.root, "/api/audit").json() == before
    new = house.root.get("/api/audit", headers={"Cache-Control": said})
    assert "age" not in new.headers
    assert len(new.json()["items"]) == len(before["items"]) + 1


def test_two_users_never_get_each_others_answers(house: House, seconds: Seconds) -> None:
    mine, theirs = house.put(), house.put(house.bob)

    def ids(client: TestClient) -> list[int]:
        return [row["id"] for row in ask(client, "/api/items").json()["items"]]

    seen: dict[str, list[list[int]]] = {"ana": [], "bob": [], "root": []}
    for _ in range(3):
        together(*[lambda name=name: seen[name].append(ids(getattr(house, name))) for name in seen] * 5)  # type: ignore[misc]
        seconds.now += 0.4
    assert {tuple(each) for each in seen["ana"]} == {(mine,)}
    assert {tuple(each) for each in seen["bob"]} == {(theirs,)}
    assert {tuple(sorted(each)) for each in seen["root"]} == {(mine, theirs)}


def test_keys_of_one_user_with_other_rights_do_not_share(house: House) -> None:
    assert ask(house.root).status_code == 200
    assert ask(house.key("root", "read")).status_code == 403
    assert ask(house.ana).status_code == 403
    assert ask(house.nobody).status_code == 401


def test_who_was_shut_out_is_not_answered_from_anothers(house: House, seconds: Seconds) -> None:
    extra = house.key("root", "read", "write", "admin")
    assert ask(extra).status_code == ask(house.root).status_code == 200
    key = next(key for key in house.app.internals.verbs.users.keys(LOCAL, "root") if key.name == "extra")
    house.app.internals.verbs.users.revoke_key(LOCAL, key.id)
    seconds.now += 1.1
    long = {"Cache-Control": "max-age=10"}
    assert ask(extra, **long).status_code == 401
    assert ask(house.root, **long).status_code == 200
    assert extra.get("/api/workers").status_code == 401


def test_a_session_that_ended_is_not_answered(house: House, seconds: Seconds) -> None:
    house.app.internals.verbs.users.change(LOCAL, "ana", password="a long password")
    token = house.app.internals.verbs.users.sign_in("ana", "a long password")
    session = {"Cookie": f"__Host-duly={token}"}
    assert ask(house.nobody, "/api/items", **session).status_code == 200
    house.app.internals.verbs.users.sign_out(str(token))
    seconds.now += 1.1
    assert ask(house.nobody, "/api/items", **session).status_code == 401


def test_errors_are_not_shared(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    plain = type(house.app.read).workers

    def failing(read: Any, *given: Any) -> Any:
        asked.append(1)
        if len(asked) <= 2:
            raise StoreUnavailable("away")
        return plain(read, *given)

    monkeypatch.setattr(type(house.app.read), "workers", failing)
    assert [ask(house.root).status_code for _ in range(4)] == [503, 503, 200, 200]
    assert len(asked) == 3


def test_those_who_waited_for_one_that_failed_ask_themselves(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = threading.Event(), threading.Event()
    asked: list[int] = []
    plain = type(house.app.read).workers

    def failing(read: Any, *given: Any) -> Any:
        asked.append(1)
        if len(asked) == 1:
            begun.set()
            assert go_on.wait(60)
            raise StoreUnavailable("away")
        return plain(read, *given)

    monkeypatch.setattr(type(house.app.read), "workers", failing)
    joined = threading.Event()
    shield = asyncio.shield

    def joining(future: Any) -> Any:
        joined.set()
        return shield(future)

    monkeypatch.setattr(room.asyncio, "shield", joining)
    statuses: dict[str, int] = {}

    def second() -> None:
        assert begun.wait(60)
        statuses["second"] = ask(house.root).status_code

    def release() -> None:
        assert joined.wait(60)
        go_on.set()

    together(lambda: statuses.update(first=ask(house.root).status_code), second, release)
    assert statuses == {"first": 503, "second": 200}


def test_a_database_that_is_away_is_told_as_such(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: Any) -> Any:
        raise StoreUnavailable("away")

    monkeypatch.setattr(type(house.app.internals.verbs.users), "by_key", away)
    assert ask(house.root).status_code == 503


def test_what_is_revealed_is_made_and_noted_each_time(house: House) -> None:
    item = house.put(args={"text": "hello", "password": "secret"})
    for written in ("reveal", "reveal", "%72eveal", "%72eveal"):
        shown = ask(house.ana, f"/api/items/{item}?{written}=true")
        assert "secret" in shown.text
        assert "age" not in shown.headers
    assert [note["action"] for note in house.audit(f"item:{item}")].count("item.revealed") == 4


def test_the_local_admin_shares_too(house: House, statements: list[str]) -> None:
    client = house.client(api=api_on(house.app))
    assert client.get("/api/workers").status_code == 200
    statements.clear()
    for _ in range(3):
        assert ask(client).status_code == 200
    assert len(statements) == 1


# -- what is kept


def test_one_that_was_begun_too_long_ago_is_not_waited_for() -> None:
    """What is under way may have been read before an act that the asker knows of."""

    async def story() -> None:
        seconds = Seconds()
        kept: Cache[Answer] = Cache(seconds, 3, 100, size_of)
        going = asyncio.Event()

        async def slow() -> Answer:
            await going.wait()
            return Answer([], b"before")

        async def quick() -> Answer:
            return Answer([], b"after")

        first = asyncio.create_task(kept.get("a", 5.0, slow))
        await asyncio.sleep(0)
        seconds.now += 3.0
        joined = asyncio.create_task(kept.get("a", 5.0, quick))
        await asyncio.sleep(0)
        newer = await kept.get("a", 1.0, quick)
        assert newer is not None
        assert newer[0].body == b"after"
        going.set()
        for waiting in (first, joined):
            found = await waiting
            assert found is not None
            assert found[0].body == b"before"
        latest = await kept.get("a", 5.0, slow)
        assert latest is not None
        assert latest[0].body == b"after", "the older answer, which came later, does not replace it"

    asyncio.run(story())


def test_what_is_kept_is_bounded_in_number_size_and_time() -> None:
    seconds = Seconds()
    kept: Cache[Answer] = Cache(seconds, 3, 100, size_of)

    def put(key: str, size: int) -> None:
        async def make() -> Answer:
            return Answer([], b"x" * size)

        asyncio.run(kept.get(key, 1.0, make))

    for key in "abcd":
        put(key, 10)
    assert (len(kept), kept.size) == (3, 30)
    put("e", 85)
    assert (len(kept), kept.size) == (2, 95)
    seconds.now += 5.0
    put("e", 5)
    assert (len(kept), kept.size) == (2, 15), "the one of the same key is replaced"
    seconds.now += room.LONGEST - 1
    put("f", 5)
    assert (len(kept), kept.size) == (2, 10)


def test_a_large_answer_passes_and_is_not_kept(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "LARGEST", 50)
    house.put()
    for _ in range(2):
        answer = ask(house.ana, "/api/items")
        assert len(answer.json()["items"]) == 1
        assert "age" not in answer.headers
    assert len(house.api.state.shared.answers) == 0


def test_one_who_waits_and_leaves_takes_nobody_along() -> None:
    async def story() -> None:
        kept: Cache[Answer] = Cache(time.monotonic, 3, 100, size_of)
        go_on = asyncio.Event()

        async def make() -> Answer:
            await go_on.wait()
            return Answer([], b"all")

        first = asyncio.ensure_future(kept.get("a", 1.0, make))
        await asyncio.sleep(0)
        leaves, stays = (asyncio.ensure_future(kept.get("a", 1.0, make)) for _ in range(2))
        await asyncio.sleep(0)
        leaves.cancel()
        await asyncio.sleep(0)
        go_on.set()
        for one in (first, stays):
            found = await one
            assert found is not None
            assert found[0].body == b"all"

    asyncio.run(story())


# -- the event stream


def listeners(house: House, *owners: str | None, after: int | None = None) -> list[Listener]:
    shared = feed_of(house.api.state)
    return [Listener(shared, owner, after) for owner in owners]


def write(house: House, actor: str, action: str) -> None:
    house.app.internals.verbs.audit.note(local(actor), action, "item:1", {})


def heard(texts: list[str]) -> list[str]:
    return [text.split('"action":"')[1].split('"')[0] for text in texts]


def test_all_listeners_cost_one_look_in_a_tick_and_hear_only_what_they_may(house: House, statements: list[str]) -> None:
    async def story() -> None:
        all_of_them = listeners(house, *[None, "ana", "bob"] * 10)
        for one in all_of_them:
            await one.begin(1)
        for tick in range(2, 6):
            statements.clear()
            for one in all_of_them:
                assert await one.look(tick) == []
                await one.feed.depths(tick)
            # The ids of new lines; whether missing ones can still come, while another transaction of the server is
            # open that could write them; and, unless they cost too much, the depths.
            assert len(statements) <= 3
        await asyncio.to_thread(write, house, "ana", "hers")
        await asyncio.to_thread(write, house, "bob", "his")
        told = [heard(await one.look(6)) for one in all_of_them]
        assert told == [["hers", "his"], ["hers"], ["his"]] * 10

    asyncio.run(story())


def test_one_that_begins_further_back_hears_all_and_nothing_twice(house: House) -> None:
    start = int(house.app.internals.store.read("audit_last", {})[0][0])

    async def story() -> None:
        (early,) = listeners(house, None)
        await early.begin(1)
        for action in "ab":
            await asyncio.to_thread(write, house, "ana", action)
        assert heard(await early.look(2)) == ["a", "b"]
        (late,) = listeners(house, None, after=start)
        await late.begin(2)
        told = heard(await late.look(3))
        for tick, action in enumerate("cde", 4):
            await asyncio.to_thread(write, house, "ana", action)
            told += heard(await late.look(tick))
        assert told == ["a", "b", "c", "d", "e"]
        # The feed began further back, where transactions of other databases of this server can keep gaps open.
        last = int(house.app.internals.store.read("audit_last", {})[0][0])
        assert early.feed._tail.place <= late.place <= last  # type: ignore[union-attr]

    asyncio.run(story())


def test_one_that_does_not_keep_up_reads_for_itself(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "KEPT", 3)

    async def story() -> None:
        quick, slow = listeners(house, None, None)
        for one in (quick, slow):
            await one.begin(1)
        told: list[str] = []
        for number in range(10):
            await asyncio.to_thread(write, house, "ana", str(number))
            told += heard(await quick.look(2 + number))
        assert told == [str(number) for number in range(10)]
        # It may begin further back, where other transactions of this server keep gaps open.
        assert heard(await slow.look(20))[-len(told) :] == told
        await asyncio.to_thread(write, house, "ana", "next")
        assert heard(await slow.look(21)) == heard(await quick.look(21)) == ["next"]

    asyncio.run(story())


def test_when_the_database_is_away_all_listeners_are_told_once(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    async def story(look: Callable[[Listener, int], Any]) -> None:
        first, second = listeners(house, None, None)
        for one in (first, second):
            await one.begin(1)
        with monkeypatch.context() as patched:

            def away(*_: Any) -> Any:
                asked.append(1)
                raise StoreUnavailable("away")

            patched.setattr(feeds.Tail, "look", away)
            for one in (first, second):
                with pytest.raises(StoreUnavailable):
                    await look(one, 2)
        assert await look(first, 3) == []

    asyncio.run(story(lambda one, tick: one.look(tick)))
    assert len(asked) == 1


def test_a_feed_ends_with_its_last_listener(house: House) -> None:
    one, other = listeners(house, None, None)
    with one.feed.listening():
        with other.feed.listening():
            assert other.feed is one.feed
        assert listeners(house, None)[0].feed is one.feed
    assert listeners(house, None)[0].feed is not one.feed, "what nobody followed any more is not gone through"
