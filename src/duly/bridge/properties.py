"""The properties of AMQP messages, kept as the bytes that came, so that they can be sent on unchanged.

Client libraries convert header values to Python's and back: floats lose their fraction, integers their width, times
their unit, and a value that cannot be converted ends the connection, at every delivery. Here a property is a slice of
bytes. It is decoded only to be shown, and if that fails it is shown as bytes.
"""

from __future__ import annotations

import struct
from base64 import b64encode
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

# In the order of the protocol; the flag of the first is the highest bit.
NAMES = (
    "content_type", "content_encoding", "headers", "delivery_mode", "priority", "correlation_id", "reply_to",
    "expiration", "message_id", "timestamp", "type", "user_id", "app_id", "cluster_id",
)  # fmt: skip
_BITS = {name: 1 << (15 - place) for place, name in enumerate(NAMES)}
_OCTETS = {"delivery_mode": 1, "priority": 1, "timestamp": 8}
# Values of tables by the letter of their type: the form of numbers, and the size in bytes of all that have a fixed one.
_FORMS = {b"t": ">?", b"b": ">b", b"B": ">B", b"U": ">h", b"u": ">H", b"s": ">h", b"I": ">i", b"i": ">I", b"L": ">q",
          b"l": ">q", b"f": ">f", b"d": ">d"}  # fmt: skip
_SIZES = {**{kind: struct.calcsize(form) for kind, form in _FORMS.items()}, b"D": 5, b"T": 8, b"V": 0}
_LONG = frozenset((b"S", b"x", b"A", b"F"))
_DEPTH = 20

PERSISTENT = b"\x02"


class BadProperties(ValueError):
    """These bytes are not the properties of a message."""


class Properties(Struct, frozen=True):
    """The encoded values of properties by name, and the encoded headers in their order."""

    values: dict[str, bytes] = {}
    headers: tuple[tuple[bytes, bytes], ...] = ()
    problem: str | None = None  # why the properties of a delivery could not be read

    def raw(self) -> bytes:
        flags = sum(_BITS[name] for name in self.values)
        table = b"".join(bytes((len(name),)) + name + value for name, value in self.headers)
        if self.headers:
            flags |= _BITS["headers"]
        parts = [struct.pack(">H", flags)]
        for name in NAMES:
            if name == "headers" and self.headers:
                parts.append(struct.pack(">I", len(table)) + table)
            elif name in self.values:
                parts.append(self.values[name])
        return b"".join(parts)

    def text(self, name: str) -> str | None:
        """A property that is text."""
        value = self.values.get(name)
        return None if value is None else value[1:].decode("utf8", "replace")

    def header(self, name: str) -> Any:
        """The value of a header, decoded; None when there is no such header."""
        for key, value in self.headers:
            if key == name.encode():
                return shown(value)
        return None

    def but(self, **values: bytes | str | None) -> Properties:
        """The same with these properties set, or removed if None; text becomes a short string."""
        kept = {name: value for name, value in self.values.items() if name not in values}
        given = {name: value if isinstance(value, bytes) else short(value) for name, value in values.items() if value}
        return replace(self, values={**kept, **given})

    def but_headers(self, gone: Iterable[str]) -> Properties:
        """The same without these headers."""
        names = {name.encode() for name in gone}
        return replace(self, headers=tuple(pair for pair in self.headers if pair[0] not in names))

    def with_headers(self, headers: Mapping[str, str | int]) -> Properties:
        """The same with these headers, in place of any with the same name."""
        kept = self.but_headers(headers).headers
        return replace(self, headers=(*kept, *((name.encode(), _value(value)) for name, value in headers.items())))

    def shown(self) -> dict[str, Any]:
        """All properties and headers, decoded to be shown."""
        plain: dict[str, Any] = {}
        for name in NAMES:
            if name in _OCTETS and name in self.values:
                plain[name] = int.from_bytes(self.values[name], "big")
            elif name in self.values:
                plain[name] = self.text(name)
        if self.headers:
            plain["headers"] = {key.decode("utf8", "replace"): shown(value) for key, value in self.headers}
        return plain


class Encoded(Struct, frozen=True):
    """Properties that are bytes already, for pika to write, which needs the number of their AMQP class too."""

    raw: bytes

    INDEX = 0x003C

    def encode(self) -> list[bytes]:
        return [self.raw]


def parse(raw: bytes) -> Properties:
    """The properties in the header frame of a message."""
    try:
        (flags,) = struct.unpack_from(">H", raw)
        values: dict[str, bytes] = {}
        headers: list[tuple[bytes, bytes]] = []
        at = 2
        for name in NAMES:
            if not flags & _BITS[name]:
                continue
            if name == "headers":
                (size,) = struct.unpack_from(">I", raw, at)
                headers = _table(raw[at + 4 : at + 4 + size])
                at += 4 + size
            else:
                size = _OCTETS.get(name) or 1 + raw[at]
                values[name] = raw[at : at + size]
                at += size
        if flags & 3 or at != len(raw):
            raise BadProperties("the properties do not end where their frame does")
        return Properties(values, tuple(headers))
    except (struct.error, IndexError) as error:
        raise BadProperties(f"the properties cannot be read: {error}") from None


def _table(raw: bytes) -> list[tuple[bytes, bytes]]:
    pairs = []
    at = 0
    while at < len(raw):
        name = raw[at + 1 : at + 1 + raw[at]]
        at += 1 + raw[at]
        end = _end(raw, at)
        pairs.append((name, raw[at:end]))
        at = end
    return pairs


def _end(raw: bytes, at: int) -> int:
    """Where the value that begins here ends."""
    kind = raw[at : at + 1]
    if kind in _LONG:
        (size,) = struct.unpack_from(">I", raw, at + 1)
        end = at + 5 + size
    elif kind in _SIZES:
        end = at + 1 + _SIZES[kind]
    else:
        raise BadProperties(f"a header has a type that is unknown: {kind!r}")
    if end > len(raw):
        raise BadProperties("a header is longer than its table")
    return int(end)


def shown(value: bytes, depth: int = 0) -> Any:
    """An encoded value, decoded to be shown; as base64 if that fails."""
    kind, body = value[:1], value[1:]
    try:
        if kind in _FORMS:
            (number,) = struct.unpack(_FORMS[kind], body)
            return number if kind not in (b"f", b"d") or abs(number) < 1e300 else str(number)
        if kind == b"V":
            return None
        if kind == b"S":
            return body[4:].decode()
        if kind == b"T":
            return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=int.from_bytes(body, "big"))).isoformat()
        if kind == b"D":
            places, number = struct.unpack(">Bi", body)
            return f"{number}e-{places}"
        if kind == b"F" and depth < _DEPTH:
            return {name.decode("utf8", "replace"): shown(inner, depth + 1) for name, inner in _table(body[4:])}
        if kind == b"A" and depth < _DEPTH:
            at, every = 4, []
            while at < len(body):
                end = _end(body, at)
                every.append(shown(body[at:end], depth + 1))
                at = end
            return every
    except (struct.error, UnicodeDecodeError, OverflowError, BadProperties, IndexError):
        pass
    return {"base64": b64encode(body).decode()}


def short(text: str) -> bytes:
    encoded = text.encode()
    if len(encoded) > 255:
        raise BadProperties(f"a short text of a message has at most 255 bytes, this has {len(encoded)}: {text:.40}…")
    return bytes((len(encoded),)) + encoded


def _value(value: str | int) -> bytes:
    if isinstance(value, int):
        return b"l" + struct.pack(">q", value)
    encoded = value.encode("utf8", "replace")
    return b"S" + struct.pack(">I", len(encoded)) + encoded
