"""`/host/v1/extensions`: registrations, permissions and calls; `/host/v1/prompts`: open questions to a person."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct, convert, to_builtins
from msgspec.structs import asdict

from forestay.extensions import Line, overview, portrait
from forestay.host import Host
from forestay.kernel import iso
from forestay.runs import Prompt, pending_prompts
from forestay.surface.operations import Call, Operations, Query, View

api = Operations[Host](scopes=("manifest:read",), operator=True, contract="lafs", tag="extensions")


class CardView(View, frozen=True):
    """One extension in the list."""

    name: str
    source: str
    state: str
    trust: str
    verdict: str
    resolution: str
    tools: int
    commands: int
    handlers: int
    calls: int
    refused: int
    problem: str


class ExtensionList(View, frozen=True):
    loaded: bool
    trust: str
    mode: str
    brings: list[str]
    extensions: list[CardView]


class CapabilityView(View, frozen=True):
    """A capability of one extension: declared, inferred from its code, decided, used."""

    capability: str
    meaning: str
    declared: bool
    inferred: bool
    places: list[str]
    rules: list[dict[str, Any]]
    allowed: int
    refused: int


class ExtensionView(View, frozen=True):
    card: CardView
    mode: str
    records: int
    capabilities: list[CapabilityView]
    registrations: dict[str, Any] | None
    artifact: dict[str, Any] | None


class EvidenceQuery(Query, frozen=True):
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


class CallView(View, frozen=True):
    """One host call as the evidence has it, or `count` of them that were the same: parameters are their hash."""

    id: str
    at: str
    capability: str
    method: str
    params_hash: str
    resource: str | None
    decision: str
    rule: str
    reason: str
    duration_ms: float | None
    outcome: str
    count: int


class EvidenceView(View, frozen=True):
    calls: list[CallView]
    troubles: list[dict[str, Any]]


class PromptView(View, frozen=True):
    """A question, and where its answer is sent."""

    run_id: str
    workflow_id: str
    node_id: str
    kind: str
    text: str
    data: Any
    expires_at: str
    answer_at: str
    due_at: str | None = None


class PromptList(View, frozen=True):
    """Open questions, oldest first; `more` runs wait that are not among them."""

    prompts: list[PromptView]
    more: int = 0


def _capability(line: Line) -> CapabilityView:
    return CapabilityView(
        capability=line.capability,
        meaning=line.meaning,
        declared=line.declared,
        inferred=line.is_inferred,
        places=list(line.inferred),
        rules=[to_builtins(rule) for rule in line.rules],
        allowed=line.use.allowed,
        refused=line.use.refused,
    )


@api.get("/host/v1/extensions", "extensions.list", ExtensionList)
async def list_extensions(host: Host, call: Call) -> ExtensionList:
    """The project's extensions, and those that left evidence."""
    found = await overview(host.extensions)
    return ExtensionList(
        loaded=found.loaded,
        trust=found.trust,
        mode=found.mode,
        brings=list(found.brings),
        extensions=convert(found.cards, list[CardView], from_attributes=True),
    )


@api.get("/host/v1/extensions/{name}", "extensions.show", ExtensionView)
async def show(host: Host, call: Call) -> ExtensionView:
    """What an extension registered, declares, was found to need, was granted and used."""
    found = await portrait(host.extensions, call.path["name"])
    return ExtensionView(
        card=convert(found.card, CardView, from_attributes=True),
        mode=found.mode,
        records=found.records,
        capabilities=[_capability(line) for line in found.matrix if line.concerned],
        registrations=found.registrations,
        artifact=found.artifact,
    )


@api.get(
    "/host/v1/extensions/{name}/evidence",
    "extensions.evidence",
    EvidenceView,
    scopes=("audit:read",),
    problems=("out_of_range",),
)
async def evidence(host: Host, call: Call, query: EvidenceQuery) -> EvidenceView:
    """The host calls of an extension, latest first, and what went wrong in it."""
    seen = (await portrait(host.extensions, call.path["name"])).seen
    limit = query.limit
    calls = [_call(item) for item in seen.calls[:limit]]
    troubles = [{"at": iso(item.at), "kind": item.kind, "message": item.message} for item in seen.troubles]
    return EvidenceView(calls=calls, troubles=troubles[:limit])


@api.get("/host/v1/prompts", "prompts.list", PromptList, scopes=("approvals:respond",), operator=False)
async def prompts(host: Host, call: Call) -> PromptList:
    """What waits for a person: the open questions of the tenant's runs."""
    found = await pending_prompts(host.runs, call.tenant)
    return PromptList(prompts=[_prompt(item) for item in found.prompts], more=found.more)


def _call(seen: Struct) -> CallView:
    fields = {name: value for name, value in asdict(seen).items() if name in CallView.__struct_fields__}
    return CallView(**{**fields, "at": iso(fields["at"])})


def _prompt(found: Prompt) -> PromptView:
    asked = found.interrupt
    return PromptView(
        run_id=found.run_id,
        workflow_id=found.workflow_id,
        node_id=asked.node_id,
        kind=asked.kind,
        text=found.text,
        data=asked.data,
        expires_at=asked.expires_at,
        answer_at=f"/v1/runs/{found.run_id}/interrupts/{asked.node_id}",
        due_at=asked.due_at,
    )
