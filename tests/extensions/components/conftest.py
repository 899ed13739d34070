"""A component in a world where everything else is real: dispatcher, policy, connectors, ledger."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.extensions.components.guests import component
from tests.extensions.dispatcher_world import World
from wasmtime.component import Component

from forestay.extensions.components.compile import described
from forestay.extensions.components.guest import ComponentGuest
from forestay.extensions.components.linked import LinkedComponent
from forestay.extensions.components.native import native
from forestay.extensions.components.outside import Compiled
from forestay.extensions.engine.limits import Limits
from forestay.extensions.manifest import SCHEMA, Manifest

MANIFEST = Manifest(SCHEMA, "ext.test", "probe", "1.0.0", "1.0", "wasm", "probe.wasm")


def machine_code(data: bytes) -> Compiled:
    """The compiled form, made in this process: the compiler's own process has tests of its own."""
    return described(data, bytes(Component(native().engine, data).serialize()))


class Running:
    def __init__(self, world: World, guest: ComponentGuest, reports: list[tuple[str, dict[str, Any]]]) -> None:
        self.world, self.guest, self.reports = world, guest, reports


Run = Callable[..., Any]


@pytest.fixture
def running(tmp_path: Path) -> Run:
    """`async with running(tool=…, grants=[…]) as it:` a loaded component, and the world around it."""

    @asynccontextmanager
    async def run(
        data: bytes | None = None,
        *,
        load: bool = True,
        folder: Path = tmp_path,
        limits: Limits | None = None,
        deadline: float = 10.0,
        world: dict[str, Any] | None = None,
        options: dict[str, Any] | None = None,
        **parts: Any,
    ) -> AsyncIterator[Running]:
        made = component(**parts) if data is None else data
        surroundings = World(folder, **(world or {}))
        reports: list[tuple[str, dict[str, Any]]] = []
        digest = "sha256:" + hashlib.sha256(made).hexdigest()
        guest = ComponentGuest(
            MANIFEST,
            digest,
            lambda: LinkedComponent(machine_code(made)),
            surroundings.dispatcher,
            report=lambda event, about: reports.append((event, about)),
            limits=limits or Limits(slice_ms=300),
            deadline=deadline,
            **(options or {}),
        )
        subject = surroundings.dispatcher.authority.subject("ext.test")
        surroundings.dispatcher.admit(msgspec.structs.replace(subject, runtime=guest.runtime))
        try:
            if load:
                await guest.load()
            yield Running(surroundings, guest, reports)
        finally:
            await guest.close()
            surroundings.dispatcher.close()
            surroundings.ledger.close()

    return run
