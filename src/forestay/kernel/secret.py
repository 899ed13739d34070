"""A secret in a file that only its owner can read, and the keys derived from it."""

from __future__ import annotations

import hashlib
import hmac
import os
import threading
from pathlib import Path

from forestay.kernel.ambient import Randomness, SystemRandomness
from forestay.kernel.problems import Problem

HOST_SECRET = "secret.key"  # noqa: S105 - the file beside the ledger that every host of that ledger uses
_SIZE = 32


def kept_secret(file: Path, randomness: Randomness | None = None, *, given: bytes | None = None) -> bytes:
    """Return the secret in `file`; the first caller makes it from `given`, or at random.

    Other processes see the whole secret or none.
    """
    if not file.exists():
        beside = file.with_name(f"{file.name}.{os.getpid()}.{threading.get_ident()}")
        beside.unlink(missing_ok=True)
        _write(beside, given or (randomness or SystemRandomness()).bytes(_SIZE))
        try:
            os.link(beside, file)
        except FileExistsError:
            pass  # another process was faster; its secret counts
        finally:
            beside.unlink()
    secret = file.read_bytes()
    if len(secret) < _SIZE // 2:
        raise Problem(
            "state_corrupted", f"The file {file.name} does not hold a secret.", fix="Restore it from a backup."
        )
    return secret


def _write(file: Path, secret: bytes) -> None:
    descriptor = os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    with os.fdopen(descriptor, "wb") as out:
        out.write(secret)
        out.flush()
        os.fsync(out.fileno())


def derive(secret: bytes, purpose: str) -> bytes:
    """Return the key for a purpose; each purpose has its own."""
    return hmac.new(secret, purpose.encode(), hashlib.sha256).digest()
