"""`duly retry-service` with nothing but its environment, and the demo beside a broker: as processes."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from rabbitnode import Node
from tests.bridge.fleet import ROOT, services
from tests.bridge.support import broker_at, patiently, retry_message


def ask(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, ""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def test_its_environment_is_all_that_a_service_needs(tmp_path: Path, rabbit: Node, vhost_url: str) -> None:
    port = free_port()
    environment = {
        "HTTP_PORT": str(port), "RETRY_QUEUE": "mine.retry", "MANUAL_REVIEW_QUEUE": "mine.review",
        "DEFAULT_MAX_RETRIES": "1", "BASE_DELAY_MS": "100", "MAX_DELAY_MS": "200", "RETRY_POLL_INTERVAL_MS": "500",
        "SERVICE_NAME": "my-retries",
    }  # fmt: skip
    with (
        services(f"sqlite:///{tmp_path}/own.db", vhost_url, tmp_path, **environment) as some,
        broker_at(vhost_url) as broker,
    ):
        broker.declare("orders")
        some.start()
        patiently(lambda: ask(port, "/readyz")[0] == 200, 60, some.logs())
        broker.send(retry_message(), "mine.retry")
        assert broker.get().headers["x-retry-max"] == 1
        broker.send(retry_message(retry_count=1), "mine.retry")
        assert "exhausted (1 of 1)" in broker.get("mine.review").headers["x-review-reason"]
        assert ask(port, "/healthz") == (200, "ok")
        metrics = ask(port, "/metrics")[1]
        for name in (
            "retries_scheduled_total{",
            "retries_executed_total{",
            "retries_exhausted_total{",
            "retry_queue_depth ",
        ):
            assert f"\n{name}" in metrics
        rows = json.loads(ask(port, "/api/messages")[1])["items"]
        assert sorted(row["state"] for row in rows) == ["done", "failed"]
        names = rabbit.rabbitmqctl("--quiet", "list_connections", "client_properties")
        assert "my-retries consumer" in names
        assert some.stop() == [0]
    assert (tmp_path / "own.db").exists()


def test_a_service_without_its_broker_is_well_but_not_ready(tmp_path: Path) -> None:
    port = free_port()
    url = f"amqp://guest:guest@127.0.0.1:{free_port()}"
    with services(f"sqlite:///{tmp_path}/own.db", url, tmp_path, HTTP_PORT=str(port)) as some:
        some.start()
        patiently(lambda: ask(port, "/readyz")[0] == 503, 60, some.logs())
        assert "no connection to the broker" in patiently(lambda: ask(port, "/readyz")[1])
        assert ask(port, "/healthz")[0] == 200
        assert some.stop() == [0]
        assert "no connection to 127.0.0.1" in some.logs()


@pytest.mark.parametrize(
    ("environment", "complaint"),
    [
        ({"RABBITMQ_URL": "http://broker"}, "rabbitmq_url: must begin with amqp://"),
        ({"BASE_DELAY_MS": "soon"}, "BASE_DELAY_MS: must be a whole number"),
        ({"DATABASE_URL": "mysql://x"}, "mysql"),
    ],
)
def test_a_mistake_in_the_environment_is_named(tmp_path: Path, environment: dict[str, str], complaint: str) -> None:
    given = {"DATABASE_URL": f"sqlite:///{tmp_path}/own.db", "HTTP_PORT": "0", **environment}
    ended = subprocess.run(
        [sys.executable, "-m", "duly.cli", "retry-service"],
        env={**os.environ, "PYTHONPATH": str(ROOT), **given}, capture_output=True, text=True, timeout=60, cwd=tmp_path,
    )  # fmt: skip
    assert ended.returncode == 2
    assert complaint in ended.stderr


def test_the_demo_shows_messages_where_a_broker_is_within_reach(
    tmp_path: Path, rabbit: Node, vhost: str, vhost_url: str
) -> None:
    log = tmp_path / "demo.log"
    with log.open("w") as out:
        demo = subprocess.Popen(
            [sys.executable, "-u", "-m", "duly.cli", "up", "--demo", "--http-port", "0"],
            env={**os.environ, "PYTHONPATH": str(ROOT), "RABBITMQ_URL": vhost_url},
            stdout=out, stderr=out, cwd=tmp_path,
        )  # fmt: skip
    try:
        patiently(lambda: "order: Tea for two" in log.read_text(), 120)
        demo.terminate()
        assert demo.wait(60) == 0, log.read_text()
    finally:
        demo.kill()
        demo.wait()
    assert rabbit.rabbitmqctl("--quiet", "list_queues", "-p", vhost, "name").split() == [], "a queue stays behind"
