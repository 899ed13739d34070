"""The capability document: computed from what is wired, never written by hand (OpenWOP §1.3, W6)."""

from __future__ import annotations

from collections.abc import Set
from typing import Any, get_args

import forestay
from forestay.governance import CHANNELS, DRIVEN, State
from forestay.runs import (
    ENGINE_VERSION,
    HTTP_METHODS,
    MOCK_PROVIDERS,
    SIGNATURE_ALGORITHM,
    TRUNCATION_GROWTH,
    HttpRequest,
)
from forestay.surface.openwop.fixtures import is_done
from forestay.surface.openwop.run_stream import MODES
from forestay.surface.services import Services

PROTOCOL_VERSION = "1.11.0"
_INTERRUPTS = {
    "core.approvalGate": "approval.request",
    "core.clarificationGate": "clarification.request",
    "core.conversationGate": "conversation.exchange",
}
# What of the family `agents` is wired, by the node type that does it.
_AGENT_FAMILIES = {
    "orchestrator": "core.orchestrator.supervisor",
    "dispatch": "core.dispatch",
    "dispatchMapping": "core.dispatch",
}
_MAJOR = int(ENGINE_VERSION.partition(".")[0])
_ENGINES = {"min": _MAJOR, "max": _MAJOR}  # an engine plays the versions of its own major number


async def capabilities(services: Services, operations: Set[str]) -> dict[str, Any]:
    """Every family stands at the root (RFC 0073); one that is not wired, or not wholly as the contract means it, is
    absent: webhooks are retried, but they are no trigger subscriptions, so they are not `durable`."""
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
    _add_wired(found, operations, nodes)
    more = dict(services.host.capabilities())
    found["extensions"]["forestay"].update(more.pop("forestay", {}))
    found["agents"] = {**found.get("agents", {}), **more.pop("agents", {})}
    found.update(more)
    return found


async def _fixtures(services: Services) -> list[str]:
    """The conformance workflows that are loaded for every tenant and do what they say (W23)."""
    known = await services.host.runs.list_workflows("")
    return sorted(item.workflow_id for item in known if is_done(item.workflow_id, seams=services.sample_seams))


def _streams(operations: Set[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if "events.stream" in operations:
        found["sse"] = {"modes": list(MODES), "mixed": True, "maxBufferMs": 5000}
    if "events.poll" in operations:
        found["poll"] = {"maxTimeoutSeconds": 60}
    return found


def _add_wired(found: dict[str, Any], operations: Set[str], nodes: Set[str]) -> None:
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
    if "core.ai.structuredOutput" in nodes:
        completion = {"distinguishesTruncation": True, "truncationBudgetMultiplier": TRUNCATION_GROWTH}
        found["envelopes"] = {"reliability": {"supported": True, "completion": completion}}
    if "tools.list" in operations:
        found["toolCatalog"] = {"supported": True, "sources": ["workflow", "host-extension", "mcp"]}
    if "schedules.create" in operations:
        found["scheduling"] = {"supported": True, "cron": True}
    if "core.conversationGate" in nodes:
        found["conversationPrimitive"] = True
    if "core.subWorkflow" in nodes:
        found["subWorkflow"] = {"inputMapping": True}
    agents: dict[str, Any] = {name: True for name, node in _AGENT_FAMILIES.items() if node in nodes}
    agents |= _organised(operations)
    if agents:
        found["agents"] = agents
    if "deployments.transition" in operations:
        found["authorization"] = {"supported": True, "failClosed": True}


def _organised(operations: Set[str]) -> dict[str, Any]:
    """The families of `agents` that are endpoints; each tenant has its own agents, members and chart."""
    found: dict[str, Any] = {}
    if "agents.inventory" in operations:
        found["manifestRuntime"] = {"supported": True, "handoffValidation": True, "installScope": "tenant"}
        found["liveRuntime"] = {
            "supported": True,
            "structuredOutput": True,
            "confidenceEscalation": True,
            "sources": ["workflow-node", "run-api"],
        }
    if "roster.list" in operations:
        sources = ["schedule"] if "schedules.create" in operations else []
        sources += DRIVEN if "triggers.list" in operations else ()
        found["roster"] = {"supported": True, "installScope": "tenant", "portfolioTriggerSources": sources}
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
