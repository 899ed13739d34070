"""Scenarios of what leaves or enters the host: calls out, credentials, OAuth, packs (RFC 0047, 0066, 0076, 0079)."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from forestay.conformance.documents import node, workflow
from forestay.conformance.scenario import NotApplicable, expect, has, same, scenario
from forestay.conformance.target import Target, answered, refused

_METADATA = "http://169.254.169.254/latest/meta-data/"
_INSIDE = ("http://127.0.0.1:1/", "http://10.0.0.1/", "http://[::1]/", "http://192.168.0.1/", _METADATA)
_SAFE = "httpClient.safeFetch.supported"
_REASONS = {
    "ok", "out-of-audience", "expired", "ssrf-blocked", "provenance-unevaluable", "scope-denied", "policy-denied",
}  # fmt: skip

_PACK = {"name": "vendor.kit.pack", "version": "1.0.0"}
_NODE = {"typeId": "vendor.kit.node", "version": "1.0.0", "category": "data", "role": "pure"}


def _hinted(kind: str, **more: str) -> dict[str, Any]:
    """Return the schema of a string with a hint for a front end that draws a form (RFC 0066)."""
    return {"type": "string", "x-openwop-form": {"kind": kind, **more}}


_ANNOTATED = {
    "type": "object",
    "properties": {
        "provider": _hinted("provider-picker"),
        "model": _hinted("model-picker", dependsOn="provider"),
        "credential": _hinted("credential-picker", dependsOn="provider"),
        "prompt": _hinted("prompt-picker", promptKind="system"),
        "later": _hinted("a-kind-that-nobody-knows-yet"),
        "temperature": {"type": "number", "minimum": 0, "maximum": 2},
    },
    "additionalProperties": False,
}


@scenario("http-client-ssrf", "egress", needs="httpClient.supported")
def guarded(target: Target) -> None:
    """A host that calls out says that it guards against its own network, and how much it takes."""
    same(target.flag("httpClient.ssrfGuard"), True, "httpClient.ssrfGuard")
    expect((target.flag("httpClient.maxResponseBodyBytes") or 0) > 0, "maxResponseBodyBytes is not above 0")


@scenario("safefetch-behavior", "egress", "agent-platform", needs=_SAFE)
def safe_fetch(target: Target) -> None:
    """Addresses inside, a name that moves inside, and an upgrade are blocked."""
    for url in _INSIDE:
        found = target.seam("http/safe-fetch", {"url": url})
        same((found["outcome"], found["blocked"]), ("blocked", "ssrf"), f"a call to {url}")
    moved = target.seam("http/safe-fetch", {"url": "https://example.com/", "simulateRebindTo": "127.0.0.1"})
    same((moved["outcome"], moved["blocked"]), ("blocked", "ssrf"), "a name that moves inside")
    upgrade = {"url": "https://example.com/", "init": {"headers": {"Connection": "upgrade"}}}
    found = target.seam("http/safe-fetch", upgrade)
    same((found["outcome"], found["blocked"]), ("blocked", "upgrade"), "an upgrade")


@scenario("safefetch-live-audit", "egress", "agent-platform", needs=_SAFE)
def audited(target: Target) -> None:
    """Every call out is told as a pair, blocked ones too."""
    made = target.seam("http/safe-fetch-run", {"url": _METADATA})
    same(made["outcome"], "blocked", "the outcome")
    called, returned = target.told(made["runId"], "agent.toolCalled", "agent.toolReturned")
    same(called["payload"]["transport"], "http", "the transport")
    same(returned["payload"]["callId"], called["payload"]["callId"], "the call's id")
    same(returned.get("causationId"), called["eventId"], "the cause of the return")


@scenario("egress-provenance-shape", "egress", "agent-platform-full", needs="httpClient.egressPolicy.supported")
def egress_shape(target: Target) -> None:
    """What discovery says of egress is what the contract lets it say."""
    decisions = set(target.flag("httpClient.egressPolicy.decisions") or ())
    expect(decisions <= {"allowed", "denied", "downgraded", "approval-required"}, f"the decisions are {decisions}")
    expect(target.flag(_SAFE), "an egress policy without safeFetch")


@scenario("egress-audience-binding", "egress", "agent-platform-full", needs="httpClient.egressPolicy.supported")
def audience(target: Target) -> None:
    """A credential goes nowhere but to its audiences."""
    inside = target.seam("egress/decide", {"scenario": "in-audience"})
    same((inside["decision"], inside["credentialAttached"]), ("allowed", True), "a call inside the audience")
    for wanted in ("out-of-audience", "provenance-unevaluable"):
        found = target.seam("egress/decide", {"scenario": wanted})
        expect(found["decision"] in ("denied", "downgraded"), f"{wanted} is {found['decision']}")
        same((found["credentialAttached"], found["reason"]), (False, wanted), wanted)


@scenario("egress-decision-content-free", "egress", "agent-platform-full", needs="httpClient.egressPolicy.supported")
def content_free(target: Target) -> None:
    """A decision names a host and a reason, and never what a credential says."""
    found = target.seam("egress/decide", {"scenario": "canary"})
    expect(found["reason"] in _REASONS, f"the reason is {found['reason']}")
    expect("/" not in found["destination"], "the destination is more than a host")
    same(found["canaryLeaked"], False, "canaryLeaked")


@scenario("oauth-authorization-code-roundtrip", "oauth", needs="oauth.supported")
def oauth(target: Target) -> None:
    """A code becomes a credential by reference; no secret is in the answer or in an event."""
    secrets = {name: f"{name}-{uuid4().hex}" for name in ("authorizationCode", "state", "codeVerifier")}
    canaries = {name: f"{name}-{uuid4().hex}" for name in ("accessTokenCanary", "refreshTokenCanary")}
    request: dict[str, Any] = {
        "provider": "synthetic",
        "authUrl": "https://auth.example.com/authorize",
        "tokenUrl": "https://auth.example.com/token",
        "scopes": ["read"],
        "redirectUri": "https://host.example.com/callback",
        **secrets,
        **canaries,
    }
    found = target.seam("oauth/authorize-code-roundtrip", request)
    expect(isinstance(found.get("credentialRef"), str), "there is no credentialRef")
    told = str(found) + (str(target.events(found["runId"])) if "runId" in found else "")
    for name, value in {**secrets, **canaries}.items():
        expect(value not in told, f"{name} is told")


@scenario("runtime-requires-install-gate", "packs")
def install_gate(target: Target) -> None:
    """A pack that requires what is not granted is not installed, and the answer says what is missing."""
    manifest = {**_PACK, "runtime": {"requires": ["net.outbound", "fs.read"]}}
    granted = {"manifest": manifest, "grantSet": ["net.outbound", "fs.read"], "gating": True}
    same(target.seam("packs/install-gate", granted)["outcome"], "installed", "a pack with all that it requires")
    short = {**granted, "grantSet": ["net.outbound"]}
    body = answered(target.post("/v1/host/sample/packs/install-gate", short), 400)
    same(body["error"], "pack_runtime_requirement_unmet", "the error")
    unmet = body.get("unmet") or body.get("details", {}).get("unmet")
    same(unmet, ["fs.read"], "what is unmet")


@scenario("runtime-requires-shape", "packs")
def requires_shape(target: Target) -> None:
    """What a manifest may require is a closed list."""
    target.seam("packs/install-gate", {"manifest": {**_PACK, "runtime": {"requires": []}}, "gating": True})
    manifest = {**_PACK, "runtime": {"requires": ["telepathy"]}}
    answer = target.post("/v1/host/sample/packs/install-gate", {"manifest": manifest, "gating": True})
    has(answered(answer, 400), {"error"}, "the refusal")


@scenario("x-openwop-form-pack-manifest", "packs")
def forms(target: Target) -> None:
    """A schema with form annotations is a schema: they stay as they are, and change nothing of what it takes."""
    document = workflow("kit-form-annotations", node("start", "core.noop"), configurableSchema=_ANNOTATED)
    path = f"/v1/workflows/{document['id']}"
    stored = target.ask("PUT", path, json=document)
    if stored.status_code in (404, 405):
        raise NotApplicable("the host takes no workflow, and so no schema")
    expect(stored.status_code in (200, 201), f"PUT {path} answers {stored.status_code}: {stored.text[:200]}")
    same(target.read(path)["configurableSchema"], _ANNOTATED, "the schema that the host keeps")
    for taken in ({"provider": "p", "temperature": 1}, {"model": "any", "later": "any"}):
        body = {"workflowId": document["id"], "inputs": {}, "configurable": taken}
        target.wait(target.start_with(body), "completed")
    refusals: list[dict[str, Any]] = [{"provider": 1}, {"temperature": 3}, {"later": []}, {"unknown": "x"}]
    for wrong in refusals:
        refused(target.post("/v1/runs", {"workflowId": document["id"], "inputs": {}, "configurable": wrong}), 400, 422)
    manifest = {**_PACK, "nodes": [{**_NODE, "configSchemaRef": "schemas/config.json"}]}
    same(target.seam("packs/install-gate", {"manifest": manifest})["outcome"], "installed", "a pack with such a schema")
