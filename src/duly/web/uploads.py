"""Multipart forms with a file, read from the socket in portions; a file is never in memory as a whole."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from typing import Any, BinaryIO, TypeAlias, cast

from fastapi import Request
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.concurrency import run_in_threadpool

from duly.core.errors import InputError
from duly.web.problems import Problem

PORTION = 1024 * 1024  # bytes that are written at a time
FIELDS = 20  # parts of a form besides its file
FIELD = 64 * 1024  # bytes of each of them

UPLOADED = "multipart/form-data"

Write: TypeAlias = Callable[[bytes], object]  # takes the next bytes of a file


def kind_of(request: Request) -> str:
    """The media type of the body."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


class Form:
    """A form that is being read: its fields, the name of its file, and the bytes of it that are not written yet."""

    def __init__(self, content_type: str) -> None:
        kind, options = parse_options_header(content_type)
        if kind != UPLOADED.encode() or not options.get(b"boundary"):
            raise Problem(415, "the form must be multipart/form-data with a boundary")
        self.fields: dict[str, str] = {}
        self.filename: str | None = None
        self.pending: list[bytes] = []
        self.is_whole = False
        self._header = [b"", b""]
        self._disposition = b""
        self._name = ""
        self._is_file = False
        self._value: list[bytes] = []
        try:
            self._parser = MultipartParser(
                options[b"boundary"],
                {
                    "on_part_begin": self._begin, "on_header_field": self._on_header_field,
                    "on_header_value": self._on_header_value, "on_header_end": self._end_header,
                    "on_headers_finished": self._begin_data, "on_part_data": self._on_data, "on_part_end": self._end,
                    "on_end": self._finish,
                },
            )  # fmt: skip
        except FormParserError as error:
            raise Problem(400, f"the form cannot be read: {error}") from None

    def feed(self, data: bytes) -> None:
        try:
            self._parser.write(data)
        except FormParserError as error:
            raise Problem(400, f"the form is damaged: {error}") from None

    def _begin(self) -> None:
        self._disposition = b""
        self._value = []

    def _on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._header[0] += data[start:end]

    def _on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._header[1] += data[start:end]

    def _end_header(self) -> None:
        name, value = self._header
        if name.lower() == b"content-disposition":
            self._disposition = value
        self._header = [b"", b""]

    def _begin_data(self) -> None:
        _, options = parse_options_header(self._disposition)
        self._name = _text(options.get(b"name", b""), "a field")
        self._is_file = self._name == "file"
        if self._is_file and self.filename is not None:
            raise Problem(422, "file: the form has two of them; send one", "file")
        if self._is_file:
            self.filename = options.get(b"filename", b"file").decode("utf8", "replace")
        elif len(self.fields) >= FIELDS:
            raise Problem(422, f"a form may have at most {FIELDS} fields")

    def _on_data(self, data: bytes, start: int, end: int) -> None:
        portion = data[start:end]
        if self._is_file:
            self.pending.append(portion)
            return
        self._value.append(portion)
        if sum(map(len, self._value)) > FIELD:
            raise Problem(413, f"{self._name[:50]}: a field may have at most {FIELD:,} bytes", self._name[:50])

    def _end(self) -> None:
        if not self._is_file:
            self.fields[self._name] = _text(b"".join(self._value), self._name[:50])

    def _finish(self) -> None:
        self.is_whole = True


def _text(data: bytes, what: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise Problem(422, f"{what}: is not UTF-8", what) from None


async def _read(request: Request, write: Write) -> Form:
    """Read a form to its end. The bytes of its file are written in a thread as they arrive."""
    form = Form(request.headers.get("content-type", ""))
    size = 0
    async for data in request.stream():
        form.feed(data)
        size += len(data)
        if size >= PORTION:
            await _drain(form, write)
            size = 0
    await _drain(form, write)
    if not form.is_whole:
        raise Problem(400, "the form is incomplete")
    if form.filename is None:
        raise Problem(422, "file: is missing; send the file as the field `file`", "file")
    return form


async def _drain(form: Form, write: Write) -> None:
    if form.pending:
        whole = b"".join(form.pending)
        form.pending.clear()
        await run_in_threadpool(write, whole)


def is_form(request: Request) -> bool:
    return kind_of(request) == UPLOADED


@asynccontextmanager
async def spooled(request: Request, most: int) -> AsyncIterator[tuple[BinaryIO, Form]]:
    """The file of a form, of at most so many bytes, in a temporary file for the length of the block."""
    if not is_form(request):
        raise Problem(415, "send the file as the field `file` of a form")
    with tempfile.TemporaryFile() as spool:

        def write(data: bytes) -> None:
            if spool.tell() + len(data) > most:
                raise InputError("file", f"has more than {most:,} bytes")
            spool.write(data)

        yield cast(BinaryIO, spool), await received(request, write)


async def received(request: Request, write: Write, held: AbstractContextManager[Any] | None = None) -> Form:
    """The form of this request. A file that is too large for whoever writes it is answered with 413.

    `held` is closed at the end: without an error if the form is complete, and with the error otherwise.
    """
    try:
        form = await _read(request, write)
    except BaseException as error:
        if held is not None:  # here and now: whoever was cancelled may not wait for a thread
            held.__exit__(type(error), error, None)
        if isinstance(error, InputError):
            raise Problem(413, str(error), "file", {"Connection": "close"}) from None
        raise
    if held is not None:
        await run_in_threadpool(held.__exit__, None, None, None)
    return form
