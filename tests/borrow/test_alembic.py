"""`alembic upgrade head` and `duly migrate` are two doors to the same files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory

from duly.core.errors import NotMigrated
from duly.store.migrate import check, migrate, migrations
from tests.support import app_migrations, claim, counts, opened, put, query

ROOT = Path(__file__).parents[2]
OURS = [migration.name for migration in migrations("sqlite")]
HEAD = f"duly_{OURS[-1][:4]}"


def config() -> Config:
    return Config(ROOT / "alembic.ini")


@pytest.fixture
def url(blank_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("DULY_DATABASE_URL", blank_url)
    return blank_url


def alembic_versions(store) -> list[str]:
    return [row[0] for row in query(store, "select version_num from duly_alembic_version")]


def test_alembic_makes_a_database_that_workers_accept(url: str) -> None:
    with opened(url) as store:
        with pytest.raises(NotMigrated):
            check(store)
        command.upgrade(config(), "head")
        check(store)
        put(store, 2)
        assert len(claim(store)) == 2
        assert migrate(store) == []  # the other door finds it done
        assert alembic_versions(store) == [HEAD]
        command.upgrade(config(), "head")
        assert counts(store) == {"running": 2}


def test_alembic_finds_the_work_of_duly_migrate_done(url: str) -> None:
    with opened(url) as store:
        assert migrate(store) == OURS
        put(store)
        command.upgrade(config(), "head")
        assert alembic_versions(store) == [HEAD]
        assert counts(store) == {"waiting": 1}


# Forked when everything is imported, so that they do meet.
AT_ONCE = """
import os, sys
from alembic.config import main
import duly.cli.alembic.run, psycopg
from duly.store import open_store
from duly.store.migrate import migrate

def by_alembic():
    main(["-c", "alembic.ini", "upgrade", "head"])

def by_duly():
    migrate(open_store(os.environ["DULY_DATABASE_URL"]))

children = []
for job in (by_alembic, by_duly, by_alembic, by_duly):
    child = os.fork()
    if not child:
        job()
        sys.exit()
    children.append(child)
sys.exit(any([os.waitpid(child, 0)[1] for child in children]))
"""


def test_both_doors_may_be_opened_at_once_by_many(url: str) -> None:
    subprocess.run([sys.executable, "-c", AT_ONCE], cwd=ROOT, env=dict(os.environ), check=True, timeout=60)
    with opened(url) as store:
        check(store)
        assert alembic_versions(store) == [HEAD]
        assert [name for (name,) in query(store, "select name from duly_migration order by version")] == OURS


def test_without_a_setting_the_url_of_the_ini_file_counts(blank_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DULY_DATABASE_URL", raising=False)
    ini = config()
    ini.set_main_option("sqlalchemy.url", blank_url.replace("%", "%%"))
    command.upgrade(ini, "head")
    with opened(blank_url) as store:
        check(store)


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2"])
def test_the_url_of_the_ini_file_may_name_another_driver(
    blank_postgres_url: str, monkeypatch: pytest.MonkeyPatch, driver: str
) -> None:
    monkeypatch.delenv("DULY_DATABASE_URL", raising=False)
    ini = config()
    url = f"postgresql+{driver}://{blank_postgres_url.partition('://')[2]}"
    ini.set_main_option("sqlalchemy.url", url.replace("%", "%%"))
    command.upgrade(ini, "head")
    with opened(blank_postgres_url) as store:
        check(store)


OWN_ENV = """
from alembic import context
from sqlalchemy import create_engine
engine = create_engine(context.config.get_main_option("sqlalchemy.url"))
with engine.connect() as connection:
    context.configure(connection=connection)
    with context.begin_transaction():
        context.run_migrations()
"""

OWN_REVISION = """
from alembic import op
revision = "0001"
down_revision = None
def upgrade():
    op.execute("create table visit (id integer primary key)")
"""


def own_config(place: Path, url: str) -> Config:
    """The configuration of an alembic of the user's own, in this folder."""
    (place / "versions").mkdir(parents=True)
    (place / "env.py").write_text(OWN_ENV)
    ini = Config()
    ini.set_main_option("script_location", str(place))
    ini.set_main_option("path_separator", "space")
    ini.set_main_option("version_locations", f"{place}/versions duly:store/alembic/versions")
    ini.set_main_option("sqlalchemy.url", url.replace("postgresql:", "postgresql+psycopg:").replace("%", "%%"))
    return ini


def test_the_revisions_join_an_alembic_of_the_users_own(blank_url: str, tmp_path: Path) -> None:
    ini = own_config(tmp_path / "own", blank_url)
    (tmp_path / "own" / "versions" / "0001_visit.py").write_text(OWN_REVISION)
    command.upgrade(ini, "heads")
    with opened(blank_url) as store:
        check(store)
        assert query(store, "select count(*) from visit") == [(0,)]
        versions = query(store, "select version_num from alembic_version order by 1")
        assert versions == [("0001",), (HEAD,)]
        assert migrate(store) == []


def test_an_alembic_of_the_users_own_migrates_plug_ins_when_its_environment_calls_for_it(
    blank_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DULY_APPS", "reminders")
    apps = {"reminders": app_migrations()["reminders"]}
    ini = own_config(tmp_path / "own", blank_url)
    command.upgrade(ini, "heads")
    with opened(blank_url) as store:
        with pytest.raises(NotMigrated, match=r"the app reminders are at migration 0.* run `duly migrate`"):
            check(store, apps)
        own_env = tmp_path / "own" / "env.py"
        own_env.write_text(f"from duly.cli.alembic.run import upgrade_plugins\n{OWN_ENV}\nupgrade_plugins(engine)\n")
        command.upgrade(ini, "heads")
        check(store, apps)
        assert migrate(store, apps=apps) == []


def test_a_migration_that_breaks_leaves_nothing_behind(url: str) -> None:
    with opened(url) as store:
        with store.transaction() as connection:
            connection.execute("create table duly_queue (in_the_way integer)")  # the last that the migration makes
        with pytest.raises(Exception, match="duly_queue"):
            command.upgrade(config(), "head")
        with store.transaction() as connection:
            connection.execute("drop table duly_queue")
        with pytest.raises(NotMigrated):
            put(store)
        command.upgrade(config(), "head")
        check(store)


def test_every_sql_file_has_a_revision_and_they_are_one_chain() -> None:
    chain = list(ScriptDirectory.from_config(config()).walk_revisions())
    assert len(chain) == len(migrations("postgres")) == len(migrations("sqlite"))
    assert {Path(each.path).stem for each in chain} == {each.name for each in migrations("postgres")}


def test_there_is_no_way_back_and_no_way_without_the_database(url: str) -> None:
    command.upgrade(config(), "head")
    with pytest.raises(NotImplementedError, match="forward only"):
        command.downgrade(config(), "base")
    with pytest.raises(NotImplementedError, match="duly/store/migrations"):
        command.upgrade(config(), "head", sql=True)
    with opened(url) as store:
        check(store)
