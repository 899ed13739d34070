"""Turns an extension's sources into a guest: compiles them in a child process, then uses a VM from the pool."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from forestay.extensions.compiler.artifact import Artifact
from forestay.extensions.compiler.build_process import workshop
from forestay.extensions.compiler.cache import default_cache
from forestay.extensions.engine.bytecode import KeptBytecode
from forestay.extensions.engine.pool import Pool
from forestay.extensions.guests import Report
from forestay.extensions.isolate import Program
from forestay.extensions.javascript_guest import JavaScriptGuest
from forestay.extensions.outcomes import Surroundings
from forestay.extensions.protocol import HostCalls
from forestay.extensions.settings import Settings

Refused = Callable[[str, str], None]
"""Receives each cache entry that lacks this host's seal: its kind and its file."""


class JavaScriptLoader:
    """Compiles and creates the JavaScript guests of one project, which share a pool of warm VMs."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._pool = Pool()

    async def compile(self, entry: Path, refused: Refused) -> Artifact:
        """Return the artifact of an extension, from the cache or compiled now."""
        cache = default_cache(self._settings.data, refused)
        seconds, building = self._settings.config.build_seconds, self._settings.building
        if building is None:
            return await workshop().build(entry, cache, seconds=seconds)
        try:
            return await workshop().build(entry, cache, seconds=seconds, told=partial(building, entry.name))
        finally:
            building(entry.name, "")

    def guest(
        self, artifact: Artifact, surroundings: Surroundings, calls: HostCalls, report: Report, refused: Refused
    ) -> JavaScriptGuest:
        """Return a guest that is not loaded yet."""
        settings, cache = self._settings, default_cache(self._settings.data)
        return JavaScriptGuest(
            Program.of(artifact),
            surroundings,
            calls,
            limits=settings.vm_limits(),
            deadline=settings.deadline,
            clock=settings.clock,
            randomness=settings.randomness,
            pool=self._pool,
            record=settings.record,
            bytecode_cache=None if cache is None else KeptBytecode(cache.folder / "bytecode", cache.seal, refused),
            report=report,
        )

    def close(self) -> None:
        self._pool.close()
