"""`duly serve` and the service of `duly up` as real processes: they answer, refuse what is unsafe, and end well."""

from __future__ import annotations

import http.client
import json
import logging
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from click.testing import Result

from duly import Duly
from duly.client import Client
from duly.verbs import LOCAL
from tests.cli.conftest import Process, call, eventually
from tests.cli.test_processes import free_port, get

Start = Callable[..., Process]


@pytest.fixture
def port() -> int:
    return free_port()


@contextmanager
def stream(port: int) -> Iterator[http.client.HTTPResponse]:
    """The live events of a service, after the first of them."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", "/api/events")
    answer = connection.getresponse()
    assert answer.status == 200
    assert answer.readline().startswith(b"retry:")
    yield answer
    connection.close()


def test_serve_takes_items_for_workers_elsewhere(start: Start, app_file: str, database_url: str, port: int) -> None:
    serve = start("serve", app_file, "--http-port", str(port), "--database-url", database_url)
    serve.waits_for(f"service at http://127.0.0.1:{port}")
    assert get(port, "/healthz")
    assert get(port, "/readyz")
    assert "duly_store_up 1.0" in get(port, "/metrics")
    with Client(f"http://127.0.0.1:{port}") as client:
        placed = client.put("remind", {"phone": "+385"})
    app = Duly(database_url)
    assert app.read.item(placed.id).state == "waiting", "a service runs nothing itself"
    start("worker", app_file, "--database-url", database_url)
    eventually(lambda: app.read.item(placed.id).state == "done", serve)
    app.close()


def test_serve_without_an_app_has_the_built_in_ones_and_makes_its_sqlite_file(
    start: Start, tmp_path: Path, port: int
) -> None:
    serve = start("serve", "--http-port", str(port), "--database-url", f"sqlite:///{tmp_path / 'new.db'}")
    serve.waits_for("service at")
    with Client(f"http://127.0.0.1:{port}") as client:
        args = {"phone": "+385 1 234", "message": "hello"}
        placed = client.put("remind", args, at="2099-01-01T00:00Z")
        assert client.item(placed.id).task == "remind"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_open_streams_and_the_service_within_seconds(
    start: Start, app_file: str, sqlite_url: str, port: int, number: int
) -> None:
    serve = start("serve", app_file, "--http-port", str(port), "--database-url", sqlite_url)
    serve.waits_for("service at")
    with stream(port) as events:
        began = time.monotonic()
        serve.signal(number)
        assert serve.ends() == 0
        assert time.monotonic() - began < 15
        events.read()  # ends without an error: it was closed, not broken off
    assert serve.says("stopped")
    assert not serve.says("Traceback")


@contextmanager
def a_put_that_waits(port: int, postgres_url: str, serve: Process) -> Iterator[http.client.HTTPConnection]:
    """A request that the service cannot finish before the end of the block."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    with psycopg.connect(postgres_url) as locked:
        locked.execute("lock table duly_item in share row exclusive mode")
        body = json.dumps({"task": "remind", "args": {"phone": "+385"}})
        connection.request("POST", "/api/items", body, {"Content-Type": "application/json"})
        waits = "select 1 from pg_locks where not granted and relation = 'duly_item'::regclass"
        with psycopg.connect(postgres_url, autocommit=True) as looking:
            eventually(lambda: looking.execute(waits).fetchone(), serve)
        yield connection


def test_a_request_under_way_is_finished_before_the_service_ends(
    start: Start, app_file: str, postgres_url: str, port: int
) -> None:
    serve = start("serve", app_file, "--http-port", str(port), "--database-url", postgres_url)
    serve.waits_for("service at")
    with a_put_that_waits(port, postgres_url, serve) as connection:
        serve.signal()
        serve.waits_for("finishing the requests under way")
        eventually(lambda: refuses(port), serve)
        assert serve.running.poll() is None
    answer = connection.getresponse()
    assert answer.status == 201
    assert json.loads(answer.read())["fresh"] is True
    assert serve.ends() == 0


