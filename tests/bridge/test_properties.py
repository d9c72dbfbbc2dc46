"""Properties of messages leave as they came, byte for byte, whatever they hold."""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import Any

import pika
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.bridge.properties import BadProperties, Properties, parse, short, shown

ALL = {
    "content_type": "text/plain", "content_encoding": "gzip", "delivery_mode": 2, "priority": 7,
    "correlation_id": "c", "reply_to": "r", "expiration": "60000", "message_id": "m", "timestamp": 1_700_000_000,
    "type": "order.created", "user_id": "guest", "app_id": "shop", "cluster_id": "x",
}  # fmt: skip


def encoded(**values: Any) -> bytes:
    """As another library writes them."""
    return b"".join(pika.BasicProperties(**values).encode())


def table(*values: tuple[bytes, bytes]) -> bytes:
    body = b"".join(bytes((len(name),)) + name + value for name, value in values)
    return struct.pack(">HI", 0x2000, len(body)) + body


def test_properties_of_another_library_are_read_and_written_back_unchanged() -> None:
    raw = encoded(**ALL, headers={"n": 1, "s": "text", "deep": {"list": [1, None, True, {"x": "y"}]}})
    properties = parse(raw)
    assert properties.raw() == raw
    assert properties.shown() == {
        **ALL, "headers": {"n": 1, "s": "text", "deep": {"list": [1, None, True, {"x": "y"}]}},
    }  # fmt: skip


def test_no_properties_are_no_bytes_but_the_flags() -> None:
    assert parse(encoded()) == Properties()
    assert Properties().raw() == b"\x00\x00"


@pytest.mark.parametrize(
    ("value", "seen"),
    [
        (b"d" + struct.pack(">d", 1.5), 1.5),
        (b"f" + struct.pack(">f", 0.25), 0.25),
        (b"d" + struct.pack(">d", float("nan")), "nan"),
        (b"T" + struct.pack(">Q", 0), "1970-01-01T00:00:00+00:00"),
        (b"T" + struct.pack(">Q", 2**64 - 1), {"base64": "//////////8="}),
        (b"D" + struct.pack(">Bi", 2, -150), "-150e-2"),
        (b"x" + struct.pack(">I", 2) + b"\xff\x00", {"base64": "AAAAAv8A"}),
        (b"S" + struct.pack(">I", 1) + b"\xff", {"base64": "AAAAAf8="}),
        (b"b" + b"\xff", -1),
        (b"u" + b"\xff\xff", 65_535),
        (b"V", None),
    ],
)
def test_values_that_libraries_change_or_choke_on_are_kept_and_shown(value: bytes, seen: Any) -> None:
    raw = table((b"h", value))
    properties = parse(raw)
    assert properties.raw() == raw
    assert properties.header("h") == seen or (seen == "nan" and str(properties.header("h")) == "nan")


def test_a_table_within_tables_without_end_is_shown_as_bytes() -> None:
    value = b"V"
    for _ in range(200):
        body = b"\x01a" + value
        value = b"F" + struct.pack(">I", len(body)) + body
    assert parse(table((b"h", value))).raw() == table((b"h", value))
    assert "base64" in str(shown(value))


def test_headers_are_added_replaced_and_removed() -> None:
    properties = parse(encoded(headers={"CC": ["a"], "keep": 1, "x-retry-count": 1}))
    changed = properties.but_headers(("CC", "BCC")).with_headers({"x-retry-count": 2, "reason": "späte Zustellung"})
    assert changed.shown()["headers"] == {"keep": 1, "x-retry-count": 2, "reason": "späte Zustellung"}
    decoded = pika.BasicProperties()
    decoded.decode(changed.raw())
    assert decoded.headers == {"keep": 1, "x-retry-count": 2, "reason": "späte Zustellung"}


def test_properties_are_set_and_dropped() -> None:
    changed = parse(encoded(**ALL)).but(delivery_mode=b"\x01", user_id=None, content_type="a/b")
    assert changed.shown() == {
        **{name: value for name, value in ALL.items() if name != "user_id"}, "delivery_mode": 1, "content_type": "a/b",
    }  # fmt: skip


def test_a_text_too_long_for_the_protocol_is_refused() -> None:
    with pytest.raises(BadProperties, match="at most 255 bytes, this has 300"):
        short("x" * 300)


@given(st.binary(max_size=200))
def test_whatever_the_bytes_they_are_read_or_refused(raw: bytes) -> None:
    try:
        properties = parse(raw)
    except BadProperties:
        return
    assert parse(properties.raw()) == properties
    properties.shown()


@given(st.data())
def test_properties_that_were_damaged_on_the_way_are_read_or_refused(data: st.DataObject) -> None:
    raw = bytearray(encoded(**ALL, headers={"n": 1, "deep": {"list": [1, "x"]}}))
    for place in data.draw(st.lists(st.integers(0, len(raw) - 1), min_size=1, max_size=5)):
        raw[place] = data.draw(st.integers(0, 255))
    with suppress(BadProperties):
        parse(bytes(raw)).shown()
