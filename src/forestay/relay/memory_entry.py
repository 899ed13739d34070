"""One entry of a memory: in plain form, and in the ledger's form, sealed under its own key.

The mark that stays when an entry is forgotten is an HMAC under that key. Without the key nobody can test which content
fits the mark, however short the content was.
"""

from __future__ import annotations

import hashlib
import hmac

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from forestay.kernel import Problem, base64url, iso

KEY_BYTES = 32
NONCE_BYTES = 12


class Origin(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Who wrote an entry: the principal of a key, or the node and the agent of a run (OpenWOP RFC 0057)."""

    principal: str | None = None
    run_id: str | None = None
    node_id: str | None = None
    agent_id: str | None = None


NOBODY = Origin()


class Sealed(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """An entry as a record: its owner and its lifetime are plain, its content and its tags are sealed."""

    memory_id: str
    tenant: str
    memory_ref: str
    created_at: int
    sealed: str
    mark: str
    expires_at: int | None = None
    origin: Origin = NOBODY
    key: str = ""  # its name in the vault

    @property
    def key_name(self) -> str:
        """The name of its key in the vault: the entry's id by default."""
        return self.key or self.memory_id


class MemoryEntry(msgspec.Struct, frozen=True):
    """An entry in plain form."""

    id: str
    memory_ref: str
    content: str
    tags: tuple[str, ...]
    created_ms: int
    expires_ms: int | None
    origin: Origin

    @property
    def shown(self) -> ShownEntry:
        expires = None if self.expires_ms is None else iso(self.expires_ms)
        return ShownEntry(self.id, self.content, self.tags, iso(self.created_ms), expires)


class ShownEntry(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """An entry in the contract's shape (`memory-entry.schema.json`, closed)."""

    id: str
    content: str
    tags: tuple[str, ...]
    created_at: str
    expires_at: str | None = None


def seal(entry: MemoryEntry, tenant: str, key: bytes, nonce: bytes, key_name: str = "") -> Sealed:
    """Return `entry` in the ledger's form; `key_name` is needed only when it differs from the entry's id."""
    plain = msgspec.json.encode([entry.content, entry.tags])
    closed = AESGCM(key).encrypt(nonce, plain, _belonging(tenant, entry.memory_ref, entry.id))
    mark = hmac.new(key, plain, hashlib.sha256).hexdigest()
    return Sealed(
        entry.id,
        tenant,
        entry.memory_ref,
        entry.created_ms,
        base64url.encode(nonce + closed),
        mark,
        entry.expires_ms,
        entry.origin,
        "" if key_name == entry.id else key_name,
    )


def unseal(sealed: Sealed, key: bytes) -> MemoryEntry:
    """Return the entry; raise a Problem when its bytes were not sealed for this owner with this key."""
    data = base64url.decode(sealed.sealed)
    belonging = _belonging(sealed.tenant, sealed.memory_ref, sealed.memory_id)
    try:
        plain = AESGCM(key).decrypt(data[:NONCE_BYTES], data[NONCE_BYTES:], belonging)
    except InvalidTag as error:
        message = "A memory entry does not open with its key."
        raise Problem("state_corrupted", message, memoryId=sealed.memory_id) from error
    content, tags = msgspec.json.decode(plain, type=tuple[str, tuple[str, ...]])
    return MemoryEntry(
        sealed.memory_id, sealed.memory_ref, content, tags, sealed.created_at, sealed.expires_at, sealed.origin
    )


def _belonging(tenant: str, memory_ref: str, memory_id: str) -> bytes:
    return "\0".join((tenant, memory_ref, memory_id)).encode()
