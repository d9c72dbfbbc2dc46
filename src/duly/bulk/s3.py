"""Connects to S3 buckets: Amazon's, MinIO, Ceph and others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from msgspec import Struct

from duly.core.errors import DulyError

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig, S3Config, S3Store

PORTION = 1024 * 1024


class S3Settings(Struct, frozen=True, kw_only=True):
    """The bucket and the credentials. What is None comes from the environment (`AWS_…`) or the machine's role."""

    bucket: str
    endpoint: str | None = None
    region: str | None = None
    access_key_id: str | None = None
    secret_access_key: str | None = None
    patience: float | None = None  # seconds without an answer after which a look gives up; None: as for large files

    def __repr__(self) -> str:
        return f"S3Settings(bucket={self.bucket!r}, endpoint={self.endpoint!r})"  # no secrets in logs


class S3Error(DulyError):
    """The bucket refused, or could not be reached; trying again may help."""


def connect(settings: S3Settings) -> S3Store:
    """A store of objects. It asks nothing yet, so that a wrong name or key shows with the first use."""
    from obstore.store import S3Store

    config: S3Config = {}
    if settings.endpoint:
        config["endpoint"] = settings.endpoint
    if settings.region:
        config["region"] = settings.region
    if settings.access_key_id:
        config["access_key_id"] = settings.access_key_id
    if settings.secret_access_key:
        config["secret_access_key"] = settings.secret_access_key
    options, retries = limits(settings.patience)
    return S3Store(settings.bucket, config=config, client_options=options, retry_config=retries)


def limits(timeout: float | None) -> tuple[ClientConfig, RetryConfig]:
    """The limits of a client, with this many seconds without an answer; None: those for large files.

    A large file may take as long as it needs, as long as bytes arrive. Without TLS is only an endpoint that the user
    names so.
    """
    options: ClientConfig = {"allow_http": True, "timeout": "24h", "read_timeout": "60s", "connect_timeout": "10s"}
    if timeout is None:
        return options, {"max_retries": 4, "retry_timeout": timedelta(seconds=60)}
    seconds = timedelta(seconds=timeout)
    return {**options, "read_timeout": seconds, "connect_timeout": seconds}, {
        "max_retries": 1, "retry_timeout": seconds,
    }  # fmt: skip


@contextmanager
def s3_errors(what: str) -> Iterator[None]:
    """Raises errors of the library as S3Error, in one line that says what was being done."""
    from obstore.exceptions import BaseError

    try:
        yield
    except (BaseError, OSError) as error:
        raise S3Error(f"{what}: {str(error).splitlines()[0][:300] if str(error) else type(error).__name__}") from None
