"""The client against a real socket server that misbehaves on purpose: what is repeated, and what is said."""

from __future__ import annotations

import io
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from duly.client import Client, Placed, ServiceError
from duly.client import connection as module
from duly.core.errors import ConfigError, DoesNotExist, InputError, KeyConflict, NotAllowed, UnknownTask, WrongState
from duly.core.results import SlotLoad

Answer = Callable[["Request"], bytes | None]
PLACED = {"id": 7, "executionKey": "k", "fresh": True}


class Request:
    def __init__(self, head: bytes, body: bytes) -> None:
        first, *lines = head.decode().split("\r\n")
        self.method, self.target, _ = first.split(" ")
        self.headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        self.body = json.loads(body) if body else None
        self.at = time.monotonic()


class Server:
    """Answers one request after the other from a list; None drops the connection without a word."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.requests: list[Request] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            self._connection = connection
            with connection, connection.makefile("rb") as stream:
                while self._answer(connection, stream):
                    pass

    def _answer(self, connection: socket.socket, stream: Any) -> bool:
        head = b""
        while line := stream.readline():
            if line == b"\r\n":
                break
            head += line
        if not head:
            return False
        length = [
            int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")
        ]
        request = Request(head.removesuffix(b"\r\n"), stream.read(length[0]) if length else b"")
        self.requests.append(request)
        text = self.answers.pop(0)(request)
        if text is None:
            return False
        connection.sendall(text)
        return b"Connection: close" not in text

    def hang_up(self) -> None:
        """Close the connection in the middle of an answer."""
        self._connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listening.close()


def says(status: int, body: Any = None, *headers: str, kind: str = "application/json") -> Answer:
    text = b"" if body is None else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} So", f"Content-Type: {kind}", f"Content-Length: {len(text)}", *headers]
    return lambda _: "\r\n".join([*lines, "", ""]).encode() + text


def drops(_: Request) -> None:
    """As a service does that was killed after the commit."""


HEAD = b"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: 60\r\nConnection: close\r\n\r\n"


def breaks_off(_: Request) -> bytes:
    return HEAD + b'{"id"'


def says_nothing_more(_: Request) -> bytes:
    return HEAD


def problem(status: int, detail: str, field: str | None = None, *headers: str) -> Answer:
    body = {"type": "about:blank", "title": "No", "status": status, "detail": detail, "field": field}
    return says(status, body, *headers, kind="application/problem+json")


@pytest.fixture
def server() -> Iterator[Server]:
    one = Server()
    yield one
    one.close()


@pytest.fixture
def client(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    monkeypatch.setattr(module, "PAUSE", 0.001)
    with Client(server.url, key="duly_x", timeout=5) as one:
        yield one


@pytest.mark.parametrize("loses", [drops, breaks_off, says_nothing_more])
def test_a_put_whose_answer_was_lost_is_repeated_with_its_key(server: Server, client: Client, loses: Answer) -> None:
    server.answers = [loses, loses, says(201, PLACED)]
    assert client.put("http", {"url": "https://example.com"}) == Placed(7, "k", True)
    first, second, third = server.requests
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"] == third.headers["idempotency-key"]
    assert first.body == third.body == {"task": "http", "args": {"url": "https://example.com"}}
    assert third.headers["authorization"] == "Bearer duly_x"


def test_two_puts_have_two_keys_and_one_connection(server: Server, client: Client) -> None:
    server.answers = [says(201, PLACED), says(201, PLACED)]
    client.put("a")
    client.put("a")
    first, second = server.requests
    assert first.headers["idempotency-key"] != second.headers["idempotency-key"]


def test_a_program_may_keep_its_own_key_over_errors_and_restarts(server: Server, client: Client) -> None:
    server.answers = [drops] * module.TRIES + [says(201, PLACED)]
    with pytest.raises(ServiceError) as caught:
        client.put("a", idempotency_key="order-7")
    assert caught.value.status is None
    assert "cannot reach 127.0.0.1" in str(caught.value)
    client.put("a", idempotency_key="order-7")
    assert {request.headers["idempotency-key"] for request in server.requests} == {"order-7"}


def test_a_service_that_is_away_is_asked_again_when_it_says(server: Server, client: Client) -> None:
    server.answers = [problem(503, "the database is away", None, "Retry-After: 1"), says(201, PLACED)]
    assert client.put("a").id == 7
    first, second = server.requests
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"]
    assert second.at - first.at >= 0.5, "Retry-After is kept, give or take the jitter"


def test_a_request_that_finds_its_own_earlier_one_under_way_waits_for_it(server: Server, client: Client) -> None:
    under_way = problem(409, "a request with this Idempotency-Key is under way", None, "Retry-After: 1")
    server.answers = [drops, under_way, says(201, PLACED)]
    assert client.put("a").id == 7
    server.answers = [problem(409, "item 7 is done")]
    with pytest.raises(WrongState, match="item 7 is done"):
        client.cancel(7)


def test_a_service_that_stays_away_is_told_of_with_its_own_words(server: Server, client: Client) -> None:
    server.answers = [problem(503, "the database is away")] * module.TRIES
    with pytest.raises(ServiceError) as caught:
        client.put("a")
    assert (str(caught.value), caught.value.status) == ("the database is away", 503)
    assert len(server.requests) == module.TRIES


def test_a_problem_document_becomes_an_error_with_its_field_and_is_not_repeated(server: Server, client: Client) -> None:
    server.answers = [problem(422, "n: must be a number", "n")]
    with pytest.raises(InputError) as caught:
        client.put("a", {"n": "x"})
    assert (str(caught.value), caught.value.field, caught.value.problem) == (
        "n: must be a number",
        "n",
        "must be a number",
    )
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("status", "title", "detail", "field", "error"),
    [
        (401, "Sign in first", "no key", None, ConfigError("no key; give a key with --api-key or DULY_API_KEY")),
        (403, "Not allowed", "this needs the scope read", None, NotAllowed("this needs the scope read")),
        (404, "Not found", "there is no item 7", None, DoesNotExist("there is no item 7")),
        (409, "Conflict", "key: 'a' is taken", "key", KeyConflict("'a' is taken", 0)),
        (409, "Not in this state", "item 7 is done", None, WrongState("item 7 is done")),
        (413, "Too large", "file: has more than 10 bytes", "file", InputError("file", "has more than 10 bytes")),
        (422, "Invalid input", "args.n: is wrong", "args.n", InputError("n", "is wrong")),
        (422, "Unknown task", "task: there is none", "task", UnknownTask("task", "there is none")),
        (422, "Invalid input", "is not set up", None, ConfigError("is not set up")),
        (500, "Internal error", "it is in the log", None, ServiceError("it is in the log")),
    ],
)  # fmt: skip
def test_an_error_of_the_service_is_the_error_of_a_database(
    server: Server, client: Client, status: int, title: str, detail: str, field: str | None, error: Exception
) -> None:
    body = {"type": "about:blank", "title": title, "status": status, "detail": detail, "field": field}
    server.answers = [says(status, body, kind="application/problem+json")]
    with pytest.raises(type(error)) as caught:
        client.job(7)
    assert type(caught.value) is type(error)
    assert str(caught.value) in (str(error), detail)


def test_an_answer_of_something_else_is_told_by_its_status(server: Server, client: Client) -> None:
    server.answers = [says(404, "<html>", kind="text/html")]
    with pytest.raises(ServiceError, match="the service answered 404"):
        client.item(1)


def test_an_answer_that_is_not_json_is_an_error_of_the_service(server: Server, client: Client) -> None:
    text = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 5\r\n\r\nhello"
    server.answers = [lambda _: text] * module.TRIES
    with pytest.raises(ServiceError, match="not JSON"):
        client.item(1)


def test_a_list_is_walked_page_by_page_and_no_further_than_needed(server: Server, client: Client) -> None:
    rows = [{"ring": str(number), "slot": number, "members": 0} for number in range(5)]
    server.answers = [
        says(200, {"items": rows[:2], "next": "c1"}),
        says(200, {"items": rows[2:4], "next": "c2"}),
        says(200, {"items": rows[4:], "next": None}),
    ]
    walk = client.http.pages(SlotLoad, "/api/items", error_group="ab", task=None)
    assert next(walk) == SlotLoad("0", 0, 0)
    assert len(server.requests) == 1
    assert [each.slot for each in walk] == [1, 2, 3, 4]
    assert [request.target for request in server.requests] == [
        "/api/items?errorGroup=ab&pageSize=500",
        "/api/items?errorGroup=ab&pageSize=500&after=c1",
        "/api/items?errorGroup=ab&pageSize=500&after=c2",
    ]
    server.answers = [says(200, {"items": rows[:3], "next": "c1"})]
    assert len(list(client.http.pages(SlotLoad, "/api/items", 3))) == 3
    assert server.requests[-1].target == "/api/items?pageSize=3"


def test_a_path_before_the_service_is_kept(server: Server) -> None:
    server.answers = [says(204)]
    with Client(f"{server.url}/duly/") as client:
        client.remove_job(3)
    (request,) = server.requests
    assert (request.method, request.target) == ("DELETE", "/duly/api/jobs/3")
    assert "authorization" not in request.headers
    assert "idempotency-key" not in request.headers


@pytest.mark.parametrize("url", ["", "ftp://example.com", "example.com:80", "http://"])
def test_what_is_no_address_is_refused_at_once(url: str) -> None:
    with pytest.raises(ConfigError, match="url: must be"):
        Client(url)


def test_nobody_there_is_told_after_some_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAUSE", 0.001)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with Client(f"http://127.0.0.1:{port}") as client, pytest.raises(ServiceError, match="cannot reach"):
        client.me()


def test_a_download_is_begun_anew_when_an_idle_connection_was_closed(server: Server, client: Client) -> None:
    server.answers = [says(204), drops, says(200, "table")]
    client.resume("a")
    out = io.BytesIO()
    client.export_job(1, out)
    assert (out.getvalue(), len(server.requests)) == (b'"table"', 3)


def test_a_download_is_not_begun_anew_once_something_of_it_is_written(
    server: Server, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PORTION", 2)
    server.answers = [drops]
    with pytest.raises(ServiceError, match="cannot reach"):
        client.export_job(1, io.BytesIO())
    text = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nrow\r\n"
    server.answers = [says(204), lambda _: text, drops]
    client.resume("a")
    out = io.BytesIO()
    threading.Timer(0.2, server.hang_up).start()
    with pytest.raises(ServiceError, match="cannot reach"):
        client.export_job(1, out)
    assert (out.getvalue(), len(server.requests)) == (b"ro", 3)


@pytest.mark.parametrize(
    ("answer", "told", "asked"),
    [
        (problem(413, "file: has more than 10 bytes", "file"), "more than 10 bytes", 1),
        (problem(500, "oh"), "cannot reach", module.TRIES),
        (lambda _: b"", "cannot reach", module.TRIES),
    ],
)
def test_a_file_that_is_refused_before_its_end_is_told_of_as_such(
    monkeypatch: pytest.MonkeyPatch, answer: Answer, told: str, asked: int
) -> None:
    monkeypatch.setattr(module, "PAUSE", 0.001)
    connections = 0
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def refuse() -> None:
            nonlocal connections
            for _ in range(asked):
                connection, _ = listening.accept()
                connections += 1
                connection.recv(1000)
                connection.sendall(answer(cast(Request, None)) or b"")
                connection.close()  # with bytes that nobody read, so that the sender is told off

        thread = threading.Thread(target=refuse, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        with Client(url, timeout=5) as client, pytest.raises((ServiceError, InputError), match=told):
            client.create_job(io.BytesIO(bytes(50_000_000)), "large.csv")
        thread.join(5)
    assert connections == asked


def test_pausing_a_queue_tells_what_the_service_notes(server: Server, client: Client) -> None:
    server.answers = [says(200, {"note": "there is no queue a/b yet"}), says(204), says(204)]
    assert client.pause("a/b") == "there is no queue a/b yet"
    assert client.pause("c") is None
    client.resume("c")
    assert [request.target for request in server.requests] == [
        "/api/queues/a%2Fb/pause", "/api/queues/c/pause", "/api/queues/c/resume",
    ]  # fmt: skip
