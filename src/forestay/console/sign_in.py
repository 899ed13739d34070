"""Sign-in to the console: a visitor gives an API key once and gets a signed cookie.

Invariants:

- C1  The cookie names a key and a time, signed by the host; the key's text is not in it.
- C2  A revoked or expired key signs its holder out: every request looks it up.
- C3  Every form carries a token that only a page for this visitor can show (CSRF), beside SameSite=Strict.
- C4  With an https address in `http.public_url`, or when a proxy of `http.trusted_proxies` says that the visitor came
      over TLS, the cookie goes only over TLS. A header that anybody can send decides nothing.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping

import msgspec

from forestay.kernel import OPERATOR, Clock, Problem, base64url
from forestay.surface import Caller, Keys

COOKIE = "forestay"
LIFETIME_MS = 12 * 60 * 60 * 1000


class Visitor(msgspec.Struct, frozen=True):
    """A signed-in caller, and the token that its forms must carry."""

    caller: Caller
    csrf: str

    @property
    def is_operator(self) -> bool:
        """Whether the caller is the host's operator, who may see every tenant's records."""
        return self.caller.tenant == OPERATOR and "audit:read" in self.caller.scopes

    def check(self, token: str | None) -> None:
        if token is None or not hmac.compare_digest(token.encode(), self.csrf.encode()):
            raise Problem("permission_denied", "The form is not from a page of yours.", fix="Load the page again.")


class Door:
    """Makes and reads the cookie."""

    def __init__(self, keys: Keys, secret: bytes, clock: Clock) -> None:
        self._keys = keys
        self._secret = hashlib.sha256(b"console\0" + secret).digest()
        self._clock = clock

    def sign_in(self, key_text: str) -> str:
        """Return the cookie for the holder of this key; raise a Problem when the key is not valid."""
        caller = self._keys.authenticate(f"Bearer {key_text.strip()}")
        body = msgspec.json.encode({"key": caller.key_id, "until": self._clock.now_ms() + LIFETIME_MS})
        return f"{base64url.encode(body)}.{base64url.encode(self._sign(body))}"

    def read(self, cookies: Mapping[str, str]) -> Visitor | None:
        """Return the visitor whom the cookie names; None when it is missing or not valid."""
        body, _, signature = cookies.get(COOKIE, "").partition(".")
        try:
            data = base64url.decode(body)
            if not hmac.compare_digest(self._sign(data), base64url.decode(signature)):
                return None
            claim = msgspec.json.decode(data)
        except (ValueError, msgspec.DecodeError):
            return None
        if claim["until"] <= self._clock.now_ms():
            return None
        try:
            caller = self._keys.caller(claim["key"])
        except Problem:
            return None
        return Visitor(caller, base64url.encode(self._sign(b"csrf\0" + data)))

    def _sign(self, data: bytes) -> bytes:
        return hmac.digest(self._secret, data, "sha256")
