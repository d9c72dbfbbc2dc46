"""`alembic upgrade head` over the same SQL files as `duly migrate`: whichever runs first, the other finds it done.

Run it with the `alembic.ini` beside the README, or point an alembic of your own at `duly:store/alembic/versions` with
`version_locations`: the revisions are a branch of their own, labelled `duly`.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection

from duly.store.migrate import apply, migrations


def take_turn(connection: Connection) -> None:
    """Begin a transaction that is alone against other migrators, of either kind, until it ends."""
    if connection.dialect.name == "sqlite":
        # The driver begins nothing before DDL by itself.
        driver: Any = connection.connection.driver_connection
        if not driver.in_transaction:
            connection.exec_driver_sql("begin immediate")
    else:
        from duly.store.postgres import MIGRATION_LOCK

        connection.exec_driver_sql(f"select pg_advisory_xact_lock({MIGRATION_LOCK})")


def upgrade_to(connection: Connection | None, version: int) -> None:
    """Apply the SQL file of this number, unless it was applied before."""
    if connection is None:
        raise NotImplementedError(
            "--sql cannot be: duly looks at the database before it changes it. The SQL is in duly/store/migrations."
        )
    take_turn(connection)
    dialect = "sqlite" if connection.dialect.name == "sqlite" else "postgres"
    (migration,) = (each for each in migrations(dialect) if each.version == version)
    apply(_Plain(connection), migration)


class _Plain:
    """What `apply` needs of a driver's connection: SQL goes through as it is, with no parameters to look for."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection.execution_options(no_parameters=True)

    def execute(self, sql: str) -> Any:
        return self._connection.exec_driver_sql(sql)
