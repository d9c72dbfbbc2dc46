"""The http task in virtual time, on both databases, against a real server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from duly import Duly, InputError
from duly.apps.deliver import ANSWER_LIMIT, EXCERPT, RETRIED, http_on
from duly.core.clock import ManualClock
from duly.core.shown import Row
from duly.outbound.signature import verify
from duly.tasks.puttable import NO_OPTIONS, Options
from duly.testing import World
from tests.apps.conftest import START
from tests.outbound.provider import Desk, Provider, accept_and_hang, answer, echo_headers, hang_up, huge
from tests.outbound.resolver import pretend
from tests.support import counts

SECRET = "whsec-1618033988"
TOKEN = "sk-live-2718281828"

CallDesk = Callable[..., Provider]


class Post:
    """The http task on an app whose time moves only when told."""

    def __init__(self, app: Duly, clock: ManualClock, runner: asyncio.Runner) -> None:
        self.app = app
        self.task = http_on(app)
        self.world = World(app, clock, runner)

    def send(self, provider: Provider, path: str = "/hook", options: Options = NO_OPTIONS, **args: Any) -> int:
        return self.task.options(**options).put(url=f"{provider.url}{path}", **args).id

    def row(self, item_id: int) -> Row:
        return self.app.read.item(item_id)

    def after_a_run(self, item_id: int) -> Row:
        self.world.run()
        return self.row(item_id)


@pytest.fixture
def post(database_url: str, runner: asyncio.Runner) -> Iterator[Callable[..., Post]]:
    apps: list[Duly] = []

    def open_with(**settings: Any) -> Post:
        clock = ManualClock(START)
        given = {"outbound_allow": "127.0.0.0/8,::1", "signing_secret": SECRET, **settings}
        apps.append(Duly(database_url, clock=clock, **given))
        return Post(apps[-1], clock, runner)

    yield open_with
    for app in apps:
        app.close()


Open = Callable[..., Post]


# -- out


def test_a_request_is_sent_when_it_is_due_and_its_answer_is_kept(post: Open, call_desk: CallDesk) -> None:
    at, desk = post(), call_desk(answer(200, b'{"ok": true}'))
    item = at.send(desk, "/hook?x=1", body={"order": 7, "to": ["š"]}, headers={"X-Own": "1"}, options={"delay": 60})
    at.world.advance(59.999)
    assert desk.requests == []
    at.world.advance(0.001)
    (seen,) = desk.requests
    assert (seen.method, seen.path, seen.body) == ("POST", "/hook?x=1", {"order": 7, "to": ["š"]})
    assert seen.headers["content-type"] == "application/json"
    assert seen.headers["x-own"] == "1"
    assert seen.headers["idempotency-key"] == at.row(item).execution_key
    assert seen.headers["duly-attempt"] == "1"
    assert "webhook-signature" not in seen.headers  # only who asks for a signature gets one
    assert (at.row(item).state, at.row(item).result) == ("done", {"status": 200, "body": {"ok": True}})


@pytest.mark.parametrize("method", ["PUT", "PATCH", "GET", "DELETE"])
def test_other_methods_are_spoken_and_no_body_is_no_body(post: Open, call_desk: CallDesk, method: str) -> None:
    at, desk = post(), call_desk(answer(204))
    row = at.after_a_run(at.send(desk, method=method))
    assert (desk.requests[0].method, desk.requests[0].raw) == (method, b"")
    assert "content-type" not in desk.requests[0].headers
    assert row.result == {"status": 204, "body": None}


def test_the_caller_may_say_what_kind_of_json_it_is(post: Open, call_desk: CallDesk) -> None:
    seen: list[Any] = []

    def look(desk: Desk) -> None:
        seen.extend(desk.headers.get_all(name) for name in ("Content-Type", "Accept"))
        desk.reply(200, b"")

    at = post()
    given = {"content-TYPE": "application/cloudevents+json", "accept": "*/*"}
    assert at.after_a_run(at.send(call_desk(look), body=[], headers=given)).state == "done"
    assert seen == [["application/cloudevents+json"], ["*/*"]]


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        (b"thanks \xff", "thanks \ufffd"),
        (b"x" * 50_000, "x" * EXCERPT),
        (b'"' + b"x" * ANSWER_LIMIT + b'"', '"' + "x" * (EXCERPT - 1)),
        (b"[1]" + b" " * ANSWER_LIMIT + b"?", "[1]" + " " * (EXCERPT - 3)),
        (b'"\\ud800"', '"\\ud800"'),
        (b"[" * 50_000, "[" * EXCERPT),
        (b'"a\\u0000b"', "a\ufffdb"),
        (b"[" * 300 + b"]" * 300, "[" * 300 + "]" * 300),
        (b"9" * 5_000, "9" * EXCERPT),
    ],
    ids=[
        "text",
        "long text",
        "long JSON",
        "JSON by its beginning",
        "half a character",
        "deep",
        "NUL",
        "deep JSON",
        "long number",
    ],
)
def test_what_was_delivered_is_done_whatever_the_answer_looks_like(
    post: Open, call_desk: CallDesk, body: bytes, kept: str
) -> None:
    at = post()
    row = at.after_a_run(at.send(call_desk(answer(200, body))))
    assert (row.state, row.result) == ("done", {"status": 200, "body": kept})


def test_an_answer_without_end_is_done_too(post: Open, call_desk: CallDesk) -> None:
    at = post()
    row = at.after_a_run(at.send(call_desk(huge)))
    assert (row.state, row.result) == ("done", {"status": 200, "body": "[" * EXCERPT})


def test_a_small_limit_on_results_cuts_the_answer_and_fails_nothing(post: Open, call_desk: CallDesk) -> None:
    at = post(max_result_bytes=400)
    row = at.after_a_run(at.send(call_desk(answer(200, b'["' + b"x" * 300 + b'"]'))))
    assert row.state == "done"
    assert row.result == {"status": 200, "body": '["' + "x" * 23}


# -- again


@pytest.mark.parametrize("status", RETRIED)
def test_a_status_that_may_pass_is_tried_again_with_the_same_key(post: Open, call_desk: CallDesk, status: int) -> None:
    at, desk = post(), call_desk(answer(status, b"not now"), answer(status))
    item = at.send(desk, body={"order": 7})
    row = at.after_a_run(item)
    assert (row.state, row.lane, row.failures) == ("waiting", "retry", 1)
    assert row.due_at == START + timedelta(seconds=60)
    assert f"answered {status}: not now" in (row.last_error or "")
    at.world.advance(60 + 120)
    assert at.row(item).state == "done"
    assert [request.headers["duly-attempt"] for request in desk.requests] == ["1", "2", "3"]
    assert {request.key for request in desk.requests} == {at.row(item).execution_key}


def test_after_five_tries_it_is_in_review(post: Open, call_desk: CallDesk) -> None:
    at, desk = post(), call_desk(*[answer(500)] * 9)
    item = at.send(desk)
    at.world.advance(60 + 120 + 240 + 479)
    assert (at.row(item).state, len(desk.requests)) == ("waiting", 4)
    at.world.advance(1)
    assert (at.row(item).state, len(desk.requests)) == ("failed", 5)


def test_a_put_may_say_how_many_tries(post: Open, call_desk: CallDesk) -> None:
    at = post()
    assert at.after_a_run(at.send(call_desk(answer(500)), options={"tries": 1})).state == "failed"


@pytest.mark.parametrize("status", [429, 503])
def test_a_server_that_says_when_to_come_back_is_heeded_and_not_blamed(
    post: Open, call_desk: CallDesk, status: int
) -> None:
    at, desk = post(), call_desk(answer(status, Retry_After="7"))
    item = at.send(desk, options={"tries": 1})
    row = at.after_a_run(item)
    assert (row.state, row.outcome, row.failures, row.attempt) == ("waiting", "throttled", 0, 0)
    assert row.due_at == START + timedelta(seconds=7)
    at.world.advance(7)
    assert at.row(item).state == "done"


def test_the_puts_own_statuses_are_the_law(post: Open, call_desk: CallDesk) -> None:
    at = post()
    assert at.after_a_run(at.send(call_desk(answer(404)), retry_statuses=[404])).state == "waiting"
    assert at.after_a_run(at.send(call_desk(answer(500)), retry_statuses=[404])).state == "failed"
    assert at.after_a_run(at.send(call_desk(answer(429, Retry_After="7")), retry_statuses=[])).state == "failed"


@pytest.mark.parametrize("status", [302, 400, 401, 404, 410, 422, 501])
def test_any_other_status_is_in_review_at_once(post: Open, call_desk: CallDesk, status: int) -> None:
    at, desk = post(), call_desk(answer(status, b"no such order", Location="http://127.0.0.1:9/"))
    item = at.send(desk)
    row = at.after_a_run(item)
    assert (row.state, row.outcome, len(desk.requests)) == ("failed", "gave_up", 1)
    (tried,) = at.app.read.story(item).tries
    assert f"answered {status}: no such order" in (tried.error or "")


def test_a_broken_connection_and_a_time_out_are_tried_again(post: Open, call_desk: CallDesk) -> None:
    at, desk = post(), call_desk(hang_up, accept_and_hang)
    item = at.send(desk, timeout=0.2)
    assert at.after_a_run(item).state == "waiting"
    at.world.advance(60)
    assert "no whole answer within 0.2 s" in (at.row(item).last_error or "")
    at.world.advance(120)
    assert (at.row(item).state, len(desk.requests), len(desk.seen())) == ("done", 3, 1)


# -- signatures


def test_a_signature_verifies_over_the_bytes_that_arrived(post: Open, call_desk: CallDesk) -> None:
    at, desk = post(), call_desk(answer(500))
    at.send(desk, body={"b": 1, "a": "š"}, sign=True)
    at.send(desk, method="GET", sign=True)
    at.world.advance(60)
    assert len(desk.requests) == 3
    for request in desk.requests:
        headers = dict(request.headers.items())
        assert request.headers["webhook-id"] == request.headers["idempotency-key"]
        assert verify(SECRET, headers, request.raw, at.world.clock.now().timestamp())
        assert not verify(SECRET, headers, request.raw + b" ", at.world.clock.now().timestamp())
    signatures = {request.headers["webhook-signature"] for request in desk.requests}
    assert len(signatures) == 3  # each try is signed at its time


def test_a_worker_without_the_secret_sends_nothing_unsigned(post: Open, call_desk: CallDesk) -> None:
    at, desk = post(), call_desk()
    item = at.send(desk, sign=True)
    poor = post(signing_secret="")
    assert "sign: needs the setting signing_secret" in (poor.after_a_run(item).last_error or "")
    assert (poor.row(item).state, desk.requests) == ("failed", [])


# -- the guard


def test_a_worker_that_may_not_call_inward_ends_in_review_and_says_why(
    post: Open, call_desk: CallDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    at, desk = post(outbound_allow=""), call_desk()
    pretend(monkeypatch, "evil.example", "127.0.0.1")
    port = desk.url.rpartition(":")[2]
    item = at.task.put(url=f"http://evil.example:{port}/").id
    row = at.after_a_run(item)
    assert (row.state, row.attempt, desk.requests) == ("failed", 1, [])
    (tried,) = at.app.read.story(item).tries
    assert tried.outcome == "gave_up"
    assert tried.error == ("evil.example resolves to 127.0.0.1, a loopback address; allow it with DULY_OUTBOUND_ALLOW")


def test_an_address_that_was_allowed_at_put_is_judged_again_at_dispatch(post: Open, call_desk: CallDesk) -> None:
    desk = call_desk()
    item = post().task.put(url=desk.url.replace("localhost", "127.0.0.1")).id
    strict = post(outbound_allow="10.0.0.0/8")
    assert "127.0.0.1 is a loopback address" in (strict.after_a_run(item).last_error or "")
    assert (strict.row(item).state, desk.requests) == ("failed", [])


# -- secrets


def test_what_a_server_echoes_of_our_secrets_is_in_no_error_and_no_log(
    post: Open, call_desk: CallDesk, caplog: pytest.LogCaptureFixture
) -> None:
    long = "eyJ" + "q1w2e3r4" * 400
    at, desk = post(), call_desk(echo_headers, echo_path)
    given = {"headers": {"A-Quote": 'pass"word', "Authorization": f"Bearer {TOKEN}", "X-Long": long}, "sign": True}
    with caplog.at_level(logging.DEBUG):
        items = [at.send(desk, "/hook?token=of-the-query", **given) for _ in range(2)]
        at.world.run()
    assert TOKEN in desk.requests[0].headers["authorization"]  # it was sent
    errors = [f"{at.row(item).last_error} {at.app.read.story(item).tries}" for item in items]
    for text in (*errors, caplog.text):
        assert TOKEN not in text
        assert "of-the-query" not in text
        assert long[:40] not in text
        assert 'pass"word' not in text
        assert r"pass\"word" not in text
        assert "v1=" not in text
    assert "answered 400" in errors[0]
    assert "answered 404: Cannot POST /hook?token=***" in errors[1]


def echo_path(desk: Desk) -> None:
    """As many frameworks do for a path they do not know."""
    desk.reply(404, f"Cannot POST {desk.request_seen.path}".encode())


# -- in


@pytest.mark.parametrize(
    ("given", "field", "problem"),
    [
        ({"url": "ftp://a.example/"}, "url", "must be http"),
        ({"url": "/hook"}, "url", "must be http"),
        ({"url": "https://me:pw@a.example/"}, "url", "must not contain a user"),
        ({"url": "https://a.example:70000/"}, "url", "must be http"),
        ({"url": f"https://a.example/{'x' * 5_000}"}, "url", "4096"),
        ({"url": "http://10.0.0.7/"}, "url", "10.0.0.7 is a private address; allow it with DULY_OUTBOUND_ALLOW"),
        ({"url": "http://0xa9fea9fe/"}, "url", "resolves to 169.254.169.254, a link-local address"),
        ({"url": "http://[::ffff:10.0.0.7]/"}, "url", "a private address"),
        ({"url": "http://300.1.1.1/"}, "url", "is not the name of a host"),
        ({"url": "http://a%2eexample/"}, "url", "is not the name of a host"),
        ({"method": "TRACE"}, "method", "invalid enum value"),
        ({"headers": {"Host": "x"}}, "headers.Host", "is set by duly"),
        ({"headers": {"content-length": "1"}}, "headers.content-length", "is set by duly"),
        ({"headers": {"Transfer-Encoding": "chunked"}}, "headers.Transfer-Encoding", "is set by duly"),
        ({"headers": {"Connection": "close"}}, "headers.Connection", "is set by duly"),
        ({"headers": {"IDEMPOTENCY-KEY": "1"}}, "headers.IDEMPOTENCY-KEY", "is set by duly"),
        ({"headers": {"Duly-Attempt": "1"}}, "headers.Duly-Attempt", "is set by duly"),
        ({"headers": {"Webhook-Signature": "1"}}, "headers.Webhook-Signature", "is set by duly"),
        ({"headers": {"X-A": "1", "x-a": "2"}}, "headers.x-a", "is given twice"),
        ({"headers": {"X:A": "1"}}, "headers", "is not the name of a header"),
        ({"headers": {"X-A": "1\r\nX-B: 2"}}, "headers.X-A", "holds a line end"),
        ({"headers": {"X-A": "é"}}, "headers.X-A", "must be ASCII"),
        ({"headers": {"X-A": "x" * 5_000}}, "headers.X-A", "is too long"),
        ({"headers": {"X" * 101: "x"}}, f"headers.{'X' * 100}", "is too long"),
        ({"headers": {f"X-{n}": "1" for n in range(51)}}, "headers", "50"),
        ({"headers": {f"X-{n}": "x" * 4_000 for n in range(5)}}, "headers", "16,384 is the limit"),
        ({"headers": {"X-A": 1}}, "headers[...]", "expected `str`"),
        ({"timeout": 0.01}, "timeout", "0.1"),
        ({"timeout": 301}, "timeout", "300"),
        ({"timeout": "soon"}, "timeout", "expected `float`"),
        ({"retry_statuses": [200]}, "retry_statuses[0]", "300"),
        ({"retry_statuses": "500"}, "retry_statuses", "expected `array`"),
        ({"body": float("nan")}, "body", "finite"),
        ({"sign": "yes"}, "sign", "expected `bool`"),
        ({"verify": False}, "verify", "is not an argument of this task"),
    ],
    ids=lambda value: str(value)[:40],
)  # fmt: skip
def test_bad_arguments_are_refused_at_put_by_their_field(
    post: Open, given: dict[str, Any], field: str, problem: str
) -> None:
    at = post()
    with pytest.raises(InputError) as refused:
        at.task.put(**{"url": "https://a.example/hook", **given})
    assert refused.value.field == field
    assert problem in refused.value.problem
    assert counts(at.app.internals.store) == {}


def test_a_secret_that_cannot_be_used_is_told_at_the_put(post: Open) -> None:
    at = post(signing_secret="whsec_no base64")
    with pytest.raises(InputError, match=r"^sign: DULY_SIGNING_SECRET: what follows whsec_ must be base64"):
        at.task.put(url="https://a.example/", sign=True)


def test_a_signature_is_not_promised_without_a_secret(post: Open) -> None:
    at = post(signing_secret="")
    with pytest.raises(InputError, match=r"^sign: needs the setting signing_secret: set DULY_SIGNING_SECRET"):
        at.task.put(url="https://a.example/", sign=True)


def test_a_schedule_is_checked_when_it_is_made_and_a_bad_row_names_its_place(post: Open) -> None:
    at = post()
    with pytest.raises(InputError, match=r"^url: 10\.0\.0\.7 is a private address"):
        at.app.schedules.create(at.task, "0 9 * * *", {"url": "http://10.0.0.7/"}, key="daily")
    with pytest.raises(InputError, match=r"^rows\[1\]\.headers\.Host: is set by duly"):
        at.task.put_many([{"url": "https://a.example/"}, {"url": "https://a.example/", "headers": {"Host": "b"}}])
    assert counts(at.app.internals.store) == {}
