"""Questions take turns: as many at a time as the provider bears, and none while it wants to be left alone."""

from __future__ import annotations

import threading
import time

import pytest

from duly import Throttled
from duly.apps.enrichment import pacing
from duly.apps.enrichment.pacing import Turnstile
from tests.support import together


def test_no_more_are_under_way_than_the_setting_allows() -> None:
    turnstile = Turnstile(3)
    lock, seen, under_way = threading.Lock(), [], [0]

    def ask() -> None:
        for _ in range(20):
            with turnstile.turn():
                with lock:
                    under_way[0] += 1
                    seen.append(under_way[0])
                time.sleep(0.001)
                with lock:
                    under_way[0] -= 1

    together(*[ask] * 8)
    assert len(seen) == 160
    assert max(seen) == 3


def test_while_the_provider_wants_to_be_left_alone_nobody_is_let_in() -> None:
    turnstile = Turnstile(3)
    with turnstile.turn() as turn:
        turn.trouble, turn.retry_after = "throttled", 100.0
    begun = time.monotonic()
    with pytest.raises(Throttled) as refused, turnstile.turn():
        pass
    assert 99 < refused.value.delay <= 100
    assert time.monotonic() - begun < 1, "nobody waits for what is far away"


def test_a_short_wait_is_waited_for() -> None:
    turnstile = Turnstile(3)
    with turnstile.turn() as turn:
        turn.trouble, turn.retry_after = "throttled", 0.2
    begun = time.monotonic()
    with turnstile.turn():
        assert time.monotonic() - begun >= 0.19


def test_whoever_finds_no_room_for_long_comes_back_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacing, "PATIENCE", 0.1)
    turnstile = Turnstile(1)
    with turnstile.turn():
        with pytest.raises(Throttled) as refused, turnstile.turn():
            pass
        assert refused.value.delay == pacing.LATER
    with turnstile.turn():
        pass
