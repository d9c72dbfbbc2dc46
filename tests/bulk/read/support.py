"""Files to be read, made small and by hand, and a look at what reading them gives."""

from __future__ import annotations

import io
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

from duly.bulk.read import FileRow, Reading, ReadLimits, ReadOptions, open_rows

MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
REL = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
PACKAGE = "http://schemas.openxmlformats.org/package/2006/relationships"


def opened(content: bytes | str, name: str = "file.csv", **more: Any) -> Reading:
    """Begin to read this. What ReadLimits knows is a limit, the rest are options."""
    limits = {key: more.pop(key) for key in list(more) if key in ReadLimits.__struct_fields__}
    raw = content.encode() if isinstance(content, str) else content
    return open_rows(io.BytesIO(raw), name, ReadLimits(**limits), ReadOptions(**more))


def rows_of(content: bytes | str, name: str = "file.csv", **more: Any) -> list[FileRow]:
    with opened(content, name, **more) as reading:
        return list(reading)


def values_of(content: bytes | str, name: str = "file.csv", **more: Any) -> list[dict[str, Any]]:
    rows = rows_of(content, name, **more)
    assert not [row for row in rows if row.fault]
    return [row.values for row in rows]


def zipped(parts: dict[str, bytes | str]) -> bytes:
    out = io.BytesIO()
    with ZipFile(out, "w", ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return out.getvalue()


def workbook(sheet: str, **more: str) -> bytes:
    """A workbook with this text inside its `sheetData`; `texts`, `styles` and `workbook` are whole parts."""
    return zipped(workbook_parts(f'<worksheet xmlns="{MAIN}"><sheetData>{sheet}</sheetData></worksheet>', **more))


def workbook_parts(sheet: str, texts: str = "", styles: str = "", workbook: str = "") -> dict[str, bytes | str]:
    parts: dict[str, bytes | str] = {
        "[Content_Types].xml": "<Types/>",
        "xl/workbook.xml": workbook
        or f'<workbook xmlns="{MAIN}" xmlns:r="{REL}"><sheets><sheet name="One" r:id="r1"/></sheets></workbook>',
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{PACKAGE}">'
        f'<Relationship Id="r1" Type="{REL}/worksheet" Target="worksheets/sheet1.xml"/>'
        f'<Relationship Id="r2" Type="{REL}/sharedStrings" Target="/xl/sharedStrings.xml"/>'
        f'<Relationship Id="r3" Type="{REL}/styles" Target="styles.xml"/></Relationships>',
        "xl/worksheets/sheet1.xml": sheet,
    }
    if texts:
        parts["xl/sharedStrings.xml"] = texts
    if styles:
        parts["xl/styles.xml"] = styles
    return parts


def inline(*cells: str) -> str:
    """A row of texts."""
    return "<row>" + "".join(f'<c t="inlineStr"><is><t>{cell}</t></is></c>' for cell in cells) + "</row>"
