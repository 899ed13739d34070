"""Our side of a comparison: the sandbox with real surroundings, in a temporary project folder."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from forestay.extensions.authority import granted_folders
from forestay.extensions.compiler.artifact import Artifact
from forestay.extensions.connectors.environment import Environment
from forestay.extensions.connectors.exec import ExecConnector
from forestay.extensions.connectors.model import ModelConnector
from forestay.extensions.connectors.paths import Roots
from forestay.extensions.connectors.standard import Neighbours, standard
from forestay.extensions.connectors.ui import UiConnector
from forestay.extensions.dispatcher import Dispatcher
from forestay.extensions.engine.bytecode import KeptBytecode
from forestay.extensions.engine.pool import Pool
from forestay.extensions.evidence import Correlation, Evidence
from forestay.extensions.grants import policy_of
from forestay.extensions.host_call import Subject
from forestay.extensions.isolate import Program
from forestay.extensions.javascript_guest import JavaScriptGuest
from forestay.extensions.outcomes import Surroundings
from forestay.extensions.tool_wording import ToolWords
from forestay.kernel import ExtensionConfig, Ledger, SystemClock


class Place:
    """A project, a home and a temporary folder, as on the oracle's side."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.project, self.home, self.temp = folder / "project", folder / "home", folder / "temp"
        self.programs = folder / "programs"
        for each in (self.project, self.home, self.temp, self.programs):
            each.mkdir(parents=True, exist_ok=True)

    def environment(self) -> dict[str, str]:
        import os

        return {
            "PATH": f"{self.programs}:{os.environ.get('PATH', '/usr/bin:/bin')}",
            "HOME": str(self.home),
            "TMPDIR": str(self.temp),
            "LANG": "C.UTF-8",
            "TZ": "UTC",
            "NO_COLOR": "1",
            "PI_OFFLINE": "1",
        }


class Host:
    """Runs one extension in the sandbox in permissive mode, with its evidence in its own ledger."""

    def __init__(
        self,
        place: Place,
        artifact: Artifact,
        *,
        ui: Any = None,
        session: Any = None,
        model: Any = None,
        http: Any = None,
        sandbox: Any = None,
        pool: Pool | None = None,
        grants: Iterable[str] = (),
        words: Mapping[str, ToolWords] | None = None,
        bytecode_cache: KeptBytecode | None = None,
        emitted: Callable[[str, str, Any], None] | None = None,
        report: Callable[[str, dict[str, Any]], None] | None = None,
    ) -> None:
        self.artifact = artifact
        name = artifact.meta.extension_id
        self.ledger = Ledger.open(place.folder / f"{name}.db")
        clock = SystemClock()
        flags = [f"read:{place.home}/**", f"write:{place.home}/**", *grants]
        policy = policy_of(ExtensionConfig(), clock, mode="permissive", flags=flags, subjects=[name])
        root = Path(artifact.root)
        roots = Roots.of(place.project, extension=root, temp=place.temp, extra=granted_folders(policy, name))
        environment = Environment(place.environment())
        programs = ExecConnector(environment=environment, temp=str(place.temp), sandbox=sandbox, unconfined=True)
        neighbours = Neighbours(UiConnector(ui), ModelConnector(model), session, events=emitted)
        self.dispatcher = Dispatcher(
            policy,
            standard(environment, programs, neighbours, http=http, temp=str(place.temp)),
            Evidence(self.ledger),
            clock=clock,
            loop=asyncio.get_running_loop(),
        )
        self.dispatcher.admit(Subject(name, roots, correlation=Correlation(name, "conform")))
        self.extension = JavaScriptGuest(
            Program.of(artifact),
            Surroundings(name, str(place.project), str(root), has_ui=ui is not None, tool_words=dict(words or {})),
            self.dispatcher,
            pool=pool,
            report=report,
            bytecode_cache=bytecode_cache,
        )

    async def __aenter__(self) -> Host:
        await self.ledger.__aenter__()
        return self

    async def __aexit__(self, *failure: Any) -> None:
        await self.extension.close()
        self.dispatcher.close()
        await self.ledger.__aexit__(*failure)
