"""Pure computation that would be slow in the engine: hashes, HMAC, key derivation, ciphers, compression.

It needs no capability, because it reads and changes nothing. Sizes and rounds are still limited.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import zlib
from collections.abc import Callable, Mapping
from typing import Any

from forestay.extensions.connectors.contract import Call, Output, number, text
from forestay.kernel import Problem
from forestay.tools import fitted

MAX_BYTES = 64 * 1024 * 1024
MAX_ROUNDS = 10_000_000
_HASHES = {
    "md5": "md5", "sha1": "sha1", "sha224": "sha224", "sha256": "sha256", "sha384": "sha384", "sha512": "sha512",
    "sha3-256": "sha3_256", "sha3-384": "sha3_384", "sha3-512": "sha3_512", "blake2b512": "blake2b",
    "blake2s256": "blake2s", "rsa-sha1": "sha1", "rsa-sha256": "sha256", "rsa-sha512": "sha512",
    "shake128": "shake_128", "shake256": "shake_256", "ripemd160": "ripemd160", "rmd160": "ripemd160",
}  # fmt: skip


class ComputeConnector:
    method = "crypto"

    def run(self, call: Call, params: Mapping[str, Any]) -> Output:
        plain = _PLAIN.get(text(params, "op"))
        if plain is not None:
            return {"value": plain(params)}
        operation = _OPERATIONS.get(text(params, "op"))
        if operation is None:
            raise Problem("invalid_request", f"There is no computation {params['op']!r}.", at="$.params.op")
        return {"base64": base64.b64encode(operation(params)).decode()}


def _arguments(params: Mapping[str, Any]) -> Any:
    """Convert tool arguments to fit their schema, by the host's own rules; the guest's pi-ai package uses this."""
    schema = params.get("schema")
    if not isinstance(schema, Mapping):
        raise Problem("schema_mismatch", "A tool's parameters must be a JSON Schema.", at="$.params.schema")
    typebox = params.get("typebox") is True
    return fitted(text(params, "tool"), schema, params.get("arguments"), typebox=typebox)


def _zone(params: Mapping[str, Any]) -> int:
    """Return how many minutes a time zone is ahead of UTC at a moment."""
    from datetime import UTC, datetime
    from zoneinfo import ZoneInfo

    try:
        moment = datetime.fromtimestamp(number(params, "ms", 0, least=-(2**53)) / 1000, UTC)
        ahead = moment.astimezone(ZoneInfo(text(params, "zone"))).utcoffset()
    except (LookupError, ValueError, OverflowError, OSError, RecursionError) as error:
        raise Problem("invalid_request", "There is no such time zone.", at="$.params.zone") from error
    return round(ahead.total_seconds() / 60) if ahead is not None else 0


def _hash(params: Mapping[str, Any]) -> bytes:
    name = _algorithm(params)
    try:
        engine = hashlib.new(name, _bytes(params, "base64"), usedforsecurity=False)
    except ValueError as error:
        raise Problem("invalid_request", "Digest method not supported", at="$.params.algorithm") from error
    if name.startswith("shake"):
        size = number(params, "length", 16 if name.endswith("128") else 32, least=1, most=4096)
        return engine.digest(size)  # type: ignore[call-arg]
    return engine.digest()


def _hmac(params: Mapping[str, Any]) -> bytes:
    try:
        return hmac.new(_bytes(params, "key"), _bytes(params, "base64"), _algorithm(params)).digest()
    except ValueError as error:
        raise Problem("invalid_request", "Invalid digest", at="$.params.algorithm") from error


def _pbkdf2(params: Mapping[str, Any]) -> bytes:
    rounds = number(params, "iterations", 1, least=1, most=MAX_ROUNDS)
    size = number(params, "length", 32, least=1, most=1 << 20)
    return hashlib.pbkdf2_hmac(_algorithm(params), _bytes(params, "key"), _bytes(params, "salt"), rounds, size)


def _scrypt(params: Mapping[str, Any]) -> bytes:
    n, r = number(params, "n", 16384, least=2, most=1 << 20), number(params, "r", 8, least=1, most=32)
    p, size = number(params, "p", 1, least=1, most=16), number(params, "length", 32, least=1, most=1 << 20)
    try:
        return hashlib.scrypt(
            _bytes(params, "key"), salt=_bytes(params, "salt"), n=n, r=r, p=p, dklen=size, maxmem=256 << 20
        )
    except ValueError as error:
        raise Problem("invalid_request", "Invalid scrypt parameters") from error


def _cipher(params: Mapping[str, Any]) -> bytes:
    """Encrypt or decrypt with AES in the modes that extensions use; for GCM the tag follows the encrypted bytes."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives import padding
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    kind = text(params, "algorithm").lower()
    key, iv, data = _bytes(params, "key"), _bytes(params, "iv"), _bytes(params, "base64")
    encrypt = params.get("encrypt") is True
    family, _, rest = kind.partition("-")
    size, _, mode = rest.partition("-")
    if family != "aes" or size not in ("128", "192", "256") or mode not in ("cbc", "ctr", "gcm", "ecb"):
        raise Problem("invalid_request", "Unknown cipher", at="$.params.algorithm")
    if len(key) * 8 != int(size):
        raise Problem("invalid_request", "Invalid key length", at="$.params.key")
    tag = _bytes(params, "tag") if params.get("tag") else None
    chosen: Any
    try:
        if mode == "gcm":
            chosen = modes.GCM(iv, None if encrypt else tag)
        else:
            chosen = modes.ECB() if mode == "ecb" else modes.CBC(iv) if mode == "cbc" else modes.CTR(iv)  # noqa: S305
        cipher = Cipher(algorithms.AES(key), chosen)
        engine: Any = cipher.encryptor() if encrypt else cipher.decryptor()
        if mode == "gcm" and params.get("aad"):
            engine.authenticate_additional_data(_bytes(params, "aad"))
        padded = mode in ("cbc", "ecb") and params.get("padding") is not False
        if encrypt and padded:
            padder = padding.PKCS7(128).padder()
            data = padder.update(data) + padder.finalize()
        result: bytes = engine.update(data) + engine.finalize()
        if not encrypt and padded:
            unpadder = padding.PKCS7(128).unpadder()
            result = unpadder.update(result) + unpadder.finalize()
    except InvalidTag as error:
        raise Problem("invalid_request", "Unsupported state or unable to authenticate data") from error
    except ValueError as error:
        message = "bad decrypt" if not encrypt else f"Invalid initialization vector: {error}"
        raise Problem("invalid_request", message) from error
    return result + engine.tag if encrypt and mode == "gcm" else result


