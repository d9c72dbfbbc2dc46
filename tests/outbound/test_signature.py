"""Signatures as a receiver sees them."""

from __future__ import annotations

import time
from base64 import b64encode

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from duly import InputError
from duly.outbound.signature import ID, SIGNATURE, TIME, sign, verify

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
PLAIN = "any text will do"
KEY = "0b8f7a0e-51c1-4d6f-8a34-2f1f7f3f1b11"
NOW = 1_800_000_000
BODY = b'{"order":7}'


def test_the_example_of_the_standard_comes_out() -> None:
    headers = sign(SECRET, "msg_p5jXN8AQM9LWM0D4loKWxJek", b'{"test": 2432232314}', 1614265330)
    assert headers == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


@pytest.mark.parametrize("secret", [SECRET, PLAIN])
def test_a_library_of_the_standard_takes_what_was_signed(secret: str) -> None:
    receiver = Webhook(secret if secret == SECRET else b64encode(PLAIN.encode()).decode())
    headers = sign(secret, KEY, BODY, time.time())
    assert receiver.verify(BODY, headers) == {"order": 7}
    with pytest.raises(WebhookVerificationError):
        receiver.verify(BODY + b" ", headers)


@pytest.mark.parametrize(("away", "good"), [(-301, False), (-300, True), (0, True), (300, True), (301, False)])
def test_an_old_or_early_request_is_worth_nothing(away: int, good: bool) -> None:
    assert verify(SECRET, sign(SECRET, KEY, BODY, NOW), BODY, NOW + away) is good


def test_another_body_id_time_or_secret_does_not_verify() -> None:
    headers = sign(SECRET, KEY, BODY, NOW + 0.9)
    assert headers[TIME] == "1800000000"
    assert verify(SECRET, {name.title(): value for name, value in headers.items()}, BODY, NOW)
    assert not verify(SECRET, headers, BODY + b" ", NOW)
    assert not verify(SECRET, {**headers, ID: "another"}, BODY, NOW)
    assert not verify(SECRET, {**headers, TIME: "1800000001"}, BODY, NOW)
    assert not verify("other", headers, BODY, NOW)


def test_a_sender_may_change_its_secret_without_a_gap() -> None:
    old, new = sign("old", KEY, BODY, NOW), sign(SECRET, KEY, BODY, NOW)
    both = {**old, SIGNATURE: f"{old[SIGNATURE]} {new[SIGNATURE]}"}
    assert verify(SECRET, both, BODY, NOW)
    assert verify("old", both, BODY, NOW)


@pytest.mark.parametrize("value", ["", "v1", "v1,", "v2,00", "v1,é", ", ,", "v1," + "9" * 5_000])
def test_nonsense_is_not_a_signature(value: str) -> None:
    assert verify(SECRET, {**sign(SECRET, KEY, BODY, NOW), SIGNATURE: value}, BODY, NOW) is False


@pytest.mark.parametrize("value", ["", "-1", "١٨", "9" * 16, "1.5"])
def test_nonsense_is_not_a_time(value: str) -> None:
    assert verify(SECRET, {**sign(SECRET, KEY, BODY, NOW), TIME: value}, BODY, NOW) is False


def test_what_lacks_a_header_does_not_verify() -> None:
    headers = sign(SECRET, KEY, BODY, NOW)
    for name in headers:
        assert not verify(SECRET, {each: value for each, value in headers.items() if each != name}, BODY, NOW)


@pytest.mark.parametrize(
    ("secret", "problem"), [("", "must not be empty"), ("whsec_", "must not be empty"), ("whsec_§", "base64")]
)
def test_a_secret_that_is_none_neither_signs_nor_verifies(secret: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        sign(secret, KEY, BODY, NOW)
    with pytest.raises(InputError, match=problem):
        verify(secret, sign(SECRET, KEY, BODY, NOW), BODY, NOW)
