"""Turns a configured server into a guest, which reaches it with the grants of its subject."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from forestay.extensions.compiler.artifact import Artifact
from forestay.extensions.connectors.contract import Call
from forestay.extensions.connectors.environment import Environment
from forestay.extensions.connectors.ui import Ui
from forestay.extensions.guests import Report
from forestay.extensions.manifest import SCHEMA, Manifest
from forestay.extensions.mcp.guest import McpGuest
from forestay.extensions.mcp.new_pins import NewPins
from forestay.extensions.mcp.pins import Pins, ServerStanding, unapproved
from forestay.extensions.mcp.server_config import ServerConfig
from forestay.extensions.mcp.tokens import TokenFiles
from forestay.extensions.outcomes import Surroundings
from forestay.extensions.protocol import HostCalls
from forestay.extensions.settings import Settings
from forestay.kernel import Problem

if TYPE_CHECKING:
    from forestay.extensions.mcp.lines import AddressLine, ProgramLine


class ServerLoader:
    """Makes the guests of the MCP servers of one project.

    `own_call` returns the current grants of a subject, `may` tells whether policy might allow it a capability.
    `ui` shows the host's own questions about a server, `pins` and `tokens` store the answers.
    """

    def __init__(
        self,
        settings: Settings,
        own_call: Callable[[str], Call],
        may: Callable[[str, str], bool],
        ui: Ui,
        pins: Pins,
        tokens: TokenFiles,
    ) -> None:
        self._settings = settings
        self._own_call = own_call
        self._may = may
        self._ui = ui
        self._pins = pins
        self._tokens = tokens

    def artifact(self, config: ServerConfig) -> Artifact:
        """Return an artifact for the server; its fingerprint takes the place of code."""
        manifest = Manifest(
            SCHEMA, config.subject, config.name, "0", "1.0", "mcp", config.entry.url or config.entry.command
        )
        return Artifact.of_manifest(manifest, config.fingerprint.encode())

    def guest(
        self,
        config: ServerConfig,
        standing: ServerStanding,
        _surroundings: Surroundings,
        calls: HostCalls,
        report: Report,
    ) -> McpGuest:
        """Return a guest that is not started; raise a Problem if the current configuration is not approved."""
        if not standing.admits(config):
            raise unapproved(config, standing)
        settings = self._settings
        environment = Environment(settings.environ)
        ask = partial(self._asked, config.subject)

        def line() -> ProgramLine | AddressLine:
            from forestay.extensions.mcp.lines import AddressLine, ProgramLine  # the protocol's package is large

            call = self._own_call(config.subject)
            if config.entry.url:
                return AddressLine(config, call, environment, self._tokens, ask, settings.sign_in_url)
            unconfined = settings.config.policy.unconfined_programs
            return ProgramLine(config, call, environment, settings.clock, unconfined=unconfined)

        may = partial(self._may, config.subject)
        pins = NewPins(config, self._pins, ask)
        return McpGuest(config, standing.pinned, line, calls, pins, may=may, report=report, clock=settings.clock)

    async def _asked(self, subject: str, operation: str, params: dict[str, Any]) -> Any:
        """Ask a person the host's own question; return None where nobody can answer."""
        try:
            return await self._ui.request(subject, operation, params)
        except Problem as problem:
            if problem.key != "consent_required":
                raise
            return None
