"""Envelopes over MCP: the whole envelope in `structuredContent`, `isError` from `success` (§1.10).

Nothing is guessed from text: an error of a tool that does not speak LAFS is a `tool_failed` with its text; no code,
wait or retry is read from it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import mcp_types as types
import msgspec
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server

from forestay.envelope.build import encode, failure, success
from forestay.envelope.json_schemas import envelope_schema
from forestay.envelope.transports.operations import Operation, Operations, Said
from forestay.envelope.types import SCHEMA_URL, Envelope
from forestay.envelope.validate import decode
from forestay.kernel import Clock, Ids, Problem

Context = ServerRequestContext[Any]
Report = Callable[[float, str], Awaitable[None]]
"""Reports the progress of a call to its client."""


def mcp_server(operations: Operations | Callable[[Report], Operations], name: str, *, version: str = "") -> Server[Any]:
    """Return an MCP server whose tools are the operations; a function makes them per call, with its progress report."""

    def offered(report: Report) -> Operations:
        return operations if isinstance(operations, Operations) else operations(report)

    async def list_tools(_context: Any, _params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[tool_of(operation) for operation in offered(_unheard)])

    async def call_tool(
        context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        async def report(progress: float, message: str) -> None:
            await context.session.report_progress(progress, message=message)

        said = await offered(report).call(params.name, params.arguments or {}, transport="sdk")
        return to_tool_result(said)

    return Server(name, version=version, on_list_tools=list_tools, on_call_tool=call_tool)


async def _unheard(_progress: float, _message: str) -> None:
    """Ignore the progress: a listing reports none."""


def tool_of(operation: Operation) -> types.Tool:
    """Return the operation as a tool: its schemas, and hints about its effects."""
    return types.Tool(
        name=operation.name,
        description=operation.description,
        input_schema={"type": "object", **operation.parameters},
        output_schema=envelope_schema(),
        annotations=types.ToolAnnotations(
            read_only_hint=operation.read_only,
            destructive_hint=operation.destructive,
            idempotent_hint=operation.idempotent or operation.read_only,
        ),
    )


def to_tool_result(said: Said) -> types.CallToolResult:
    """Return the whole envelope, as structure for programs and as the same JSON in text for models."""
    plain = msgspec.to_builtins(said.envelope)
    text = types.TextContent(type="text", text=encode(said.envelope).decode())
    return types.CallToolResult(content=[text], structured_content=plain, is_error=not said.envelope.success)


def from_tool_result(result: types.CallToolResult, operation: str, *, clock: Clock, ids: Ids) -> Envelope:
    """Return the envelope of any tool's result: the one it carries, or a new one around its content."""
    structured = result.structured_content
    if isinstance(structured, dict) and structured.get("$schema") == SCHEMA_URL:
        return decode(msgspec.json.encode(structured))
    blocks = [block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in result.content]
    if not result.is_error:
        body = structured if isinstance(structured, (dict, list)) else {"content": blocks}
        return success(operation, body, clock=clock, ids=ids)
    words = " ".join(block["text"] for block in blocks if block.get("type") == "text").strip()
    problem = Problem("tool_failed", words or "The tool failed and said nothing.", tool=operation)
    return failure(problem, operation, result={"content": blocks} if blocks else None, clock=clock, ids=ids)
