"""Addresses of files."""

from __future__ import annotations

import pytest

from duly.bulk.sources import Address, FileSource, parse, registry
from duly.errors import ConfigError, InputError


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("s3://uploads/new/a%20b.csv", Address("s3", "uploads", "new/a b.csv")),
        ("ftp://ana@example.com:2121/in/a.csv", Address("ftp", "example.com", "/in/a.csv", "ana", 2121)),
        ("ftps://example.com/a.csv", Address("ftps", "example.com", "/a.csv")),
        ("gs://uploads/a.csv", Address("gs", "uploads", "a.csv")),
        ("az://uploads/a.csv", Address("az", "uploads", "a.csv")),
        ("file:products.csv", Address("file", "", "products.csv")),
    ],
)
def test_an_address_names_a_file(text: str, address: Address) -> None:
    assert parse(text, registry()) == address
    assert parse(text, registry()).name == address.path.rpartition("/")[2]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("https://example.com/a.csv", "the scheme 'https' is not known; known schemes: s3, gs, az, ftp, ftps, file"),
        ("a.csv", "is not known"),
        ("ftp://ana:hush@example.com/a.csv", "must not hold a password"),
        ("ftp://ana:hush@example.com:x/a.csv", "is not an address"),
        ("ftp:///a.csv", "names no server"),
        ("s3:///a.csv", "names no bucket"),
        ("s3://uploads/", "names no file"),
        ("file:", "names no file"),
        ("file:///etc/passwd", "must be the name of a file in the inbox"),
        ("file:../secret", "must be the name of a file in the inbox"),
        ("file:..", "is not a plain path"),
        ("s3://uploads/a/../b", "is not a plain path"),
        ("s3://uploads/%2e%2e/b", "is not a plain path"),
        ("ftp://example.com/a%0d%0aDELE", "is not a plain path"),
        ("s3://uploads/a?versionId=1", "is not a plain path"),
    ],
)
def test_what_names_no_file_is_refused_without_telling_secrets(text: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem) as caught:
        parse(text, registry())
    assert caught.value.field == "source"
    assert "hush" not in str(caught.value)


def test_a_plug_in_adds_a_scheme_that_is_not_taken() -> None:
    mine = FileSource(scheme="tape", open=lambda *_: None)  # type: ignore[arg-type, return-value]
    known = registry([mine])
    assert parse("tape://vault/a/b.csv", known) == Address("tape", "vault", "/a/b.csv")
    for scheme in ("s3", "file", "tape"):
        with pytest.raises(ConfigError, match=f"two sources of files have the scheme {scheme}"):
            registry([mine, FileSource(scheme=scheme, open=mine.open)])
