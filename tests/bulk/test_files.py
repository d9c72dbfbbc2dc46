"""Kept files: whole or not at all, hashed on the way, on disk and in a bucket."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from duly.bulk.buckets import BucketError, BucketFiles
from duly.bulk.files import INCOMING, FileGone, FileStore, Kept, LocalFiles, open_files
from duly.bulk.read import open_rows
from duly.errors import ConfigError, InputError
from tests.bulk.servers import S3Server, bucket

pytestmark = pytest.mark.xdist_group("bulk-s3")


def put(store: FileStore, key: str, portions: Iterator[bytes], limit: int | None = None) -> Kept:
    with store.writer(key, limit) as writer:
        for portion in portions:
            writer.write(portion)
    assert writer.kept is not None
    return writer.kept


@pytest.fixture(scope="module")
def moto() -> Iterator[tuple[S3Server, Any]]:
    with bucket() as known:
        yield known


@pytest.fixture(params=["local", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> FileStore:
    if request.param == "local":
        return LocalFiles(tmp_path / "files")
    return BucketFiles(request.getfixturevalue("moto")[0].open(), f"kept/{tmp_path.name}")


def test_a_file_is_kept_with_its_size_and_hash(store: FileStore) -> None:
    content = os.urandom(3_000_000)
    kept = put(store, "jobs/7/products.csv", (content[at : at + 100_000] for at in range(0, len(content), 100_000)))
    assert kept == Kept("jobs/7/products.csv", len(content), hashlib.sha256(content).hexdigest())
    assert b"".join(store.portions(kept.key)) == content
    with store.open(kept.key) as file:
        file.seek(2_999_990)
        assert file.read() == content[-10:]


def test_large_files_go_in_parts(store: FileStore) -> None:
    block = os.urandom(1_000_000)
    kept = put(store, "large.bin", (block for _ in range(20)))
    digest = hashlib.sha256()
    for portion in store.portions("large.bin"):
        digest.update(portion)
    assert (kept.size, kept.sha256) == (20_000_000, digest.hexdigest())


def test_an_empty_file_is_a_file(store: FileStore) -> None:
    assert put(store, "empty", iter(())).size == 0
    assert list(store.portions("empty")) == []


def test_after_an_error_there_is_no_file_and_the_old_one_stays(store: FileStore) -> None:
    put(store, "a.csv", iter([b"old"]))

    def breaks() -> Iterator[bytes]:
        yield b"x" * 9_000_000
        raise ConnectionResetError

    for key in ("a.csv", "b.csv"):
        with pytest.raises(ConnectionResetError):
            put(store, key, breaks())
    assert b"".join(store.portions("a.csv")) == b"old"
    with pytest.raises(FileGone):
        list(store.portions("b.csv"))


def test_a_file_is_replaced_as_a_whole_and_may_be_deleted_twice(store: FileStore) -> None:
    for content in (b"first", b"second"):
        put(store, "a.csv", iter([content]))
    assert b"".join(store.portions("a.csv")) == b"second"
    store.delete("a.csv")
    store.delete("a.csv")
    with pytest.raises(FileGone, match=r"there is no file a\.csv"), store.open("a.csv"):
        pass


def test_all_files_below_a_folder_go_and_no_others(store: FileStore) -> None:
    for key in ("small/1/a", "small/1/deep/b", "small/10/c"):
        put(store, key, iter([b"x"]))
    for _ in range(2):
        store.delete_below("small/1")
    for key in ("small/1/a", "small/1/deep/b"):
        with pytest.raises(FileGone):
            list(store.portions(key))
    assert list(store.portions("small/10/c")) == [b"x"]


def test_too_much_is_refused_while_it_comes(store: FileStore) -> None:
    taken = 0

    def endless() -> Iterator[bytes]:
        nonlocal taken
        while True:
            taken += 1
            yield b"x" * 1000

    with pytest.raises(InputError, match="has more than 10,000 bytes"):
        put(store, "a.csv", endless(), limit=10_000)
    assert taken == 11
    with pytest.raises(FileGone):
        list(store.portions("a.csv"))


@pytest.mark.parametrize(
    "key", ["", "../a", "a/../b", "/etc/passwd", ".hidden", "a//b", "a/.incoming/b", "a\0b", "a\\b", "é"]
)
def test_a_key_cannot_lead_elsewhere(store: FileStore, key: str) -> None:
    asks: tuple[Callable[[], object], ...] = (
        lambda: store.writer(key),
        lambda: list(store.portions(key)),
        lambda: store.delete(key),
    )
    for ask in asks:
        with pytest.raises(InputError, match="is not a path of letters"):
            ask()


def test_a_kept_table_can_be_read(store: FileStore) -> None:
    put(store, "a.csv", iter([b"a,b\n", b"1,2\n"]))
    with store.open("a.csv") as file, open_rows(file, "a.csv") as reading:
        assert [row.values for row in reading] == [{"a": "1", "b": "2"}]


def test_what_a_crashed_writer_left_is_swept_after_a_while(tmp_path: Path) -> None:
    store = LocalFiles(tmp_path)
    store.writer("a.csv").write(b"half")
    (left,) = (tmp_path / INCOMING).iterdir()
    assert store.sweep() == 0
    os.utime(left, (0, 0))
    assert store.sweep() == 1
    assert list((tmp_path / INCOMING).iterdir()) == []


def test_a_file_that_cannot_get_its_name_leaves_nothing_behind(tmp_path: Path) -> None:
    store = LocalFiles(tmp_path)
    put(store, "a", iter([b"a file"]))
    with pytest.raises(OSError, match="a"):
        put(store, "a/b", iter([b"wants a folder"]))
    assert list((tmp_path / INCOMING).iterdir()) == []


def test_a_bucket_that_is_not_there_is_told(moto: tuple[S3Server, Any]) -> None:
    with pytest.raises(BucketError, match=r"writing a\.csv: .*404 Not Found"):
        put(BucketFiles(moto[0].open("other")), "a.csv", iter([b"x"]))


@pytest.mark.parametrize(
    ("where", "problem"),
    [
        (
            "ftp://host/folder",
            r"files_url: 'ftp://host/folder' is neither a folder nor a bucket \(s3://, gs://, az://\)",
        ),
        ("gs:///prefix", "names no bucket"),
    ],
)
def test_a_place_that_is_neither_a_folder_nor_a_bucket_is_refused(where: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        open_files(where)


def test_files_can_be_kept_in_buckets_of_google_cloud_and_azure(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(open_files("gs://bucket/prefix"), BucketFiles)
    with pytest.raises(BucketError, match=r"opening az://container: .*[Aa]ccount"):
        open_files("az://container/prefix")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "acme")
    assert isinstance(open_files("az://container/prefix"), BucketFiles)
