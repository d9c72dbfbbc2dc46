"""Services in processes of their own: punctual under load, and nothing lost when they or the broker die."""

from __future__ import annotations

import random
from pathlib import Path

from duly import Duly
from rabbitnode import Node
from tests.bridge.fleet import Counted, Sender, declare_orders, drift_under_load, fresh_ids, services, told
from tests.bridge.support import REVIEW, broker_at, patiently, retry_message
from tests.rabbit import ON_OWN_NODE

pytestmark = ON_OWN_NODE


def test_every_message_comes_soon_after_its_time_though_a_service_is_killed(
    postgres_url: str, vhost_url: str, tmp_path: Path
) -> None:
    """`make chaos` takes a minute and says how soon; here they all come, and once but for the kill."""
    values = drift_under_load(postgres_url, vhost_url, tmp_path, seconds=3, burst=1, kill=True)
    print(told(values))


def survive(
    database_url: str, node: Node, folder: Path, *, count: int, kills: int, breaks: int, restarts: int
) -> tuple[int, int]:
    """Kill services and break the broker while messages pass; how many came twice, and how many of them should not."""
    choose = random.Random(3)
    vhost = "survive"
    url = node.add_vhost(vhost)
    declare_orders(url)
    ids = fresh_ids(count)
    consumer = Counted(url)
    sender = Sender(url, ids, lambda _: 2_000, lambda message_id: retry_message(message_id=message_id))
    quick = {"BASE_DELAY_MS": "500", "MAX_DELAY_MS": "500"}
    acts = ["kill"] * kills + ["break"] * breaks + ["restart"] * restarts
    choose.shuffle(acts)
    with services(database_url, url, folder, **quick) as some:
        some.start(2)
        with broker_at(url) as broker:
            patiently(lambda: broker.exists(REVIEW), 60, "a service")
        sender.start()
        consumer.start()
        for number, act in enumerate(acts, 1):
            # Not paced by a clock: the next blow falls when so much of the work has been seen.
            goal = count * number // (len(acts) + 1)
            patiently(lambda goal=goal: len(consumer.at) >= goal, 300, f"{goal} messages")
            if act == "kill":
                some.kill_one(choose)
                some.start()
            elif act == "break":
                node.close_connections(vhost)
            else:
                node.restart()
        patiently(lambda: len(consumer.at) == count, 300, f"all of {count} ({len(consumer.at)}; {some.logs()[-2000:]})")
        patiently(lambda: _all_done(database_url, count), 60, "the end of all rows")
        assert set(some.stop()) <= {0, -15}, "one that was told to stop while it started may end by the signal"
    sender.stop()
    consumer.stop()
    with broker_at(url) as broker:
        assert broker.look("orders") is None
        assert broker.look(REVIEW) is None
    node.delete_vhost(vhost)
    assert set(sender.confirmed) == {message_id for message_id, _ in consumer.came}, "a message is lost"
    assert {message_id for message_id, retry in consumer.came if retry == 1} == set(sender.confirmed)
    # One that is delivered again after its retry was out has failed again. Each blow may have the broker deliver again
    # what was not acknowledged yet, and the sender send again what was not confirmed yet.
    assert all(retry <= sender.sent[message_id] * (1 + len(acts)) for message_id, retry in consumer.came)
    assert all(len(items) == 1 for items in consumer.items.values()), "two rows had the same message"
    return sum(consumer.came.values()) - count, max(consumer.came.values())


def _all_done(database_url: str, count: int) -> bool:
    app = Duly(database_url)
    try:
        depths = app.read.depths()
        return not any(depth.items for depth in depths if depth.state in ("waiting", "running"))
    finally:
        app.close()


def test_kills_of_services_and_broken_connections_lose_nothing(
    postgres_url: str, own_node: Node, tmp_path: Path
) -> None:
    twice, most = survive(postgres_url, own_node, tmp_path, count=1_000, kills=2, breaks=1, restarts=1)
    print(f"{twice} came more than once, none more than {most} times")
