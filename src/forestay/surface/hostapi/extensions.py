"""`/host/v1/extensions`: what each registered, may do and did; `/host/v1/prompts`: what waits for a person."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.responses import Response

from forestay.extensions import Card, Line, overview, portrait
from forestay.host import Host
from forestay.kernel import iso
from forestay.runs import Prompt, pending_prompts
from forestay.surface.operations import Call, Operation, Query, Result


class CardView(Result, frozen=True, omit_defaults=False):
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


class ExtensionList(Result, frozen=True, omit_defaults=False):
    loaded: bool
    trust: str
    mode: str
    brings: list[str]
    extensions: list[CardView]


class CapabilityView(Result, frozen=True, omit_defaults=False):
    """A capability of one extension: declared, inferred from its code, decided, used."""

    capability: str
    meaning: str
    declared: bool
    inferred: bool
    places: list[str]
    rules: list[dict[str, Any]]
    allowed: int
    refused: int


class ExtensionView(Result, frozen=True, omit_defaults=False):
    card: CardView
    mode: str
    records: int
    capabilities: list[CapabilityView]
    registrations: dict[str, Any] | None
    artifact: dict[str, Any] | None


class EvidenceQuery(Query, frozen=True):
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


class CallView(Result, frozen=True, omit_defaults=False):
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


class EvidenceView(Result, frozen=True, omit_defaults=False):
    calls: list[CallView]
    troubles: list[dict[str, Any]]


class PromptView(Result, frozen=True, omit_defaults=False):
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


class PromptList(Result, frozen=True, omit_defaults=False):
    """Open questions, oldest first; `more` runs wait that are not among them."""

    prompts: list[PromptView]
    more: int = 0


def card(found: Card) -> CardView:
    fields = {name: getattr(found, name) for name in CardView.__struct_fields__}
    return CardView(**fields)


def capability(line: Line) -> CapabilityView:
    return CapabilityView(
        capability=line.capability,
        meaning=line.meaning,
        declared=line.declared,
        inferred=line.is_inferred,
        places=list(line.inferred),
        rules=[msgspec.to_builtins(rule) for rule in line.rules],
        allowed=line.use.allowed,
        refused=line.use.refused,
    )


def operations(host: Host) -> list[Operation]:
    async def list_(call: Call) -> Response:
        call.caller.require_operator()
        found = await overview(host.extensions)
        return call.answer(
            ExtensionList(
                loaded=found.loaded,
                trust=found.trust,
                mode=found.mode,
                brings=list(found.brings),
                extensions=[card(item) for item in found.cards],
            )
        )

    async def show(call: Call) -> Response:
        call.caller.require_operator()
        found = await portrait(host.extensions, call.path["name"])
        return call.answer(
            ExtensionView(
                card=card(found.card),
                mode=found.mode,
                records=found.records,
                capabilities=[capability(line) for line in found.matrix if line.concerned],
                registrations=found.registrations,
                artifact=found.artifact,
            )
        )

    async def evidence(call: Call) -> Response:
        call.caller.require_operator()
        seen = (await portrait(host.extensions, call.path["name"])).seen
        calls = [_call(item) for item in seen.calls[: call.query.limit]]
        troubles = [{"at": iso(item.at), "kind": item.kind, "message": item.message} for item in seen.troubles]
        return call.answer(EvidenceView(calls=calls, troubles=troubles[: call.query.limit]))

    async def waiting(call: Call) -> Response:
        found = await pending_prompts(host.runs, call.caller.tenant)
        return call.answer(PromptList(prompts=[_prompt(item) for item in found.prompts], more=found.more))

    common: dict[str, Any] = {"method": "GET", "contract": "lafs", "tag": "extensions"}
    return [
        Operation(
            name="extensions.list",
            path="/host/v1/extensions",
            perform=list_,
            summary="The project's extensions, and those that left evidence.",
            scopes=("manifest:read",),
            answers={200: ExtensionList},
            **common,
        ),
        Operation(
            name="extensions.show",
            path="/host/v1/extensions/{name}",
            perform=show,
            summary="What an extension registered, declares, was found to need, was granted and used.",
            scopes=("manifest:read",),
            answers={200: ExtensionView},
            problems=("not_found",),
            **common,
        ),
        Operation(
            name="extensions.evidence",
            path="/host/v1/extensions/{name}/evidence",
            perform=evidence,
            summary="The host calls of an extension, latest first, and what went wrong in it.",
            scopes=("audit:read",),
            query=EvidenceQuery,
            answers={200: EvidenceView},
            problems=("not_found", "out_of_range"),
            **common,
        ),
        Operation(
            name="prompts.list",
            path="/host/v1/prompts",
            perform=waiting,
            summary="What waits for a person: the open questions of the tenant's runs.",
            scopes=("approvals:respond",),
            answers={200: PromptList},
            **common,
        ),
    ]


def _call(seen: Any) -> CallView:
    fields = {name: getattr(seen, name) for name in CallView.__struct_fields__ if name != "at"}
    return CallView(at=iso(seen.at), **fields)


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
