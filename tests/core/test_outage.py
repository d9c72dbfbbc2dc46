"""A source is down when nearly everything that asks it fails for one cause."""

from __future__ import annotations

from typing import Any

import pytest

from duly.core.model import Failed
from duly.core.policy.outage import AWAY, LONGEST, MIXED, Failure, Source, cause_of, common_cause, explains, pause

SOURCE = Source("boeing")
OUT, ODD = "OSError no route", "ValueError no price"


def calls(*sizes: int, cause: str = OUT, **more: Any) -> list[Failure]:
    """Failed tries of new items, in calls of so many."""
    numbered = [call for call, size in enumerate(sizes) for _ in range(size)]
    return [Failure(subject, call, cause, **more) for subject, call in enumerate(numbered)]


def same(count: int) -> list[Failure]:
    """One item that fails again and again."""
    return [Failure(7, call, OUT) for call in range(count)]


def mixed(count: int, size: int = 1, **more: Any) -> list[Failure]:
    """Different items that fail for two causes by turns, in calls of so many."""
    return [Failure(n, n // size, (OUT, ODD)[n % 2], **more) for n in range(count)]


def test_causes_are_the_same_but_for_what_varies() -> None:
    one = cause_of(Failed("BadAnswer: the answer does not have 'A-1' after 30 s\n\nlines", ("duly.BadAnswer",)))
    two = cause_of(Failed("BadAnswer: the answer does not have 'B-22' after 7 s", ("duly.BadAnswer",)))
    assert one == two == "duly.BadAnswer BadAnswer: the answer does not have # after # s"
    assert cause_of(Failed("no words of a class")) == " no words of a class"


def test_addresses_and_paths_vary() -> None:
    error = "HTTPError: 401 Client Error: Unauthorized for url: https://api.example/products/{}"
    one, two = (cause_of(Failed(error.format(sku), ("requests.HTTPError",))) for sku in ("ABC?a=b", "QWE"))
    assert one == two == "requests.HTTPError HTTPError: # Client Error: Unauthorized for url: #"
    assert cause_of(Failed("GET /a/b: refused and/or gone")) == cause_of(Failed("GET /c: refused and/or gone"))


@pytest.mark.parametrize(
    ("error", "classes"),
    [
        ("ConnectionRefusedError: [Errno 111]", ("ConnectionRefusedError", "ConnectionError", "OSError")),
        ("TimeoutError: ", ("TimeoutError", "OSError")),
        ("OSError: [Errno 101] Network is unreachable", ("OSError",)),
        ("it ran for longer than its deadline", ("duly.DeadlineExceeded", "TimeoutError")),
        ("POST https://x/y: no whole answer", ("duly.outbound.http.TimedOut", "duly.outbound.http.OutboundError")),
        ("POST https://x/y: name unknown", ("duly.outbound.http.Unreachable",)),
        ("POST https://x/y answered 503: so sorry", ("duly.outbound.http.BadStatus",)),
        ("503 Server Error: Service Unavailable for url: x", ("requests.exceptions.HTTPError",)),
        ("Server error '500 Internal Server Error' for url 'x'", ("httpx.HTTPStatusError",)),
        ("Server error '503 Service Unavailable' for url 'x'", ("httpx.HTTPStatusError",)),
        ("HTTPError: HTTP Error 502: Bad Gateway", ("urllib.error.HTTPError",)),
        ("ClientResponseError: 503, message='so sorry', url='x'", ("aiohttp.ClientResponseError",)),
        ("the supplier said HTTP 500", ("shop.Refused",)),
        ("the supplier said HTTP/1.1 500", ("shop.Refused",)),
        ("refused with status 503", ("shop.Refused",)),
        ("refused, status code: 503", ("shop.Refused",)),
        ("refused, status_code=503", ("shop.Refused",)),
        ("504 Gateway Time-out", ("shop.Refused",)),
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
        ("FileNotFoundError: no such file", ("FileNotFoundError", "OSError")),
        ("ValueError: unknown size code 512", ("ValueError",)),
        ("KeyError: no such http method 599 row", ("KeyError",)),
        ("Rejected: status of order 543 is closed", ("Rejected",)),
        ("Rejected: error 550: no such mailbox", ("Rejected",)),
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
        (calls(1, 1, 1, cause=AWAY, is_last=True), AWAY),  # before anybody is given up
        (calls(1, 1, cause=AWAY, is_last=True), None),
        (calls(3, cause=AWAY, is_last=True), None),
        (calls(1, 1, 1, cause=AWAY), None),
        (calls(1, cause=ODD, is_last=True) + calls(1, 1, 1, cause=AWAY), None),
        (calls(1, 1, 1, is_last=True), None),  # three bad items with the same fault are given up
        (mixed(30), MIXED),  # so many that it does not matter why
        (mixed(29), None),
        ([*mixed(29), *mixed(29)], None),  # different items
        (mixed(30, is_new=False), None),
        (mixed(30, size=15), None),
    ],
)
def test_a_source_is_down_when_nearly_everything_fails_for_one_cause(
    failures: list[Failure], cause: str | None
) -> None:
    assert common_cause(SOURCE, failures) == cause


@pytest.mark.parametrize(
    ("failures", "cause"),
    [
        (calls(*[1] * 39), None),
        (calls(*[1] * 40), OUT),
        (calls(*[1] * 11, cause=AWAY, is_last=True), None),
        (calls(*[1] * 12, cause=AWAY, is_last=True), AWAY),
        (mixed(119), None),
        (mixed(120), MIXED),
    ],
)
def test_with_doubt_it_takes_as_many_times_as_many(failures: list[Failure], cause: str | None) -> None:
    assert common_cause(SOURCE, failures, 4) == cause


def test_an_outage_explains_its_own_trouble_and_no_other() -> None:
    assert explains(AWAY, AWAY)
    assert not explains(AWAY, OUT)
    assert explains(OUT, OUT)
    assert explains(OUT, AWAY)
    assert not explains(OUT, ODD)
    assert explains(MIXED, ODD)


def test_the_next_probe_is_another_item() -> None:
    assert [pause(SOURCE, n, 1_000) for n in range(4)] == [60, 120, 240, 480]
    assert pause(SOURCE, 5_000, 1_000) == LONGEST
    assert [pause(SOURCE, n, 2) for n in (0, 1, 2, 3, 50)] == [60, 120, 240, 240, 240], "few are still asked often"
    assert pause(Source("x", probe=86_400), 9, 1_000) == 86_400


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
