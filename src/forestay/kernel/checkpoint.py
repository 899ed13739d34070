"""Signed checkpoints of the audit log (OpenWOP auth profiles, `openwop-audit-log-integrity`). Pure.

- J1  A checkpoint covers the entries after the previous checkpoint, up to and including `at_sequence`: its root is the
      Merkle root of their hashes.
- J2  The hash of an entry covers the entry before it, so a root covers the whole log up to there.
- J3  The signature is Ed25519 over the 32 bytes of the root, under a key that signs nothing else.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Sequence

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from forestay.kernel.problems import Problem

EVERY_ENTRIES = 1000
EVERY_SECONDS = 300
_ED25519 = bytes.fromhex("302a300506032b6570032100")  # precedes the 32 bytes of a key in its DER (RFC 8410)


class Checkpoint(msgspec.Struct, frozen=True, rename="camel"):
    """The contract's checkpoint: with the public key, anybody can check that the log is still the signed one."""

    checkpoint: str
    at_sequence: int
    merkle_root: str
    signature: str


class PublicKey(msgspec.Struct, frozen=True):
    """The public half of the signing key, as the DER of its SubjectPublicKeyInfo."""

    der: bytes

    @staticmethod
    def read(text: str) -> PublicKey:
        """Read a key from PEM, or from the base64 text of discovery."""
        from cryptography.hazmat.primitives.serialization import load_der_public_key, load_pem_public_key

        try:
            if text.lstrip().startswith("-----BEGIN"):
                found = load_pem_public_key(text.encode())
            else:
                found = load_der_public_key(base64.b64decode(text, validate=True))
        except (ValueError, binascii.Error) as error:
            raise _no_key() from error
        if not isinstance(found, Ed25519PublicKey):
            raise _no_key()
        return PublicKey(_der(found))

    @property
    def id(self) -> str:
        """A short name of the key."""
        return hashlib.sha256(self.der).hexdigest()[:16]

    @property
    def text(self) -> str:
        """The key as discovery publishes it."""
        return base64.b64encode(self.der).decode()

    @property
    def pem(self) -> str:
        return f"-----BEGIN PUBLIC KEY-----\n{self.text}\n-----END PUBLIC KEY-----\n"

    def signed(self, root: str, signature: str) -> bool:
        """Whether the private half of this key signed this root (J3)."""
        from cryptography.hazmat.primitives.serialization import load_der_public_key  # not needed for signing

        found = load_der_public_key(self.der)
        if not isinstance(found, Ed25519PublicKey):
            return False
        try:
            found.verify(base64.b64decode(signature, validate=True), bytes.fromhex(root))
        except (InvalidSignature, ValueError):
            return False
        return True


class SigningKey:
    """The key that signs checkpoints, made from 32 secret bytes."""

    def __init__(self, seed: bytes) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(seed)
        self.public = PublicKey(_der(self._key.public_key()))

    def sign(self, root: str) -> str:
        return base64.b64encode(self._key.sign(bytes.fromhex(root))).decode()


def merkle_root(leaves: Sequence[str]) -> str:
    """Return the root over hexadecimal hashes, as OpenWOP's RFC 0218 builds it.

    A parent is the SHA-256 of both children's texts; a last node without a neighbour moves up unchanged.
    """
    if not leaves:
        raise ValueError("a root covers at least one leaf")
    level = list(leaves)
    while len(level) > 1:
        pairs = zip(level[::2], level[1::2], strict=False)
        above = [hashlib.sha256((left + right).encode()).hexdigest() for left, right in pairs]
        level = above + level[-1:] if len(level) % 2 else above
    return level[0]


def _der(key: Ed25519PublicKey) -> bytes:
    return _ED25519 + key.public_bytes_raw()


def _no_key() -> Problem:
    fix = "Take it from /.well-known/forestay-audit-key of the host."
    return Problem("schema_mismatch", "This is not an Ed25519 public key.", at="key", fix=fix)
