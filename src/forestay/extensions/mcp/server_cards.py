"""The MCP servers of a project for a person: how each is reached, its approval, its pinned tools and their changes.

Reading the cards starts no server. The changes are those of the last comparison.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Literal

import msgspec

from forestay.extensions.evidence import stream_of
from forestay.extensions.history import CallSeen, seen
from forestay.extensions.mcp.definitions import Change, Definition, offer_digest
from forestay.extensions.mcp.guest import McpGuest
from forestay.extensions.mcp.hidden_text import spelled
from forestay.extensions.mcp.pins import Pins, ServerStanding
from forestay.extensions.mcp.server_config import ServerConfig, Servers
from forestay.extensions.mcp.tool_names import resource, tool_name
from forestay.kernel import Ledger, Record

if TYPE_CHECKING:
    from forestay.extensions.extensions import Extensions

MOST_RECORDS = 5_000
State = Literal["approved", "unapproved", "changed"]


class ToolCard(msgspec.Struct, frozen=True, kw_only=True):
    """A pinned tool and the statistics of its calls, with times in milliseconds."""

    definition: Definition
    digest: str
    calls: int = 0
    refused: int = 0
    median_ms: float | None = None
    longest_ms: float | None = None


class ServerCard(msgspec.Struct, frozen=True, kw_only=True):
    """One server. `subject` is its name for policy and evidence."""

    name: str
    subject: str
    origin: str
    target: str
    fingerprint: str
    state: State
    trust: str
    """The command that approves it and pins its tools."""
    running: bool
    known: bool
    """Whether there is evidence of it."""
    tools: tuple[ToolCard, ...]
    changes: tuple[Change, ...]
    offer: str = ""
    """The hash of its offer at the last comparison; empty when there was none."""


async def server_cards(servers: Servers, pins: Pins, ledger: Ledger, suite: Extensions | None) -> list[ServerCard]:
    """Return the cards of all servers that the project names, sorted by name."""
    found = sorted(servers.found.values(), key=lambda item: item.name)
    standings = await pins.standing(*found) if found else {}
    guests = {item.extension.name: item.extension for item in suite.members} if suite is not None else {}
    if suite is not None:
        await suite.recorded()
    cards: list[ServerCard] = []
    for config in found:
        guest = guests.get(config.subject)
        latest = await ledger.read(stream_of(config.subject), limit=MOST_RECORDS, reverse=True)
        cards.append(_card(config, standings[config.name], guest if isinstance(guest, McpGuest) else None, latest))
    return cards


def _card(config: ServerConfig, standing: ServerStanding, guest: McpGuest | None, latest: list[Record]) -> ServerCard:
    """Make the card of one server; `latest` are the newest records of its stream, newest first."""
    entry, calls = config.entry, seen(reversed(latest)).calls
    admitted = standing.admits(config)
    state: State = "approved" if admitted else "unapproved" if standing.approved is None else "changed"
    pinned = standing.pinned.values() if admitted else ()
    return ServerCard(
        name=config.name,
        subject=config.subject,
        origin=config.origin,
        target=spelled(entry.url or shlex.join([entry.command, *entry.args])),
        fingerprint=config.fingerprint,
        state=state,
        trust=f"forestay mcp trust {config.name}{config.named_by}",
        running=guest is not None and bool(guest.about),
        known=bool(latest),
        tools=tuple(_tool(config, item, calls) for item in pinned),
        changes=tuple(guest.changes) if guest is not None else (),
        offer=offer_digest(guest.seen) if guest is not None and guest.seen else "",
    )


def _tool(config: ServerConfig, definition: Definition, calls: tuple[CallSeen, ...]) -> ToolCard:
    named = resource(tool_name(config.name, definition.name))
    mine = [call for call in calls if call.method == "tool" and call.resource == named]
    times = sorted(call.duration_ms for call in mine if call.allowed and call.duration_ms is not None)
    return ToolCard(
        definition=definition,
        digest=definition.digest,
        calls=sum(call.count for call in mine),
        refused=sum(call.count for call in mine if not call.allowed),
        median_ms=times[len(times) // 2] if times else None,
        longest_ms=times[-1] if times else None,
    )
