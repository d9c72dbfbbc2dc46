"""A process that forks after its first use of the database: gunicorn's preload, multiprocessing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from duly.store import Store
from tests.process.fleet import ROOT
from tests.process.forker import CHILDREN, PUTS
from tests.support import is_sqlite, query


def run(url: str, how: str) -> tuple[dict[str, Any], str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    if how == "busy":  # coverage has a lock of its own, which a child inherits locked if another thread holds it
        environment.pop("COVERAGE_PROCESS_START", None)
    done = subprocess.run(
        [sys.executable, "-m", "tests.process.forker", url, how],
        env=environment, cwd=ROOT, capture_output=True, text=True, timeout=150,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told, done.stderr


@pytest.mark.parametrize("how", ["busy", "quiet"])
def test_children_of_a_parent_put_and_read_and_so_does_the_parent(store: Store, how: str) -> None:
    told, said = run(store.url, how)
    assert told["codes"] == [0] * CHILDREN, said
    rows = dict(query(store, "select task, count(*) from duly_item group by task"))
    assert rows == {"parents": told["puts"], "childrens": CHILDREN * PUTS}


def test_a_child_that_is_forked_inside_a_transaction_does_not_touch_it(store: Store) -> None:
    told, said = run(store.url, "inside")
    assert told["ranks"] == [[5]], "the parent's transaction was harmed"
    if is_sqlite(store):  # where it could harm the file, it is told so
        assert told["codes"] == [3]
        assert "forked while its parent was inside a transaction" in said
    else:
        assert told["codes"] == [0], said
