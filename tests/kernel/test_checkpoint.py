"""Merkle roots and keys of checkpoints (J1 to J3)."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from forestay.kernel import Problem, PublicKey
from forestay.kernel.checkpoint import SigningKey, merkle_root

LEAVES = st.lists(st.binary(min_size=32, max_size=32).map(bytes.hex), min_size=1, max_size=40)


def plain(leaves: list[str]) -> Any:
    """The same root, from the top down: the left half is the largest power of two that leaves something over."""
    if len(leaves) == 1:
        return leaves[0]
    half = 1 << ((len(leaves) - 1).bit_length() - 1)
    return hashlib.sha256((plain(leaves[:half]) + plain(leaves[half:])).encode()).hexdigest()


@given(LEAVES)
def test_j1_a_root_is_the_one_that_is_built_from_the_top(leaves: list[str]) -> None:
    assert merkle_root(leaves) == plain(leaves)


def test_a_root_covers_something() -> None:
    with pytest.raises(ValueError, match="at least one"):
        merkle_root([])


@given(st.binary(min_size=32, max_size=32), st.binary(min_size=32, max_size=32).map(bytes.hex))
def test_j3_a_signature_is_of_one_root_and_one_key(seed: bytes, root: str) -> None:
    key = SigningKey(seed)
    signature = key.sign(root)
    assert key.public.signed(root, signature)
    assert not key.public.signed(hashlib.sha256(root.encode()).hexdigest(), signature)
    assert not SigningKey(hashlib.sha256(seed).digest()).public.signed(root, signature)
    for forged in ("", "!", "AAAA", signature[:-8]):
        assert not key.public.signed(root, forged)


def test_a_public_key_is_read_as_pem_and_as_text() -> None:
    key = SigningKey(bytes(32)).public
    assert PublicKey.read(key.pem) == PublicKey.read(key.text) == key
    rsa = generate_private_key(65537, 1024).public_key()
    other = rsa.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    for text in ("", "no key", "-----BEGIN PUBLIC KEY-----\nx\n-----END PUBLIC KEY-----", "AAAA", other):
        with pytest.raises(Problem) as refused:
            PublicKey.read(text)
        assert refused.value.key == "schema_mismatch"
