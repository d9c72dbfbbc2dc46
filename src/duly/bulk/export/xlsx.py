"""Writes an Excel workbook (XLSX) from top to bottom into a zip file, without seeking.

Text stands in its cell as text, so nothing in it can be a formula and no table of texts has to be kept. A sheet that is
full is followed by another one with the same headers. Its bytes are bounded too: beyond two gigabytes an entry of a
zip file needs an extension that makes Excel offer to repair the file.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any, cast
from zipfile import ZIP_DEFLATED, ZipFile

import msgspec
from msgspec import Struct

from duly.bulk.read.xlsx.sheet import COLUMNS, EXACT, letters
from duly.core.errors import InputError

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
# Characters that XML does not allow are written as _xHHHH_, and so is text that looks like that already.
_UNSAYABLE = re.compile("[\x00-\x08\x0b-\x1f\ud800-\udfff\ufffe\uffff]|_(?=x[0-9A-Fa-f]{4}_)")


class SheetLimits(Struct, frozen=True, kw_only=True):
    rows: int = 1_048_576  # with the headers; what Excel can show
    bytes: int = 1_900_000_000  # before compression


def workbook(headers: Sequence[str], rows: Iterable[Sequence[Any]], limits: SheetLimits) -> Iterator[bytes]:
    """The bytes of the file, a portion at a time."""
    if len(headers) > COLUMNS:
        raise InputError("columns", f"there are {len(headers):,}; a sheet has room for {COLUMNS:,}")
    names = [letters(column) for column in range(len(headers))]
    basket = _Basket()
    archive = ZipFile(cast(IO[bytes], basket), "w", ZIP_DEFLATED, compresslevel=3)
    rest = iter(rows)
    row, sheets = next(rest, None), 0
    while row is not None or not sheets:
        sheets += 1
        with archive.open(f"xl/worksheets/sheet{sheets}.xml", "w") as part:
            header = _row(1, names, headers, ' s="1"')
            part.write((_SHEET + header).encode())
            number, size, lines, waiting = 1, len(header), list[str](), 0
            while row is not None and number < limits.rows and size < limits.bytes:
                number += 1
                line = _row(number, names, row)
                lines.append(line)
                size += len(line)
                waiting += len(line)
                if waiting >= PORTION:
                    part.write("".join(lines).encode())
                    lines.clear()
                    waiting = 0
                    if basket.size >= PORTION:
                        yield basket.emptied()
                row = next(rest, None)
            part.write("".join((*lines, "</sheetData></worksheet>")).encode())
    for name, content in _parts(sheets).items():
        with archive.open(name, "w") as part:  # without a time, so that the same rows give the same bytes
            part.write(content.encode())
    archive.close()
    yield basket.emptied()


class _Basket:
    """Where the zip file is written to. It has no `seek`, so that zipfile writes from the beginning to the end."""

    def __init__(self) -> None:
        self._portions: list[bytes] = []
        self.size = 0

    def write(self, data: bytes, /) -> int:
        self._portions.append(bytes(data))
        self.size += len(data)
        return len(data)

    def flush(self) -> None:
        """Nothing waits here: `emptied` takes all of it."""

    def emptied(self) -> bytes:
        whole = b"".join(self._portions)
        self._portions.clear()
        self.size = 0
        return whole


def _row(number: int, names: Sequence[str], values: Sequence[Any], style: str = "") -> str:
    cells = [_cell(f'r="{name}{number}"{style}', value) for name, value in zip(names, values, strict=True)]
    return f'<row r="{number}">{"".join(cells)}</row>'


def _cell(where: str, value: Any) -> str:
    match value:
        case None | "":
            return ""
        case str():
            return _text(where, value)
        case bool():
            return f'<c {where} t="b"><v>{int(value)}</v></c>'
        case int() if abs(value) < EXACT:
            return f"<c {where}><v>{value}</v></c>"
        case float() if math.isfinite(value):
            return f"<c {where}><v>{value!r}</v></c>"
        case int() | float():
            return _text(where, repr(value))
        case _:
            return _text(where, msgspec.json.encode(value).decode())


def _text(where: str, text: str) -> str:
    if len(text) * 2 > CHARACTERS and len(text.encode("utf-16-le", "surrogatepass")) > 2 * CHARACTERS:
        kept = text.encode("utf-16-le", "surrogatepass")[: 2 * (CHARACTERS - 1)]
        text = f"{kept.decode('utf-16-le', 'ignore')}…"
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    escaped = _UNSAYABLE.sub(lambda found: f"_x{ord(found[0]):04X}_", escaped)
    space = "" if escaped == escaped.strip() else ' xml:space="preserve"'
    return f'<c {where} t="inlineStr"><is><t{space}>{escaped}</t></is></c>'


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
