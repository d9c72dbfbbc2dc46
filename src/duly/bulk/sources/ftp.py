"""Files of an FTP server, in the clear or over TLS (explicit FTPS).

Directories are listed by MLSD where the server has it, and else by names with SIZE and MDTM for each. Where a server
says that data connections go elsewhere, that is not believed (Python's ftplib connects to the server itself).
"""

from __future__ import annotations

import contextlib
import ftplib
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from msgspec import Struct

from duly.bulk.sources import Changed, Found, NotThere, SourceError
from duly.core.errors import InputError

PORTION = 256 * 1024
LONGEST = 16 * 1024 * 1024  # characters of one listing
# What ftplib raises; a ValueError is its word for a line end inside of a command.
_ERRORS: tuple[type[BaseException], ...] = (*ftplib.all_errors, ValueError)


TIMEOUT = 30.0


class FtpSource(Struct, frozen=True, kw_only=True):
    """Each look and each file has a connection of its own, so that none of them is found dead."""

    host: str
    port: int = 21
    user: str = "anonymous"
    password: str = ""
    uses_tls: bool = False
    authority: str | None = None  # a file with the certificates to trust, in place of the system's
    timeout: float = TIMEOUT  # seconds without an answer or a byte

    def __repr__(self) -> str:
        return f"FtpSource(host={self.host!r}, port={self.port}, user={self.user!r})"  # no secrets in logs

    def scan(self, folder: str = "/") -> list[Found]:
        """The files in this directory, by name."""
        with self._connected() as ftp:
            return sorted(self._listed(ftp, _checked(folder)), key=lambda found: found.name)

    def find(self, path: str) -> Found:
        """One file by its path; NotThere when there is none."""
        folder, _, name = _checked(path).rpartition("/")
        for found in self.scan(folder or "/"):
            if found.name == name:
                return found
        raise NotThere(f"there is no file {path} on {self.host}")

    def portions(self, found: Found) -> Iterator[bytes]:
        """The bytes of this file; Changed at the end when they are not as many as were listed."""
        size = 0
        with self._connected() as ftp:
            ftp.voidcmd("TYPE I")
            with ftp.transfercmd(f"RETR {_checked(found.path)}") as data:
                while portion := data.recv(PORTION):
                    size += len(portion)
                    yield portion
                if isinstance(data, ssl.SSLSocket):
                    _end_tls(data)
            ftp.voidresp()
        if found.size not in (-1, size):
            raise Changed(f"{found.path} had {found.size:,} bytes when it was found, and {size:,} when it was read")

    def _listed(self, ftp: ftplib.FTP, folder: str) -> Iterator[Found]:
        base = folder.rstrip("/")
        try:
            lines = _lines(ftp, f"MLSD {folder}")
        except ftplib.error_perm as error:
            if not str(error).startswith(("500", "501", "502", "504")):
                raise
            yield from self._listed_by_name(ftp, folder)
            return
        for line in lines:
            told, _, name = line.partition(" ")
            facts = dict(fact.lower().partition("=")[::2] for fact in told.split(";"))
            if facts.get("type") == "file" and _is_plain(name):
                yield _found(base, name, facts.get("size", ""), facts.get("modify", ""))

    def _listed_by_name(self, ftp: ftplib.FTP, folder: str) -> Iterator[Found]:
        base = folder.rstrip("/")
        ftp.cwd(folder)
        paths = _lines(ftp, "NLST")
        ftp.voidcmd("TYPE I")  # a listing switches to text mode, in which servers do not report sizes
        for path in paths:
            name = path.rpartition("/")[2]
            if not _is_plain(name):
                continue
            try:
                size = ftp.sendcmd(f"SIZE {base}/{name}").partition(" ")[2]
                modified = ftp.sendcmd(f"MDTM {base}/{name}").partition(" ")[2]
            except ftplib.error_perm:  # a directory
                continue
            yield _found(base, name, size, modified)

    @contextmanager
    def _connected(self) -> Iterator[ftplib.FTP]:
        ftp: ftplib.FTP = ftplib.FTP(timeout=self.timeout)  # noqa: S321 (the server is the user's choice)
        if self.uses_tls:
            ftp = _Tls(context=ssl.create_default_context(cafile=self.authority), timeout=self.timeout)
        try:
            ftp.connect(self.host, self.port)
            ftp.login(self.user, self.password)
            if isinstance(ftp, ftplib.FTP_TLS):
                ftp.prot_p()
            yield ftp
            with contextlib.suppress(*ftplib.all_errors):
                ftp.quit()
        except InputError:
            raise
        except _ERRORS as error:
            kind = NotThere if str(error).startswith("550") else SourceError
            raise kind(f"{self.host}:{self.port}: {error or type(error).__name__}"[:300]) from None
        finally:
            ftp.close()  # without QUIT: after an interruption its reply would be that of another command


class _Tls(ftplib.FTP_TLS):
    """FTP over TLS whose data connections continue the session of the control connection, which many servers want."""

    def ntransfercmd(self, cmd: str, rest: int | str | None = None) -> tuple[socket.socket, int | None]:
        connection, size = ftplib.FTP.ntransfercmd(self, cmd, rest)  # noqa: S321 (TLS follows)
        control: Any = self.sock
        wrapped = self.context.wrap_socket(connection, server_hostname=self.host, session=control.session)
        return wrapped, size


def _lines(ftp: ftplib.FTP, command: str) -> list[str]:
    """The lines of a listing, which must not be endless."""
    lines: list[str] = []
    size = 0

    def keep(line: str) -> None:
        nonlocal size
        size += len(line)
        if size > LONGEST:
            raise SourceError(f"{command} lists more than {LONGEST:,} characters")
        lines.append(line)

    ftp.retrlines(command, keep)
    return lines


def _end_tls(data: ssl.SSLSocket) -> None:
    """End TLS. An error is ignored: the server has closed the connection, and its reply shows if the data is whole."""
    try:
        data.unwrap()
    except (OSError, ValueError):
        return


def _found(base: str, name: str, size: str, modified: str) -> Found:
    count = int(size) if size.isdecimal() else -1  # some servers do not say
    return Found(name, f"{base}/{name}", count, f"{count}-{modified}")


def _is_plain(name: str) -> bool:
    return name not in ("", ".", "..") and not name.startswith(".") and "/" not in name and name.isprintable()


def _checked(path: str) -> str:
    """A path in one line, without `..`."""
    if not path.startswith("/") or not path.isprintable() or ".." in path.split("/"):
        raise InputError("path", f"{path!r:.100} is not a path from / without ..")
    return path
