"""Checks a model before a node that needs more of it than text (OpenWOP RFC 0031).

If the node's model is not known to have a required capability, the log records that and the node fails before its code
runs. No other model takes its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from forestay.runs.nodes.registry import NodeError

if TYPE_CHECKING:
    from forestay.runs.execution import Execution


def check_model(ctx: Execution, required: Sequence[str]) -> None:
    """Raise a NodeError when the model that the node would ask lacks one of `required`."""
    named = {**ctx.config, **{key: ctx.configurable[key] for key in ("model",) if key in ctx.configurable}}
    mock = ctx.configurable.get("mockProvider")
    model = ctx.models.chosen(named.get("provider"), named.get("model"), ctx.caller("model", "model"), mock)
    known = ctx.capabilities_of(model)
    missing = [name for name in dict.fromkeys(required) if name not in known]
    if not missing:
        return
    provider, _, name = model.name.partition(":")
    told = {"nodeId": ctx.node_id, "provider": provider, "model": name or provider, "missingCapabilities": missing}
    ctx.emit("model.capability.insufficient", {**told, "fallbackAttempted": False})
    said = f"The model {model.name} is not known to have the capability {missing[0]}."
    raise NodeError("capability_not_provided", said, retryable=False, details={"requiredCapability": missing[0]})
