"""Apps are plug-ins: found by entry points, chosen by a setting, each with settings of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any, ClassVar

import pytest

from duly import Duly
from duly.apps import catalog, reminders
from duly.config import load, section, sections, sources
from duly.core.errors import ConfigError, DoesNotExist
from duly.plugin import Plugin, Section, chosen, plugins, setting
from duly.plugins import GROUP
from tests.cli.conftest import call

SOURCE = Path(__file__).resolve().parents[2] / "src" / "duly"
OURS = ["birthdays", "catalog", "deliver", "enrichment", "messages", "reminders"]


@dataclass(frozen=True, kw_only=True)
class Tea(Section):
    PREFIX: ClassVar[str] = "tea_"

    minutes: int = setting(3, "How long it draws.", "TEA_TIME", least=1)
    recipe: str = setting("", "The secret of it.", secret=True)


TEA = Plugin(name="tea", doc="Tea in time.", settings=Tea, install=lambda _, settings: settings.minutes)
UNCALLED: Any = "neither a plug-in nor callable"


@pytest.fixture
def announce(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Have installed packages announce these in place of what they do."""

    def announce(*names: str) -> None:
        points = EntryPoints(EntryPoint(name, f"{__name__}:{name}", GROUP) for name in names)
        monkeypatch.setattr("importlib.metadata.entry_points", lambda group: points)
        plugins.cache_clear()

    yield announce
    plugins.cache_clear()


def test_our_own_apps_are_found_as_anybodys_are() -> None:
    assert sorted(plugins()) == OURS


def test_the_setting_apps_chooses_and_without_it_all_are_on_that_have_what_they_need(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("RABBITMQ_URL", raising=False)
    assert [each.name for each in chosen(" reminders,catalog, reminders")] == ["reminders", "catalog"]
    monkeypatch.delenv("DULY_ENRICHMENT_BASE_URL", raising=False)
    assert sorted(each.name for each in chosen("")) == [name for name in OURS if name not in ("enrichment", "messages")]
    monkeypatch.setenv("RABBITMQ_URL", "amqp://broker")
    monkeypatch.setenv("DULY_ENRICHMENT_BASE_URL", "http://provider")
    assert sorted(each.name for each in chosen("")) == OURS
    assert load({"DULY_APPS": "catalog"}).apps == "catalog"


def test_an_unknown_app_is_named_with_those_that_are_known() -> None:
    with pytest.raises(ConfigError, match=r"^apps: there is no app 'katalog' here; known: birthdays, catalog, deliver"):
        chosen("katalog")


@pytest.mark.parametrize(
    ("names", "complaint"),
    [
        (("UNCALLED",), "UNCALLED is not a duly.plugin.Plugin"),
        (("MISSING",), "MISSING cannot be loaded: AttributeError"),
        (("TEA", "OTHER_TEA"), "two packages have an app 'tea'"),
    ],
)
def test_a_package_that_announces_something_else_is_named(
    names: tuple[str, ...], complaint: str, announce: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Plugin(name="tea", doc="More tea.", settings=Tea, install=lambda _, __: None)
    monkeypatch.setattr(f"{__name__}.OTHER_TEA", other, raising=False)
    announce(*names)
    with pytest.raises(ConfigError, match=complaint):
        plugins()


def test_an_apps_settings_come_from_where_the_cores_do(announce: Any, tmp_path: Path) -> None:
    announce("TEA")
    path = tmp_path / "duly.toml"
    path.write_text("tea_minutes = 4\nconcurrency = 2\n")
    env = {"DULY_CONFIG": str(path)}
    assert (load(env).concurrency, section(Tea, env=env).minutes) == (2, 4)
    env["TEA_TIME"] = "5"
    assert (section(Tea, env=env).minutes, sources(env, Tea)) == (5, {"tea_minutes": "TEA_TIME"})
    env["DULY_TEA_MINUTES"] = "6"
    assert section(Tea, env=env).minutes == 6
    assert section(Tea, {"tea_minutes": 7, "concurrency": 1}, env).minutes == 7
    assert Tea(recipe="bergamot").shown() == {"tea_minutes": 3, "tea_recipe": "***"}
    with pytest.raises(ConfigError, match="tea_minutes: must be at least 1"):
        Tea(minutes=0)
    with pytest.raises(ConfigError, match="'tea_sugar' is not a setting"):
        Duly(tea_sugar=2)


def test_two_settings_of_one_name_are_refused(announce: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass(frozen=True, kw_only=True)
    class Greedy(Section):
        concurrency: int = setting(1, "Somebody else's.")

    greedy = Plugin(name="greedy", doc="Takes what is not its own.", settings=Greedy, install=lambda _, __: None)
    monkeypatch.setattr(f"{__name__}.GREEDY", greedy, raising=False)
    announce("GREEDY")
    with pytest.raises(ConfigError, match="two settings are called 'concurrency'; give those of greedy a PREFIX"):
        sections()


def test_a_package_that_cannot_be_loaded_is_told_on_the_command_line(announce: Any) -> None:
    announce("MISSING")
    for words in (["--help"], ["brew"]):
        result = call(*words)
        assert (result.exit_code, "MISSING cannot be loaded" in result.stderr) == (2, True)
    assert call("settings", "--help").exit_code == 0


def test_an_app_is_installed_once_and_found_by_who_knows_its_plugin(announce: Any) -> None:
    announce("TEA")
    app = Duly(tea_minutes=9)
    assert TEA.on(app) == TEA.of(app) == 9
    with pytest.raises(ConfigError, match="tea is installed on this app already"):
        TEA.on(app)
    with pytest.raises(DoesNotExist, match="this service does not have reminders"):
        reminders.plugin.of(app)


def test_a_package_makes_an_app_of_its_own_when_someone_asks_for_it() -> None:
    assert catalog.app.internals.apps == {"catalog": catalog.catalog}
    assert catalog.sync is catalog.catalog.task
    with pytest.raises(AttributeError, match=r"module 'duly.apps.catalog' has no attribute 'nothing'"):
        _ = catalog.nothing


def test_the_core_names_no_app() -> None:
    """What `duly up` runs, by itself or as a demo, it finds by the names of modules that name no app either."""
    names = re.compile(r"\b(catalog|reminders?|birthdays?|message_retry)\b", re.IGNORECASE)
    for path in SOURCE.rglob("*.py"):
        text = path.read_text(encoding="utf8")
        if path.relative_to(SOURCE).parts[0] != "apps":
            assert not re.search(r"duly\.apps\.(?!builtin|demo)|import duly\.apps|from duly\.apps", text), path
            assert not names.search(text), path