def _deflate(params: Mapping[str, Any]) -> bytes:
    level = number(params, "level", 6, least=-1, most=9) if params.get("level") != -1 else -1
    engine = zlib.compressobj(level, zlib.DEFLATED, _window(params))
    return engine.compress(_bytes(params, "base64")) + engine.flush()


def _inflate(params: Mapping[str, Any]) -> bytes:
    window = 47 if params.get("format") == "auto" else _window(params)
    engine = zlib.decompressobj(window)
    try:
        data = engine.decompress(_bytes(params, "base64"), MAX_BYTES)
        if engine.unconsumed_tail:
            raise Problem(
                "payload_too_large", f"The data decompresses to more than {MAX_BYTES} bytes.", limit=MAX_BYTES
            )
        data += engine.flush()
    except zlib.error as error:
        raise Problem("invalid_request", "incorrect header check", errno="Z_DATA_ERROR") from error
    if not engine.eof:
        raise Problem("invalid_request", "unexpected end of file", errno="Z_BUF_ERROR")
    return data


def _equal(params: Mapping[str, Any]) -> bytes:
    return b"\1" if hmac.compare_digest(_bytes(params, "base64"), _bytes(params, "key")) else b"\0"


_OPERATIONS: dict[str, Callable[[Mapping[str, Any]], bytes]] = {
    "hash": _hash, "hmac": _hmac, "pbkdf2": _pbkdf2, "scrypt": _scrypt, "cipher": _cipher,
    "deflate": _deflate, "inflate": _inflate, "equal": _equal,
}  # fmt: skip


def _algorithm(params: Mapping[str, Any]) -> str:
    name = _HASHES.get(text(params, "algorithm").lower())
    if name is None:
        raise Problem("invalid_request", "Digest method not supported", at="$.params.algorithm")
    return name


def _window(params: Mapping[str, Any]) -> int:
    return {"gzip": 31, "raw": -15}.get(str(params.get("format", "zlib")), 15)


def _bytes(params: Mapping[str, Any], key: str) -> bytes:
    value = params.get(key, "")
    if not isinstance(value, str) or len(value) > MAX_BYTES * 4 // 3 + 4:
        raise Problem("payload_too_large", f"`{key}` must be base64 of at most {MAX_BYTES} bytes.", limit=MAX_BYTES)
    try:
        return base64.b64decode(value, validate=True)
    except ValueError as error:
        raise Problem("schema_mismatch", f"`{key}` is not base64.", at=f"$.params.{key}") from error


_PLAIN: dict[str, Callable[[Mapping[str, Any]], Any]] = {"zone": _zone, "arguments": _arguments}
