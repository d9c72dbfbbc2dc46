"""What the API says while the database is away."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from duly import Duly
from duly.web import api as rooms
from tests.proxy import proxied


def test_a_put_that_never_left_is_not_said_to_be_perhaps_done(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rooms, "TIME_LIMIT", 4.0)
    with proxied(postgres_url) as proxy:
        app = Duly(proxy.url)

        @app.task
        def ring() -> None: ...

        with TestClient(rooms.create_api(app), base_url="http://127.0.0.1") as client:
            assert client.post("/api/items", json={"task": "ring"}).status_code == 201
            proxy.close()
            answer = client.post("/api/items", json={"task": "ring"})
        assert (answer.status_code, answer.json()["title"]) == (503, "The database cannot be reached")
        assert "may have been done" not in answer.text
        app.close()
