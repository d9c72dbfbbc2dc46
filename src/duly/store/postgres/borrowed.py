"""A psycopg connection of the caller's own, on which our statements run as on ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import psycopg
from psycopg.rows import tuple_row
from psycopg.types.datetime import TimestamptzBinaryLoader
from psycopg.types.string import ByteaBinaryLoader


class Borrowed:
    """Gives rows, times and JSON as our connections do, whatever the caller has set on this one."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection

    def execute(
        self, sql: str, parameters: Mapping[str, Any] | None = None, *, prepare: bool | None = None, binary: bool = True
    ) -> psycopg.Cursor[Any]:
        cursor = psycopg.Cursor(self.connection, row_factory=tuple_row)
        cursor.adapters.register_loader("json", ByteaBinaryLoader)
        cursor.adapters.register_loader("timestamptz", TimestamptzBinaryLoader)
        return cursor.execute(sql.encode(), parameters, prepare=prepare, binary=binary)
