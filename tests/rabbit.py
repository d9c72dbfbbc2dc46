"""A real RabbitMQ: one node for all tests, and a virtual host of its own for each.

What a test does to its virtual host, `vhost` or `vhost_url`, disturbs nobody. To stop, kill or alarm the node would
disturb everybody: `own_node` is for that, and belongs to one module.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from rabbitnode import Node

NODES = Path(__file__).resolve().parents[1] / ".scratch" / "rabbitmq"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep a module's tests of its own node in one worker process, so that they share one node."""
    for item in items:
        if isinstance(item, pytest.Function) and "own_node" in item.fixturenames:
            item.add_marker(pytest.mark.xdist_group(item.module.__name__))


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


@pytest.fixture(scope="module")
def own_node() -> Iterator[Node]:
    """A node that the tests of one module may stop, kill and alarm, if they leave it running."""
    with Node(NODES / f"{os.getpid()}-own") as node:
        yield node


def _given(name: str) -> str:
    value = os.environ.get(name)
    if not value:
        raise pytest.UsageError(
            f"{name} is not set: run the tests with tools/test, which starts a private RabbitMQ for the folders "
            "that it lists as BROKER"
        )
    return value
