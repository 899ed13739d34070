"""The test seam of packs under `/v1/host/sample/`: the gate that every loaded pack passes (OpenWOP RFC 0076)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta
from starlette.responses import Response

from forestay.extensions import SANDBOX, check_requirements, required
from forestay.host import Host
from forestay.kernel import Problem
from forestay.surface.operations import Body, Call, Operations, Result

api = Operations[Host](tag="seams", scopes=("runs:create",))


class InstallRequest(Body, frozen=True):
    """`grantSet` stands in for what the host grants; without `gating` the requirements are told and not looked at."""

    manifest: dict[str, Any]
    grant_set: Annotated[list[Annotated[str, Meta(max_length=64)]], Meta(max_length=64)] | None = None
    gating: bool = True


class Installed(Result, frozen=True):
    outcome: Literal["installed"]
    requires_projected: list[str]


class Unmet(Result, frozen=True):
    """The one refusal that is not the contract's envelope."""

    error: str
    unmet: list[str]
    manifest: str
    advice: str


@api.post(
    "/v1/host/sample/packs/install-gate",
    "seams.install-gate",
    {200: Installed, 400: dict[str, Any]},
    problems=("pack_manifest_invalid",),
)
async def install(host: Host, call: Call, body: InstallRequest) -> Response:
    """Ask the gate about a manifest; nothing is installed."""
    granted = SANDBOX if body.grant_set is None else body.grant_set
    try:
        found = check_requirements(body.manifest, granted) if body.gating else required(body.manifest)
    except Problem as problem:
        if problem.key != "pack_runtime_requirement_unmet":
            raise
        told = Unmet(
            error=problem.row.openwop,
            unmet=problem.details["unmet"],
            manifest=problem.details["manifest"],
            advice=problem.row.remedy,
        )
        return call.plain(told, status=400)
    return call.answer(Installed(outcome="installed", requires_projected=found))
