"""`forestay mcp serve`: the host as an MCP server on standard input and output."""

from __future__ import annotations

from functools import partial

from forestay.cli.command import Group
from forestay.cli.connection import Connection, connected
from forestay.kernel import Ids, SystemClock, SystemRandomness

app = Group("mcp")


@app.command("serve", using=connected)
async def serve(host: Connection) -> None:
    """Be an MCP server on standard input and output: ask agents, start, follow, answer and cancel runs."""
    from mcp.server.stdio import stdio_server

    from forestay import __version__
    from forestay.envelope import mcp_server
    from forestay.surface import served_tools

    clock = SystemClock()
    tools = partial(served_tools, host.client, clock, Ids(clock, SystemRandomness()))
    server = mcp_server(tools, "forestay", version=__version__)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())
