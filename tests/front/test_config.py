from __future__ import annotations

from contextlib import closing
from dataclasses import fields
from pathlib import Path

import pytest

from duly import Duly
from duly.apps import app_with, enrichment, messages, reminders
from duly.config import aliased, check_names, load, sections, unknown_variables
from duly.core.errors import ConfigError
from duly.core.settings import JobSettings, Settings
from duly.plugin import plugins
from duly.plugins import Installed, chosen


def test_the_names_of_an_apps_specification_count_where_that_app_is_run() -> None:
    settings = load({})
    assert (settings.poll_seconds, settings.concurrency) == (60, 10)
    assert (settings.retry_tries, settings.retry_base_seconds) == (3, 60)
    env = {
        "SCHEDULER_POLL_INTERVAL_SECONDS": "30",
        "SCHEDULER_BATCH_SIZE": "5",
        "RETRY_MAX_ATTEMPTS": "7",
        "RETRY_BASE_DELAY_SECONDS": "1.5",
    }
    with aliased([reminders.plugin]):
        changed = load(env)
    assert (changed.poll_seconds, changed.concurrency) == (30, 5)
    assert (changed.retry_tries, changed.retry_base_seconds) == (7, 1.5)
    assert load(env) == settings
    with aliased([reminders.plugin]), pytest.raises(ConfigError, match=r"^RETRY_MAX_ATTEMPTS: must be a whole number"):
        load({"RETRY_MAX_ATTEMPTS": "often"})


def test_no_variable_without_a_prefix_counts_for_an_embedded_app(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {variable for plugin in plugins().values() for variable in plugin.aliases}
    names |= {each.metadata["alias"] for kind in sections() for each in kind.known().values()} - {None}
    assert {"SAFETY_FACTOR", "MAX_DELAY_MS", "WEBHOOK_URL", "SERVICE_NAME", "SCHEDULER_BATCH_SIZE"} <= names
    assert not any(each.metadata["alias"] for kind in (Settings, JobSettings) for each in kind.known().values())
    for name in (*names, *(name.upper() for kind in (Settings, JobSettings) for name in kind.known())):
        monkeypatch.setenv(name, "nonsense")
    with closing(Duly(f"sqlite:///{tmp_path}/own.db")) as app:
        assert app.check() is None
        assert app.settings == Settings(database_url=f"sqlite:///{tmp_path}/own.db")
        assert app.section(JobSettings) == JobSettings()


def test_the_names_of_an_app_that_is_off_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAFETY_FACTOR", "high")
    monkeypatch.setenv("MAX_DELAY_MS", "late")
    with closing(app_with(reminders.plugin)) as app:
        assert app.internals.verbs.context.job_settings.safety_factor == JobSettings.safety_factor
    with pytest.raises(ConfigError, match=r"^SAFETY_FACTOR: must be a number, got 'high'"):
        app_with(enrichment.plugin)
    with pytest.raises(ConfigError, match=r"^MAX_DELAY_MS: must be a whole number, got 'late'"):
        app_with(messages.plugin)


def test_the_names_of_an_app_that_is_off_do_not_stop_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAX_DELAY_MS", "late")
    assert "messages" not in {plugin.name for plugin in chosen("")}
    monkeypatch.setenv("RABBITMQ_URL", "amqp://localhost")
    assert "messages" in {plugin.name for plugin in chosen("")}


def test_code_beats_environment_beats_alias_beats_file(tmp_path: Path) -> None:
    path = tmp_path / "duly.toml"
    path.write_text("concurrency = 1\nlisten = false\n")
    env = {"DULY_CONFIG": str(path)}
    assert load(env).concurrency == 1
    assert load(env).listen is False
    env["SCHEDULER_BATCH_SIZE"] = "2"
    with aliased([reminders.plugin]):
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
    shown |= reminders.RemindersSettings(api_key="sk-1").shown()
    assert shown["database_url"] == "postgresql://me:***@db/x"
    assert shown["vapi_api_key"] == "***"
    assert "hunter2" not in str(shown)
    assert Settings(database_url="postgresql://db/x").shown()["database_url"] == "postgresql://db/x"


def test_every_setting_has_a_meaning() -> None:
    for kind in sections():
        assert all(each.metadata["doc"].endswith(".") for each in fields(kind))


def test_a_hint_about_a_variable_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("duly.config.installed", lambda: Installed({}, {"sms": "apps: sms cannot be loaded"}))
    assert load({"DULY_LEASE_SECOND": "5"}).lease_seconds == Settings().lease_seconds
    assert unknown_variables({"DULY_LEASE_SECOND": "5"}) == []
    check_names(["sms_gateway"], "duly.toml")  # it may be a setting of the app that cannot be loaded
    with pytest.raises(ConfigError, match="'lease_second' is not a setting; did you mean lease_seconds"):
        check_names(["lease_second"], "duly.toml")


def test_what_kubernetes_says_of_services_is_not_taken_for_settings() -> None:
    said = {"DULY_SERVICE_HOST": "10.0.0.1", "DULY_SERVICE_PORT_HTTP": "80", "DULY_PORT": "tcp://10.0.0.1:80",
            "DULY_PORT_80_TCP_ADDR": "10.0.0.1"}  # fmt: skip
    assert unknown_variables(said) == []
    assert unknown_variables({**said, "DULY_LEASE_SECOND": "5"}) == [("DULY_LEASE_SECOND", "DULY_LEASE_SECONDS")]
