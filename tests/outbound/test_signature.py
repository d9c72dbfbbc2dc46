"""Signatures as a receiver sees them."""

from __future__ import annotations

import hmac

import pytest

from duly import InputError
from duly.outbound.signature import sign, verify

SECRET = "whsec-1618033988"
NOW = 1_800_000_000
BODY = b'{"order":7}'


def test_what_was_signed_verifies_and_is_what_the_docs_say() -> None:
    header = sign(SECRET, BODY, NOW + 0.9)
    expected = hmac.new(SECRET.encode(), b'1800000000.{"order":7}', "sha256").hexdigest()
    assert header == f"t=1800000000,v1={expected}"
    assert verify(SECRET, header, BODY, NOW)


@pytest.mark.parametrize(("away", "good"), [(-301, False), (-300, True), (0, True), (300, True), (301, False)])
def test_an_old_or_early_request_is_worth_nothing(away: int, good: bool) -> None:
    assert verify(SECRET, sign(SECRET, BODY, NOW), BODY, NOW + away) is good


def test_another_body_time_or_secret_does_not_verify() -> None:
    header = sign(SECRET, BODY, NOW)
    assert not verify(SECRET, header, BODY + b" ", NOW)
    assert not verify(SECRET, header.replace("t=1800000000", "t=1800000001"), BODY, NOW)
    assert not verify("other", header, BODY, NOW)


def test_a_sender_may_change_its_secret_without_a_gap() -> None:
    both = f"{sign('old', BODY, NOW)},{sign(SECRET, BODY, NOW).partition(',')[2]}"
    assert verify(SECRET, both, BODY, NOW)
    assert verify("old", both, BODY, NOW)


@pytest.mark.parametrize(
    "header",
    ["", "t=", "v1=00", "t=1800000000", "t=1800000000,v1=", "t=١٨,v1=00", "t=-1,v1=00", "t=1800000000,v1=é", "=,=,",
     "t=1,t=2,v1=00", "t=" + "9" * 5_000],
)  # fmt: skip
def test_nonsense_is_not_a_signature(header: str) -> None:
    assert verify(SECRET, header, BODY, NOW) is False


def test_an_empty_secret_neither_signs_nor_verifies() -> None:
    mac = hmac.new(b"", b"1800000000." + BODY, "sha256").hexdigest()
    assert not verify("", f"t={NOW},v1={mac}", BODY, NOW)
    with pytest.raises(InputError, match=r"^secret: is empty"):
        sign("", BODY, NOW)
