"""The two ways to reach a server: as a confined program or at a URL. Both look up the server's grants."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

from forestay.extensions.connectors.addresses import canonical_host
from forestay.extensions.connectors.contract import Call, io_problem
from forestay.extensions.connectors.environment import Environment
from forestay.extensions.connectors.exec import check_confined, confinement, find_program
from forestay.extensions.connectors.paths import resolve
from forestay.extensions.mcp.connection import Line
from forestay.extensions.mcp.http import CheckedTransport, checked_transport, http_streams
from forestay.extensions.mcp.new_pins import Ask
from forestay.extensions.mcp.ration import Ration
from forestay.extensions.mcp.requests import granted_folders
from forestay.extensions.mcp.server_config import ServerConfig
from forestay.extensions.mcp.sign_in import SignIn
from forestay.extensions.mcp.stdio import ServerProgram, Streams, stdio_streams
from forestay.extensions.mcp.tokens import TokenFiles
from forestay.extensions.sandbox import Prepared, Sandbox
from forestay.extensions.stand_ins import standing_in
from forestay.kernel import Clock, Problem

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


class ProgramLine(Line):
    """A program in the process sandbox, with the server's current grants."""

    def __init__(self, config: ServerConfig, call: Call, environment: Environment, clock: Clock, *, unconfined: bool):
        self._config = config
        self._call = call
        self._environment = environment
        self._clock = clock
        self._unconfined = unconfined
        self.folders = granted_folders(call)
        self._program: ServerProgram | None = None
        self.facts: dict[str, Any] = {}

    def open(self) -> AbstractAsyncContextManager[Streams]:
        return self._opened()

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[Streams]:
        try:
            cwd, command, environ, prepared = await asyncio.to_thread(self._prepared)
        except OSError as error:
            raise io_problem(error, self._config.entry.command) from error
        sandbox = Sandbox.detect()
        self.facts = {"sandbox": sandbox.kind, "network": prepared.limits.network}
        with standing_in(prepared.stand_ins):
            launch = sandbox.wrap(command, cwd, prepared, environ, search=self._environment.search)
            try:
                self._program = await ServerProgram.start(launch, self._config.name, Ration(self._clock))
            finally:
                os.close(launch.descriptor)
            async with stdio_streams(self._program) as streams:
                yield streams

    def _prepared(self) -> tuple[str, list[str], dict[str, str], Prepared]:
        """Return folder, command, variables and limits of the program. Reads the disk."""
        call, entry, sandbox = self._call, self._config.entry, Sandbox.detect()
        check_confined(sandbox, unconfined=self._unconfined)
        with resolve(call.roots, entry.cwd or call.roots.cwd) as place:
            cwd = place.real
        temp = call.roots.temp
        given = {name: expanded(text, call, self._environment) for name, text in entry.env.items()}
        environ = self._environment.for_process(call, given, temp=temp)
        command = [find_program(entry.command, cwd, environ.get("PATH", "")), *entry.args]
        return cwd, command, environ, sandbox.prepare(confinement(call, cwd, temp))

    def failure(self) -> Problem | None:
        return self._program.failure if self._program is not None else None

    def last_words(self) -> str:
        return self._program.last_words if self._program is not None else ""


class AddressLine(Line):
    """A server at a URL. A special address must be written in the approved URL or named by a grant.

    If the server answers 401 and its entry has no key, `ask` asks a person to sign in.
    """

    def __init__(
        self,
        config: ServerConfig,
        call: Call,
        environment: Environment,
        tokens: TokenFiles,
        ask: Ask,
        redirect: str,
        *,
        transport: Callable[[Callable[[str], bool]], CheckedTransport] = checked_transport,
    ) -> None:
        self._config = config
        self._call = call
        self._environment = environment
        self._host = canonical_host(urlsplit(config.entry.url).hostname or "")
        self._transport = transport(self._named)
        keyed = any(name.lower() == "authorization" for name in config.entry.headers)
        self._ask = ask
        self._sign_in = None if keyed else SignIn(config, tokens, self._asked, redirect)
        self.folders = granted_folders(call)
        self.facts: dict[str, Any] = {"host": self._host}

    def _named(self, address: str) -> bool:
        return address == self._host or self._call.policy.granted("http!", address)

    async def _asked(self, operation: str, params: dict[str, Any]) -> Any:
        with self.held():
            return await self._ask(operation, params)

    def open(self) -> AbstractAsyncContextManager[Any]:
        entry = self._config.entry
        headers = {name: expanded(text, self._call, self._environment) for name, text in entry.headers.items()}
        quiet = entry.call_seconds
        return http_streams(entry.url, headers, self._transport, auth=self._sign_in, quiet_seconds=quiet)

    def failure(self) -> Problem | None:
        unsigned = self._sign_in.failure if self._sign_in is not None else None
        return self._transport.failure or unsigned

    def last_words(self) -> str:
        return ""


def expanded(text: str, call: Call, environment: Environment) -> str:
    """Replace each `${NAME}` in `text` with the host's variable, which must be granted or have a default."""

    def value(match: re.Match[str]) -> str:
        name, default = match[1], match[2]
        found = environment.get(call, name)
        if found is None and default is None:
            raise Problem(
                "capability_denied",
                f"{call.extension} needs the variable {name}, which is not granted or not set.",
                variable=name,
                fix=f"Set it, and grant it by name: --grant env:{name}",
            )
        return found if found is not None else default

    return _VARIABLE.sub(value, text)
