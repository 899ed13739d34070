"""Idempotency of requests, layer 1: one `Idempotency-Key`, one execution, one answer (OpenWOP §1.5, W3, W9).

Invariants:

- K1  Of concurrent requests with one key, exactly one is executed; the others get `idempotency_in_flight`.
- K2  A final answer is repeated for at least 24 hours, but only for the same body.
- K3  400, 401, 403, 429 and 5xx are not kept: a retry is executed.
- K4  A claim and its reserved id survive a crash. The process that takes the claim over uses the same id, so it finds
      what was created before the crash and does not create it again. A retry of a request that broke off or failed uses
      the same id too, because nobody knows how far that request came. A claim is taken over when its lease expires, or
      sooner when its process is known to be gone.
- K5  The caller's key is not on disk: the stream's name is a hash of (tenant, operation, key).
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Awaitable, Callable, Collection
from typing import Any

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from forestay.kernel import Clock, Draft, Ids, Ledger, Problem, Record

KEEP_MS = 24 * 3600 * 1000
LEASE_MS = 30_000
GRACE_MS = 5_000  # a claim this old whose process is not among the living is free
_ATTEMPTS = 8


class Reply(msgspec.Struct, frozen=True):
    """A final answer in storage. A `sensitive` body (one that shows a secret once) is sealed on disk."""

    status: int
    body: bytes
    headers: dict[str, str] = {}
    sensitive: bool = False


class Claim(msgspec.Struct, frozen=True):
    """The right to execute one request; `reserved` is the id for what it will create (K4)."""

    stream: str
    seq: int
    reserved: str
    digest: str


def is_final(status: int) -> bool:
    """Whether an answer is kept (K3): 2xx, and the 4xx that a retry cannot change."""
    return status < 500 and status not in (400, 401, 403, 429)


Living = Callable[[], Awaitable[Collection[str]]]


class Idempotency:
    """The kept answers of one host, on its ledger. `owner` names this process; `key` seals sensitive bodies.

    `living` returns the living owners, where several processes share the ledger.
    """

    def __init__(
        self, ledger: Ledger, clock: Clock, ids: Ids, *, owner: str, key: bytes, living: Living | None = None
    ) -> None:
        self._ledger = ledger
        self._clock = clock
        self._ids = ids
        self._owner = owner
        self._cipher = AESGCM(key)
        self._living = living
        self._held: set[str] = set()

    async def begin(self, tenant: str, operation: str, key: str, digest: str) -> Claim | Reply:
        """Return a claim to execute the request, or its kept answer."""
        stream = _stream(tenant, operation, key)
        last: Record | None = None
        for _ in range(_ATTEMPTS):
            reserved = self._ids.new() if last is None else _reserved(last, digest, self._ids)
            begun = {
                "digest": digest,
                "owner": self._owner,
                "reserved": reserved,
                "leaseUntil": self._clock.now_ms() + LEASE_MS,
            }
            expect = -1 if last is None else last.seq
            try:
                await self._ledger.append(stream, [Draft("idempotency.begun", begun)], expect=expect)
            except Problem as problem:
                if problem.key != "ledger_conflict":
                    raise
                last = (await self._ledger.read(stream, 0, 1, reverse=True))[0]
                reply = self._decide(last, stream, digest, gone=await self._is_gone(last))
                if reply is not None:
                    return reply
                continue
            self._held.add(stream)
            return Claim(stream, expect + 1, reserved, digest)
        raise _in_flight()

    async def _is_gone(self, last: Record) -> bool:
        """Whether the process of a claim is dead, although the lease has not expired (K4)."""
        if self._living is None or last.type != "idempotency.begun":
            return False
        if self._clock.now_ms() < last.payload["leaseUntil"] - LEASE_MS + GRACE_MS:
            return False
        return last.payload["owner"] not in await self._living()

    def _decide(self, last: Record, stream: str, digest: str, *, gone: bool) -> Reply | None:
        """Return the kept answer for a request with `digest`, or None when it may be executed; else refuse it."""
        now = self._clock.now_ms()
        if last.type == "idempotency.released":
            return None
        if last.type == "idempotency.finished":
            if last.payload["keepUntil"] <= now:
                return None
            if last.payload["digest"] != digest:
                raise _mismatch()
            return self._open(stream, last.payload)
        if last.payload["digest"] != digest:
            raise _mismatch()
        mine = last.payload["owner"] == self._owner
        if (mine and stream in self._held) or (not mine and not gone and last.payload["leaseUntil"] > now):
            raise _in_flight()
        return None

    async def settle(self, claim: Claim, reply: Reply | None) -> None:
        """Keep a final answer, or release the key so that a retry is executed (K2, K3)."""
        if reply is not None and is_final(reply.status):
            draft = Draft("idempotency.finished", self._close(claim, reply))
        else:
            draft = Draft("idempotency.released", {"digest": claim.digest, "reserved": claim.reserved})
        try:
            await self._ledger.append(claim.stream, [draft], expect=claim.seq)
        except Problem as problem:
            if problem.key != "ledger_conflict":  # another process took the expired lease over: its answer counts
                raise
        finally:
            self._held.discard(claim.stream)

    def _close(self, claim: Claim, reply: Reply) -> dict[str, Any]:
        body = reply.body
        if reply.sensitive:
            nonce = bytes.fromhex(self._ids.token(12))
            body = nonce + self._cipher.encrypt(nonce, body, claim.stream.encode())
        return {
            "digest": claim.digest,
            "status": reply.status,
            "headers": reply.headers,
            "body": base64.b64encode(body).decode() if reply.sensitive else body.decode(),
            "sealed": reply.sensitive,
            "keepUntil": self._clock.now_ms() + KEEP_MS,
        }

    def _open(self, stream: str, kept: dict[str, Any]) -> Reply:
        if not kept["sealed"]:
            return Reply(kept["status"], kept["body"].encode(), kept["headers"])
        data = base64.b64decode(kept["body"])
        try:
            body = self._cipher.decrypt(data[:12], data[12:], stream.encode())
        except InvalidTag as error:
            raise Problem("unavailable", "The kept answer is sealed with another host's secret.") from error
        return Reply(kept["status"], body, kept["headers"], sensitive=True)


def _stream(tenant: str, operation: str, key: str) -> str:
    return "idem/" + hashlib.sha256(f"{tenant}\0{operation}\0{key}".encode("utf-8", "surrogatepass")).hexdigest()


def _reserved(last: Record, digest: str, ids: Ids) -> str:
    """Return the id that an unanswered claim reserved for the same request (K4), else a new one."""
    same = last.type != "idempotency.finished" and last.payload.get("digest") == digest
    return str(last.payload["reserved"]) if same else ids.new()


def _in_flight() -> Problem:
    return Problem(
        "idempotency_in_flight",
        "A request with this Idempotency-Key is being executed.",
        retry_after_ms=1000,
        retryAfter=1,
        fix="Send it again in a moment, with the same key and body.",
    )


def _mismatch() -> Problem:
    return Problem(
        "idempotency_key_mismatch",
        "This Idempotency-Key was used with another request.",
        fix="Use a new key for a new request.",
    )
