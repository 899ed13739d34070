"""Bytes that are known again as this host's own: an HMAC with a key that only its data folder has.

A seal belongs to a name as well: what was sealed as one thing is not taken for another, wherever it is copied to.
"""

from __future__ import annotations

import hashlib
import hmac

_SIZE = hashlib.sha256().digest_size


class Seal:
    def __init__(self, key: bytes) -> None:
        self._key = key
        self.id = hmac.new(key, b"id", hashlib.sha256).hexdigest()[:16]
        """Tells the seals of two data folders apart, and nothing of the key."""

    def close(self, name: str, data: bytes) -> bytes:
        """`data` with its seal in front."""
        return self._mark(name, data) + data

    def open(self, name: str, sealed: bytes) -> bytes | None:
        """The data, or None when it was not sealed here under this name."""
        mark, data = sealed[:_SIZE], sealed[_SIZE:]
        return data if hmac.compare_digest(mark, self._mark(name, data)) else None

    def _mark(self, name: str, data: bytes) -> bytes:
        digest = hmac.new(self._key, b"sealed%d:" % len(name.encode()) + name.encode(), hashlib.sha256)
        digest.update(data)
        return digest.digest()
