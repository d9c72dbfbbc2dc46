"""The walks in docs/architecture.md: each touches the files that are named there, and they are few."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from fastapi.testclient import TestClient

from duly import Duly
from duly.web.api import create_api

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "duly"


def section(title: str) -> str:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf8")
    return re.split(r"(?m)^##", text.partition(f"### {title}\n")[2])[0]


def steps(title: str) -> list[str]:
    """The files of a walk. The function that a step names first, if it does, is defined in its file."""
    text = section(title)
    for name, function in re.findall(r"(?m)^\d+\. `([\w/.]+\.py)`: `(\w+)` ", text):
        assert re.search(rf"(?m)^ *(async )?def {function}\(", (SOURCE / name).read_text(encoding="utf8")), (
            name,
            function,
        )
    return re.findall(r"(?m)^\d+\. `([\w/.]+)`: ", text)


@contextmanager
def footprints() -> Iterator[set[str]]:
    """The files of duly whose functions are called meanwhile, in this thread and in those that are started."""
    seen: set[str] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(SOURCE):
            seen.add(str(path.relative_to(SOURCE)))

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield seen
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def ring(phone: str) -> None: ...


def code_of(walk: list[str]) -> set[str]:
    assert all((SOURCE / name).exists() for name in walk)
    return {name for name in walk if name.endswith(".py")}


def test_a_put_touches_the_files_that_its_walk_names(postgres_url: str) -> None:
    walk = steps("A put, file by file")
    assert 0 < len(walk) <= 10
    app = Duly(postgres_url)
    task = app.task(ring)
    task.after(10).put(phone="first")  # opens the store and measures the clock
    with footprints() as seen:
        task.after(10).put(phone="second")
    app.close()
    assert code_of(walk) <= seen
    assert all(f"`{name}`" in section("A put, file by file") for name in seen), seen


def test_a_claim_a_run_and_a_settle_touch_the_files_that_their_walks_name(postgres_url: str) -> None:
    walks = [steps(f"A {verb}, file by file") for verb in ("claim", "run", "settle")]
    assert all(0 < len(walk) <= 10 for walk in walks)
    app = Duly(postgres_url)

    @app.task
    async def remind(phone: str) -> str:
        return phone

    with footprints() as seen, app.worker(tasks=["remind"]):
        placed = remind.put(phone="first")
        assert placed.wait(20) == "first"
    app.close()
    for walk in walks:
        assert code_of(walk) <= seen


def test_a_cancel_over_http_touches_the_files_that_its_walk_names(postgres_url: str) -> None:
    walk = steps("An HTTP cancel, file by file")
    assert 0 < len(walk) <= 8
    app = Duly(postgres_url)
    placed = app.task(ring).after(10).put(phone="first")
    with footprints() as seen, TestClient(create_api(app), base_url="http://127.0.0.1:8086") as client:
        answer = client.post(f"/api/items/{placed.id}/cancel", json={"reason": "ordered twice"})
        assert answer.json() == {"ids": [placed.id]}
    app.close()
    assert code_of(walk) <= seen
