"""Nodes that call HTTP services and tools through the host's ports. Each call is one effect."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from forestay.agents import SYSTEM, arguments_hash
from forestay.kernel import Problem
from forestay.runs.execution import Execution
from forestay.runs.node_http import failed_call, passes_off
from forestay.runs.nodes.checks import positive, shaped
from forestay.runs.nodes.registry import NodeError, NodeType

MAX_REDIRECTS = 10
HTTP_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")


async def http(ctx: Execution) -> dict[str, Any]:
    """Send one request through the SSRF-safe connector; `failOn` names the statuses that fail the node."""
    url = ctx.inputs.get("url", ctx.config.get("url"))
    if not isinstance(url, str):
        raise NodeError("invalid_input", "The node has no `url`.", retryable=False)
    rule = ctx.config.get("failOn", "error")
    answer = await ctx.http.fetch(
        url,
        method=str(ctx.config.get("method", "GET")),
        headers={str(k): str(v) for k, v in (ctx.config.get("headers") or {}).items()},
        body=ctx.inputs.get("body", ctx.config.get("body")),
        credential=ctx.config.get("credential") or ctx.credential,
        timeout_ms=int(ctx.config.get("timeoutMs", 30_000)),
        redirects=int(ctx.config.get("redirects", 0)),
        key="request",
        fails=lambda status: _fails(status, rule),
    )
    if _fails(answer.status, rule):
        # The server's answer is an output and not part of the error, because more people see errors.
        told = {"status": answer.status, "fix": "With `failOn` empty, the server's answer is the node's output."}
        said = f"The server answered {answer.status}."
        raise NodeError("http_status", said, retryable=passes_off(answer.status), details=told)
    return {"status": answer.status, "headers": answer.headers, "body": answer.body}


def _fails(status: int, rule: Any) -> bool:
    if isinstance(rule, list):
        return status in rule
    return rule == "error" and status >= 400


async def tool(ctx: Execution) -> dict[str, Any]:
    """Call a tool of the host's tool source; the configuration names it, else the input `tool`."""
    name = ctx.config.get("tool") or ctx.inputs.get("tool")
    if not isinstance(name, str):
        raise NodeError("invalid_input", "`tool` must name a tool.", retryable=False)
    given = ctx.inputs.get("arguments") or {}
    if not isinstance(given, dict):
        raise NodeError("invalid_input", "`arguments` must be an object.", retryable=False)
    arguments = {**(ctx.config.get("arguments") or {}), **given}
    result = await call_tool(ctx, name, arguments)
    return result if isinstance(result, dict) else {"output": result}


async def mcp_tool(ctx: Execution, wanted: dict[str, Any]) -> dict[str, Any]:
    """Call an MCP server's tool by the server's own name for it; without `server`, exactly one server must have it.

    Its result is untrusted; the event and the output say so.
    """
    name, arguments = str(wanted["tool"]), wanted.get("arguments") or {}
    id = f"mcp:{wanted.get('server', '*')}/{name}"
    result = await call_tool(ctx, name, arguments, "mcp", id=id, contentTrust="untrusted")
    return {"result": result, "contentTrust": "untrusted"}


async def call_tool(
    ctx: Execution,
    name: str,
    arguments: dict[str, Any],
    transport: str = "native",
    *,
    id: str | None = None,
    **returned: str,
) -> Any:
    """Make one call as one effect; both tool events have the same call id, and no content (RFC 0064)."""
    caller = ctx.caller("call", f"tool:{name}")
    agent = str((ctx.agent or {}).get("agentId") or f"node.{ctx.node_id}")
    about = {"agentId": agent, "toolName": name, "callId": caller.idempotency_key}
    known = {"argsHash": arguments_hash(arguments), "principal": caller.principal or SYSTEM, "transport": transport}
    ctx.emit("agent.toolCalled", {**about, **known})

    async def call() -> dict[str, Any]:
        began = ctx.wall_ms
        result = await ctx.tools.call(id or name, arguments, caller)
        return {"result": result, "durationMs": max(0, ctx.wall_ms - began)}

    try:
        made: Any = await ctx.effect("call", call, provider=f"tool:{name}")
    except Problem as problem:
        ctx.emit("agent.toolReturned", {**about, **failed_call(problem)})
        raise
    timed = isinstance(made, dict) and made.keys() == {"result", "durationMs"}  # until 0.2 the result was alone
    took = {"durationMs": made["durationMs"]} if timed else {}
    ctx.emit("agent.toolReturned", {**about, "status": "ok", **took, **returned})
    return made["result"] if timed else made


def _check_http(config: dict[str, Any]) -> Iterator[tuple[str, str]]:
    if str(config.get("method", "GET")).upper() not in HTTP_METHODS:
        yield ".method", f"A method must be one of {', '.join(HTTP_METHODS)}."
    yield from shaped(config, str, "url")
    yield from shaped(config, dict, "headers")
    yield from shaped(config, str, "credential")
    yield from positive(config, "timeoutMs")
    redirects = config.get("redirects", 0)
    if isinstance(redirects, bool) or not isinstance(redirects, int) or not 0 <= redirects <= MAX_REDIRECTS:
        yield ".redirects", f"`redirects` must be a number from 0 to {MAX_REDIRECTS}."


def _check_tool(config: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield from shaped(config, str, "tool")
    yield from shaped(config, dict, "arguments")


TYPES = [
    NodeType(type_id="core.http", execute=http, requires=("http",), check=_check_http, summary="Sends a request."),
    NodeType(
        type_id="core.tool",
        execute=tool,
        requires=("tools",),
        check=_check_tool,
        summary="Calls a tool.",
    ),
]
