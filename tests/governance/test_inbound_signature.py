"""Signed requests in (H1, H2): only the holder of the secret, only now, only these bytes."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forestay.governance.inbound_signature import TOLERANCE_MS, Signed, check, fingerprint, make_secret, sign
from forestay.kernel import Problem

KEY = b"k" * 32
SECRET = make_secret(KEY, "sub_1")
NOW = 1_700_000_000_000


def signed(body: bytes, **parts: str) -> Signed:
    at = str(NOW // 1000)
    made = {"id": "evt_1", "timestamp": at, "signature": sign(SECRET, "evt_1", at, body)}
    return Signed(**{**made, **parts})


def reason(told: Signed, body: bytes, now: int = NOW) -> object:
    with pytest.raises(Problem) as caught:
        check(SECRET, told, body, now)
    assert caught.value.key == "permission_denied"
    return caught.value.details["reason"]


def test_the_scheme_is_that_of_standard_webhooks() -> None:
    """The example of the scheme's own specification."""
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    body = b'{"test": 2432232314}'
    made = sign(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", body)
    assert made == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@given(st.binary(max_size=200))
def test_h1_a_right_signature_holds_for_its_bytes(body: bytes) -> None:
    check(SECRET, signed(body), body, NOW)
    assert reason(signed(body), body + b" ") == "signature"


def test_h1_one_right_signature_among_others_is_enough() -> None:
    told = signed(b"{}")
    check(SECRET, signed(b"{}", signature=f"v1,AAAA {told.signature}"), b"{}", NOW)


@given(st.sampled_from(["id", "timestamp", "signature"]), st.text(max_size=40))
def test_h1_h2_anything_else_is_refused_in_the_same_words(part: str, text: str) -> None:
    if text != getattr(signed(b"{}"), part):
        assert reason(signed(b"{}", **{part: text}), b"{}") == "signature"


@pytest.mark.parametrize("late", [TOLERANCE_MS + 1000, -TOLERANCE_MS - 1000])
def test_h1_an_old_request_is_refused(late: int) -> None:
    assert reason(signed(b"{}"), b"{}", NOW + late) == "timestamp"


def test_secrets_differ_and_a_fingerprint_is_no_plain_hash() -> None:
    assert make_secret(KEY, "sub_2") != SECRET != make_secret(b"x" * 32, "sub_1")
    mark = fingerprint(KEY, SECRET)
    assert len(mark) == 16 and not hashlib.sha256(SECRET.encode()).hexdigest().startswith(mark)
    raw = base64.b64decode(SECRET.removeprefix("whsec_"))
    assert raw == hmac.new(KEY, b"trigger:sub_1", hashlib.sha256).digest()
