"""Explains the host's policies: may this subject do this, and which rule decides?

X1  The answer is the decision that the host would take now: the same rules, through the same functions.
X2  The question changes nothing, executes nothing and records nothing.
"""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

from forestay.extensions import CAPABILITIES, explained
from forestay.host.egress import EGRESS, SUBJECT
from forestay.host.opening import Host
from forestay.host.tools import WORKFLOW
from forestay.kernel import OPERATOR, Decision, Problem, Request, place_of
from forestay.relay import OPERATIONS, ROLES, role_decision
from forestay.tools import EffectClass, Tool, gated

Kind = Literal["extension", "tool", "relay", "egress", "api"]
RELAY, TOOL = "relay.", "tool."


class Explained(msgspec.Struct, frozen=True):
    """A decision, and the kind of policy that took it."""

    kind: Kind
    decision: Decision


async def explain(host: Host, request: Request) -> Explained:
    """Return what the host would decide about `request`; the capability selects the policy."""
    capability = request.capability
    if capability == EGRESS:
        return Explained("egress", _egress(host, request))
    if capability.startswith(RELAY):
        return Explained("relay", await _relay(host, request))
    if capability.startswith(TOOL) or (capability == "tool" and await _is_caller(host, request.subject)):
        return Explained("tool", await _tool(host, request))
    if capability in CAPABILITIES:
        return Explained("extension", await explained(host.extensions, request))
    raise Problem(
        "invalid_request",
        f"There is no capability {capability[:80]!r}.",
        at="$.capability",
        known=[*sorted(CAPABILITIES), EGRESS, *(f"{RELAY}{name}" for name in OPERATIONS), "tool.CLASS", "an API scope"],
        fix="Use one of `known`.",
    )


def _egress(host: Host, request: Request) -> Decision:
    if request.subject != SUBJECT:
        raise Problem("invalid_request", f"Only the host calls out: the subject is {SUBJECT!r}.", at="$.subject")
    on = _needed(request)
    ruling = host.egress.decide(place_of(on if "://" in on else f"https://{on}", "$.on"), https_only=False)
    return ruling.decision


async def _relay(host: Host, request: Request) -> Decision:
    operation = request.capability.removeprefix(RELAY)
    if operation not in OPERATIONS:
        raise Problem("invalid_request", f"The relay has no operation {operation[:80]!r}.", known=sorted(OPERATIONS))
    if request.subject in ROLES:
        return role_decision(request.subject, operation)
    rows = await host.relay.ledger.query("SELECT role FROM relay_sessions WHERE id = ?", (request.subject,))
    if not rows:
        known = list(ROLES)
        raise Problem(
            "not_found", f"There is no role or session {request.subject[:80]!r}.", at="$.subject", known=known
        )
    return role_decision(str(rows[0][0]), operation)


async def _tool(host: Host, request: Request) -> Decision:
    """Return the decision of the tool gate. Without an effect class in the request, the known tool's own counts."""
    name, effect = _needed(request), request.capability.removeprefix("tool").removeprefix(".")
    if not await _is_caller(host, request.subject):
        known = [WORKFLOW, *(agent.agent_id for agent in await host.directory.listed(OPERATOR))]
        raise Problem("not_found", f"There is no agent {request.subject[:80]}.", at="$.subject", known=known)
    if effect and effect not in get_args(EffectClass):
        raise Problem("invalid_request", f"{effect[:40]!r} is no effect class.", known=list(get_args(EffectClass)))
    found = await host.tools.describe(name)
    if found is None and not effect:
        raise Problem(
            "not_found",
            f"There is no tool {name[:80]}; an extension that is not loaded may have it.",
            at="$.on",
            fix="Load the extensions, or name the tool's effect class: tool.read, tool.write, tool.unsafe.",
        )
    tool = found or Tool(name.rpartition("/")[2].rpartition(":")[2], "", {}, id=name if ":" in name else "")
    if effect:
        tool = msgspec.convert({**msgspec.to_builtins(tool), "effect": effect}, Tool)
    if not await _allows(host, request.subject, tool):
        evidence = {"subject": request.subject, "capability": f"{TOOL}{tool.effect}", "method": tool.name}
        reason = f"The allowlist of {request.subject} does not name {tool.id or tool.name}: the model never sees it."
        return Decision("deny", "agent-allowlist", reason, evidence)
    return gated(host.config.agents, host.clock, request.subject, tool)


async def _is_caller(host: Host, subject: str) -> bool:
    agents = await host.directory.listed(OPERATOR)  # only the operator has tools
    return subject == WORKFLOW or any(agent.agent_id == subject for agent in agents)


async def _allows(host: Host, subject: str, tool: Tool) -> bool:
    if subject == WORKFLOW:
        return True
    return (await host.directory.get(OPERATOR, subject)).allows(tool.id or tool.name, tool.name)


def _needed(request: Request) -> str:
    if not request.resource:
        raise Problem("invalid_usage", f"{request.capability} needs a resource.", at="$.on", fix="Give --on.")
    return request.resource
