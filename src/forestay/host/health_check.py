"""The host's health: each finding is a check that was made just now."""

from __future__ import annotations

import asyncio
import shutil
from typing import Literal

import msgspec

from forestay.host.opening import Host
from forestay.kernel import Problem

_LEAST_FREE = 256 * 1024 * 1024

State = Literal["healthy", "degraded", "unhealthy"]


class Finding(msgspec.Struct, frozen=True):
    """The result of one check."""

    name: str
    state: State
    detail: str


class Health(msgspec.Struct, frozen=True):
    """The findings, and the worst of their states."""

    status: State
    findings: tuple[Finding, ...]


async def health(host: Host) -> Health:
    found = (await _ledger(host), _disk(host), _engine(host), await _extensions(host), _model(host))
    findings = (*found, await _fleet(host)) if host.workers is not None else found
    states: tuple[State, ...] = ("unhealthy", "degraded")
    worst: State = next((state for state in states if any(item.state == state for item in findings)), "healthy")
    return Health(worst, findings)


async def _ledger(host: Host) -> Finding:
    try:
        records = await host.ledger.count()
    except Problem as problem:
        return Finding("ledger", "unhealthy", problem.message)
    if host.ledger.read_only:
        return Finding("ledger", "unhealthy", f"{records} records; the file cannot be written")
    return Finding("ledger", "healthy", f"{records} records")


async def _fleet(host: Host) -> Finding:
    """Check this process among those that share the ledger: without a current lease, the others take it for dead."""
    assert host.workers is not None
    try:
        living = await asyncio.to_thread(host.workers.living)
    except Problem as problem:
        return Finding("fleet", "unhealthy", problem.message)
    mine = any(about.get("name") == host.workers.name for about in living)
    detail = f"{len(living)} processes, {sum('url' in about for about in living)} of them serve callers"
    return Finding("fleet", "healthy" if mine else "degraded", detail)


def _disk(host: Host) -> Finding:
    free = shutil.disk_usage(host.data).free
    state: State = "healthy" if free >= _LEAST_FREE else "degraded"
    return Finding("disk", state, f"{free // (1024 * 1024)} MiB free")


def _engine(host: Host) -> Finding:
    load = host.runs.load()
    detail = f"{load.loaded_runs} runs, {load.executing_nodes} nodes at work"
    return Finding("engine", "degraded" if load.draining else "healthy", detail + (", draining" * load.draining))


async def _extensions(host: Host) -> Finding:
    standing = await host.extensions.standing()
    suite = host.extensions.opened
    failed = len(suite.failures) if suite is not None else 0
    if (found := await host.extensions.unloadable()) is not None:
        return Finding("extensions", "degraded", f"{len(found[0])} not loaded: {found[1].message}")
    detail = f"{len(standing.brings)} in the project ({standing.state}), {len(suite.members) if suite else 0} loaded"
    return Finding("extensions", "degraded" if failed else "healthy", detail + (f", {failed} failed" if failed else ""))


def _model(host: Host) -> Finding:
    try:
        return Finding("model", "healthy", host.models.default.name)
    except Problem as problem:
        return Finding("model", "degraded", problem.message)
