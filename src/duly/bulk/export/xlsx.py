"""A workbook of Excel (XLSX), written from top to bottom into a zip file that is never sought in.

Text stands in its cell as text, so nothing in it can be a formula and no table of texts has to be kept. A sheet that is
full is followed by another one with the same headers. Its bytes are bounded too: beyond two gigabytes an entry of a
zip file needs an extension that makes Excel offer to repair the file.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from contextlib import ExitStack
from typing import IO, Any, cast
from zipfile import ZIP_DEFLATED, ZipFile

import msgspec
from msgspec import Struct

from duly.bulk.cells import EXACT, letters
from duly.bulk.export.out import Export, Out
from duly.core.errors import InputError

COLUMNS = 16_384
CHARACTERS = 32_767  # of a cell, in UTF-16
PORTION = 64 * 1024

_HEAD = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
_MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_DOCUMENT = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006/relationships"
_TYPES = "http://schemas.openxmlformats.org/package/2006/content-types"
_KIND = "application/vnd.openxmlformats-officedocument.spreadsheetml"

_SHEET = (
    f'{_HEAD}<worksheet xmlns="{_MAIN}"><sheetViews><sheetView workbookViewId="0">'
    '<pane ySplit="1" topLeftCell="A2" activePane="bottomLeft" state="frozen"/></sheetView></sheetViews><sheetData>'
)
_STYLES = (
    f'{_HEAD}<styleSheet xmlns="{_MAIN}"><fonts count="2"><font><sz val="11"/><name val="Calibri"/></font>'
    '<font><b/><sz val="11"/><name val="Calibri"/></font></fonts>'
    '<fills count="2"><fill><patternFill patternType="none"/></fill><fill><patternFill patternType="gray125"/></fill>'
    '</fills><borders count="1"><border><left/><right/><top/><bottom/><diagonal/></border></borders>'
    '<cellStyleXfs count="1"><xf numFmtId="0" fontId="0" fillId="0" borderId="0"/></cellStyleXfs>'
    '<cellXfs count="2"><xf numFmtId="0" fontId="0" fillId="0" borderId="0" xfId="0"/>'
    '<xf numFmtId="0" fontId="1" fillId="0" borderId="0" xfId="0" applyFont="1"/></cellXfs>'
    '<cellStyles count="1"><cellStyle name="Normal" xfId="0" builtinId="0"/></cellStyles></styleSheet>'
)
# What XML cannot say is written as _xHHHH_, and so is text that looks like that already.
_UNSAYABLE = re.compile("[\x00-\x08\x0b-\x1f\ud800-\udfff\ufffe\uffff]|_(?=x[0-9A-Fa-f]{4}_)")


class SheetLimits(Struct, frozen=True, kw_only=True):
    rows: int = 1_048_576  # with the headers; what Excel can show
    bytes: int = 1_900_000_000  # before compression


class WorkbookExport(Export):
    def __init__(self, out: Out, headers: Sequence[str], limits: SheetLimits) -> None:
        if len(headers) > COLUMNS:
            raise InputError("columns", f"there are {len(headers):,}; a sheet has room for {COLUMNS:,}")
        self._limits = limits
        self._names = [letters(column) for column in range(len(headers))]
        self._headers = headers
        # It is the caller's file: zipfile gets to see nothing but its `write`, and so never seeks.
        self._archive = ZipFile(cast(IO[bytes], _Unseekable(out)), "w", ZIP_DEFLATED, compresslevel=3)
        self._open = ExitStack()
        self._sheets = 0
        self._begin_sheet()

    def write(self, row: Sequence[Any]) -> None:
        if self._row >= self._limits.rows or self._size >= self._limits.bytes:
            self._end_sheet()
            self._begin_sheet()
        self._write_row(row, "")

    def close(self) -> None:
        self._end_sheet()
        for name, content in _parts(self._sheets).items():
            with self._archive.open(name, "w") as part:
                part.write(content.encode())
        self._archive.close()

    def _begin_sheet(self) -> None:
        self._sheets += 1
        self._part = self._open.enter_context(self._archive.open(f"xl/worksheets/sheet{self._sheets}.xml", "w"))
        self._row = self._size = self._waiting = 0
        self._portions = [_SHEET]
        self._write_row(self._headers, ' s="1"')

    def _end_sheet(self) -> None:
        self._portions.append("</sheetData></worksheet>")
        self._flush()
        self._open.close()

    def _write_row(self, row: Sequence[Any], style: str) -> None:
        self._row += 1
        number = self._row
        cells = "".join(
            [self._cell(f'r="{name}{number}"{style}', value) for name, value in zip(self._names, row, strict=True)]
        )
        line = f'<row r="{number}">{cells}</row>'
        self._portions.append(line)
        self._size += len(line)
        self._waiting += len(line)
        if self._waiting >= PORTION:
            self._flush()

    def _flush(self) -> None:
        self._part.write("".join(self._portions).encode())
        self._portions.clear()
        self._waiting = 0

    def _cell(self, where: str, value: Any) -> str:
        match value:
            case None | "":
                return ""
            case str():
                return self._text(where, value)
            case bool():
                return f'<c {where} t="b"><v>{int(value)}</v></c>'
            case int() if abs(value) < EXACT:
                return f"<c {where}><v>{value}</v></c>"
            case float() if math.isfinite(value):
                return f"<c {where}><v>{value!r}</v></c>"
            case int() | float():
                return self._text(where, repr(value))
            case _:
                return self._text(where, msgspec.json.encode(value).decode())

    def _text(self, where: str, text: str) -> str:
        if len(text) * 2 > CHARACTERS and len(text.encode("utf-16-le", "surrogatepass")) > 2 * CHARACTERS:
            kept = text.encode("utf-16-le", "surrogatepass")[: 2 * (CHARACTERS - 1)]
            text = f"{kept.decode('utf-16-le', 'ignore')}…"
            self.cut += 1
        escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        escaped = _UNSAYABLE.sub(lambda found: f"_x{ord(found[0]):04X}_", escaped)
        space = "" if escaped == escaped.strip() else ' xml:space="preserve"'
        return f'<c {where} t="inlineStr"><is><t{space}>{escaped}</t></is></c>'


class _Unseekable:
    def __init__(self, out: Out) -> None:
        self.write = out.write

    def flush(self) -> None:
        """The owner of the file flushes it."""


def _parts(sheets: int) -> dict[str, str]:
    """Everything but the sheets: what they are called and where they are."""
    numbers = range(1, sheets + 1)
    names = "".join(
        f'<sheet name="{"Rows" if number == 1 else f"Rows {number}"}" sheetId="{number}" r:id="rId{number}"/>'
        for number in numbers
    )
    targets = "".join(
        f'<Relationship Id="rId{number}" Type="{_DOCUMENT}/worksheet" Target="worksheets/sheet{number}.xml"/>'
        for number in numbers
    )
    kinds = "".join(
        f'<Override PartName="/xl/worksheets/sheet{number}.xml" ContentType="{_KIND}.worksheet+xml"/>'
        for number in numbers
    )
    return {
        "xl/styles.xml": _STYLES,
        "xl/workbook.xml": f'{_HEAD}<workbook xmlns="{_MAIN}" xmlns:r="{_DOCUMENT}">'
        f"<sheets>{names}</sheets></workbook>",
        "xl/_rels/workbook.xml.rels": f'{_HEAD}<Relationships xmlns="{_PACKAGE}">{targets}'
        f'<Relationship Id="rId{sheets + 1}" Type="{_DOCUMENT}/styles" Target="styles.xml"/></Relationships>',
        "_rels/.rels": f'{_HEAD}<Relationships xmlns="{_PACKAGE}">'
        f'<Relationship Id="rId1" Type="{_DOCUMENT}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        "[Content_Types].xml": f'{_HEAD}<Types xmlns="{_TYPES}">'
        '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        '<Default Extension="xml" ContentType="application/xml"/>'
        f'<Override PartName="/xl/workbook.xml" ContentType="{_KIND}.sheet.main+xml"/>{kinds}'
        f'<Override PartName="/xl/styles.xml" ContentType="{_KIND}.styles+xml"/></Types>',
    }
