"""Buckets and FTP servers as sources, over real sockets."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec
import pytest

from duly.bulk import buckets
from duly.bulk.buckets import BucketError, Objects, open_bucket
from duly.bulk.sources import Changed, Found, SourceError, parse, registry
from duly.bulk.sources import ftp as ftp_source
from duly.core.settings import JobSettings
from duly.errors import InputError
from tests.bulk.servers import S3Server, bucket, ftp_server, make_certificate

pytestmark = pytest.mark.xdist_group("bulk-s3")


@pytest.fixture(scope="module")
def moto() -> Iterator[tuple[S3Server, Any]]:
    with bucket("inbox") as known:
        yield known


def test_objects_below_a_prefix_are_found_and_read(moto: tuple[S3Server, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    settings, client = moto
    content = os.urandom(3_000_000)
    client.put_object(Bucket="inbox", Key="new/a.csv", Body=b"a,b\n")
    client.put_object(Bucket="inbox", Key="new/deep/b.csv", Body=content)
    client.put_object(Bucket="inbox", Key="new/", Body=b"")
    client.put_object(Bucket="inbox", Key="old/c.csv", Body=b"x")
    source = Objects(settings.open())
    a, b = sorted(source.scan("new"), key=lambda found: found.path)
    assert (a.name, a.path, a.size) == ("a.csv", "new/a.csv", 4)
    assert b.name == "b.csv"
    assert b"".join(source.portions(b)) == content
    assert source.find("new/a.csv") == a
    assert {found.path for found in source.scan()} >= {"new/a.csv", "new/deep/b.csv", "old/c.csv"}
    with pytest.raises(SourceError, match=r"there is no object new/z\.csv"):
        source.find("new/z.csv")
    monkeypatch.setattr(buckets, "MOST", 1)
    with pytest.raises(SourceError, match="has more than 1 objects"):
        list(source.scan())


def test_another_version_is_another_file(moto: tuple[S3Server, Any]) -> None:
    settings, client = moto
    source = Objects(settings.open())
    client.put_object(Bucket="inbox", Key="v/a.csv", Body=b"one")
    first = source.find("v/a.csv")
    client.put_object(Bucket="inbox", Key="v/a.csv", Body=b"two")
    second = source.find("v/a.csv")
    assert first.version != second.version
    assert b"".join(source.portions(second)) == b"two"
    with pytest.raises(Changed, match="is gone or was replaced"):
        list(source.portions(first))


def test_a_bucket_that_cannot_be_reached_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    with pytest.raises(BucketError, match="looking for a") as caught:
        Objects(open_bucket("s3", "b", "http://127.0.0.1:9")).find("a")
    assert "hush" not in str(caught.value)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificate(tmp_path_factory.mktemp("tls") / "both.pem")


@pytest.mark.parametrize("is_tls", [False, True])
def test_files_of_an_ftp_server_are_found_and_read(tmp_path: Path, certificate: Path, is_tls: bool) -> None:
    content = os.urandom(3_000_000)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "b.csv").write_bytes(content)
    (tmp_path / "in" / "a é.csv").write_bytes(b"a,b\n")
    (tmp_path / "in" / ".hidden").write_bytes(b"x")
    (tmp_path / "in" / "folder").mkdir()
    with ftp_server(tmp_path, certificate if is_tls else None) as source:
        a, b = source.scan("/in")
        assert [(found.name, found.path, found.size) for found in (a, b)] == [
            ("a é.csv", "/in/a é.csv", 4),
            ("b.csv", "/in/b.csv", len(content)),
        ]
        assert b"".join(source.portions(a)) == b"a,b\n"
        assert b"".join(source.portions(b)) == content
        assert source.find("/in/b.csv") == b
        assert next(source.portions(b)), "who stops in the middle leaves nothing open"
        with pytest.raises(SourceError, match=r"there is no file /in/z\.csv on 127\.0\.0\.1"):
            source.find("/in/z.csv")


def test_a_server_without_mlsd_is_listed_by_names(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"a,b\n")
    (tmp_path / "folder").mkdir()
    with ftp_server(tmp_path, without=("MLSD", "MLST")) as source:
        (found,) = source.scan()
        assert (found.name, found.size) == ("a.csv", 4)
        assert b"".join(source.portions(found)) == b"a,b\n"


def test_a_listing_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(20):
        (tmp_path / f"{n}.csv").write_bytes(b"x")
    monkeypatch.setattr(ftp_source, "LONGEST", 500)
    with ftp_server(tmp_path) as source, pytest.raises(SourceError, match="lists more than 500 characters"):
        source.scan()


def test_another_content_is_another_version_and_a_shorter_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"one and more")
    with ftp_server(tmp_path) as source:
        first = source.find("/a.csv")
        (tmp_path / "a.csv").write_bytes(b"two")
        assert source.find("/a.csv").version != first.version
        with pytest.raises(Changed, match="had 12 bytes when it was found, and 3 when it was read"):
            list(source.portions(first))


def test_what_an_ftp_server_refuses_is_told_without_the_password(tmp_path: Path, certificate: Path) -> None:
    with ftp_server(tmp_path) as source:
        wrong = msgspec.structs.replace(source, password="hush")
        with pytest.raises(SourceError, match="530") as caught:
            wrong.scan()
        assert "hush" not in str(caught.value)
        assert "hush" not in repr(wrong)
        with pytest.raises(SourceError, match="550"):
            list(source.portions(Found("gone", "/gone", 1, "1")))
        with pytest.raises(SourceError, match="550"):
            source.scan("/nowhere")
        for path in ("a.csv", "/../etc", "/a\r\nDELE b"):
            with pytest.raises(InputError, match=r"is not a path from / without \.\."):
                source.scan(path)
    with pytest.raises(SourceError, match="refused"):
        source.scan()
    with ftp_server(tmp_path, certificate) as source:
        with pytest.raises(SourceError, match="certificate verify failed"):
            msgspec.structs.replace(source, authority=None).scan()
        with pytest.raises(SourceError, match="550"):
            msgspec.structs.replace(source, uses_tls=False).scan()


# -- buckets of Google Cloud and Azure, as their protocols are spoken over HTTP

LISTS = {
    "gs": """<ListBucketResult><Contents><Key>new/a.csv</Key><Size>4</Size><ETag>"v1"</ETag>
        <LastModified>2026-06-01T10:00:00.000Z</LastModified></Contents></ListBucketResult>""",
    "az": """<EnumerationResults><Blobs><Blob><Name>new/a.csv</Name><Properties><Content-Length>4</Content-Length>
        <Last-Modified>Mon, 01 Jun 2026 10:00:00 GMT</Last-Modified><Content-Type>text/csv</Content-Type>
        <Etag>"v1"</Etag></Properties></Blob></Blobs><NextMarker/></EnumerationResults>""",
}


@contextmanager
def cloud(scheme: str) -> Iterator[str]:
    """A server with one object in its bucket `inbox`; its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.reply(LISTS[scheme].encode() if "?" in self.path else b"a,b\n")

        def do_HEAD(self) -> None:
            self.reply(b"a,b\n")

        def reply(self, body: bytes) -> None:
            is_there = "?" in self.path or unquote(self.path).endswith("/inbox/new/a.csv")
            self.send_response(200 if is_there else 404)
            self.send_header("Content-Length", str(len(body) if is_there else 0))
            self.send_header("ETag", '"v1"')
            self.send_header("Last-Modified", "Mon, 01 Jun 2026 10:00:00 GMT")
            self.end_headers()
            if is_there and self.command == "GET":
                self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize("scheme", ["gs", "az"])
def test_objects_of_google_and_azure_are_found_and_read(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with cloud(scheme) as url:
        if scheme == "gs":
            key = {"gcs_base_url": url, "disable_oauth": True, "client_email": "", "private_key": ""}
            monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT_KEY", json.dumps({**key, "private_key_id": ""}))
        else:
            monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "acme")
            monkeypatch.setenv("AZURE_SKIP_SIGNATURE", "true")
            monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", f"{url}/acme")
        address = parse(f"{scheme}://inbox/new/a.csv", registry())
        source = registry()[scheme].open(address, JobSettings(), 5.0)
        found = source.find(address.path)
        assert (found.name, found.size, found.version) == ("a.csv", 4, '"v1"')
        assert b"".join(source.portions(found)) == b"a,b\n"
        assert list(source.scan("new/")) == [found]
        with pytest.raises(SourceError, match=r"there is no object new/z\.csv"):
            source.find("new/z.csv")
