"""Reads the folders of SQL: one statement per `-- name:` section, the same names in every dialect.

What all databases say in the same words is in `common/sql`; the folder of a dialect has what it says in its own, and
may override any of it. A common section gives a parameter its type where PostgreSQL has to know it (`:size::bigint`);
the loader leaves that out where parameters need no type.

A section names a record where it means all of its columns, and the loader writes them out, in the order of the
record's struct. Only names of our own structs ever get into a statement this way, never a value.

    {item}  {item of i}                       the columns, each of the table i
    {values note}                             a parameter for each column, named like it
    {places new_item}                         a parameter for each column, in their order
    {set schedule}  {set new_item of n}       column = its parameter, or column = n.column
    {many change as c}                        a table c of the rows that parameters give as arrays, `change_<column>`
    {schedule but id, key}                    any of these without some columns
    {many tried with fence bigint as t}       and with a further one
    {json new_item as n}                      a table n of the rows that the parameter `rows` gives as one JSON text
    {given owner, task}                       each column is what its parameter says, or its parameter says nothing

Everything else in braces is the name of a fragment, which several sections have in common: those of `fragments.sql` in
`common`, and those that a dialect says in its own words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from duly.store.dialects import Dialect, named
from duly.store.records import KINDS, RECORDS, ColumnType

COMMON = files("duly.store") / "common" / "sql"
FRAGMENTS = files("duly.store") / "common" / "fragments.sql"

_WRITES = re.compile(r"\b(insert|update|delete)\b|notify")
_SECTION = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
_COMMENT = re.compile(r"^\s*--.*\n?", re.MULTILINE)
_TYPE = re.compile(r"(?<=\w)::\w+")
_PARAMETER = re.compile(r"(?<![:\w]):([a-z_][a-z0-9_]*)")
_GIVEN = re.compile(r"\{given ([\w, ]+)\}")
_FRAGMENT = re.compile(
    r"\{(?:(?P<kind>values|places|set|many|json) )?(?P<record>\w+)(?: but (?P<but>[\w, \n]+?))?"
    r"(?: with (?P<more>[\w, \n]+?))?(?: (?:of|as) (?P<table>\w+))?\}"
)


@cache
def sections(dialect: str) -> dict[str, str]:
    """The statements of one dialect by name, without their comments; parameters written as :name."""
    known = named(dialect)
    found: dict[str, str] = {}
    for folder in (COMMON, known.sql):
        for file in sorted(folder.iterdir(), key=lambda file: file.name):
            found |= {name: filled(text, known) for name, text in _named(file).items()}
    return found


@cache
def _fragments(dialect: str) -> dict[str, str]:
    return _named(FRAGMENTS) | _named(named(dialect).fragments)


def _named(file: Traversable) -> dict[str, str]:
    """The sections of a file by name, without their comments."""
    parts = _SECTION.split(file.read_text(encoding="utf8"))[1:]
    return {name: _COMMENT.sub("", text).strip() for name, text in zip(parts[0::2], parts[1::2], strict=True)}


def filled(text: str, dialect: Dialect) -> str:
    """A statement with the columns of the records that it names, as this dialect writes it."""
    if not dialect.types:
        text = _TYPE.sub("", text)
    text = _GIVEN.sub(lambda found: _given(re.findall(r"\w+", found[1]), dialect), text)
    return _FRAGMENT.sub(lambda found: _written(found, dialect), text)


def _given(columns: list[str], dialect: Dialect) -> str:
    parameters = {name: _parameter(name, KINDS[name], dialect) for name in columns}
    return " and ".join(f"({value} is null or {name} = {value})" for name, value in parameters.items())


def _written(found: re.Match[str], dialect: Dialect) -> str:
    if fragment := _fragments(dialect.name).get(found["record"]):
        return filled(fragment, dialect)
    but = frozenset(re.findall(r"\w+", found["but"] or ""))
    fields = RECORDS[found["record"]].fields
    if unknown := but - fields.keys():
        raise ValueError(f"{found[0]}: {found['record']} has no {sorted(unknown)}")
    columns = [name for name in fields if name not in but]
    table = found["table"]
    match found["kind"]:
        case "values":
            written = [_parameter(name, fields[name], dialect) for name in columns]
        case "places":
            written = ["?"] * len(columns)
        case "set" if table:
            written = [f"{name} = {table}.{name}" for name in columns]
        case "set":
            written = [f"{name} = {_parameter(name, fields[name], dialect)}" for name in columns]
        case "many":
            typed = {name: dialect.types[fields[name]] for name in columns}
            typed |= dict(each.split() for each in (found["more"] or "").split(",") if each)
            arrays = ", ".join(f":{found['record']}_{name}::{type}[]" for name, type in typed.items())
            return f"unnest({arrays}) as {table}({', '.join(typed)})"
        case "json":
            return f"{_from_json({name: fields[name] for name in columns}, dialect)} as {table}"
        case _:
            written = [f"{f'{table}.' if table else ''}{name}{dialect.read_as.get(name, '')}" for name in columns]
    return ", ".join(written)


def _from_json(fields: Mapping[str, ColumnType], dialect: Dialect) -> str:
    """Rows from one JSON text, which every driver can pass. JSON inside of it is text, so that it stays as it is."""
    if not dialect.types:
        columns = ", ".join(f"e.value ->> '{name}' as {name}" for name in fields)
        return f"(select {columns} from json_each(:rows) e)"  # noqa: S608 - names of our own fields
    columns = ", ".join(f"cast({name} as json) as {name}" if kind is bytes else name for name, kind in fields.items())
    typed = ", ".join(f"{name} {dialect.types[str if kind is bytes else kind]}" for name, kind in fields.items())
    return f"(select {columns} from json_to_recordset(cast(:rows as json)) as r({typed}))"  # noqa: S608 - likewise


def _parameter(name: str, kind: ColumnType, dialect: Dialect) -> str:
    # `cast` and not `::`, because every driver's parser must read it: a put may run on the caller's connection.
    return f"cast(:{name} as {dialect.types[kind]})" if dialect.types else f":{name}"


@cache
def reads(dialect: str) -> frozenset[str]:
    """The names of the sections that write and lock nothing."""
    return frozenset(name for name, text in sections(dialect).items() if not _WRITES.search(text))


@cache
def psycopg_sections() -> dict[str, str]:
    """The PostgreSQL statements with parameters as psycopg (and psycopg2) writes them."""
    return {name: to_psycopg(text) for name, text in sections("postgres").items()}


def to_psycopg(text: str) -> str:
    return _PARAMETER.sub(r"%(\1)s", text.replace("%", "%%"))


def to_numbered(text: str, parameters: dict[str, object]) -> tuple[str, list[object]]:
    """A statement with $1, $2, … and the values in that order, as asyncpg wants them."""
    names = list(dict.fromkeys(_PARAMETER.findall(text)))
    numbered = _PARAMETER.sub(lambda match: f"${names.index(match[1]) + 1}", text)
    return numbered, [parameters[name] for name in names]
