"""`alembic upgrade head` over the same SQL files as `duly migrate`: whichever runs first, the other finds it done.

Run it with the `alembic.ini` beside the README, or point an alembic of your own at `duly:store/alembic/versions` with
`version_locations`: the revisions are a branch of their own, labelled `duly`. Migrations of plug-ins are no revisions:
an `env.py` of your own applies them with `duly.cli.alembic.run.upgrade_plugins`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from alembic import op
from sqlalchemy import Connection

from duly.store.dialects import Dialect, called
from duly.store.migrate import Apps, apply, migrations, naming, version_on


def dialect_on(connection: Connection) -> Dialect:
    dialect = called(connection.dialect.name)
    if dialect is None:
        raise NotImplementedError(f"duly has no migrations for {connection.dialect.name}")
    return dialect


def upgrade_to(connection: Connection | None, version: int) -> None:
    """Apply the SQL file of this number, unless it was applied before."""
    if connection is None:
        raise NotImplementedError(
            "--sql is not supported: duly reads the database before it changes it. The SQL is in duly/store/migrations."
        )
    dialect = dialect_on(connection)
    dialect.take_turn(connection)
    (migration,) = (each for each in migrations(dialect.name) if each.version == version)
    apply(_Plain(connection), migration)


def upgrade_apps(connection: Connection, apps: Apps) -> None:
    """Apply the migrations of these plug-ins that were not applied before, if the schema itself is up to date."""
    dialect, plain = dialect_on(connection), _Plain(connection)
    dialect.take_turn(connection)
    if version_on(plain) >= migrations(dialect.name)[-1].version:
        for app, folder in apps.items():
            for migration in migrations(dialect.name, folder, app):
                with naming(migration):
                    apply(plain, migration)


def step(version: int) -> tuple[str, str | None, Sequence[str] | None, Callable[[], None], Callable[[], NoReturn]]:
    """What alembic looks for in the file of a revision: its name and the one before, labels, upgrade and downgrade."""

    def upgrade() -> None:
        upgrade_to(op.get_bind(), version)

    def downgrade() -> NoReturn:
        raise NotImplementedError("migrations go forward only")

    if version == 1:
        return "duly_0001", None, ("duly",), upgrade, downgrade
    return f"duly_{version:04}", f"duly_{version - 1:04}", None, upgrade, downgrade


class _Plain:
    """What `apply` needs of a driver's connection: it runs SQL as it is, without looking for parameters in it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection.execution_options(no_parameters=True)

    def execute(self, sql: str) -> Any:
        return self._connection.exec_driver_sql(sql)
