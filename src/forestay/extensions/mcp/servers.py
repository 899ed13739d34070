"""Updates the MCP servers of a running suite after each decision of a person.

V1  An approved server is added with its pins. A server that is already there gets its new pins, and its next call
    compares.
V2  A server is stopped when its approval is withdrawn or its entry is removed.
V3  A server whose current configuration is not approved is a failure that says what to do.
V4  A server that an extension registers is approved and pinned like the servers of the files; an entry of a file with
    the same name wins.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec

from forestay.extensions.guests import Failure
from forestay.extensions.mcp.guest import McpGuest
from forestay.extensions.mcp.pins import ServerStanding, unapproved
from forestay.extensions.mcp.server_config import Servers, checked
from forestay.kernel import Problem

if TYPE_CHECKING:
    from forestay.extensions.extensions import Extensions


def with_registered(suite: Extensions, servers: Servers) -> Servers:
    """Return the servers of the files and those that the loaded extensions register (V4)."""
    found, problems = dict(servers.found), list(servers.problems)
    for member in suite.members:
        origin = os.path.relpath(member.path, suite.root)
        for name, item in member.extension.registrations.servers.items():
            entry = {key: value for key, value in msgspec.to_builtins(item).items() if key != "name"}
            try:
                found.setdefault(name, checked(name, origin, entry))
            except Problem as problem:
                problems.append(problem)
    return Servers(found, tuple(problems))


async def use_servers(suite: Extensions, servers: Servers) -> None:
    """Offer the pinned tools of exactly the approved servers. Starts no server."""
    servers = with_registered(suite, servers)
    found = servers.found
    guests = {
        item.extension.config.name: item.extension for item in suite.members if isinstance(item.extension, McpGuest)
    }
    standings = await suite.pins.standing(*found.values()) if found or guests else {}
    for name, guest in guests.items():
        same = name in found and found[name].fingerprint == guest.config.fingerprint
        guest.renew(standings[name] if same else ServerStanding())
    told = ("server_unapproved", "config_invalid")
    suite.failures = [item for item in suite.failures if item.problem.key not in told]
    suite.failures += [Failure(str(problem.details.get("at", "")), problem) for problem in servers.problems]
    for name, config in found.items():
        if not standings[name].admits(config):
            suite.failures.append(Failure(config.origin, unapproved(config, standings[name])))
        elif name not in guests:
            try:
                await suite.add_server(config, standings[name])
            except Problem as problem:
                suite.failures.append(Failure(config.origin, problem))
