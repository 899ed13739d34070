"""Encrypts bytes under a key for one owner and purpose; only both together decrypt them (AES-256-GCM)."""

from __future__ import annotations

from forestay.kernel.ambient import Randomness

KEY_BYTES = 32
_NONCE = 12


def encrypt(key: bytes, data: bytes, belonging: str, randomness: Randomness) -> bytes:
    """Encrypt `data` under `key` for one owner and purpose, named by `belonging`."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # a large package, loaded only for secrets

    nonce = randomness.bytes(_NONCE)
    return nonce + AESGCM(key).encrypt(nonce, data, belonging.encode())


def decrypt(key: bytes, sealed: bytes, belonging: str) -> bytes | None:
    """Return the data, or None when it was not encrypted under this key for this owner and purpose."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    try:
        return AESGCM(key).decrypt(sealed[:_NONCE], sealed[_NONCE:], belonging.encode())
    except (InvalidTag, ValueError):
        return None
