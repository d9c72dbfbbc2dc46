"""The node that other tests rely on: it confirms, keeps what it confirmed, and breaks when asked to."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pika
import pytest

from rabbitnode import Depth, Node, ServerError, sweep
from tests.bridge.support import broker_at, patiently


def put(url: str, text: str, queue: str = "letters") -> None:
    with broker_at(url) as broker:
        broker.declare(queue)
        broker.send(text.encode(), queue, delivery_mode=2)


def test_a_queue_tells_what_is_ready_and_what_is_out(rabbit: Node, vhost: str, vhost_url: str) -> None:
    for text in ("a", "b", "c"):
        put(vhost_url, text)
    with broker_at(vhost_url) as broker:
        broker.channel.basic_get("letters", auto_ack=False)
        assert rabbit.queue("letters", vhost) == Depth(messages=3, ready=2, unacked=1)
    patiently(lambda: rabbit.queue("letters", vhost) == Depth(messages=3, ready=3, unacked=0))
    with pytest.raises(LookupError, match="there is no queue 'letters' in the virtual host '/'"):
        rabbit.queue("letters")


def test_a_virtual_host_may_have_any_name(rabbit: Node) -> None:
    name = 'so/called ">> \u017e'
    url = rabbit.add_vhost(name)
    put(url, "hello")
    assert rabbit.queue("letters", name).ready == 1
    rabbit.delete_vhost(name)
    with pytest.raises(LookupError):
        rabbit.queue("letters", name)


def test_connections_are_closed_in_one_virtual_host_only(rabbit: Node, vhost: str, vhost_url: str) -> None:
    neighbour = f"{vhost}-neighbour"
    with broker_at(rabbit.add_vhost(neighbour)) as far, broker_at(vhost_url) as near:
        assert rabbit.close_connections(vhost) == 1
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker):
            near.declare("letters")
        far.declare("letters")
    rabbit.delete_vhost(neighbour)


def test_an_error_on_the_node_is_told(rabbit: Node) -> None:
    with pytest.raises(ServerError, match="no_such_vhost"):
        rabbit.delete_vhost("nowhere")
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
