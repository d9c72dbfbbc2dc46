"""The node that other tests rely on: it confirms, keeps what it confirmed, and breaks when asked to."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aio_pika
import pytest
from aio_pika.abc import AbstractChannel, AbstractQueue

from rabbitnode import Depth, Node, ServerError, sweep
from tests.process.fleet import until


@asynccontextmanager
async def channel(url: str) -> AsyncIterator[AbstractChannel]:
    async with await aio_pika.connect(url) as connection:
        yield await connection.channel(publisher_confirms=True)


async def publish(channel: AbstractChannel, text: str, queue: str = "letters") -> AbstractQueue:
    """Declare a durable queue and put a persistent message into it; returns when the node has confirmed."""
    declared = await channel.declare_queue(queue, durable=True)
    message = aio_pika.Message(text.encode(), delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
    await channel.default_exchange.publish(message, routing_key=queue)
    return declared


async def put(url: str, text: str, queue: str = "letters") -> None:
    async with channel(url) as one:
        await publish(one, text, queue)


async def take(url: str, queue: str = "letters") -> str:
    async with channel(url) as one:
        message = await (await one.get_queue(queue)).get()
        await message.ack()
        return message.body.decode()


def within(seconds: float, story: Coroutine[Any, Any, Any]) -> Any:
    """Run a story that hangs if something is wrong."""
    return asyncio.run(asyncio.wait_for(story, seconds))


def is_refused(node: Node) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", node.port)) != 0


def test_what_is_published_is_confirmed_and_comes_back(vhost_url: str) -> None:
    within(30, put(vhost_url, "hello"))
    assert within(30, take(vhost_url)) == "hello"


def test_a_queue_tells_what_is_ready_and_what_is_out(rabbit: Node, vhost: str, vhost_url: str) -> None:
    async def story() -> None:
        async with channel(vhost_url) as one:
            for text in ("a", "b", "c"):
                queue = await publish(one, text)
            await queue.get()
            assert rabbit.queue("letters", vhost) == Depth(messages=3, ready=2, unacked=1)

    within(30, story())
    until(lambda: rabbit.queue("letters", vhost) == Depth(messages=3, ready=3, unacked=0))


def test_a_queue_of_another_virtual_host_is_not_there(rabbit: Node, vhost: str, vhost_url: str) -> None:
    within(30, put(vhost_url, "hello"))
    with pytest.raises(LookupError, match="there is no queue 'letters' in the virtual host '/'"):
        rabbit.queue("letters")


def test_a_virtual_host_may_have_any_name(rabbit: Node) -> None:
    name = 'so/called ">> \u017e'
    url = rabbit.add_vhost(name)
    within(30, put(url, "hello"))
    assert rabbit.queue("letters", name).ready == 1
    rabbit.delete_vhost(name)
    with pytest.raises(LookupError):
        rabbit.queue("letters", name)


def test_connections_are_closed_in_one_virtual_host_only(rabbit: Node, vhost: str, vhost_url: str) -> None:
    neighbour = f"{vhost}-neighbour"
    neighbour_url = rabbit.add_vhost(neighbour)

    async def story() -> None:
        closed = asyncio.Event()
        async with channel(neighbour_url) as far, await aio_pika.connect(vhost_url) as near:
            near.close_callbacks.add(lambda *_: closed.set())
            assert rabbit.close_connections(vhost) == 1
            await closed.wait()
            await publish(far, "hello")

    within(30, story())
    rabbit.delete_vhost(neighbour)


def test_an_error_on_the_node_is_told(rabbit: Node) -> None:
    with pytest.raises(ServerError, match="no_such_vhost"):
        rabbit.delete_vhost("nowhere")


def test_rabbitmqctl_reaches_the_node(rabbit: Node, vhost: str) -> None:
    assert vhost in rabbit.rabbitmqctl("--quiet", "list_vhosts", "name").splitlines()


def test_a_confirmed_message_survives_a_kill(own_node: Node) -> None:
    url = own_node.url()
    within(30, put(url, "kept", "killed"))
    own_node.kill()
    assert is_refused(own_node)
    own_node.start()
    assert own_node.url() == url
    assert within(30, take(url, "killed")) == "kept"


def test_a_message_survives_a_restart_in_good_order(own_node: Node) -> None:
    url = own_node.url()
    within(30, put(url, "kept", "restarted"))
    own_node.restart()
    assert own_node.url() == url
    assert within(30, take(url, "restarted")) == "kept"


def test_without_its_app_the_node_takes_no_connections(own_node: Node) -> None:
    within(30, put(own_node.url(), "kept", "paused"))
    own_node.stop_app()
    assert is_refused(own_node)
    own_node.start_app()
    assert within(30, take(own_node.url(), "paused")) == "kept"


def test_an_alarm_holds_publishers_back(own_node: Node) -> None:
    blocked = "[blocked || [{state, blocked}] <- rabbit_networking:connection_info_all([state])]"

    async def story() -> None:
        async with channel(own_node.url()) as one:
            await one.declare_queue("alarmed", durable=True)
            own_node.alarm(True)
            publishing = asyncio.create_task(publish(one, "late", "alarmed"))
            await asyncio.to_thread(until, lambda: own_node.call(blocked) == "[blocked]")
            assert own_node.queue("alarmed").messages == 0
            assert not publishing.done()
            own_node.alarm(False)
            await publishing
            assert own_node.queue("alarmed").messages == 1

    within(60, story())


def test_a_node_stands_apart_from_others(rabbit: Node, own_node: Node) -> None:
    within(30, put(own_node.url(), "here", "apart"))
    assert own_node.queue("apart").messages >= 1
    with pytest.raises(LookupError):
        rabbit.queue("apart")


def test_a_running_node_is_not_started_again(rabbit: Node) -> None:
    with pytest.raises(ServerError, match="running already"):
        rabbit.launch()


def test_sweeping_clears_what_a_killed_run_left_and_nothing_else(tmp_path: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    left, alive, foreign = tmp_path / f"{gone.pid}-own", tmp_path / str(os.getpid()), tmp_path / "notes"
    for folder in (left, alive, foreign):
        folder.mkdir()
        (folder / "duly-node").touch()
    process = subprocess.Popen(["sleep", "600"], env={"PATH": os.defpath, "DULY_NODE": str(left)})
    sweep(tmp_path)
    assert process.wait(30) == -9
    assert sorted(tmp_path.iterdir()) == sorted([alive, foreign])
