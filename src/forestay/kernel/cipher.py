"""Bytes that only the holder of a key can read, and only as what they were sealed as (AES-256-GCM)."""

from __future__ import annotations

from forestay.kernel.ambient import Randomness

KEY_BYTES = 32
_NONCE = 12


def encrypt(key: bytes, data: bytes, belonging: str, randomness: Randomness) -> bytes:
    """`data` sealed under `key` for one owner and purpose, which `belonging` names."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # a large package, for those who have secrets

    nonce = randomness.bytes(_NONCE)
    return nonce + AESGCM(key).encrypt(nonce, data, belonging.encode())


def decrypt(key: bytes, sealed: bytes, belonging: str) -> bytes | None:
    """The data, or None when it was not sealed under this key for this owner."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    try:
        return AESGCM(key).decrypt(sealed[:_NONCE], sealed[_NONCE:], belonging.encode())
    except (InvalidTag, ValueError):
        return None
