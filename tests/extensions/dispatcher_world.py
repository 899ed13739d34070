"""A dispatcher with everything real around it: a project on disk, a ledger, connectors, a policy."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from forestay.extensions.authority import granted_folders
from forestay.extensions.connectors.contract import Call
from forestay.extensions.connectors.environment import Environment
from forestay.extensions.connectors.exec import ExecConnector
from forestay.extensions.connectors.http import HttpConnector
from forestay.extensions.connectors.model import ModelConnector
from forestay.extensions.connectors.paths import Roots
from forestay.extensions.connectors.standard import Neighbours, standard
from forestay.extensions.connectors.ui import UiConnector
from forestay.extensions.dispatcher import Dispatcher
from forestay.extensions.evidence import Correlation, Evidence, stream_of
from forestay.extensions.grants import policy_of
from forestay.extensions.host_call import Subject
from forestay.extensions.protocol import HostCall, HostResult
from forestay.kernel import ExtensionConfig, Ledger, Record, SystemClock

ENVIRON = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": "/home/someone",
    "LANG": "C.UTF-8",
    "USER": "someone",
    "OPENAI_API_KEY": "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789",
    "DATABASE_URL": "postgres://user:hunter2@db/prod",
    "EDITOR": "vi",
}


class World:
    """One extension, `ext.test`, in a project folder."""

    def __init__(
        self,
        folder: Path,
        *,
        mode: str = "strict",
        grants: Iterable[str] = (),
        environ: dict[str, str] | None = None,
        resolver: Any = None,
        ui: Any = None,
        model: Any = None,
        session: Any = None,
        sandbox: Any = None,
        unconfined: bool = False,
        consent: Any = None,
        config: ExtensionConfig | None = None,
        clock: Any = None,
    ) -> None:
        self.project = folder / "project"
        self.project.mkdir(exist_ok=True)
        self.outside = folder / "outside"
        self.outside.mkdir(exist_ok=True)
        (self.outside / "secret.txt").write_text("top secret")
        self.own = folder / "own"
        self.own.mkdir(exist_ok=True)
        (self.own / "asset.txt").write_text("asset")
        self.temp = folder / "temp"
        self.temp.mkdir(exist_ok=True)
        self.ledger = Ledger.open(folder / "ledger.db", clock=clock)
        self.evidence = Evidence(self.ledger, clock=clock)
        self.clock = clock or SystemClock()
        policy = policy_of(config or ExtensionConfig(), self.clock, mode=mode, flags=grants, subjects=["ext.test"])  # type: ignore[arg-type]
        roots = Roots.of(self.project, extension=self.own, temp=self.temp, extra=granted_folders(policy, "ext.test"))
        environment = Environment(ENVIRON if environ is None else environ)
        self.exec = ExecConnector(environment=environment, temp=str(self.temp), sandbox=sandbox, unconfined=unconfined)
        self.logged: list[Any] = []
        self.emitted: list[Any] = []
        neighbours = Neighbours(
            UiConnector(ui),
            ModelConnector(model),
            session,
            lambda *entry: self.logged.append(entry),
            lambda *entry: self.emitted.append(entry),
        )
        http = HttpConnector(resolver=resolver) if resolver else None
        connectors = standard(environment, self.exec, neighbours, http=http, temp=str(self.temp))
        self.dispatcher = Dispatcher(policy, connectors, self.evidence, consent=consent, clock=self.clock)
        self.dispatcher.admit(Subject("ext.test", roots, correlation=Correlation("ext.test", "scn-1")))
        self._count = 0

    def request(self, method: str, params: dict[str, Any], **options: Any) -> HostCall:
        self._count += 1
        return HostCall(f"host-{self._count}", options.pop("capability", ""), method, params, **options)

    def sync(self, method: str, /, **params: Any) -> HostResult:
        return self.dispatcher.call_sync(self.request(method, params), "ext.test")

    def ok(self, method: str, /, **params: Any) -> dict[str, Any]:
        result = self.sync(method, **params)
        assert not result.is_error, result.error
        return result.output

    def refused(self, method: str, /, **params: Any) -> Any:
        result = self.sync(method, **params)
        assert result.is_error and result.error is not None, result.output
        assert result.output == {}
        return result.error

    async def stream(self, method: str, /, **params: Any) -> list[HostResult]:
        return [result async for result in self.dispatcher.call(self.request(method, params), "ext.test")]

    def streamed(self, method: str, /, **params: Any) -> list[HostResult]:
        return asyncio.run(self.stream(method, **params))

    def records(self) -> list[Record]:
        self.evidence.flush()
        return asyncio.run(self.ledger.read(stream_of("ext.test")))

    def close(self) -> None:
        self.dispatcher.close()
        self.ledger.close()


def plain_call(roots: Roots) -> Call:
    """A call that policy does not stop, for a connector alone."""
    return Call("ext.test", "1", roots, OpenPolicy())


class OpenPolicy:
    """Allows everything."""

    def permit(self, capability: str, resource: str | None) -> None: ...

    def granted(self, capability: str, resource: str) -> bool:
        return True

    def refused(self, capability: str, resource: str) -> bool:
        return False

    def scopes(self, capability: str) -> tuple[str, ...]:
        return ()
