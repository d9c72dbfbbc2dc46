"""What commands say when something is wrong."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from duly.cli import words
from tests.cli.conftest import Duly, call


@pytest.mark.parametrize("command", ["items", "migrate", "queues", "alive", "doctor"])
def test_without_psycopg_a_postgres_url_is_told_in_one_line(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("duly.store.postgres.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    result = call(command, "--database-url", "postgresql://nobody@127.0.0.1:1/x")
    assert result.exit_code == (1 if command == "doctor" else 2)
    assert "pip install 'duly[postgres]'" in " ".join(result.output.split())
    assert "Traceback" not in result.output


TITLES = (">id", "task", "key", "~when", ">tries", "~error")
ROWS = [[4_000_000_000, "billing.invoices", "customer-77/2026-11", "every day at 09:00", 12, "no route " * 20]]


def printed(columns: int | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[str]:
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns is not None:
        monkeypatch.setenv("COLUMNS", str(columns))
    words.console().print(words.table(*TITLES, rows=ROWS))
    return capsys.readouterr().out.splitlines()


def test_a_narrow_table_keeps_ids_names_and_numbers_whole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    title, line = printed(80, monkeypatch, capsys)
    assert line.split("  ")[:3] == ["4000000000", "billing.invoices", "customer-77/2026-11"]
    assert line.rstrip().endswith("12  no rout…")
    assert "every day a…" in line
    assert max(len(title), len(line)) <= 80
    # Where even that is not enough, names go on in the next line.
    lines = printed(60, monkeypatch, capsys)
    assert max(map(len, lines)) <= 60
    assert "4000000000" in lines[1]
    for column, name in ((1, "billing.invoices"), (2, "customer-77/2026-11")):
        start = lines[0].index(TITLES[column])
        folded = [line[start:].split("  ")[0].strip() for line in lines[1:] if line[start : start + 1].strip()]
        assert "".join(folded).replace(" ", "") == name


def test_a_pipe_gets_tables_at_full_width(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    _, line = printed(None, monkeypatch, capsys)
    assert line.rstrip().endswith("every day at 09:00     12  " + ("no route " * 20).strip())
    assert len(line) < 300


def test_the_doctor_tells_unknown_variables_and_bad_addresses(duly: Duly) -> None:
    result = duly("doctor", "--json", DULY_LEASE_SECOND="5", WEBHOOK_URL="nowhere")
    found = {each["subject"]: each for each in json.loads(result.stdout)}
    assert found["DULY_LEASE_SECOND"]["advice"] == "did you mean DULY_LEASE_SECONDS?"
    assert found["birthdays"]["text"].startswith("WEBHOOK_URL: must be http://host/")
    assert result.exit_code == 1


def test_an_error_in_the_users_module_is_no_traceback_of_ours(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text("import no_such_package\n")
    result = call("worker", f"{tmp_path / 'work.py'}:app")
    assert result.exit_code == 1
    assert "No module named 'no_such_package'" in result.output
    assert 'work.py", line 1' in result.output
    assert "duly/cli" not in result.output


def test_words_are_not_doubled_and_values_not_raw(duly: Duly, app_file: str) -> None:
    told = duly("schedules", "preview", "dayly 09:00").output
    assert "rule: must begin with" in told
    assert "rule: rule:" not in told
    told = duly("put", "remind", "phone=1", "n=1.5", "--app", app_file).output
    assert "n: expected `int`, got `float`" in told
    told = duly("plan").output
    assert "Break(" not in told
    assert "products on: " in told
    item = json.loads(duly("put", "remind", "phone=1", "--app", app_file, "--json").stdout)["id"]
    assert f"item {item} is waiting and cannot be discarded" in duly("discard", str(item)).output
