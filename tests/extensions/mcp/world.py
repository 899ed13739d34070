"""A suite with one MCP server, everything real: the program, its sandbox, the protocol, policy, evidence, ledger."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

from tests.extensions.dispatcher_world import ENVIRON

from forestay.extensions.connectors.model import Model
from forestay.extensions.connectors.ui import Ui
from forestay.extensions.evidence import stream_of
from forestay.extensions.extensions import Extensions
from forestay.extensions.mcp.definitions import Definition
from forestay.extensions.mcp.guest import McpGuest
from forestay.extensions.mcp.pins import Pins, ServerStanding
from forestay.extensions.mcp.server_config import ServerConfig
from forestay.extensions.settings import Settings
from forestay.kernel import ExtensionConfig, ExtensionPolicy, Ledger, McpServer, Record

SERVER = Path(__file__).with_name("server.py")
TOOL = "mcp__probe__echo"
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
ECHO = Definition("echo", "Says it again.", TEXT)
Work = Callable[[Extensions, McpGuest], Awaitable[Any]]


def configured(project: Path, mode: str, **entry: Any) -> ServerConfig:
    """The test server in one of its modes, copied into the project."""
    shutil.copy(SERVER, project / "server.py")
    given = {"command": "python3", "args": ["-I", "-S", "server.py", mode, str(project / "stage")]}
    limits = {"start_seconds": 20.0, "call_seconds": 20.0}
    return ServerConfig("probe", ".mcp.json", McpServer(**{**given, **limits, **entry}))


def used(
    folder: Path,
    mode: str,
    work: Work,
    *,
    pinned: Iterable[Definition] = (ECHO,),
    grants: Iterable[str] = ("tool",),
    policy: str = "strict",
    environ: dict[str, str] | None = None,
    ui: Ui | None = None,
    model: Model | None = None,
    max_model_tokens: int = 1_000_000,
    data: Path | None = None,
    back: str = "http://127.0.0.1:8787/signed-in",
    **entry: Any,
) -> list[Record]:
    """Do `work` with the approved server; what the ledger has of it afterwards."""
    project = folder / "project"
    project.mkdir(exist_ok=True)
    config = configured(project, mode, **entry)
    standing = ServerStanding(config.fingerprint, {item.name: item for item in pinned})
    limits = ExtensionConfig(ExtensionPolicy(max_model_tokens=max_model_tokens))
    settings = Settings(config=limits, environ=environ or ENVIRON, model=model, data=data, sign_in_url=back)

    async def go() -> list[Record]:
        async with Ledger.open(folder / "l.db") as ledger:
            options: dict[str, Any] = {"mode": policy, "grants": grants, "ui": ui, "settings": settings}
            async with Extensions(ledger, root=project, **options) as suite:
                member = await suite.add_server(config, standing)
                assert isinstance(member.extension, McpGuest)
                await work(suite, member.extension)
            return list(await ledger.read(stream_of("mcp:probe")))

    return asyncio.run(go())


def said(outcome: Any) -> str:
    """The text of an outcome behind the notice that it comes from outside."""
    return "\n".join(block.get("text", block["type"]) for block in outcome.content[1:])


__all__ = ["ECHO", "TEXT", "TOOL", "Pins", "configured", "said", "used"]
