"""A source is down when nearly everything that asks it fails for one cause."""

from __future__ import annotations

from typing import Any

import pytest

from duly.core.model import Failed
from duly.core.policy.outage import AWAY, Failure, Source, cause_of, common_cause

SOURCE = Source("boeing")
OUT, ODD = "OSError no route", "ValueError no price"


def calls(*sizes: int, cause: str = OUT, **more: Any) -> list[Failure]:
    """Failed tries of new items, in calls of so many."""
    numbered = [call for call, size in enumerate(sizes) for _ in range(size)]
    return [Failure(subject, call, cause, **more) for subject, call in enumerate(numbered)]


def same(count: int) -> list[Failure]:
    """One item that fails again and again."""
    return [Failure(7, call, OUT) for call in range(count)]


def test_causes_are_the_same_but_for_what_varies() -> None:
    one = cause_of(Failed("BadAnswer: the answer does not have 'A-1' after 30 s\n\nlines", ("duly.BadAnswer",)))
    two = cause_of(Failed("BadAnswer: the answer does not have 'B-22' after 7 s", ("duly.BadAnswer",)))
    assert one == two == "duly.BadAnswer BadAnswer: the answer does not have # after # s"
    assert cause_of(Failed("no words of a class")) == " no words of a class"


@pytest.mark.parametrize(
    ("error", "classes"),
    [
        ("ConnectionRefusedError: [Errno 111]", ("ConnectionRefusedError", "ConnectionError", "OSError")),
        ("TimeoutError: ", ("TimeoutError", "OSError")),
        ("it ran for longer than its deadline", ("duly.DeadlineExceeded", "TimeoutError")),
        ("POST https://x/y: no whole answer", ("duly.outbound.http.TimedOut", "duly.outbound.http.OutboundError")),
        ("POST https://x/y: name unknown", ("duly.outbound.http.Unreachable",)),
        ("POST https://x/y answered 503: so sorry", ("duly.outbound.http.BadStatus",)),
        ("503 Server Error: Service Unavailable for url: x", ("requests.exceptions.HTTPError",)),
        ("Server error '500 Internal Server Error' for url 'x'", ("httpx.HTTPStatusError",)),
        ("no route", ("httpx.ConnectError", "httpx.NetworkError")),
        ("slow", ("httpx.ReadTimeout",)),
    ],
)
def test_an_outage_shows_itself_in_many_words(error: str, classes: tuple[str, ...]) -> None:
    assert cause_of(Failed(error, classes)) == AWAY


@pytest.mark.parametrize(
    ("error", "classes"),
    [
        ("POST https://x/y answered 404: gone", ("duly.CallRefused",)),
        ("the price of 'x' is 503", ("duly.BadAnswer",)),
        ("KeyError: 'sku'", ("KeyError", "LookupError")),
    ],
)
def test_other_failures_are_causes_of_their_own(error: str, classes: tuple[str, ...]) -> None:
    assert cause_of(Failed(error, classes)) != AWAY


@pytest.mark.parametrize(
    ("failures", "cause"),
    [
        ([], None),
        (calls(10), None),  # one call may fail for a reason of its own, however many rows it is about
        (calls(10, 10), None),
        (calls(10, 10, 10), OUT),
        (calls(*[1] * 9), None),
        (calls(*[1] * 10), OUT),
        (same(500), None),  # one that fails alone says nothing
        (calls(*[1] * 20, is_new=False), None),  # nor do those that failed before while the source was well
        (calls(*[1] * 20, is_new=False) + calls(*[1] * 10), OUT),
        (calls(*[1] * 10) + calls(*[1] * 20, is_new=False), OUT),
        (calls(*[1] * 9, cause=ODD) + calls(*[1] * 10), OUT),  # only the last ones count
        (calls(1, cause=ODD) + calls(*[1] * 9), OUT),  # nearly everything
        (calls(1, 1, cause=ODD) + calls(*[1] * 8), None),
        (calls(*[1] * 5, cause=ODD) + calls(*[1] * 5), None),  # two causes are not one fact
        (calls(1, 1, 1, is_last=True), OUT),  # before anybody is given up
        (calls(1, 1, is_last=True), None),
        (calls(3, is_last=True), None),
        (calls(1, cause=ODD, is_last=True) + calls(1, 1, 1), None),
    ],
)
def test_a_source_is_down_when_nearly_everything_fails_for_one_cause(
    failures: list[Failure], cause: str | None
) -> None:
    assert common_cause(SOURCE, failures) == cause


def test_failures_of_single_items_are_their_own() -> None:
    source = Source("boeing", own=(KeyError, "shop.NoPrice"))
    assert not source.is_blamed(Failed("no sku", ("KeyError", "LookupError")))
    assert not source.is_blamed(Failed("no price", ("shop.Free", "shop.NoPrice")))
    assert source.is_blamed(Failed("no answer", ("TimeoutError",)))
    assert source.is_blamed(Failed("no words"))


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"name": ""}, "name"),
        ({"name": 7}, "name"),
        ({"name": "x" * 101}, "name"),
        ({"name": "x", "tries": 2}, "tries"),
        ({"name": "x", "tries": True}, "tries"),
        ({"name": "x", "tries": 3.5}, "tries"),
        ({"name": "x", "probe": 0.1}, "probe"),
        ({"name": "x", "probe": float("nan")}, "probe"),
        ({"name": "x", "probe": "1m"}, "probe"),
        ({"name": "x", "own": (7,)}, "own"),
        ({"name": "x", "own": [KeyError]}, "own"),
    ],
)
def test_what_makes_no_sense_is_refused(given: dict[str, Any], field: str) -> None:
    with pytest.raises(ValueError, match=f"^{field}: must be"):
        Source(**given)