def refuses(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return True
    return False


def test_a_second_signal_ends_the_service_at_once(start: Start, app_file: str, postgres_url: str, port: int) -> None:
    serve = start("serve", app_file, "--http-port", str(port), "--database-url", postgres_url)
    serve.waits_for("service at")
    with a_put_that_waits(port, postgres_url, serve) as connection:
        serve.signal()
        serve.waits_for("finishing the requests under way")
        began = time.monotonic()
        serve.signal()
        assert serve.ends() == 128 + signal.SIGTERM
        assert time.monotonic() - began < 15
    with pytest.raises((OSError, http.client.HTTPException)):
        connection.getresponse()


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Result]]:
    """Run a command that does not come to serve; in this process, whose signals and logs stay its own."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    root = logging.getLogger()
    level = root.level
    monkeypatch.setattr(root, "handlers", [])  # what the command sets up is closed, and nobody else's
    yield call
    for number, handler in handlers.items():
        signal.signal(number, handler)
    root.setLevel(level)


def one_error(result: Result) -> str:
    """The only line about an error; logs aside, which are JSON here."""
    (line,) = [line for line in result.stderr.splitlines() if not line.startswith("{")]
    return line


Refused = Callable[..., Result]


@pytest.mark.parametrize("command", ["serve", "up"])
def test_a_taken_port_is_one_clear_line(refused: Refused, app_file: str, sqlite_url: str, command: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        result = refused(command, app_file, "--http-port", str(port), "--database-url", sqlite_url)
    assert result.exit_code == 2
    assert one_error(result) == (
        f"Error: http_port: cannot listen on 127.0.0.1:{port} (Address already in use); "
        "choose another with --http-port or DULY_HTTP_PORT"
    )


@pytest.mark.parametrize("command", ["serve", "up"])
def test_nobody_listens_for_the_world_while_nobody_could_sign_in(
    refused: Refused, app_file: str, sqlite_url: str, port: int, command: str
) -> None:
    words = (command, app_file, "--http-host", "0.0.0.0", "--http-port", str(port), "--database-url", sqlite_url)
    result = refused(*words)
    assert result.exit_code == 2
    assert "cannot listen on 0.0.0.0 because no user can sign in" in one_error(result)
    assert "duly users add NAME --admin" in one_error(result)


def test_it_listens_for_the_world_once_somebody_can_and_lets_in_nobody_else(
    start: Start, app_file: str, database_url: str, port: int
) -> None:
    app = Duly(database_url)
    app.internals.verbs.users.create(LOCAL, "ana", "admin")
    _, secret = app.internals.verbs.users.make_key(LOCAL, "ana", "test", ("read", "write", "admin"))
    app.close()
    words = ("--http-host", "0.0.0.0", "--http-port", str(port), "--database-url", database_url)
    serve = start("serve", app_file, *words)
    serve.waits_for("service at http://0.0.0.0")
    with Client(f"http://127.0.0.1:{port}", secret) as client:
        assert client.me().user_id == "ana"
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", "/api/me")
    assert connection.getresponse().status == 401
    connection.close()


def test_serve_on_an_unmigrated_postgres_says_which_command_helps(
    refused: Refused, app_file: str, blank_postgres_url: str, port: int
) -> None:
    result = refused("serve", app_file, "--http-port", str(port), "--database-url", blank_postgres_url)
    assert result.exit_code == 1
    assert "run `duly migrate`" in one_error(result)


@pytest.mark.parametrize("command", ["serve", "up"])
def test_without_the_extra_it_says_what_to_install(
    refused: Refused, app_file: str, sqlite_url: str, port: int, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.delitem(sys.modules, "duly.web.server", raising=False)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    result = refused(command, app_file, "--http-port", str(port), "--database-url", sqlite_url)
    assert result.exit_code == 2
    assert "pip install 'duly[server]'" in one_error(result)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["serve", "no.such.module:app"], "cannot import no.such.module"),
        (["serve", "work.py", "--http-port", "0"], "http_port: 0 means no port"),
        (["serve", "work.py", "--http-port", "70000"], "http_port: cannot listen on 127.0.0.1:70000"),
        (["serve", "work.py", "--http-host", "no such host"], "no such host"),
    ],
)
@pytest.mark.usefixtures("app_file")
def test_what_was_asked_wrongly_gets_one_clear_line(refused: Refused, words: list[str], problem: str) -> None:
    result = refused(*words)
    assert result.exit_code == 2
    assert problem in one_error(result)


def test_up_is_a_worker_and_a_service_in_one(start: Start, app_file: str, database_url: str, port: int) -> None:
    up = start("up", app_file, "--http-port", str(port), "--database-url", database_url)
    up.waits_for("started")
    assert get(port, "/readyz")
    with Client(f"http://127.0.0.1:{port}") as client:
        placed = client.put("remind", {"phone": "+385"})
        eventually(lambda: client.item(placed.id).state == "done", up)
        assert client.item(placed.id).result == "called +385"
        assert 'duly_finished_items_total{state="done",task="remind"} 1.0' in get(port, "/metrics")
        with stream(port) as events:
            up.signal()
            assert up.ends() == 0
            events.read()
    assert not up.says("Traceback")


def test_up_lets_its_handler_finish_before_it_ends(
    start: Start, app_file: str, sqlite_url: str, port: int, tmp_path: Path
) -> None:
    up = start("up", app_file, "--http-port", str(port), "--database-url", sqlite_url)
    up.waits_for("started")
    with Client(f"http://127.0.0.1:{port}") as client:
        client.put("linger", {"seconds": 1.5})
    eventually((tmp_path / "lingering").exists, up)
    up.signal()
    assert up.ends() == 0
    assert (tmp_path / "lingered").exists()


def test_the_demo_has_the_service_too(start: Start, port: int) -> None:
    demo = start("up", "--demo", "--http-port", str(port))
    demo.waits_for(f"metrics at http://127.0.0.1:{port}/metrics")
    with Client(f"http://127.0.0.1:{port}") as client:
        eventually(lambda: any(item.state == "done" for item in client.items(task="remind")), demo)
    demo.signal()
    assert demo.ends() == 0
    assert not demo.says("Traceback")
