"""Nodes that reach outside through what the host wired: HTTP and tools. Each call is one effect."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from forestay.kernel import Problem, canonical
from forestay.runs.execution import Execution
from forestay.runs.nodes.checks import needs_text, positive, shaped
from forestay.runs.nodes.registry import NodeError, NodeType
from forestay.runs.ports import HttpRequest

HTTP_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")


async def http(ctx: Execution) -> dict[str, Any]:
    """Send one request through the SSRF-safe connector; `failOn` names the statuses that fail the node."""
    url = ctx.inputs.get("url", ctx.config.get("url"))
    if not isinstance(url, str):
        raise NodeError("invalid_input", "There is no `url`.", retryable=False)
    body = ctx.inputs.get("body", ctx.config.get("body"))
    headers = {str(k): str(v) for k, v in (ctx.config.get("headers") or {}).items()}
    caller = ctx.caller("request", "http")
    headers.setdefault("Idempotency-Key", caller.idempotency_key)
    if body is not None and not isinstance(body, str):
        headers.setdefault("Content-Type", "application/json")
    request = HttpRequest(
        method=str(ctx.config.get("method", "GET")).upper(),
        url=url,
        headers=headers,
        body=None if body is None else body.encode() if isinstance(body, str) else canonical.encode(body),
        timeout_ms=int(ctx.config.get("timeoutMs", 30_000)),
    )

    async def send() -> dict[str, Any]:
        response = await ctx.http.send(request, caller)
        return {"status": response.status, "headers": response.headers, "body": _body(response.body)}

    answer: dict[str, Any] = await ctx.effect("request", send, provider="http")
    if _fails(answer["status"], ctx.config.get("failOn", "error")):
        retryable = answer["status"] >= 500 or answer["status"] == 429
        raise NodeError("http_status", f"The server answered {answer['status']}.", retryable=retryable, details=answer)
    return answer


def _body(data: bytes) -> Any:
    try:
        return canonical.decode(data)
    except Problem:
        return data.decode("utf-8", "replace").replace("\0", "\ufffd")


def _fails(status: int, rule: Any) -> bool:
    if isinstance(rule, list):
        return status in rule
    return rule == "error" and status >= 400


async def tool(ctx: Execution) -> dict[str, Any]:
    """Call a tool of the host's tool source."""
    given = ctx.inputs.get("arguments") or {}
    if not isinstance(given, dict):
        raise NodeError("invalid_input", "`arguments` is an object.", retryable=False)
    arguments = {**(ctx.config.get("arguments") or {}), **given}
    result = await call_tool(ctx, str(ctx.config["tool"]), arguments)
    return result if isinstance(result, dict) else {"output": result}


async def mcp_tool(ctx: Execution, wanted: dict[str, Any]) -> dict[str, Any]:
    """Call an MCP server's tool; what it says is not to be trusted, and both the event and the output say so."""
    result = await call_tool(ctx, str(wanted["tool"]), wanted.get("arguments") or {}, "mcp", contentTrust="untrusted")
    return {"result": result, "contentTrust": "untrusted"}


async def call_tool(
    ctx: Execution, name: str, arguments: dict[str, Any], transport: str = "native", **returned: str
) -> Any:
    """One call as one effect; the pair of tool events has one call id."""
    caller = ctx.caller("call", f"tool:{name}")
    agent = str((ctx.agent or {}).get("agentId") or f"node.{ctx.node_id}")
    about = {"agentId": agent, "toolName": name, "callId": caller.idempotency_key}
    ctx.emit("agent.toolCalled", {**about, "argsHash": canonical.digest(arguments), "transport": transport})
    try:
        result = await ctx.effect("call", lambda: ctx.tools.call(name, arguments, caller), provider=f"tool:{name}")
    except Problem as problem:
        shown = problem.as_openwop()
        error = {"code": shown["error"], "message": shown["message"]}
        status = "forbidden" if problem.row.http == 403 else "rate_limited" if problem.row.http == 429 else "error"
        ctx.emit("agent.toolReturned", {**about, "error": error, "status": status})
        raise
    ctx.emit("agent.toolReturned", {**about, "status": "ok", **returned})
    return result


def _check_http(config: dict[str, Any]) -> Iterator[tuple[str, str]]:
    if str(config.get("method", "GET")).upper() not in HTTP_METHODS:
        yield ".method", f"A method is one of {', '.join(HTTP_METHODS)}."
    yield from shaped(config, str, "url")
    yield from shaped(config, dict, "headers")
    yield from positive(config, "timeoutMs")


def _check_tool(config: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield from needs_text(config, "tool")
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
