"""Reads the rows of an import: from a CSV file, or straight from the table of another system, which is only read."""

from __future__ import annotations

import csv
import sqlite3
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from duly.apps.catalog.imports import ACCEPTED, COLUMNS
from duly.core.errors import InputError

TABLE = "product_sync_schedule"
MOST = 1_000_000  # rows of one import
SECONDS = 10  # that another database may take to answer
CELL = 10_000_000  # characters
DELIMITERS = ",;\t|"
SQLITE = b"SQLite format 3\0"

Rows = list[dict[str, Any]]


def rows_of(source: str, table: str = TABLE, without: Collection[str] = ()) -> Rows:
    """The rows of a CSV file, of an SQLite file, or of a database by its URL; without these columns."""
    scheme, is_url, _ = source.partition("://")
    if is_url and scheme.partition("+")[0] in ("postgresql", "postgres"):
        columns, found = _of_postgres(source.replace(scheme, "postgresql", 1), table)
    elif is_url and scheme != "sqlite":
        raise InputError("source", f"must be a file, or a URL of sqlite:/// or postgresql://, got {scheme}://")
    else:
        path = Path(source.removeprefix("sqlite:///"))
        if not path.is_file():
            raise InputError("source", f"there is no file {str(path)!r:.200}")
        with path.open("rb") as file:
            is_database = file.read(len(SQLITE)) == SQLITE
        if is_url and not is_database:
            raise InputError("source", f"{str(path)!r:.200} is not an SQLite database")
        columns, found = _of_sqlite(path, table) if is_database else _of_csv(path)
    _check(columns, without)
    if len(found) > MOST:
        raise InputError("source", f"has more than {MOST:,} rows; import it in parts")
    kept = [name for name in columns if name not in without]
    places = [columns.index(name) for name in kept]
    return [{name: row[place] for name, place in zip(kept, places, strict=True)} for row in found]


def _check(columns: Sequence[str], without: Collection[str]) -> None:
    for name in without:
        if name not in columns:
            raise InputError("without", f"there is no column {name!r:.80}; columns: {', '.join(columns):.500}")
    for name in columns:
        if columns.count(name) > 1:
            raise InputError("source", f"has the column {name!r:.80} twice")
        if name not in COLUMNS and name not in without:
            raise InputError(
                "source",
                f"has a column {name!r:.80} that an import does not accept; leave it out with --without. {ACCEPTED}",
            )
    for name in ("user_id", "sku"):
        if name not in columns or name in without:
            raise InputError("source", f"has no column {name}. {ACCEPTED}")


def _of_csv(path: Path) -> tuple[list[str], Sequence[Sequence[Any]]]:
    """The names in the first line, and the rows below it. Commas, semicolons, tabs or bars separate cells."""
    before = csv.field_size_limit(CELL)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            first = file.readline()
            if not first.strip():
                raise InputError("source", f"is empty; its first line must name the columns. {ACCEPTED}")
            file.seek(0)
            reader = csv.reader(file, delimiter=max(DELIMITERS, key=first.count), strict=True)
            columns = [name.strip() for name in next(reader)]
            found = list(islice(_cells(reader, len(columns)), MOST + 1))
    except UnicodeDecodeError as error:
        raise InputError("source", f"is not UTF-8 text (byte {error.start}); save it as CSV in UTF-8") from None
    except csv.Error as error:
        raise InputError("source", f"is not a CSV file: {error}") from None
    finally:
        csv.field_size_limit(before)
    return columns, found


def _cells(reader: Iterator[list[str]], columns: int) -> Iterator[Sequence[Any]]:
    number = 0
    for row in reader:
        if not row:  # an empty line
            continue
        number += 1
        if len(row) != columns:
            raise InputError("source", f"row {number} has {len(row)} cells, but the first line names {columns} columns")
        yield row


def _of_sqlite(path: Path, table: str) -> tuple[list[str], Sequence[Sequence[Any]]]:
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=SECONDS)) as connection:
            tables = [name for (name,) in connection.execute("select name from sqlite_master order by name")]
            if table not in tables:
                raise InputError("table", _no_table(table, tables))
            name = '"' + table.replace('"', '""') + '"'
            cursor = connection.execute(f"select * from {name}")  # noqa: S608 - the quoted name of a table that is there
            return [column[0] for column in cursor.description], cursor.fetchmany(MOST + 1)
    except sqlite3.Error as error:
        raise InputError("source", f"{str(path)!r:.200} cannot be read: {error}") from None


def _of_postgres(url: str, table: str) -> tuple[list[str], Sequence[Sequence[Any]]]:
    try:
        import psycopg
        from psycopg import sql
    except ModuleNotFoundError:
        raise InputError(
            "source", "reading from PostgreSQL needs psycopg, which is not installed: pip install 'duly[postgres]'"
        ) from None
    try:
        with closing(psycopg.connect(url, connect_timeout=SECONDS)) as connection:
            connection.read_only = True
            cursor = connection.execute(
                "select table_schema, table_name from information_schema.tables"
                " where table_schema not in ('pg_catalog', 'information_schema') order by 1, 2"
            )
            tables = [name if schema == "public" else f"{schema}.{name}" for schema, name in cursor]
            named = table.removeprefix("public.")
            if named not in tables:
                raise InputError("table", _no_table(table, tables))
            place = named.split(".") if "." in named else ("public", named)
            cursor = connection.execute(sql.SQL("select * from {}").format(sql.Identifier(*place)))
            assert cursor.description is not None
            return [column.name for column in cursor.description], cursor.fetchmany(MOST + 1)
    except psycopg.Error as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        if secret := urlsplit(url).password:
            reason = reason.replace(secret, "***")
        raise InputError("source", f"the database cannot be read: {reason:.300}") from None


def _no_table(table: str, tables: Sequence[str]) -> str:
    there = f"it has {', '.join(tables[:20])}{', …' if len(tables) > 20 else ''}" if tables else "it has none"
    return f"there is no table {table!r:.80} in this database; {there}. Name it with --table"
