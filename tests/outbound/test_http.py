"""The client against a real server that misbehaves."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from duly import Attempt, GiveUp, InputError, Throttled
from duly.outbound import http
from duly.outbound.http import BadAnswer, BadStatus, OutboundError, TimedOut, Unreachable, attempt_headers, post_json
from duly.store import Store
from tests.outbound.provider import (
    Answer,
    Desk,
    Provider,
    answer,
    break_off,
    drip,
    drip_headers,
    echo_headers,
    hang_up,
    huge,
    ok,
)
from tests.support import put_and_claim

KEY = "sk-live-3141592653"
SECRET = {"Authorization": f"Bearer {KEY}"}
PATIENCE = 20.0  # seconds in which a limit of a fraction of one must have acted

Serve = Callable[..., Provider]


@pytest.fixture
def serve() -> Iterator[Serve]:
    open_providers: list[Provider] = []

    def start(*answers: Answer, **options: str) -> Provider:
        provider = Provider(*answers, **options).__enter__()
        open_providers.append(provider)
        return provider

    yield start
    for provider in open_providers:
        provider.__exit__()


def test_a_good_answer_comes_back_with_status_headers_and_body(serve: Serve) -> None:
    provider = serve(answer(201, b'{"id": "c1"}', X_Trace="t1"))
    response = post_json(f"{provider.url}/call?to=x", {"message": "Zubar u 9 š"}, headers={"X-Own": "1"})
    assert (response.status, response.json(), response.headers["x-trace"]) == (201, {"id": "c1"}, "t1")
    (request,) = provider.requests
    assert request.path == "/call?to=x"
    assert request.body == {"message": "Zubar u 9 š"}
    assert request.headers["content-type"] == "application/json"
    assert request.headers["x-own"] == "1"
    assert request.headers["host"] == provider.url.removeprefix("http://")


def test_every_try_of_an_item_carries_its_key_and_its_number(store: Store) -> None:
    (item,) = put_and_claim(store, args={})
    attempt = Attempt(item, 3, lambda *_: None, None)
    assert attempt_headers(attempt) == {"Idempotency-Key": item.execution_key, "Duly-Attempt": "1"}


@pytest.mark.parametrize("slow", [drip, drip_headers], ids=["body", "headers"])
def test_a_server_that_drips_bytes_cannot_hold_the_caller_beyond_its_limit(serve: Serve, slow: Answer) -> None:
    provider = serve(slow)
    began = time.monotonic()
    with pytest.raises(TimedOut, match=r"within 0\.2 s"):
        post_json(provider.url, {}, timeout=0.2)
    assert time.monotonic() - began < PATIENCE
    assert provider.let_down.wait(PATIENCE)  # and the connection is not left open behind


def test_a_server_that_never_answers_times_out(serve: Serve) -> None:
    with pytest.raises(TimedOut):
        post_json(serve(lambda desk: desk.provider.closing.wait() and None).url, {}, timeout=0.1)


def test_a_server_that_never_reads_times_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}/"
        with pytest.raises(TimedOut):
            post_json(url, {"blob": "x" * 50_000_000}, timeout=0.3)


def test_a_limit_that_is_over_before_the_name_is_known_times_out() -> None:
    with pytest.raises(TimedOut):
        post_json("http://nobody.invalid/", {}, timeout=1e-6)


def test_nobody_there_is_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(Unreachable, match="refused"):
        post_json(f"http://127.0.0.1:{port}/call", {})


def test_an_unknown_host_is_unreachable() -> None:
    with pytest.raises(Unreachable, match=r"POST http://nobody.invalid/call"):
        post_json("http://nobody.invalid/call", {})


def test_a_name_that_no_host_can_have_is_unreachable() -> None:
    with pytest.raises(Unreachable, match="not the name of a host"):
        post_json(f"http://{'a' * 64}.example/", {})


@pytest.mark.parametrize("rude", [hang_up, break_off], ids=["without a word", "in mid sentence"])
def test_a_server_that_hangs_up_is_unreachable(serve: Serve, rude: Answer) -> None:
    with pytest.raises(Unreachable):
        post_json(serve(rude).url, {})


def test_an_answer_without_end_is_cut_off(serve: Serve) -> None:
    provider = serve(huge)
    with pytest.raises(BadAnswer, match="more than 100,000 bytes"):
        post_json(provider.url, {}, max_response_bytes=100_000)
    assert provider.let_down.wait(PATIENCE)


def test_an_answer_of_exactly_the_limit_is_taken(serve: Serve) -> None:
    assert post_json(serve(answer(200, b"x" * 10)).url, {}, max_response_bytes=10).body == b"x" * 10


@pytest.mark.parametrize("body", [b"{nope", b"", b"\xff\xfe", b"[" * 100_000], ids=["bad", "empty", "binary", "deep"])
def test_an_answer_that_is_not_json_is_a_bad_answer(serve: Serve, body: bytes) -> None:
    with pytest.raises(BadAnswer, match="is not JSON"):
        post_json(serve(answer(200, body)).url, {}).json()


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_not_followed(serve: Serve, status: int) -> None:
    other = serve()
    with pytest.raises(BadStatus) as refused:
        post_json(serve(answer(status, Location=other.url)).url, {}, headers=SECRET)
    assert refused.value.status == status
    assert other.requests == []


@pytest.mark.parametrize("status", [408, 409, 425, 500, 502, 503, 504])
def test_what_may_pass_is_an_error_that_may_be_tried_again(serve: Serve, status: int) -> None:
    with pytest.raises(BadStatus, match=f"answered {status}: not now") as refused:
        post_json(serve(answer(status, b"not \n now" + b"!" * 10_000)).url, {})
    assert isinstance(refused.value, OutboundError)
    assert len(refused.value.excerpt) == http.EXCERPT


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 422])
def test_what_asking_again_cannot_mend_is_given_up(serve: Serve, status: int) -> None:
    with pytest.raises(GiveUp, match=f"answered {status}: no such assistant"):
        post_json(serve(answer(status, b"no such assistant")).url, {})


@pytest.mark.parametrize(
    ("status", "headers", "seconds"),
    [
        (429, {"Retry_After": "7"}, 7),
        (503, {"Retry_After": "120"}, 120),
        (429, {"Retry_After": "Wed, 21 Oct 2026 07:30:00 GMT", "Date": "Wed, 21 Oct 2026 07:28:00 GMT"}, 120),
        (429, {"Retry_After": "Wed, 21 Oct 2015 07:28:00 GMT"}, http.LEAST),
        (429, {"Retry_After": "0"}, http.LEAST),
        (429, {"Retry_After": "999999999"}, http.MOST),
        (429, {"Retry_After": "soon"}, http.NO_HINT),
        (503, {"Retry_After": "-5"}, http.NO_HINT),
        (429, {}, http.NO_HINT),
    ],
)
def test_a_server_that_is_busy_says_when_to_come_back(
    serve: Serve, status: int, headers: dict[str, str], seconds: float
) -> None:
    def busy(desk: Desk) -> None:  # our Date only, not the one that http.server adds
        desk.wfile.write(f"HTTP/1.1 {status} Busy\r\nContent-Length: 0\r\n".encode())
        for name, value in headers.items():
            desk.wfile.write(f"{name.replace('_', '-')}: {value}\r\n".encode())
        desk.wfile.write(b"\r\n")

    with pytest.raises(Throttled) as asked:
        post_json(serve(busy).url, {})
    assert asked.value.delay == seconds


@pytest.mark.parametrize(
    "url",
    ["ftp://host/", "file:///etc/passwd", "//host/x", "http://", "http://host:99999/", "http://[::1", "http://h/a b"],
)
def test_only_http_is_spoken(url: str) -> None:
    with pytest.raises(InputError, match=r"^url: must be http://"):
        post_json(url, {})


def test_a_url_does_not_carry_credentials() -> None:
    with pytest.raises(InputError, match=r"^url: must not contain") as refused:
        post_json(f"http://me:{KEY}@localhost/", {})
    assert KEY not in str(refused.value)


def test_a_key_with_a_line_end_is_refused_without_being_repeated() -> None:
    with pytest.raises(InputError, match=r"^headers.Authorization: holds a line end") as refused:
        post_json("http://localhost/", {}, headers={"Authorization": f"Bearer {KEY}\n"})
    assert KEY not in str(refused.value)


def test_a_header_needs_a_name() -> None:
    with pytest.raises(InputError, match=r"^headers: 'X:Y' is not the name of a header"):
        post_json("http://localhost/", {}, headers={"X:Y": "1"})


def test_a_server_that_echoes_the_key_does_not_bring_it_into_our_errors(serve: Serve) -> None:
    provider = serve(echo_headers)
    with pytest.raises(GiveUp) as refused:
        post_json(f"{provider.url}/call?token={KEY}", {}, headers=SECRET)
    assert provider.requests[0].headers["authorization"] == f"Bearer {KEY}"  # it was sent
    assert KEY not in str(refused.value)
    assert "***" in str(refused.value)


def test_a_certificate_that_nobody_vouches_for_is_refused(serve: Serve) -> None:
    provider = serve(certificate=str(Path(__file__).parent / "localhost.pem"))
    with pytest.raises(Unreachable, match="certificate is not trusted"):
        post_json(provider.url, {}, headers=SECRET)
    assert provider.requests == []


def test_a_trusted_certificate_is_spoken_to(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate = str(Path(__file__).parent / "localhost.pem")
    monkeypatch.setenv("SSL_CERT_FILE", certificate)
    http._tls.cache_clear()
    try:
        assert post_json(serve(ok, certificate=certificate).url, {}).json()["id"] == "call-1"
    finally:
        http._tls.cache_clear()


def test_nul_in_an_answer_is_replaced_because_no_database_holds_it() -> None:
    body = rb'{"a": "x\u0000y", "b": "\\u0000", "c": "\\\u0000"}'
    assert http.Response(200, {}, body).json() == {"a": "x\ufffdy", "b": "\\u0000", "c": "\\\ufffd"}
