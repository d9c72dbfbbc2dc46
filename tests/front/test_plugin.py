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
from duly.plugins import GROUP, Screen, installed
from tests.cli.conftest import call

SOURCE = Path(__file__).resolve().parents[2] / "src" / "duly"
OURS = ["birthdays", "catalog", "deliver", "enrichment", "messages", "reminders"]


@dataclass(frozen=True, kw_only=True)
class Tea(Section):
    PREFIX: ClassVar[str] = "tea_"

    minutes: int = setting(3, "How long it draws.", "TEA_TIME", least=1)
    recipe: str = setting("", "The secret of it.", secret=True)


TEA = Plugin(name="tea", doc="Tea in time.", settings=Tea, install=lambda _, settings: settings.minutes)
NO_TABLES = Plugin(
    name="tables", doc="Built without its SQL.", settings=Section, install=lambda _, __: None,
    migrations=Path("/nowhere/migrations"),
)  # fmt: skip
NO_SCREENS = Plugin(
    name="screens", doc="Without a folder.", settings=Section, install=lambda _, __: None,
    screens=(Screen(path="none", title="None", script="none.js"),),
)  # fmt: skip
UNCALLED: Any = "neither a plug-in nor callable"


@pytest.fixture
def announce(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Have installed packages announce these in place of what they do."""

    def announce(*names: str) -> None:
        points = EntryPoints(EntryPoint(name, f"{__name__}:{name}", GROUP) for name in names)
        monkeypatch.setattr("importlib.metadata.entry_points", lambda group: points)
        installed.cache_clear()

    yield announce
    installed.cache_clear()


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
        (("TEA", "OTHER_TEA"), r"test_plugin:TEA and .*test_plugin:OTHER_TEA both have the name 'tea'"),
        (("NO_TABLES",), "tables has no /nowhere/migrations: create it; .* a backend .* hatchling"),
        (("NO_SCREENS",), "screens has screens or panels: set `static` to the folder"),
    ],
)
def test_a_package_that_announces_something_else_is_named(
    names: tuple[str, ...], complaint: str, announce: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Plugin(name="tea", doc="More tea.", settings=Tea, install=lambda _, __: None)
    monkeypatch.setattr(f"{__name__}.OTHER_TEA", other, raising=False)
    announce(*names)
    with pytest.raises(ConfigError, match=complaint):
        chosen("")
    lost: dict[str, str] = {}
    assert chosen("", lost) == []
    assert re.search(complaint, "".join(lost.values()))


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
    with pytest.raises(ConfigError, match=r"duly and .*:GREEDY both have the setting 'concurrency'"):
        chosen("")
    assert Greedy not in sections()


def test_a_broken_package_is_listed_and_leaves_the_others_alone(announce: Any, tmp_path: Path) -> None:
    announce("MISSING", "TEA", "NO_TABLES")
    env = {"DULY_DATABASE_URL": f"sqlite:///{tmp_path}/duly.db"}
    listed = call("--help", **env)
    assert (listed.exit_code, "broken: apps:" in listed.stdout) == (0, True), listed.stderr
    for name, reason in (("MISSING", "MISSING cannot be loaded: AttributeError"), ("tables", "/nowhere/migrations")):
        refused = call(name, "any", "--thing", **env)
        assert (refused.exit_code, reason in refused.stderr) == (2, True), refused.stderr
    assert "tea_minutes" in call("settings", **env).stdout
    migrated = call("migrate", **env)
    assert migrated.exit_code == 2
    assert "applied 0001_" in migrated.stdout
    assert "not migrated: MISSING, tables." in migrated.stderr
    assert call("items", "--json", **env).stdout.strip() == "[]"
    doctor = call("doctor", **env)
    assert (doctor.exit_code, "MISSING cannot be loaded" in " ".join(doctor.stdout.split())) == (1, True)
    assert call("migrate", DULY_APPS="tea", **env).exit_code == 0
    with pytest.raises(ConfigError, match="MISSING cannot be loaded"):
        chosen("MISSING")
    with pytest.raises(ConfigError, match="tables has no /nowhere/migrations"):
        NO_TABLES.on(Duly(env["DULY_DATABASE_URL"]))


def test_a_broken_migration_leaves_the_tables_of_other_apps_alone(
    database_url: str, tmp_path: Path, announce: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def tables(name: str, sql: str) -> Plugin[Any, Any]:
        for database in ("sqlite", "postgres"):
            folder = tmp_path / name / database
            folder.mkdir(parents=True)
            (folder / "0001_first.sql").write_text(sql)
        return Plugin(name=name, doc="", settings=Section, install=lambda _, __: None, migrations=tmp_path / name)

    monkeypatch.setattr(f"{__name__}.BAD", tables("bad", "create tabel oops (id int);"), raising=False)
    monkeypatch.setattr(f"{__name__}.GOOD", tables("good", "create table fine (id int);"), raising=False)
    announce("BAD", "GOOD")
    migrated = call("migrate", DULY_DATABASE_URL=database_url)
    assert "applied good/0001_first" in migrated.stdout
    assert (migrated.exit_code, "0001_first.sql of the app bad cannot be applied" in migrated.stderr) == (1, True)


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
