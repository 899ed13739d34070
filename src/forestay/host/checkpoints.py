"""Signs the audit log while a host serves: at its start, as often as discovery says, and at its end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from forestay.host.shared_secret import host_secret
from forestay.kernel import (
    AUDIT,
    EVERY_ENTRIES,
    EVERY_SECONDS,
    AuditLog,
    Ids,
    Ledger,
    Locks,
    Problem,
    SystemRandomness,
    derive,
    kept_in,
)

_POLL_SECONDS = 10.0  # how soon entries of other processes are counted
_log = logging.getLogger("forestay.audit")


def audit_log(ledger: Ledger, secret: bytes, ids: Ids, locks: Locks | None = None) -> AuditLog:
    """Return the ledger's audit log; it signs with the key that this secret gives."""
    return AuditLog(ledger, derive(secret, "audit"), ids, locks)


def audit_of(folder: Path, ledger: Ledger) -> AuditLog:
    """Return the audit log of a data folder that no host has open."""
    with kept_in(folder):
        return audit_log(ledger, host_secret(folder, SystemRandomness()), Ids())


@asynccontextmanager
async def signing(audit: AuditLog, ledger: Ledger, *, shared: bool) -> AsyncIterator[None]:
    """Sign new entries while the block runs; the first checkpoint exists when the block begins."""
    await _sign(audit)
    task = asyncio.create_task(_go_on(audit, ledger, _POLL_SECONDS if shared else None))
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await _sign(audit)


async def _go_on(audit: AuditLog, ledger: Ledger, poll: float | None) -> None:
    while True:
        while await _sign(audit):
            pass
        try:
            async with asyncio.timeout(EVERY_SECONDS):
                await _grown(ledger, poll)
        except TimeoutError:
            pass
        except Problem:  # the database is unreachable
            await asyncio.sleep(_POLL_SECONDS)


async def _sign(audit: AuditLog) -> bool:
    """Sign one checkpoint; return whether there is more to sign. The host serves on when signing fails."""
    try:
        return await audit.checkpoint()
    except Problem as problem:
        _log.error("the audit log is not signed: %s", problem.message)
        return False


async def _grown(ledger: Ledger, poll: float | None) -> None:
    """Wait until the log has grown by the entries of one checkpoint."""
    head = await ledger.head(AUDIT)
    async with contextlib.aclosing(ledger.follow(AUDIT, head.next, poll=poll)) as entries:
        async for entry in entries:
            if entry.seq - head.seq >= EVERY_ENTRIES:
                return
