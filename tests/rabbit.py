"""A real RabbitMQ: one node for all tests, and a virtual host of its own for each.

What a test does to its virtual host, `vhost` or `vhost_url`, disturbs nobody. To stop, kill or alarm the node would
disturb everybody: `own_node` is for that.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator

import pytest

from rabbitnode import Node

# Tests of `own_node` go to one worker process, so that there is one.
ON_OWN_NODE = pytest.mark.xdist_group("own node")


@pytest.fixture(scope="session")
def rabbit_url() -> str:
    """The URL of the node that all tests share."""
    return _given("DULY_TEST_RABBITMQ")


@pytest.fixture(scope="session")
def rabbit() -> Node:
    """The shared node's controls."""
    return Node(_given("DULY_TEST_RABBITMQ_FOLDER"))


@pytest.fixture
def vhost(rabbit: Node) -> Iterator[str]:
    """The name of a fresh virtual host on the shared node."""
    name = f"test-{secrets.token_hex(4)}"
    rabbit.add_vhost(name)
    yield name
    rabbit.delete_vhost(name)


@pytest.fixture
def vhost_url(rabbit: Node, vhost: str) -> str:
    return rabbit.url(vhost)


@pytest.fixture(scope="session")
def own_node(rabbit: Node) -> Iterator[Node]:
    """A node that a test may stop, kill and alarm, if it leaves it running; for modules marked ON_OWN_NODE."""
    with Node(rabbit.folder.parent / f"{os.getpid()}-own") as node:
        yield node


def _given(name: str) -> str:
    value = os.environ.get(name)
    if not value:
        raise pytest.UsageError(
            f"{name} is not set: run the tests with tools/test, which starts a private RabbitMQ for the folders "
            "that it lists as BROKER"
        )
    return value
