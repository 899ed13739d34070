"""Exports and imports a session: its records, encrypted, behind a header that describes them (C8, CRP §1.13).

A file is one line of JSON (the header) and the payload: AES-256-GCM over the compressed records. The checksum is the
BLAKE3 hash of the payload. The encryption also authenticates the header without its checksum. A file that fails a check
gives problem 1030 and changes nothing.
"""

from __future__ import annotations

import base64
import os
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import blake3
import msgspec

from forestay.kernel import Draft, Ledger, Problem, Record, canonical
from forestay.relay.types import PROTOCOL_VERSION, SCHEMA_VERSION, PersistedStateHeader
from forestay.relay.warm import Warm

if TYPE_CHECKING:
    from forestay.relay.session import Session

_HEADER_LIMIT = 4096
_UNPACKED_LIMIT = 1 << 30
_UNPACKED_FREE, _UNPACKED_RATIO = 64 << 20, 32
_MALFORMED = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError, zlib.error)
_LEAST_PASSPHRASE = 12


async def export(session: Session, passphrase: bytes | str) -> bytes:
    """Return the session as one file; it includes, encrypted, the secret of its signatures if the relay holds it."""
    key = _passphrase(passphrase)
    lines = [line async for line in session.relay.ledger.export(session.stream_name)]
    own = [line for line in lines if msgspec.json.decode(line)["stream"] == session.stream_name]
    binding = None if session.warm.bound else base64.b64encode(session.relay.binding(session.id)).decode()
    plain = canonical.encode({"binding": binding}) + b"\n" + b"".join(own)
    salt, nonce = os.urandom(16), os.urandom(12)
    fields: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "protocol_version": PROTOCOL_VERSION,
        "created_at": session.clock.now_ms() / 1000,
        "cipher": "AES-256-GCM",
        "kdf": "HKDF-SHA256",
        "salt": salt.hex(),
        "nonce": nonce.hex(),
        "session_id": session.id,
        "records": len(own),
    }
    payload = _cipher(key, salt).encrypt(nonce, zlib.compress(plain, 6), canonical.encode(fields))
    header = {**fields, "checksum": "blake3:" + blake3.blake3(payload).hexdigest()}
    await session.record(Draft("crp.session.export", {"records": len(own), "checksum": header["checksum"]}))
    return b"\n".join((canonical.encode(header), payload))


def read_header(data: bytes) -> tuple[PersistedStateHeader, bytes]:
    """Return the header and the payload, checked as far as possible without the passphrase."""
    line, newline, payload = data.partition(b"\n")
    if not newline or len(line) > _HEADER_LIMIT:
        raise _corrupted("The file does not begin with a header.")
    try:
        header = msgspec.json.decode(line, type=PersistedStateHeader)
    except msgspec.DecodeError as error:
        raise _corrupted("The header cannot be read.") from error
    if header.schema_version.split(".")[0] != SCHEMA_VERSION.split(".")[0]:
        raise _corrupted(
            f"The file has schema {header.schema_version}; this version reads {SCHEMA_VERSION.split('.')[0]}.x.",
            fix="Use the forestay that wrote it; the file was not changed.",
        )
    if header.checksum != "blake3:" + blake3.blake3(payload).hexdigest():
        raise _corrupted("The checksum does not match: the file is damaged.")
    return header, payload


async def take_in(
    ledger: Ledger, data: bytes, passphrase: bytes | str, admits: Callable[[str, Warm], None]
) -> tuple[str, bytes | None]:
    """Import all of an export's records into `ledger`, or none; return the session's id and its binding secret.

    A holder of the passphrase may have written anything: records that cannot be folded, or that `admits` refuses, are
    not imported.
    """
    header, payload = read_header(data)
    from cryptography.exceptions import InvalidTag

    fields = {key: value for key, value in msgspec.to_builtins(header).items() if key != "checksum"}
    try:
        packed = _cipher(_passphrase(passphrase), bytes.fromhex(header.salt)).decrypt(
            bytes.fromhex(header.nonce), payload, canonical.encode(fields)
        )
        unpacker = zlib.decompressobj()
        plain = unpacker.decompress(packed, unpacked_limit(len(packed)))
    except (InvalidTag, ValueError, zlib.error) as error:
        raise _corrupted("The state cannot be decrypted: the passphrase is wrong, or the file was changed.") from error
    if unpacker.unconsumed_tail:
        raise _corrupted("The state unpacks to more than an export of this size can hold.")
    first, _, rest = plain.partition(b"\n")
    lines = rest.splitlines()
    stream = f"relay/{header.session_id}"
    warm = Warm()
    try:
        binding = msgspec.json.decode(first)["binding"]
        derives = base64.b64decode(binding) if binding else None
        records = [msgspec.json.decode(line, type=Record) for line in lines]
        if len(records) != header.records or any(record.stream != stream for record in records):
            raise _corrupted("The records do not belong to the session that the header names.")
        for record in records:
            warm.apply(record.type, record.payload)
    except _MALFORMED as error:
        raise _corrupted("The records do not form a session.") from error
    admits(header.session_id, warm)
    if (await ledger.head(stream)).seq >= 0:
        raise Problem(
            "ledger_conflict",
            "This ledger already has the session.",
            session_id=header.session_id,
            fix="Use that session, or import the file elsewhere.",
        )
    await ledger.import_lines(lines)
    return header.session_id, derives


def unpacked_limit(packed: int) -> int:
    """Return the size that a state may unpack to: a few megabytes that unpack to a gigabyte are not an export."""
    return min(_UNPACKED_LIMIT, max(_UNPACKED_FREE, _UNPACKED_RATIO * packed))


def seal(secret: bytes, data: bytes, about: bytes) -> str:
    """Encrypt `data` so that only the holder of `secret` can read it."""
    nonce = os.urandom(12)
    return base64.b64encode(nonce + _cipher(secret, about).encrypt(nonce, data, about)).decode()


def unseal(secret: bytes, sealed: str, about: bytes) -> bytes:
    from cryptography.exceptions import InvalidTag

    data = base64.b64decode(sealed)
    try:
        return bytes(_cipher(secret, about).decrypt(data[:12], data[12:], about))
    except InvalidTag as error:
        raise Problem("state_corrupted", "The session's key cannot be read with this relay's secret.") from error


# Part of every export and sealed key since 0.1, so it keeps the project's name of that time.
_LABEL = b"holdfast relay state"


def _cipher(key: bytes, salt: bytes) -> Any:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return AESGCM(HKDF(algorithm=SHA256(), length=32, salt=salt, info=_LABEL).derive(key))


def _passphrase(passphrase: bytes | str) -> bytes:
    key = passphrase.encode() if isinstance(passphrase, str) else passphrase
    if len(key) < _LEAST_PASSPHRASE:
        raise Problem(
            "invalid_request",
            f"The export key has fewer than {_LEAST_PASSPHRASE} bytes.",
            at="$.export_key",
            fix="Use a long random key.",
        )
    return key


def _corrupted(message: str, **details: Any) -> Problem:
    return Problem("state_corrupted", message, **details)
