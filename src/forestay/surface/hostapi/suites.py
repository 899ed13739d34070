"""`/host/v1/eval-suites`: the suites that a tenant evaluates its agents with (OpenWOP RFC 0081 §A)."""

from __future__ import annotations

from forestay.governance import EvalSuite
from forestay.host import Host
from forestay.surface.operations import Call, Operations, View

_BAD = ("schema_mismatch", "out_of_range", "state_conflict", "capability_not_provided")
api = Operations[Host](scopes=("manifest:write",), contract="lafs", tag="evaluations")


class SuiteView(View, frozen=True):
    ref: str
    tasks: int


@api.post("/host/v1/eval-suites", "eval-suites.put", {201: SuiteView}, body_limit=4 * 1024 * 1024, problems=_BAD)
async def put(host: Host, call: Call, body: EvalSuite) -> SuiteView:
    """Keep a suite; a version that is there stays as it is."""
    suite = await host.evaluations.put(call.tenant, body)
    return SuiteView(ref=suite.ref, tasks=len(suite.tasks))


@api.get("/host/v1/eval-suites/{name}", "eval-suites.get", EvalSuite, scopes=("manifest:read",))
async def get(host: Host, call: Call) -> EvalSuite:
    """A suite by `suiteId@version`."""
    return await host.evaluations.suite(call.tenant, call.path["name"])
