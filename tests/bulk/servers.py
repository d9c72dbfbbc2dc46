"""Real servers of S3 and FTP on this machine, each in a thread of its own."""

from __future__ import annotations

import datetime
import ipaddress
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from moto.server import ThreadedMotoServer
from msgspec import Struct
from pyftpdlib.authorizers import DummyAuthorizer
from pyftpdlib.handlers import FTPHandler, TLS_FTPHandler
from pyftpdlib.ioloop import IOLoop
from pyftpdlib.servers import FTPServer

from duly.bulk.buckets import open_bucket
from duly.bulk.sources.ftp import FtpSource


class S3Server(Struct, frozen=True, kw_only=True):
    """A server of S3 with a bucket. The environment has its region and credentials."""

    bucket: str
    endpoint: str
    region: str = "us-east-1"
    access_key_id: str = "key"
    secret_access_key: str = "secret"

    def open(self, name: str | None = None) -> Any:
        return open_bucket("s3", name or self.bucket, self.endpoint)


@contextmanager
def bucket(name: str = "uploads") -> Iterator[tuple[S3Server, Any]]:
    """A bucket, how to reach it, and a client of Amazon's own to look into it."""
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    settings = S3Server(bucket=name, endpoint=f"http://{host}:{port}")
    client = boto3.client(
        "s3",
        endpoint_url=settings.endpoint,
        region_name=settings.region,
        aws_access_key_id="key",
        aws_secret_access_key="secret",
    )
    try:
        client.create_bucket(Bucket=name)
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv("AWS_ACCESS_KEY_ID", settings.access_key_id)
            environment.setenv("AWS_SECRET_ACCESS_KEY", settings.secret_access_key)
            environment.setenv("AWS_REGION", settings.region)
            yield settings, client
    finally:
        client.close()
        server.stop()


@contextmanager
def ftp_server(folder: Path, certificate: Path | None = None, without: tuple[str, ...] = ()) -> Iterator[FtpSource]:
    """A server of this folder, over TLS if it has a certificate. It does not know the commands in `without`."""

    class Handler(TLS_FTPHandler if certificate else FTPHandler):  # type: ignore[misc]
        authorizer = DummyAuthorizer()
        use_sendfile = False
        auth_failed_timeout = 0
        if certificate:
            certfile = str(certificate)
            tls_control_required = tls_data_required = True
        proto_cmds = {name: known for name, known in FTPHandler.proto_cmds.items() if name not in without} | (
            {name: TLS_FTPHandler.proto_cmds[name] for name in ("AUTH", "PBSZ", "PROT")} if certificate else {}
        )

    Handler.authorizer.add_user("ana", "secret", str(folder), perm="elr")
    loop = IOLoop()
    server = FTPServer(("127.0.0.1", 0), Handler, ioloop=loop)
    is_over = threading.Event()

    def serve() -> None:
        while not is_over.is_set():
            loop.loop(timeout=0.02, blocking=False)
        server.close_all()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield FtpSource(
            host="127.0.0.1",
            port=server.address[1],
            user="ana",
            password="secret",
            uses_tls=certificate is not None,
            authority=str(certificate) if certificate else None,
            timeout=5.0,
        )
    finally:
        is_over.set()
        thread.join()


def make_certificate(path: Path) -> Path:
    """A certificate for this machine, signed by itself, with its key in the same file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    return path
