from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from duly.apps import reminders
from duly.config import load, sections, unknown_variables
from duly.core.errors import ConfigError
from duly.core.settings import Settings


def test_the_seeds_settings_have_the_seeds_defaults_and_names() -> None:
    settings = load({})
    assert (settings.poll_seconds, settings.concurrency) == (60, 10)
    assert (settings.retry_tries, settings.retry_base_seconds) == (3, 60)
    changed = load(
        {
            "SCHEDULER_POLL_INTERVAL_SECONDS": "30",
            "SCHEDULER_BATCH_SIZE": "5",
            "RETRY_MAX_ATTEMPTS": "7",
            "RETRY_BASE_DELAY_SECONDS": "1.5",
        }
    )
    assert (changed.poll_seconds, changed.concurrency) == (30, 5)
    assert (changed.retry_tries, changed.retry_base_seconds) == (7, 1.5)


def test_code_beats_environment_beats_alias_beats_file(tmp_path: Path) -> None:
    path = tmp_path / "duly.toml"
    path.write_text("concurrency = 1\nlisten = false\n")
    env = {"DULY_CONFIG": str(path)}
    assert load(env).concurrency == 1
    assert load(env).listen is False
    env["SCHEDULER_BATCH_SIZE"] = "2"
    assert load(env).concurrency == 2
    env["DULY_CONCURRENCY"] = "3"
    assert load(env).concurrency == 3
    assert load(env, concurrency=4).concurrency == 4
    assert load(env, concurrency=None).concurrency == 3


@pytest.mark.parametrize(
    ("env", "complaint"),
    [
        ({"DULY_CONCURRENCY": "many"}, "DULY_CONCURRENCY: must be a whole number"),
        ({"DULY_CONCURRENCY": "0"}, "DULY_CONCURRENCY: must be at least 1"),
        ({"DULY_POLL_SECONDS": "x"}, "DULY_POLL_SECONDS: must be a number"),
        ({"DULY_POLL_SECONDS": "nan"}, "DULY_POLL_SECONDS: must be at least"),
        ({"DULY_LISTEN": "maybe"}, "DULY_LISTEN: must be true or false"),
        ({"DULY_BEAT_SECONDS": "15"}, "DULY_BEAT_SECONDS: must be at most half"),
        ({"DULY_LOG_LEVEL": "loud"}, "DULY_LOG_LEVEL"),
        ({"DULY_LOG_FORMAT": "xml"}, "DULY_LOG_FORMAT"),
        ({"DULY_CONFIG": "/nowhere/duly.toml"}, "there is no file"),
    ],
)
def test_bad_values_are_named(env: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        load(env)


@pytest.mark.parametrize(("text", "complaint"), [("speed = 5", "'speed' is not a setting"), ("speed = ", "duly.toml")])
def test_bad_files_are_named(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "duly.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=complaint):
        load({"DULY_CONFIG": str(path)})


def test_words_for_true_and_false() -> None:
    assert load({"DULY_LISTEN": "Yes"}).listen is True
    assert load({"DULY_LISTEN": "0"}).listen is False


def test_secrets_are_masked_for_people() -> None:
    shown = Settings(database_url="postgresql://me:hunter2@db/x").shown()
    shown |= reminders.Settings(api_key="sk-1").shown()
    assert shown["database_url"] == "postgresql://me:***@db/x"
    assert shown["vapi_api_key"] == "***"
    assert "hunter2" not in str(shown)
    assert Settings(database_url="postgresql://db/x").shown()["database_url"] == "postgresql://db/x"


def test_every_setting_has_a_meaning() -> None:
    for kind in sections():
        assert all(each.metadata["doc"].endswith(".") for each in fields(kind))


def test_a_hint_about_a_variable_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise ConfigError("apps: sms cannot be loaded")

    monkeypatch.setattr("duly.config.plugins", broken)
    assert load({"DULY_LEASE_SECOND": "5"}).lease_seconds == Settings().lease_seconds
    assert unknown_variables({"DULY_LEASE_SECOND": "5"}) == []


def test_what_kubernetes_says_of_services_is_not_taken_for_settings() -> None:
    said = {"DULY_SERVICE_HOST": "10.0.0.1", "DULY_SERVICE_PORT_HTTP": "80", "DULY_PORT": "tcp://10.0.0.1:80",
            "DULY_PORT_80_TCP_ADDR": "10.0.0.1"}  # fmt: skip
    assert unknown_variables(said) == []
    assert unknown_variables({**said, "DULY_LEASE_SECOND": "5"}) == [("DULY_LEASE_SECOND", "DULY_LEASE_SECONDS")]
