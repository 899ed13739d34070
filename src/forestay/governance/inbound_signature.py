"""Signed requests from outside, by the Standard Webhooks scheme: a sender needs no code of ours.

The sender signs `id.timestamp.body` with HMAC-SHA256 and the secret of the subscription, and sends the headers
`webhook-id`, `webhook-timestamp` and `webhook-signature`. Pure.

- H1  A request counts only when one of its signatures is right and its time is within five minutes of ours.
- H2  Nothing that the check says depends on how much of a signature is right.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Mapping

import msgspec

from forestay.kernel import Problem

HEADERS = ("webhook-id", "webhook-timestamp", "webhook-signature")
PREFIX = "whsec_"
TOLERANCE_MS = 300_000
_ID = re.compile(r"[!-~]{1,256}")
_STAMP = re.compile(r"[0-9]{1,12}")
_MOST_SIGNATURES = 8  # a sender that changes its secret sends two


class Signed(msgspec.Struct, frozen=True):
    """What a request says of itself in its headers; `id` is the event's."""

    id: str
    timestamp: str
    signature: str

    @staticmethod
    def of(headers: Mapping[str, str]) -> Signed:
        return Signed(*(headers.get(name, "") for name in HEADERS))


def make_secret(key: bytes, subscription_id: str) -> str:
    """The secret of a subscription: derived, so it stands nowhere on disk."""
    made = hmac.new(key, f"trigger:{subscription_id}".encode(), hashlib.sha256).digest()
    return PREFIX + base64.b64encode(made).decode()


def fingerprint(key: bytes, secret: str) -> str:
    """Which secret it is, for people who compare; nobody can try secrets against it without the host's key."""
    return hmac.new(key, secret.encode(), hashlib.sha256).hexdigest()[:16]


def sign(secret: str, id: str, timestamp: str, body: bytes) -> str:
    """One signature, as it stands in `webhook-signature`."""
    key = base64.b64decode(secret.removeprefix(PREFIX))
    signed = b".".join((id.encode(), timestamp.encode(), body))
    return "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()


def check(secret: str, signed: Signed, body: bytes, now_ms: int) -> None:
    """Refuse a request that the holder of the secret did not send now (H1, H2)."""
    well_formed = _ID.fullmatch(signed.id) and _STAMP.fullmatch(signed.timestamp)
    wanted = sign(secret, signed.id, signed.timestamp, body).encode() if well_formed else b""
    given = signed.signature.encode().split()[:_MOST_SIGNATURES]
    if not well_formed or not any(hmac.compare_digest(one, wanted) for one in given):
        raise refused()
    if abs(now_ms - int(signed.timestamp) * 1000) > TOLERANCE_MS:
        message = "The request is signed for another time: it is old, or a clock is wrong."
        raise Problem("permission_denied", message, reason="timestamp", toleranceSeconds=TOLERANCE_MS // 1000)


def refused() -> Problem:
    """What a request is told whose sender is not known, whatever of it is wrong."""
    return Problem("permission_denied", "No subscription takes this request.", reason="signature")
