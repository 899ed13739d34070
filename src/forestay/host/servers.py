"""A person's decisions about the MCP servers of a project while the host runs.

Y1  An approval names what the person saw: the fingerprint of a server, or the hash of what it offers. When that has
    changed, the decision is refused.
Y2  A decision is recorded before it takes effect, and it is in effect when the call returns.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from forestay.kernel import Problem

if TYPE_CHECKING:
    from forestay.extensions import McpGuest, ServerCard, ServerConfig, Servers
    from forestay.host.extensions import ProjectExtensions


class ProjectServers:
    """The servers of one project folder, and the decisions about them."""

    def __init__(self, project: ProjectExtensions) -> None:
        self._project = project

    def named(self) -> Servers:
        """Return the servers that the project names or its loaded extensions register."""
        from forestay.extensions import read_servers, with_registered

        project = self._project
        found = read_servers(project.root, project.named_servers)
        return found if project.opened is None else with_registered(project.opened, found)

    async def cards(self) -> list[ServerCard]:
        """Describe each server for a person. Starts nothing."""
        from forestay.extensions import Pins, server_cards

        project = self._project
        return await server_cards(self.named(), Pins(project.ledger, project.root), project.ledger, project.opened)

    async def pinned(self) -> frozenset[str]:
        """Return the pinned tools of approved servers, by the servers' own names for them. Starts nothing."""
        from forestay.extensions import Pins

        project, servers = self._project, list(self.named().found.values())
        standing = await Pins(project.ledger, project.root).standing(*servers) if servers else {}
        admitted = [standing[item.name] for item in servers if standing[item.name].admits(item)]
        return frozenset(tool for item in admitted for tool in item.pinned)

    async def approve(self, name: str, fingerprint: str, *, by: str) -> None:
        """Approve the server as it was shown: the host may start it (Y1)."""
        suite = await self._project.suite()
        server = self.named().named(name)
        if server.fingerprint != fingerprint:
            raise _changed(f"{name} is not configured as it was shown.")
        await suite.pins.approve(server, by=by)
        await self._project.use_servers(suite)

    async def look(self, name: str) -> None:
        """Start an approved server and compare its tools with the pins."""
        guest = await self._guest(self.named().named(name))
        await guest.offered()

    async def pin(self, name: str, offer: str, *, by: str) -> None:
        """Pin the tools that the server offers, as they were shown (Y1)."""
        from forestay.extensions import compare, offer_digest, pinnable

        suite, server = await self._project.suite(), self.named().named(name)
        offered = await (await self._guest(server)).offered()
        if offer_digest(offered) != offer:
            raise _changed(f"{name} does not offer any more what was shown.")
        await suite.pins.pin(server, pinnable(compare({}, offered), offered), by=by)
        await self._project.use_servers(suite)

    async def withdraw(self, name: str, *, by: str) -> None:
        """Withdraw the approval and the pins, stop the server, and delete its sign-in tokens."""
        suite, server = await self._project.suite(), self.named().named(name)
        await suite.pins.withdraw(server, by=by)
        await asyncio.to_thread(suite.tokens.forget, server)
        await self._project.use_servers(suite)

    async def _guest(self, server: ServerConfig) -> McpGuest:
        from forestay.extensions import McpGuest, unapproved

        suite = await self._project.suite()
        await self._project.use_servers(suite)
        standing = (await suite.pins.standing(server))[server.name]
        guests = (item.extension for item in suite.members if item.extension.name == server.subject)
        guest = next(guests, None)
        if not standing.admits(server) or not isinstance(guest, McpGuest):
            raise unapproved(server, standing)
        return guest


def _changed(told: str) -> Problem:
    return Problem("state_conflict", told, fix="Look again, then decide.")
