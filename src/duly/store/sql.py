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

More fragments stand for what several sections have in common:

    {given owner, task}                       each column is what its parameter says, or its parameter says nothing
    {is_waiting}  {in_review}                 how this dialect asks for that
    {standing}                                how a schedule s stands, by the last item i that it made
    {schedule_state}                          whether a schedule is active, paused or broken
    {job_item}                                the row i of a job, as lists show it
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

from duly.store.dialects import Dialect, named
from duly.store.records import KINDS, RECORDS, ColumnType

# Conditions that several sections share.
SHARED = {
    "job_item": """i.id, i.job_id, i.row_no, i.status, i.attempt, i.last_error,
        case when i.state = 'running' then i.claimed_by end as claimed_by,
        case when i.state = 'running' then i.started_at end as started_at, i.changed_at, {summary}""",
    "schedule_state": """case
        when broken_at is not null then 'broken'
        when paused_at is not null then 'paused'
        else 'active'
    end""",
    "standing": """case
        when i.state = 'running' then 'running'
        when i.state = 'waiting' and i.lane = 'main' then 'waiting'
        when i.state = 'done' then 'done'
        when s.failures > 0 then 'failing'
        when i.state = 'failed' or i.outcome = 'discarded' then 'waiting'
        when s.last_success_at is not null then 'done'
        else 'waiting'
    end""",
}

COMMON = files("duly.store") / "common" / "sql"

_WRITES = re.compile(r"\b(insert|update|delete)\b|notify")
_SECTION = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
_COMMENT = re.compile(r"^\s*--.*\n?", re.MULTILINE)
_TYPE = re.compile(r"(?<=\w)::\w+")
_PARAMETER = re.compile(r"(?<![:\w]):([a-z_][a-z0-9_]*)")
_GIVEN = re.compile(r"\{given ([\w, ]+)\}")
_FRAGMENT = re.compile(
    r"\{(?:(?P<kind>values|places|set|many) )?(?P<record>\w+)(?: but (?P<but>[\w, \n]+?))?"
    r"(?: with (?P<more>[\w, \n]+?))?(?: (?:of|as) (?P<table>\w+))?\}"
)


@cache
def sections(dialect: str) -> dict[str, str]:
    """The statements of one dialect by name, without their comments; parameters written as :name."""
    known = named(dialect)
    found: dict[str, str] = {}
    for folder in (COMMON, known.sql):
        for file in sorted(folder.iterdir(), key=lambda file: file.name):
            parts = _SECTION.split(file.read_text(encoding="utf8"))[1:]
            for name, body in zip(parts[0::2], parts[1::2], strict=True):
                found[name] = filled(_COMMENT.sub("", body).strip(), known)
    return found


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
    if fragment := dialect.conditions.get(found["record"]) or SHARED.get(found["record"]):
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
        case _:
            written = [f"{f'{table}.' if table else ''}{name}{dialect.read_as.get(name, '')}" for name in columns]
    return ", ".join(written)


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
    names: list[str] = []

    def number(match: re.Match[str]) -> str:
        name = match[1]
        if name not in names:
            names.append(name)
        return f"${names.index(name) + 1}"

    return _PARAMETER.sub(number, text), [parameters[name] for name in names]
