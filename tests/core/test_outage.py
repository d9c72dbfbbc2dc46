"""A source is down when nearly everything that asks it fails for one cause."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from duly.core.model import (
    Cancel,
    Crashed,
    Discarded,
    Done,
    Expired,
    Failed,
    Fingerprint,
    GiveUp,
    Lost,
    NotFound,
    Outcome,
    Released,
    Revived,
    Skip,
    Snooze,
    Superseded,
    Throttled,
    Verdict,
)
from duly.core.policy.outage import (
    AWAY,
    HUNG,
    LONGEST,
    MIXED,
    Meaning,
    Source,
    cause_of,
    explains,
    is_answer,
    is_bounded,
    meaning,
    pause,
)
from tests.support import NOW

SOURCE = Source("boeing")
OUT, ODD = "OSError no route", "ValueError no price"


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


def test_a_deadline_of_ours_is_a_cause_of_its_own() -> None:
    assert cause_of(Failed("it ran for longer than its deadline", ("duly.DeadlineExceeded", "TimeoutError"))) == HUNG


PRICE = Source("boeing", own=("shop.NoPrice", "shop.OwnHost"))
ANSWERS: list[Outcome] = [
    Done(), Fingerprint("a"), NotFound("gone"), Skip("nothing to do"), GiveUp("404"), Snooze(5), Throttled(60),
    Cancel("closed"), Failed("no price", ("shop.NoPrice", "ValueError")),
]  # fmt: skip
FAILURES: list[Outcome] = [
    Failed("no route", ("ConnectionError", "OSError")),
    Failed("still running after 30 s", ("duly.DeadlineExceeded", "TimeoutError")),
    Failed("ValueError: no such size", ("ValueError",)),
    Failed("401", ("duly.outbound.http.BadStatus", "duly.outbound.http.OutboundError", "duly.errors.DulyError")),
    Failed("no words of a class"),
]
NOTHING: list[Outcome] = [
    Lost(), Crashed("signal 9"), Released("its worker stopped"), Expired(), Superseded(), Discarded(), Revived(NOW),
    Failed("cannot start a process for this", ("duly.NoProcess",)),
    Failed("n: expected int, got str", ("duly.errors.InputError", "duly.errors.DulyError", "ValueError")),
    Failed("a Fingerprint must be returned, not raised", ("duly.InputError",)),
    Failed("given to another worker", ("duly.errors.LeaseLost", "duly.errors.DulyError")),
    Failed("connection refused", ("shop.OwnHost", "ConnectionError", "OSError")),
]  # fmt: skip
TABLE: list[tuple[Outcome, Meaning]] = [
    *((outcome, "answer") for outcome in ANSWERS),
    *((outcome, "failure") for outcome in FAILURES),
    *((outcome, "nothing") for outcome in NOTHING),
]


@pytest.mark.parametrize(("outcome", "says"), TABLE, ids=lambda value: type(value).__name__)
def test_each_end_of_a_try_says_something_of_the_source_or_nothing(outcome: Outcome, says: Meaning) -> None:
    assert meaning(PRICE, outcome) == says


def test_the_table_has_every_outcome() -> None:
    kinds = {kind for union in get_args(Outcome) for kind in (union, *union.__subclasses__())}
    kinds = {kind for kind in kinds if not kind.__name__.startswith("_") and kind is not Verdict}
    assert kinds | {Skip, NotFound, Cancel, GiveUp, Throttled} == {type(outcome) for outcome, _ in TABLE}


def test_an_outage_explains_its_own_trouble_and_no_other() -> None:
    assert explains(AWAY, AWAY)
    assert explains(AWAY, HUNG)
    assert explains(HUNG, AWAY)
    assert explains(HUNG, HUNG)
    assert not explains(AWAY, OUT)
    assert explains(OUT, OUT)
    assert explains(OUT, AWAY)
    assert not explains(OUT, HUNG), "others get an answer"
    assert not explains(OUT, ODD)
    assert explains(MIXED, ODD)
    assert explains(MIXED, HUNG)


def test_a_failure_is_an_answer_if_there_was_none_before() -> None:
    assert [is_answer(outage, OUT) for outage in (AWAY, HUNG, ODD, MIXED)] == [True, True, False, False]
    assert not any(is_answer(outage, cause) for outage in (AWAY, HUNG, ODD, MIXED) for cause in (AWAY, HUNG))


def test_mercy_has_no_end_only_while_nothing_answers_at_all() -> None:
    assert not is_bounded(AWAY, AWAY)
    assert not is_bounded(HUNG, AWAY)
    assert is_bounded(AWAY, HUNG)
    assert is_bounded(HUNG, HUNG)
    assert is_bounded(OUT, OUT)
    assert is_bounded(OUT, AWAY)
    assert is_bounded(MIXED, AWAY)


def test_the_next_probe_is_another_item() -> None:
    assert [pause(SOURCE, n, 1_000) for n in range(4)] == [60, 120, 240, 480]
    assert pause(SOURCE, 5_000, 1_000) == LONGEST
    assert [pause(SOURCE, n, 2) for n in (0, 1, 2, 3, 50)] == [60, 120, 240, 240, 240], "few are still asked often"
    assert pause(Source("x", probe=86_400), 9, 1_000) == 86_400


def test_an_item_that_hung_waits_for_a_round_of_all_the_others() -> None:
    assert [pause(SOURCE, 0, waiting, HUNG) for waiting in (0, 1, 2, 10, 1_000)] == [120, 120, 240, 1_200, LONGEST]


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
