"""The cost attributes that a span may carry (OpenWOP observability, cost attribution): seven names, each with its type.

Other names under `openwop.cost.` are dropped: an unknown name may carry anything, even a key.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forestay.host.tracing import Tracing
from forestay.kernel import redact_text
from forestay.runs import Execution, NodeType

_TYPES: dict[str, type | tuple[type, ...]] = {
    "openwop.cost.tokens.input": int,
    "openwop.cost.tokens.output": int,
    "openwop.cost.tokens.total": int,
    "openwop.cost.usd": (int, float),
    "openwop.cost.currency": str,
    "openwop.cost.estimated": bool,
    "openwop.cost.provider": str,
}
_LONGEST = 64


def cost_of(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the cost attributes that a span may carry, and nothing else of `attributes`."""
    said: dict[str, Any] = {}
    for name, kind in _TYPES.items():
        value = attributes.get(name)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            continue
        said[name] = redact_text(value)[:_LONGEST] if isinstance(value, str) else value
    return said


def cost_emit(tracing: Tracing) -> NodeType:
    """Return a node type of the contract's fixtures, for the sample seams: it reports the cost in its configuration."""

    async def execute(ctx: Execution) -> dict[str, Any]:
        given: dict[str, Any] = ctx.config.get("attrs") or {}
        with tracing.span(f"execute_node {ctx.node_id}") as span:
            span.set({"openwop.run_id": ctx.run_id, "openwop.node_id": ctx.node_id, **cost_of(given)})
        used = {name: int(given.get(f"openwop.cost.tokens.{name}", 0)) for name in ("input", "output")}
        usage: dict[str, Any] = {
            "provider": str(given.get("openwop.cost.provider", "unknown")),
            "model": "unknown",
            "inputTokens": used["input"],
            "outputTokens": used["output"],
            "costEstimateUsd": given.get("openwop.cost.usd", 0),
        }
        ctx.emit("provider.usage", usage)
        return {}

    return NodeType(type_id="conformance.cost.emit", execute=execute, summary="Reports a cost (sample seams).")
