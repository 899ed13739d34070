"""The secret that all hosts of one ledger share: it signs webhooks and interrupt tokens, and keys relay sessions.

A ledger outside the data folder keeps the secret's fingerprint, so that a host on another machine, or a standby, cannot
continue with another secret unnoticed.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from forestay.kernel import HOST_SECRET, Draft, Ledger, Problem, Randomness, derive, kept_secret

STREAM = "host/secret"
_LEAST = 32


def host_secret(folder: Path, randomness: Randomness) -> bytes:
    """Return the secret in the data folder; a new folder takes it from FORESTAY_SECRET or generates one."""
    text = os.environ.get("FORESTAY_SECRET", "")
    if not text:
        return kept_secret(folder / HOST_SECRET, randomness)
    if len(text) < _LEAST:
        message = f"FORESTAY_SECRET has fewer than {_LEAST} characters."
        raise Problem("config_invalid", message, at="FORESTAY_SECRET", fix="Make one with `openssl rand -hex 32`.")
    given = hashlib.sha256(b"forestay\0" + text.encode()).digest()
    if kept_secret(folder / HOST_SECRET, given=given) != given:
        raise Problem(
            "config_invalid",
            f"FORESTAY_SECRET differs from the secret in {HOST_SECRET} of the data folder.",
            at="FORESTAY_SECRET",
            fix=f"Unset it, or remove {HOST_SECRET} when the hosts of this ledger use FORESTAY_SECRET.",
        )
    return given


async def check_secret(ledger: Ledger, secret: bytes, *, renew: bool) -> None:
    """Refuse a secret that is not this ledger's; with `renew`, make it the ledger's from now on."""
    told = {"fingerprint": derive(secret, "fingerprint").hex()[:32]}
    try:
        await _check(ledger, told, renew=renew)
    except Problem as problem:
        if problem.key != "ledger_conflict":
            raise
        await _check(ledger, told, renew=renew)  # another host was first and wrote its fingerprint


async def _check(ledger: Ledger, told: dict[str, str], *, renew: bool) -> None:
    known = await ledger.read(STREAM, 0, 1, reverse=True)
    if known and known[0].payload == told:
        return
    if known and not renew:
        raise Problem(
            "config_invalid",
            "This host's secret differs from the secret of the hosts that used this ledger before.",
            at=HOST_SECRET,
            fix=f"Copy {HOST_SECRET} from their data folder, or give all of them one FORESTAY_SECRET. If theirs is "
            "lost, start once with --new-secret: the signatures of webhooks change, and open relay sessions end.",
        )
    await ledger.append(STREAM, [Draft("host.secret.known", told)], known[0].seq if known else -1)
