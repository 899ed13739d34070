"""The test seams of calls out under `/v1/host/sample/`: each is a run whose node sends a request to a real socket
(OpenWOP RFC 0047, 0076 §B, 0079)."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

from msgspec import Meta, field

from forestay.governance import Credential, Secret, read_return
from forestay.host import SAMPLE_PROVIDER, Host, SampleNetwork, SampleTokens
from forestay.kernel import AUDIT, Problem, canonical, place_of
from forestay.runs import HTTP_METHODS, CreateRun, RunEvent
from forestay.surface.openwop.governance_seams import STEP
from forestay.surface.operations import Body, Call, Operations, Result

_PATH = "/v1/host/sample"
_ELSEWHERE = "api.sample.invalid"
_CANARY = "sample-canary-4f1d0c7b2a9e"
Url = Annotated[str, Meta(min_length=1, max_length=2048)]
Text = Annotated[str, Meta(max_length=4096)]
Name = Annotated[str, Meta(min_length=1, max_length=256)]
Secretive = Annotated[str, Meta(min_length=8, max_length=1024, pattern="^[!-~]+$")]
api = Operations[Host](tag="seams", scopes=("runs:create",))


class FetchInit(Body, frozen=True):
    method: Annotated[str, Meta(extra_json_schema={"enum": list(HTTP_METHODS)})] = "GET"
    headers: dict[Annotated[str, Meta(min_length=1, max_length=256)], Text] = field(default_factory=dict)
    body: Text | None = None


class SafeFetch(Body, frozen=True):
    url: Url
    init: FetchInit = FetchInit()
    simulate_rebind_to: Annotated[str, Meta(max_length=64)] | None = None


class SafeFetched(Result, frozen=True):
    run_id: str
    outcome: Literal["fetched", "blocked", "failed"]
    status: int | None = None
    blocked: Literal["ssrf", "upgrade"] | None = None
    tool_called: RunEvent | None = None
    tool_returned: RunEvent | None = None


class FetchRun(Body, frozen=True):
    url: Url


class EgressScenario(Body, frozen=True):
    scenario: Literal["in-audience", "out-of-audience", "provenance-unevaluable", "canary"]


class EgressDecided(Result, frozen=True):
    run_id: str
    decision: str
    destination: str
    credential_attached: bool
    canary_leaked: bool
    reason: str | None = None


class CodeRoundtrip(Body, frozen=True):
    """What a person's browser would bring back, and the tokens that the code is good for. The token endpoint is one on
    this machine, whatever the addresses say."""

    provider: Literal["synthetic"]
    auth_url: Url
    token_url: Url
    scopes: Annotated[list[Name], Meta(max_length=64)]
    authorization_code: Secretive
    state: Secretive
    redirect_uri: Url
    code_verifier: Secretive
    access_token_canary: Secretive
    refresh_token_canary: Secretive


class CodeExchanged(Result, frozen=True):
    run_id: str
    credential_ref: str
    events: list[RunEvent]


@api.post(f"{_PATH}/http/safe-fetch", "seams.safe-fetch", SafeFetched, problems=("schema_mismatch", "workflow_invalid"))
async def safe_fetch(host: Host, call: Call, body: SafeFetch) -> SafeFetched:
    """Send a request from a node; `simulateRebindTo` is what the name means when it is looked up."""
    place = place_of(body.url)
    moved = body.simulate_rebind_to
    config: dict[str, Any] = {"method": body.init.method, "headers": body.init.headers, "failOn": []}
    if body.init.body is not None:
        config["body"] = body.init.body
    with nullcontext() if moved is None else _network(host).meaning(place.host, moved):
        run_id, events = await _sent(host, call, body.url, config)
    told = {event.type: event for event in events}
    returned = told["agent.toolReturned"]
    return SafeFetched(
        run_id=run_id,
        **_outcome(told),
        tool_called=told["agent.toolCalled"],
        tool_returned=returned,
    )


@api.post(f"{_PATH}/http/safe-fetch-run", "seams.safe-fetch-run", SafeFetched, problems=("schema_mismatch",))
async def safe_fetch_run(host: Host, call: Call, body: FetchRun) -> SafeFetched:
    """Send a request from a node; its log tells of the call."""
    place_of(body.url)
    run_id, events = await _sent(host, call, body.url, {"failOn": []})
    return SafeFetched(run_id=run_id, **_outcome({event.type: event for event in events}))


@api.post(f"{_PATH}/egress/decide", "seams.egress", EgressDecided)
async def decide(host: Host, call: Call, body: EgressScenario) -> EgressDecided:
    """Send a request with a credential that is meant for its receiver, for another host, or for nobody."""
    network = _network(host)
    path = f"/{body.scenario}/{call.tenant}/{host.ids.new()}"
    name = f"sample-{body.scenario}"
    if body.scenario != "provenance-unevaluable":
        audience = _ELSEWHERE if body.scenario == "out-of-audience" else network.place
        about = Credential(credential_id=name, audiences=(audience,))
        await host.credentials.put(call.tenant, about, Secret(_CANARY))
    url = f"http://{network.place}{path}?secret={_CANARY if body.scenario == 'canary' else ''}"
    run_id, events = await _sent(host, call, url, {"credential": name, "failOn": []})
    decided = next(event.payload for event in events if event.type == "egress.decided")
    head = next((head for target, head in network.heads.items() if target.startswith(path)), "")
    network.heads.clear()
    audited = [record.payload for record in await host.ledger.read(AUDIT) if record.payload.get("runId") == run_id]
    told = canonical.encode([[event.payload for event in events], audited])
    return EgressDecided(
        run_id=run_id,
        decision=decided["decision"],
        destination=decided["destination"],
        reason=decided.get("reason"),
        credential_attached=f"Bearer {_CANARY}" in head,
        canary_leaked=_CANARY.encode() in told,
    )


@api.post(
    f"{_PATH}/oauth/authorize-code-roundtrip",
    "seams.oauth",
    CodeExchanged,
    problems=("schema_mismatch", "state_conflict"),
)
async def code_roundtrip(host: Host, call: Call, body: CodeRoundtrip) -> CodeExchanged:
    """Begin a sign-in, come back with a code, and keep the tokens that it is good for."""
    network = _network(host)
    network.codes[body.authorization_code] = SampleTokens(
        body.code_verifier,
        body.redirect_uri,
        body.access_token_canary,
        body.refresh_token_canary,
        " ".join(body.scopes),
    )
    about = Credential(
        credential_id="sample-oauth", issuer=SAMPLE_PROVIDER, audiences=(network.place,), scopes=tuple(body.scopes)
    )
    await host.authorizations.begin(
        call.tenant,
        about,
        body.redirect_uri,
        principal=call.caller.principal,
        state=body.state,
        verifier=body.code_verifier,
    )
    query = urlencode({"state": body.state, "code": body.authorization_code})
    found, made = await host.authorizations.finish(read_return(query), call.tenant)
    ended = await host.runs.wait(made.run_id, call.tenant)
    if ended.status != "completed":
        raise Problem("state_conflict", "No token was kept.", runId=made.run_id)
    events = await host.runs.events(made.run_id, call.tenant)
    told = [event for event in events if event.type.startswith("connector.")]
    return CodeExchanged(run_id=made.run_id, credential_ref=found.about.credential_id, events=told)


async def _sent(host: Host, call: Call, url: str, config: dict[str, Any]) -> tuple[str, list[RunEvent]]:
    """Run one node that sends a request; return the run and its events."""
    config = {"url": url, **config}
    node = {**STEP["nodes"][0], "id": "fetch", "typeId": "core.http", "config": config}
    name = canonical.digest(config).removeprefix("sha256:")[:16]
    document = {**STEP, "id": f"sample-fetch-{name}", "name": "Fetch", "nodes": [node]}
    await host.runs.put_workflow(document, tenant=call.tenant)
    made = await host.runs.create_run(CreateRun(workflow_id=document["id"]), call.tenant, call.caller.principal)
    await host.runs.wait(made.run_id, call.tenant)
    return made.run_id, await host.runs.events(made.run_id, call.tenant)


def _outcome(told: dict[str, RunEvent]) -> dict[str, Any]:
    ended = told.get("node.completed")
    if ended is not None:
        return {"outcome": "fetched", "status": ended.payload["outputs"]["status"]}
    why = told["node.failed"].payload["error"].get("details", {}).get("reason")
    return {"outcome": "blocked", "blocked": why} if why in ("ssrf", "upgrade") else {"outcome": "failed"}


def _network(host: Host) -> SampleNetwork:
    if host.sample_network is None:
        raise Problem("capability_not_provided", "This host has no test network.", capability="seams")
    return host.sample_network
