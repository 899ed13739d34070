"""The OpenWOP surface: `/.well-known/openwop` and `/v1`."""

from forestay.host import Host
from forestay.surface.openapi import openapi
from forestay.surface.openwop import (
    agents,
    annotations,
    audit,
    deployment_seams,
    deployments,
    evaluation_seams,
    evaluations,
    events,
    governance_seams,
    interrupts,
    live_seams,
    memory_seams,
    meta,
    outward_seams,
    pack_seams,
    packs,
    prompts,
    runs,
    schedules,
    seams,
    tool_seams,
    tools,
    trigger_seams,
    triggers,
    webhooks,
    workflows,
)
from forestay.surface.operations import Operation
from forestay.surface.services import Services

__all__ = ["operations"]


def operations(services: Services, served: list[Operation]) -> list[Operation]:
    """Return the contract's operations; discovery and the OpenAPI document describe every operation in `served`."""
    host = services.host
    return [
        *meta.api.of(meta.Served(services, served)),
        openapi("openapi", "/v1/openapi.json", lambda: [item for item in served if item.contract in _DESCRIBED]),
        *workflows.api.of(host),
        *runs.api.of(host),
        *annotations.api.of(host),
        *events.api.of(services),
        *interrupts.api.of(host),
        *interrupts.by_token.of(host),
        *webhooks.api.of(host),
        *schedules.api.of(host),
        *agents.api.of(host),
        *packs.api.of(host),
        *tools.api.of(host),
        *prompts.api.of(host),
        *evaluations.api.of(host),
        *deployments.api.of(host),
        *triggers.api.of(host),
        *audit.api.of(host),
        *(_seams(host) if services.sample_seams else ()),
    ]


def _seams(host: Host) -> list[Operation]:
    families = (
        seams,
        governance_seams,
        deployment_seams,
        evaluation_seams,
        trigger_seams,
        live_seams,
        memory_seams,
        outward_seams,
        tool_seams,
        pack_seams,
    )
    return [operation for family in families for operation in family.api.of(host)]


_DESCRIBED = ("openwop", "lafs")  # other contracts have their own document, or none
