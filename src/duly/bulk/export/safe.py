"""Text that no spreadsheet program takes for a formula, and the way back.

A cell of a CSV file that begins with `=`, `+`, `-`, `@` or a control character may be run when the file is opened. Such
a cell gets an apostrophe in front, as people write it by hand. Numbers with a sign are left as they are, for nothing
is run. A text that begins with an apostrophe before such a character gets another one, so that taking one away
always gives what was there.
"""

from __future__ import annotations

import re

_RUNS = re.compile(r"'*[=+\-@\t\r\n\x00＝＋－＠]")
_HARMLESS = re.compile(r"[+-][\d .,:]*(?:[eE][+-]?\d+)?%?")


def guarded(text: str) -> str:
    return f"'{text}" if _RUNS.match(text) and not _HARMLESS.fullmatch(text) else text


def unguarded(text: str) -> str:
    return text[1:] if text.startswith("'") and _RUNS.match(text) else text
