"""Workbooks of Excel (XLSX), read row by row.

Libraries that read workbooks keep either the whole sheet or all of its texts in memory, so that a large or contrived
file decides how much memory is used. Here the XML of the sheet is a stream, and texts beyond some megabytes wait on
disk. Only the parts that hold the table are opened; links, pictures and embedded files are not. Macros are refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from posixpath import join, normpath
from typing import Any, BinaryIO
from zipfile import ZipFile

from msgspec import Struct

from duly.bulk.read.archive import BROKEN, objection, open_archive
from duly.bulk.read.headers import find_top
from duly.bulk.read.rows import PEEK, FileRow, Reading, ReadLimits, ReadOptions, Shape
from duly.bulk.read.xlsx.markup import tags
from duly.bulk.read.xlsx.sheet import Cells, Notes, read_cells, read_date_styles
from duly.bulk.read.xlsx.texts import Texts
from duly.core.errors import InputError

WORKBOOK = "xl/workbook.xml"
RELATIONS = "xl/_rels/workbook.xml.rels"
MOST_SHEETS = 10_000


class Workbook(Reading):
    def __init__(self, file: BinaryIO, limits: ReadLimits, options: ReadOptions) -> None:
        self._archive = open_archive(file, limits)
        self._limits = limits
        self._texts = Texts(limits)
        try:
            self._open(options)
        except BaseException:
            self.close()
            raise

    def _open(self, options: ReadOptions) -> None:
        names = self._archive.NameToInfo
        if any(name.lower().endswith("vbaproject.bin") for name in names):
            raise InputError("file", "holds macros; save it as .xlsx, which has none")
        directory = _read_directory(self._archive)
        sheet = _chosen(directory, options.sheet)
        self._rows = self._cells(sheet.part, self._notes(directory))
        first = list(islice(self._rows, PEEK))
        if first and first[0].fault and options.header is not False:
            raise InputError("file", f"row {first[0].line}, the first one: {first[0].fault}")
        sound = [cells for cells in first if cells.fault is None]
        top = find_top([_dense(cells) for cells in sound], options.header, self._limits)
        begin = first.index(sound[top.rows - 1]) + 1 if top.rows else 0
        self._rows = chain(first[begin:], self._rows)
        self.shape = Shape(
            kind="xlsx",
            columns=top.columns,
            has_header=top.has_header,
            sheet=sheet.name,
            sheets=tuple(each.name for each in directory.sheets),
        )

    def __iter__(self) -> Iterator[FileRow]:
        for number, cells in enumerate(self._rows, 1):
            yield _row(number, cells, self.shape.columns)

    def close(self) -> None:
        self._texts.close()
        self._archive.close()

    def _notes(self, directory: _Directory) -> Notes:
        styles: frozenset[int] = frozenset()
        if directory.texts in self._archive.NameToInfo:
            with _opened(self._archive, directory.texts) as stream:
                self._texts.read(directory.texts, stream)
        if directory.styles in self._archive.NameToInfo:
            with _opened(self._archive, directory.styles) as stream:
                styles = read_date_styles(directory.styles, stream)
        return Notes(self._texts, styles, directory.since_1904)

    def _cells(self, part: str, notes: Notes) -> Iterator[Cells]:
        """The rows of a sheet. What breaks the sheet further down is a row with a fault, the last one."""
        line = 0
        with _opened(self._archive, part) as stream:
            try:
                for cells in read_cells(part, stream, notes, self._limits):
                    line = cells.line
                    yield cells
            except InputError as error:
                if line == 0:
                    raise
                yield Cells(line + 1, {}, f"the file cannot be read from here on: {error.problem}")


class _Named(Struct, frozen=True):
    name: str
    part: str
    is_visible: bool


class _Directory(Struct, frozen=True):
    """Where in the archive the parts of the workbook are."""

    sheets: tuple[_Named, ...]
    texts: str
    styles: str
    since_1904: bool


def _read_directory(archive: ZipFile) -> _Directory:
    if WORKBOOK not in archive.NameToInfo:
        raise InputError("file", "is a file of Microsoft Office, but not a workbook of Excel's")
    targets, kinds = _read_relations(archive)
    sheets: list[_Named] = []
    since_1904 = False
    with _opened(archive, WORKBOOK) as stream:
        for name, attributes in tags(WORKBOOK, stream):
            given = {key.rpartition(":")[2]: value for key, value in attributes.items()}
            if name == "workbookPr":
                since_1904 = given.get("date1904", "0") in ("1", "true")
            elif name == "sheet" and given.get("id", "") in targets and len(sheets) < MOST_SHEETS:
                part = targets[given["id"]]
                sheets.append(_Named(given.get("name", "")[:100], part, given.get("state", "visible") == "visible"))
    return _Directory(tuple(sheets), kinds.get("sharedStrings", ""), kinds.get("styles", ""), since_1904)


def _read_relations(archive: ZipFile) -> tuple[dict[str, str], dict[str, str]]:
    """The parts that the workbook refers to: by id, and by type."""
    targets: dict[str, str] = {}
    kinds: dict[str, str] = {}
    with _opened(archive, RELATIONS) as stream:
        for name, given in tags(RELATIONS, stream):
            if name == "Relationship" and given.get("TargetMode") != "External" and len(targets) < MOST_SHEETS:
                part = normpath(join("/xl", given.get("Target", ""))).lstrip("/")
                targets[given.get("Id", "")] = part
                kinds.setdefault(given.get("Type", "").rpartition("/")[2], part)
    return targets, kinds


def _opened(archive: ZipFile, part: str) -> Any:
    entry = archive.NameToInfo.get(part)
    if entry is None:
        raise InputError("file", f"is not a whole workbook: {part:.100} is missing")
    if problem := objection(entry):
        raise InputError("file", f"{part:.100} {problem}")
    try:
        return archive.open(entry)
    except BROKEN as error:
        raise InputError("file", f"{part:.100} is damaged: {error}") from None


def _chosen(directory: _Directory, wanted: str | None) -> _Named:
    for sheet in directory.sheets:
        if sheet.is_visible if wanted is None else sheet.name == wanted:
            return sheet
    if wanted is None:
        raise InputError("file", "has no visible sheet")
    known = ", ".join(sheet.name for sheet in directory.sheets[:10])
    raise InputError("sheet", f"there is no sheet {wanted!r:.100}; there are: {known}")


def _dense(cells: Cells) -> list[Any]:
    return [cells.values.get(column) for column in range(max(cells.values) + 1)]


def _row(number: int, cells: Cells, names: tuple[str, ...]) -> FileRow:
    values: dict[str, Any] = dict.fromkeys(names)
    fault = cells.fault
    for column, value in cells.values.items():
        if column < len(names):
            values[names[column]] = value
        else:
            values[f"column {column + 1}"] = value
            fault = fault or f"has {max(cells.values) + 1:,} cells where there are {len(names):,} columns"
    return FileRow(number, cells.line, values, fault)
