"""The capability document: computed from what is wired, never written by hand (OpenWOP §1.3, W6)."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any, get_args

import forestay
from forestay.conformance import agent_platform, profiles
from forestay.governance import CHANNELS, State
from forestay.kernel import EVERY_ENTRIES, EVERY_SECONDS, OPERATOR, PublicKey
from forestay.runs import (
    CONFIDENCE_FLOOR,
    ENGINE_VERSION,
    HTTP_METHODS,
    MOCK_PROVIDERS,
    SIGNATURE_ALGORITHM,
    TRUNCATION_GROWTH,
    HttpRequest,
)
from forestay.surface.openwop.audit import KEY_PATH
from forestay.surface.openwop.fixtures import Needs, is_done, needs
from forestay.surface.openwop.run_stream import MODES
from forestay.surface.services import Services

PROTOCOL_VERSION = "1.11.0"
_INTERRUPTS = {
    "core.approvalGate": "approval.request",
    "core.clarificationGate": "clarification.request",
    "core.conversationGate": "conversation.exchange",
}
# The members of the family `agents`, by the node type that provides them.
_AGENT_FAMILIES = {
    "orchestrator": "core.orchestrator.supervisor",
    "dispatch": "core.dispatch",
    "dispatchMapping": "core.dispatch",
}
_EXECUTION_MODEL = 2  # handoffs (RFC 0037), confidence floor and memory of sub-runs (RFC 0039)
_MAJOR = int(ENGINE_VERSION.partition(".")[0])
_ENGINES = {"min": _MAJOR, "max": _MAJOR}  # an engine runs the versions of its own major number


async def capabilities(services: Services, operations: Set[str]) -> dict[str, Any]:
    """Return the capability document: every wired family stands at the root (RFC 0073).

    A family that is not wired, or not fully as the contract means it, is absent. For example, webhooks are retried, but
    they are no trigger subscriptions, so they are not `durable`.
    """
    nodes = set(services.host.runs.node_types)
    limits = services.host.runs.limits
    envelopes = sorted(envelope for node, envelope in _INTERRUPTS.items() if node in nodes)
    found: dict[str, Any] = {
        "protocolVersion": PROTOCOL_VERSION,
        "supportedEnvelopes": envelopes,
        "schemaVersions": dict.fromkeys(envelopes, 1),
        "limits": {
            "clarificationRounds": limits.clarification_rounds,
            "schemaRounds": limits.schema_rounds,
            "envelopesPerTurn": limits.envelopes_per_turn,
            "maxNodeExecutions": limits.max_node_executions,
            "maxRunDurationMs": limits.max_run_duration_ms,
            "maxLoopIterations": limits.max_loop_iterations,
        },
        "implementation": {"name": "forestay", "version": forestay.__version__},
        "eventLogSchemaVersion": 1,
        "supportedTransports": ["rest"],
        "fixtures": await _fixtures(services),
    }
    own = {"nodeTypes": sorted(nodes), "requestsAtOnce": services.load.most("requests"), **_streams(operations)}
    found["extensions"] = {"forestay": own}
    _add_wired(found, operations, nodes, services.host.triggers.subscriptions.driven)
    if services.host.runs.replays_ask and "multiAgent" in found:  # only a part of RFC 0041, so it is not `supported`
        determinism = {"supported": False, "refusalDivergenceEmission": True}
        found["multiAgent"]["executionModel"]["replayDeterminism"] = determinism
    if "audit.verify" in operations:
        found["auth"] = _audit(services.host.audit.key)
        found["extensions"]["forestay"]["auditKey"] = {"keyId": services.host.audit.key.id, "path": KEY_PATH}  # W27
    more = dict(services.host.capabilities())
    found["extensions"]["forestay"].update(more.pop("forestay", {}))
    for family in ("agents", "httpClient"):
        found[family] = {**found.get(family, {}), **more.pop(family, {})}
    found.update(more)
    own["profiles"] = [f"openwop-{name}" for name in profiles(found)]
    own["agentPlatform"] = agent_platform(found)
    return found


def _audit(key: PublicKey) -> dict[str, Any]:
    return {
        "profiles": ["openwop-audit-log-integrity"],
        "auditLogIntegrity": {
            "hashChain": True,
            "checkpointSignatureAlgorithm": "ed25519",
            "checkpointPublicKey": key.text,
            "checkpointIntervalEntries": EVERY_ENTRIES,
            "checkpointIntervalSeconds": EVERY_SECONDS,
        },
    }


async def _fixtures(services: Services) -> list[str]:
    """Return the conformance workflows that are loaded for every tenant and do what they describe (W23)."""
    host = services.host
    known = {stored.document["id"]: stored.document for stored in await host.runs.stored_workflows("")}
    asks = host.runs.replays_ask
    done = [name for name in known if is_done(name, seams=services.sample_seams, asks=asks)]
    if not done:
        return []
    wanted = {name: needs(known[name]) for name in done}
    tools = await host.extensions.servers.pinned() if any(item.tools for item in wanted.values()) else frozenset()
    packs = {pack.name for pack in await host.directory.packs(OPERATOR)}
    secrets = {item.credential_id for item in await host.credentials.listed(OPERATOR)}
    agents = {agent.agent_id for agent in await host.directory.listed(OPERATOR)}

    def is_there(item: Needs) -> bool:
        kept = item.tools <= tools and item.secrets <= secrets
        return kept and item.packs <= packs and item.agents <= agents

    return sorted(name for name in done if is_there(wanted[name]))


def _streams(operations: Set[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if "events.stream" in operations:
        found["sse"] = {"modes": list(MODES), "mixed": True, "maxBufferMs": 5000}
    if "events.poll" in operations:
        found["poll"] = {"maxTimeoutSeconds": 60}
    return found


def _add_wired(found: dict[str, Any], operations: Set[str], nodes: Set[str], sources: Sequence[str]) -> None:
    if "runs.fork" in operations:
        found["replay"] = {"supported": True, "modes": ["replay", "branch"]}
    if "runs.debug-bundle" in operations:
        found["debugBundle"] = {"supported": True, "redactionModes": ["mask"]}
    if "webhooks.register" in operations:
        found["webhooks"] = {"supported": True, "signatureAlgorithms": [SIGNATURE_ALGORITHM]}
    if "core.http" in nodes:
        bounds = HttpRequest(method="GET", url="")
        found["httpClient"] = {
            "supported": True,
            "ssrfGuard": True,
            "maxResponseBodyBytes": bounds.max_response_bytes,
            "requestTimeoutMs": bounds.timeout_ms,
            "methods": list(HTTP_METHODS),
        }
    if "core.ai.callPrompt" in nodes:
        found["testing"] = {"mockProviders": list(MOCK_PROVIDERS), "forceEngineVersionRange": _ENGINES}
        found["providerUsage"] = {"supported": True, "costEstimates": True, "currency": "USD"}
    if "core.ai.structuredOutput" in nodes:
        completion = {"distinguishesTruncation": True, "truncationBudgetMultiplier": TRUNCATION_GROWTH}
        found["envelopes"] = {"reliability": {"supported": True, "completion": completion}}
    if "tools.list" in operations:
        found["toolCatalog"] = {
            "supported": True,
            "sources": ["workflow", "host-extension", "mcp"],
            "sessionLifecycle": True,
        }
    if "core.tool" in nodes:
        found["toolHooks"] = {"supported": True, "prePostEvents": True}
    if "schedules.create" in operations:
        found["scheduling"] = {"supported": True, "cron": True}
    if "core.conversationGate" in nodes:
        found["conversationPrimitive"] = True
    if "core.subWorkflow" in nodes:
        found["subWorkflow"] = {"inputMapping": True}
    if {"core.orchestrator.supervisor", "core.dispatch"} <= nodes:
        model = {"supported": True, "version": _EXECUTION_MODEL, "confidenceEscalationFloor": CONFIDENCE_FLOOR}
        found["multiAgent"] = {"executionModel": {**model, "confidenceEscalationInterruptKind": "clarification"}}
    agents: dict[str, Any] = {name: True for name, node in _AGENT_FAMILIES.items() if node in nodes}
    agents |= _organised(operations, sources)
    if agents:
        found["agents"] = agents
    if "deployments.transition" in operations:
        found["authorization"] = {"supported": True, "failClosed": True}


def _organised(operations: Set[str], sources: Sequence[str]) -> dict[str, Any]:
    """Return the families of `agents` that have endpoints; each tenant has its own agents, members and chart."""
    found: dict[str, Any] = {}
    if "agents.inventory" in operations:
        found["manifestRuntime"] = {"supported": True, "handoffValidation": True, "installScope": "tenant"}
        found["liveRuntime"] = {
            "supported": True,
            "structuredOutput": True,
            "confidenceEscalation": True,
            "sources": ["workflow-node", "run-api", "chat-mention"],
        }
    if "roster.list" in operations:
        found["roster"] = {"supported": True, "installScope": "tenant", "portfolioTriggerSources": list(sources)}
    if "org-chart.get" in operations:
        found["orgChart"] = {
            "supported": True,
            "installScope": "tenant",
            "departmentNesting": True,
            "responsibilityView": True,
        }
    if "deployments.transition" in operations:
        found["deployment"] = {
            "supported": True,
            "channels": list(CHANNELS),
            "canary": True,
            "rollback": True,
            "states": list(get_args(State)),
        }
    return found
