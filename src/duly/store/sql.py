"""Reads the .sql files: one statement per `-- name:` section, the same names in every dialect."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

_SECTION = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
_COMMENT = re.compile(r"^\s*--.*\n?", re.MULTILINE)
_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)")


@cache
def sections(dialect: str) -> dict[str, str]:
    """The statements of one dialect by name, without their comments; parameters written as :name."""
    folder = files("duly.store")
    text = "\n".join((folder / f"{name}.sql").read_text(encoding="utf8") for name in (dialect, f"service_{dialect}"))
    parts = _SECTION.split(text)[1:]
    return {name: _COMMENT.sub("", body).strip() for name, body in zip(parts[0::2], parts[1::2], strict=True)}


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
