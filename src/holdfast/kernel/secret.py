"""A secret of one's own in a file that only its owner can read, and keys made from it."""

from __future__ import annotations

import hashlib
import hmac
import os
from pathlib import Path

from holdfast.kernel.ids import Randomness, SystemRandomness
from holdfast.kernel.problems import Problem

HOST_SECRET = "secret.key"  # noqa: S105 - the name beside the ledger; whoever opens that ledger for people uses this one
_SIZE = 32


def kept_secret(file: Path, randomness: Randomness | None = None) -> bytes:
    """The secret in `file`; made, and on disk, when it is not there."""
    try:
        descriptor = os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except FileExistsError:
        secret = file.read_bytes()
        if len(secret) < _SIZE // 2:
            raise Problem(
                "state_corrupted", f"The file {file.name} does not hold a secret.", fix="Restore it from a backup."
            ) from None
        return secret
    with os.fdopen(descriptor, "wb") as out:
        secret = (randomness or SystemRandomness()).bytes(_SIZE)
        out.write(secret)
        out.flush()
        os.fsync(out.fileno())
    return secret


def derive(secret: bytes, purpose: str) -> bytes:
    """A key of its own for each purpose."""
    return hmac.new(secret, purpose.encode(), hashlib.sha256).digest()
