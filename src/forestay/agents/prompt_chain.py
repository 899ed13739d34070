"""Which prompt applies: four layers, asked in their order, and the first that names one is it (OpenWOP RFC 0029).

    node > agent > workflow defaults > host defaults

- C1  The layers are asked in the same order for every kind; exactly one is applied, or none.
- C2  An agent's own system prompt comes before whatever its overrides say; a node's reference comes before both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal

import msgspec

from forestay.agents.prompt_template import KINDS, ComposedPrompt, PromptKind, PromptRef, read_ref
from forestay.kernel import redact_text

Observability = Literal["off", "hashed", "full"]

_NODE_FIELDS: dict[str, PromptKind] = {
    "systemPromptRef": "system",
    "userPromptRef": "user",
    "schemaHintPromptRef": "schema-hint",
}
_SHOTS = "fewShotPromptRefs"
PROMPT_FIELDS = frozenset((*_NODE_FIELDS, _SHOTS))
"""Where a node's configuration names prompts."""
_BODIES = {"system": "systemPrompt", "user": "userPrompt"}


class Resolution(msgspec.Struct, frozen=True):
    """What the layers said of one slot: `ref` names a template; `intrinsic` is the agent's own prompt instead."""

    kind: PromptKind
    chain: list[dict[str, Any]]
    ref: PromptRef | None = None
    intrinsic: bool = False


class PromptLayers(msgspec.Struct, frozen=True):
    """What each layer names, by kind. A node may name several few-shot prompts, each of which is a slot."""

    node: dict[PromptKind, list[PromptRef]] = {}
    agent: dict[PromptKind, PromptRef] = {}
    intrinsic: str | None = None
    workflow: dict[PromptKind, PromptRef] = {}
    host: dict[PromptKind, PromptRef] = {}

    def resolved(self) -> list[Resolution]:
        """A resolution for each slot that some layer names a prompt for, in the order of the kinds."""
        found = []
        for kind in KINDS:
            named: Sequence[PromptRef | None] = self.node.get(kind) or [None]
            for ref in named:
                resolution = self._resolve(kind, ref)
                if resolution.ref is not None or resolution.intrinsic:
                    found.append(resolution)
        return found

    def _resolve(self, kind: PromptKind, node: PromptRef | None) -> Resolution:
        chain: list[dict[str, Any]] = []
        applied: PromptRef | str | None = None
        for layer, candidate in self._candidates(kind, node):
            entry: dict[str, Any] = {"layer": layer, "applied": candidate is not None and applied is None}
            if candidate is not None:
                entry["source"] = str(candidate)
            if not entry["applied"]:
                entry["reason"] = "superseded by a layer above" if candidate else "no candidate at this layer"
            else:
                applied = candidate
            chain.append(entry)
        if isinstance(applied, str):
            return Resolution(kind, chain, intrinsic=True)
        return Resolution(kind, chain, applied)

    def _candidates(self, kind: PromptKind, node: PromptRef | None) -> Iterator[tuple[str, PromptRef | str | None]]:
        yield "node", node
        if kind == "system" and self.intrinsic is not None:
            yield "agent-intrinsic", self.intrinsic
        elif kind in self.agent:
            yield "agent-overrides", self.agent[kind]
        yield "workflow-defaults", self.workflow.get(kind)
        yield "host-defaults", self.host.get(kind)


def node_prompts(config: Mapping[str, Any]) -> dict[PromptKind, list[PromptRef]]:
    """The prompts that a node's configuration names; `prompt_ref_invalid` with the place."""
    found: dict[PromptKind, list[PromptRef]] = {
        kind: [read_ref(config[name], f"$.config.{name}")]
        for name, kind in _NODE_FIELDS.items()
        if config.get(name) is not None
    }
    shots = config.get(_SHOTS)
    if shots is not None:
        listed = shots if isinstance(shots, list) else [shots]
        found["few-shot"] = [read_ref(ref, f"$.config.{_SHOTS}[{at}]") for at, ref in enumerate(listed)]
    return found


def prompts_by_kind(given: Mapping[Any, Any], at: str) -> dict[PromptKind, PromptRef]:
    """References by their kinds; what is none is refused with its place."""
    return {kind: read_ref(given[kind], f"{at}.{kind}") for kind in KINDS if kind in given}


class ResolvedPrompt(msgspec.Struct, frozen=True):
    """A slot, which layer filled it, and with what; an agent's own prompt is composed by the agent."""

    resolution: Resolution
    composed: ComposedPrompt | None = None


def prompt_text(prompts: Sequence[ResolvedPrompt], *kinds: PromptKind) -> str:
    """What the prompts of these kinds say together; empty when there are none."""
    said = [item.composed for kind in kinds for item in prompts if item.resolution.kind == kind]
    return "\n\n".join(composed.text for composed in said if composed is not None)


@lru_cache(maxsize=256)
def own_prompts(intrinsic: str) -> tuple[ResolvedPrompt, ...]:
    """The prompts of an agent where nothing is named beside its own system prompt."""
    return tuple(map(ResolvedPrompt, PromptLayers(intrinsic=intrinsic).resolved()))


def composed_view(composed: ComposedPrompt, observability: Observability) -> dict[str, Any]:
    """A composition in the contract's words; its text only where the host tells everything."""
    is_system = composed.kind in ("system", "schema-hint")
    found: dict[str, Any] = {
        "refs": [composed.ref],
        "kind": "system-only" if is_system else "user-only",
        "hash": composed.hash,
        "variableHashes": composed.variable_hashes,
        "contentTrust": composed.content_trust,
    }
    if observability == "full":
        found["composed"] = redact_text(composed.text)
        if composed.kind in _BODIES:
            found[_BODIES[composed.kind]] = found["composed"]
    return found
