"""What reading and writing workbooks have in common."""

from __future__ import annotations

EXACT = 2**53  # whole numbers up to here are themselves in a spreadsheet


def letters(column: int) -> str:
    """The name of a column, counted from 0: A, B, …, Z, AA, …"""
    name = ""
    column += 1
    while column:
        column, rest = divmod(column - 1, 26)
        name = chr(65 + rest) + name
    return name
