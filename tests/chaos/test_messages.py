"""The retry service for minutes: its drift at the seed's rates, kills and restarts by the dozen, a hundred thousand bad
messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from rabbitnode import Node
from tests.bridge.fleet import drift_under_load, told
from tests.bridge.test_poison import account_for
from tests.bridge.test_services import survive
from tests.rabbit import ON_OWN_NODE

pytestmark = ON_OWN_NODE


@pytest.mark.parametrize("kill", [False, True], ids=["calm", "killed"])
def test_fifty_a_second_and_bursts_of_two_hundred_are_published_once_and_never_early(
    postgres_url: str, vhost_url: str, tmp_path: Path, kill: bool
) -> None:
    values = drift_under_load(postgres_url, vhost_url, tmp_path, seconds=60, burst=10, kill=kill)
    print(told(values))  # p99 is below half a second where nothing else runs
    assert values[0] >= -0.01, "published before its time"


def test_twenty_thousand_messages_survive_twenty_kills_and_twenty_blows_to_the_broker(
    postgres_url: str, own_node: Node, tmp_path: Path
) -> None:
    twice, most = survive(postgres_url, own_node, tmp_path, count=20_000, kills=20, breaks=14, restarts=6)
    print(f"{twice} of 20,000 came more than once, none more than {most} times")


def test_a_hundred_thousand_mutated_messages_are_all_accounted_for(postgres_url: str, vhost_url: str) -> None:
    print(account_for(postgres_url, vhost_url, 100_000))
