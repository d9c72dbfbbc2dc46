"""What is wrong is told in words that help: by the name that the user wrote, and with the user's own lines."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from types import ModuleType

import pytest

from duly import config
from duly.apps import birthdays, catalog, messages, reminders
from duly.apps.messages.settings import lacking
from duly.client import Client
from duly.config import load, section
from duly.core.errors import BrokenApp, ConfigError, DulyError
from duly.facade.loading import load_app


@pytest.mark.parametrize(
    ("app", "env", "complaint"),
    [
        (messages, {"BASE_DELAY_MS": "-1"}, "^BASE_DELAY_MS: must be at least 0, got -1"),
        (messages, {"DULY_MESSAGE_BASE_DELAY_MS": "-1"}, "^DULY_MESSAGE_BASE_DELAY_MS: must be at least"),
        (catalog, {"DULY_CATALOG_BATCH_SIZE": "0"}, "^DULY_CATALOG_BATCH_SIZE: must be at least 1"),
        (reminders, {"VAPI_BASE_URL": "api.vapi.ai"}, "^VAPI_BASE_URL: must be http://host/… or https://"),
        (reminders, {"VAPI_BASE_URL": "https://"}, "^VAPI_BASE_URL: must be http://host/…"),
        (reminders, {"VAPI_BASE_URL": "https://a:b@host/"}, "^VAPI_BASE_URL: must not contain a user"),
        (birthdays, {"WEBHOOK_URL": "htp://hook"}, "^WEBHOOK_URL: must be http://host/…"),
        (catalog, {"DULY_CATALOG_BASE_URL": "http://host:port/"}, "^DULY_CATALOG_BASE_URL: must be http"),
    ],
)
def test_a_bad_value_is_refused_by_the_name_that_was_written(
    app: ModuleType, env: dict[str, str], complaint: str
) -> None:
    with pytest.raises(ConfigError, match=complaint):
        section(app.plugin.settings, env=env)


@pytest.mark.parametrize(
    ("env", "complaint"),
    [
        ({"DULY_POLL_SECONDS": "inf"}, "^DULY_POLL_SECONDS: must be at most"),
        ({"DULY_KEEP_SECONDS": "inf"}, "^DULY_KEEP_SECONDS: must be at most"),
        ({"DULY_KEEP_SECONDS": "1e300"}, "^DULY_KEEP_SECONDS: must be at most"),
        ({"DULY_MAX_ARGS_BYTES": "9" * 30}, "^DULY_MAX_ARGS_BYTES: must be at most"),
        ({"DULY_ALERT_WEBHOOK_URL": "somewhere"}, "^DULY_ALERT_WEBHOOK_URL: must be http"),
        ({"DULY_CONFIG": "duly.toml"}, "^duly.toml: concurrency: must be at least 1"),
    ],
)
def test_a_value_that_no_clock_or_port_could_hold_is_refused(
    env: dict[str, str], complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("duly.toml").write_text("concurrency = 0\n")
    with pytest.raises(ConfigError, match=complaint):
        load({"DULY_CONFIG": "", **env} if "DULY_CONFIG" in env else {**env, "DULY_CONFIG": _empty(tmp_path)})


def _empty(folder: Path) -> str:
    (folder / "empty.toml").write_text("")
    return str(folder / "empty.toml")


def test_a_value_given_in_code_is_refused_by_its_name() -> None:
    with pytest.raises(ConfigError, match=r"^concurrency: must be at least 1, got 0"):
        load({}, concurrency=0)


def test_an_unknown_variable_is_told_once_with_the_name_that_comes_nearest(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "_REPORTED", set())
    env = {"DULY_DATABSE_URL": "x", "DULY_CATALOG_BATCHSIZE": "3", "DULY_ZZZZ": "1", "DULY_URL": "http://x"}
    with caplog.at_level(logging.WARNING, "duly"):
        load(env)
        load(env)
    assert [record.getMessage() for record in caplog.records] == [
        "DULY_DATABSE_URL is not a setting and has no effect; did you mean DULY_DATABASE_URL?",
        "DULY_CATALOG_BATCHSIZE is not a setting and has no effect; did you mean DULY_CATALOG_BATCH_SIZE?",
        "DULY_ZZZZ is not a setting and has no effect",
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import no_such_package\n", "ModuleNotFoundError: No module named 'no_such_package'"),
        ("def f(:\n", "SyntaxError"),
        ("from duly import Duly\napp = Duly()\n1 / 0\n", "ZeroDivisionError: division by zero"),
    ],
)
@pytest.mark.parametrize("form", ["file", "module"])
def test_an_error_in_the_users_module_shows_the_users_lines(
    text: str, words: str, form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    path = tmp_path / "their_work.py"
    path.write_text(text)
    monkeypatch.delitem(sys.modules, "their_work", raising=False)
    with pytest.raises(BrokenApp) as caught:
        load_app(f"{path}:app" if form == "file" else "their_work:app")
    told = str(caught.value)
    assert words in told
    assert "their_work.py" in told
    assert "loading.py" not in told
    assert "importlib" not in told


def test_a_service_that_is_not_there_is_named_with_its_port() -> None:
    with Client("http://127.0.0.1:1") as client, pytest.raises(DulyError, match=r"cannot reach 127\.0\.0\.1:1: "):
        client.queues()


def test_a_missing_package_is_called_as_pip_calls_it() -> None:
    assert lacking(ModuleNotFoundError(name="google.protobuf")) == "protobuf"
    assert lacking(ModuleNotFoundError(name="pika")) == "pika"
