"""The prompts of a node: which templates apply, filled once, and told in the run's log (OpenWOP RFC 0027, RFC 0029).

What was resolved and composed is an effect of the run: a resumed node, and a replay, say what the node said first,
whatever became of the library. What a run took in from where nobody vouches for it is marked in every prompt after.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec

from forestay.agents import (
    AgentManifest,
    PromptKind,
    PromptLayers,
    Resolution,
    ResolvedPrompt,
    compose,
    node_prompts,
    prompt_events,
    prompt_text,
    prompts_by_kind,
)
from forestay.kernel import iso
from forestay.runs.execution import Execution

_KEY = "prompts"


async def prompted(
    ctx: Execution,
    *,
    agent: AgentManifest | None = None,
    given: Collection[PromptKind] = (),
    inputs: dict[str, Any] | None = None,
) -> tuple[ResolvedPrompt, ...]:
    """The prompts that apply to a node. Of a kind that is `given` in its own words, only what the node names does."""
    resolutions = _layers(ctx, agent, given).resolved()
    if all(item.intrinsic for item in resolutions):
        return tuple(ResolvedPrompt(item) for item in resolutions)

    async def fill() -> Any:
        return msgspec.to_builtins([await _filled(ctx, item, inputs) for item in resolutions])

    found = await ctx.effect(_KEY, fill, later=True)
    return msgspec.convert(found, tuple[ResolvedPrompt, ...])


def tell_prompts(ctx: Execution, prompts: Collection[ResolvedPrompt]) -> None:
    """Say in the run's log which prompts apply."""
    if prompts:
        for type, payload in prompt_events(ctx.node_id, tuple(prompts), ctx.prompts.observability):
            ctx.emit(type, payload)


def with_prompts(messages: list[dict[str, Any]], prompts: tuple[ResolvedPrompt, ...]) -> list[dict[str, Any]]:
    """A conversation with its prompts: those of the system first, examples and the task in the user's last message."""
    system = prompt_text(prompts, "system", "schema-hint")
    if prompt_text(prompts, "system"):
        messages = [item for item in messages if item["role"] != "system"]
    asked = prompt_text(prompts, "few-shot", "user")
    if asked and messages and messages[-1]["role"] == "user":
        own = "" if prompt_text(prompts, "user") else f"\n\n{messages[-1]['content']}"
        messages = [*messages[:-1], {**messages[-1], "content": asked + own}]
    elif asked:
        messages = [*messages, {"role": "user", "content": asked}]
    return [{"role": "system", "content": system}, *messages] if system else messages


def _layers(ctx: Execution, agent: AgentManifest | None, given: Collection[PromptKind]) -> PromptLayers:
    node = node_prompts(ctx.config)
    if not ctx.has_prompts and not node:
        return PromptLayers(intrinsic=None if agent is None else agent.prompt_ref)
    defaults = (ctx.workflow_defaults or {}).get("promptRefs") or {}
    workflow = prompts_by_kind(defaults, "$.defaults.promptRefs")
    host = ctx.prompts.defaults
    return PromptLayers(
        node=node,
        agent={} if agent is None else agent.prompts,
        intrinsic=None if agent is None else agent.prompt_ref,
        workflow={kind: ref for kind, ref in workflow.items() if kind not in given},
        host={kind: ref for kind, ref in host.items() if kind not in given},
    )


async def _filled(ctx: Execution, resolution: Resolution, inputs: dict[str, Any] | None) -> ResolvedPrompt:
    if resolution.ref is None:
        return ResolvedPrompt(resolution)
    template = await ctx.prompts.template(ctx.tenant, resolution.ref, resolution.kind)
    sources = {"input": inputs or ctx.inputs, "variable": ctx.variables, "context": _context(ctx)}
    composed = compose(template, sources, resolution.ref.variable_overrides, untrusted=ctx.untrusted)
    chain = [{**entry, "source": composed.ref} if entry["applied"] else entry for entry in resolution.chain]
    return ResolvedPrompt(msgspec.structs.replace(resolution, chain=chain), composed)


def _context(ctx: Execution) -> dict[str, Any]:
    """What a prompt may know of where it is used."""
    return {
        "currentUserId": ctx.caller(_KEY).principal,
        "runId": ctx.run_id,
        "workflowId": ctx.workflow_id,
        "workflowName": ctx.workflow_name,
        "tenantId": ctx.tenant,
        "nodeId": ctx.node_id,
        "now": iso(ctx.wall_ms),
    }
