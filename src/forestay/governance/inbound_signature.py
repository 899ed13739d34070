"""Checks signed inbound requests by the Standard Webhooks scheme, so that a sender needs no code of ours.

The sender signs `id.timestamp.body` with HMAC-SHA256 and the secret of the subscription, and sends the headers
`webhook-id`, `webhook-timestamp` and `webhook-signature`. Pure.

- H1  A request counts only when one of its signatures is right and its time is within five minutes of ours.
- H2  The answer does not depend on how much of a signature is right.
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
_MOST_SIGNATURES = 8  # a sender that rotates its secret sends two


class Signed(msgspec.Struct, frozen=True):
    """The signature headers of a request; `id` is the event's id."""

    id: str
    timestamp: str
    signature: str

    @staticmethod
    def of(headers: Mapping[str, str]) -> Signed:
        return Signed(*(headers.get(name, "") for name in HEADERS))


def make_secret(key: bytes, subscription_id: str) -> str:
    """Derive the secret of a subscription, so that it is never on disk."""
    made = hmac.new(key, f"trigger:{subscription_id}".encode(), hashlib.sha256).digest()
    return PREFIX + base64.b64encode(made).decode()


def fingerprint(key: bytes, secret: str) -> str:
    """Identify a secret for people; without the host's key, nobody can test secrets against it."""
    return hmac.new(key, secret.encode(), hashlib.sha256).hexdigest()[:16]


def sign(secret: str, id: str, timestamp: str, body: bytes) -> str:
    """Return one signature in the form of `webhook-signature`."""
    key = base64.b64decode(secret.removeprefix(PREFIX))
    signed = b".".join((id.encode(), timestamp.encode(), body))
    return "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()


def check(secret: str, signed: Signed, body: bytes, now_ms: int) -> None:
    """Refuse a request without a valid signature for the present time (H1, H2)."""
    well_formed = _ID.fullmatch(signed.id) and _STAMP.fullmatch(signed.timestamp)
    wanted = sign(secret, signed.id, signed.timestamp, body).encode() if well_formed else b""
    given = signed.signature.encode().split()[:_MOST_SIGNATURES]
    if not well_formed or not any(hmac.compare_digest(one, wanted) for one in given):
        raise refused()
    if abs(now_ms - int(signed.timestamp) * 1000) > TOLERANCE_MS:
        message = "The request's timestamp is too far from this host's time: it is old, or a clock is wrong."
        raise Problem("permission_denied", message, reason="timestamp", toleranceSeconds=TOLERANCE_MS // 1000)


def refused() -> Problem:
    """Return the Problem for a request with an unverified sender, the same for every reason."""
    return Problem("permission_denied", "No subscription accepts this request.", reason="signature")
