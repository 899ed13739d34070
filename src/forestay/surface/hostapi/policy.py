"""`/host/v1/policy/decision`: what the host would decide now, and by which rule."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from forestay.host import Explained, explain
from forestay.kernel import Request
from forestay.surface.auth import HOST_SCOPE, SCOPES
from forestay.surface.operations import Call, Operations, Query, View
from forestay.surface.services import Services

Name = Annotated[str, Meta(min_length=1, max_length=256)]
api = Operations[Services](scopes=("audit:read",), operator=True, contract="lafs", tag="policy")


class DecisionQuery(Query, frozen=True):
    """`on` is what the capability is used on: a path, a host, a variable, a tool, a tenant."""

    subject: Name
    capability: Name
    on: Annotated[str, Meta(min_length=1, max_length=4096)] | None = None
    method: Annotated[str, Meta(max_length=40)] = ""


class DecisionView(View, frozen=True):
    """A decision; `kind` names the policy that took it."""

    kind: str
    effect: str
    rule: str
    reason: str
    evidence: dict[str, Any]


@api.get(
    "/host/v1/policy/decision",
    "policy.explain",
    DecisionView,
    problems=("invalid_request", "invalid_usage", "not_found", "unauthenticated", "key_revoked", "key_expired"),
)
async def decision(services: Services, call: Call, query: DecisionQuery) -> DecisionView:
    """What the host would decide about a subject, a capability and a resource; nothing is done or recorded."""
    if query.capability in (*SCOPES, HOST_SCOPE):
        found = Explained("api", services.keys.caller(query.subject).decide(query.capability, query.on))
    else:
        found = await explain(services.host, Request(query.subject, query.capability, query.method, query.on))
    said = found.decision
    return DecisionView(kind=found.kind, effect=said.effect, rule=said.rule, reason=said.reason, evidence=said.evidence)
