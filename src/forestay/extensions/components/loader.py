"""Turns a component on disk into a guest: its machine code comes from the cache or from the compiler process."""

from __future__ import annotations

from collections.abc import Callable

from forestay.extensions.compiler.artifact import Artifact
from forestay.extensions.compiler.cache import default_cache
from forestay.extensions.components.compile import compiled
from forestay.extensions.components.guest import ComponentGuest
from forestay.extensions.components.linked import LinkedComponent
from forestay.extensions.engine.bytecode import KeptBytecode
from forestay.extensions.guests import Report
from forestay.extensions.outcomes import Surroundings
from forestay.extensions.protocol import HostCalls
from forestay.extensions.settings import Settings


class ComponentLoader:
    """Makes the component guests of one project."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def guest(
        self,
        artifact: Artifact,
        _surroundings: Surroundings,
        calls: HostCalls,
        report: Report,
        refused: Callable[[str, str], None],
    ) -> ComponentGuest:
        """Return a guest that is not loaded yet. A component gets its manifest, but not the surroundings."""
        settings, cache = self._settings, default_cache(self._settings.data)
        kept = None if cache is None else KeptBytecode(cache.folder / "components", cache.seal, refused)
        seconds = settings.config.build_seconds
        return ComponentGuest(
            artifact.meta.manifest,
            artifact.meta.hash,
            lambda: LinkedComponent(compiled(artifact.code, kept, seconds=seconds)),
            calls,
            report=report,
            limits=settings.vm_limits(),
            deadline=settings.deadline,
            clock=settings.clock,
            randomness=settings.randomness,
            record=settings.record,
        )
