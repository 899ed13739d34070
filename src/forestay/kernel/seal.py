"""Marks bytes as this host's own, with an HMAC under a key that only its data folder has.

A seal also covers a name: data that was sealed under one name does not open under another.
"""

from __future__ import annotations

import hashlib
import hmac

_SIZE = hashlib.sha256().digest_size


class Seal:
    def __init__(self, key: bytes) -> None:
        self._key = key
        self.id = hmac.new(key, b"id", hashlib.sha256).hexdigest()[:16]
        """Identifies the data folder without revealing the key."""

    def close(self, name: str, data: bytes) -> bytes:
        """Return `data` with its seal in front."""
        return self._mark(name, data) + data

    def open(self, name: str, sealed: bytes) -> bytes | None:
        """Return the data, or None when this host did not seal it under this name."""
        mark, data = sealed[:_SIZE], sealed[_SIZE:]
        return data if hmac.compare_digest(mark, self._mark(name, data)) else None

    def _mark(self, name: str, data: bytes) -> bytes:
        digest = hmac.new(self._key, b"sealed%d:" % len(name.encode()) + name.encode(), hashlib.sha256)
        digest.update(data)
        return digest.digest()
